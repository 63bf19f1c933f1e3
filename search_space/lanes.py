"""How the threads of a CUDA block share the loops of a stage, once tiles are known."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..graphs.subgraph import Subgraph
from .draft import Context, GroupDraft, StageDraft
from .staging import moving, storage_order, touched
from .target import WARP

ACCESS_BYTES = 16
"""Widest access of a thread."""

LEAST_RUN = 8
"""Threads that should be neighbours in memory at least: four bytes each fill a sector."""


def ceil_power(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << max(0, number - 1).bit_length()


def folded_axes(context: Context, group: GroupDraft) -> frozenset[int]:
    """Axes over which some stage of the group reduces: threads along them are folded."""
    return frozenset(a for s in group.stages for m in s.members for a in context.sub.values[m].reduce)


def sequence(context: Context, group: GroupDraft, stage: StageDraft) -> list[int]:
    """The axes of a stage from the one whose neighbours are neighbours in memory outward."""
    stored = storage_order(context, group, stage.members[0]) if stage.members else stage.order
    rest = [a for a in reversed(stored) if a in stage.order]
    rest.extend(a for a in reversed(stage.order) if a not in rest)
    return [stage.vector, *(a for a in rest if a != stage.vector)] if stage.vector >= 0 else rest


def widths(context: Context, group: GroupDraft) -> dict[int, int]:
    """Neighbouring elements that a thread takes along each vector axis: 16 bytes of the widest common type."""
    found: dict[int, int] = {}
    for stage in group.stages:
        if stage.vector >= 0:
            width = max(1, _width(context, group, stage) // group.narrow)
            found[stage.vector] = min(width, found.get(stage.vector, width))
    return found


def _width(context: Context, group: GroupDraft, stage: StageDraft) -> int:
    axis = stage.vector
    tensors = [t for m in stage.members for t in touched(context, group, m)]
    along = [(indices, size) for indices, _, size, _ in tensors if indices and axis in moving(indices[-1])]
    if not along:
        return 1
    extent = max(1, context.sub.extents[axis])
    width = min(max(1, ACCESS_BYTES // max(size for _, size in along)), ceil_power(extent))
    # Rows that are no multiple of a pack start anywhere: no pack of theirs is aligned.
    while any(len(indices) > 1 for indices, _ in along) and extent % width:
        width //= 2
    return width


def share(context: Context, group: GroupDraft, axis_widths: dict[int, int], serial: Sequence[int]) -> None:
    """Sets width and lanes of every stage of a group with tiles; `serial`: the axes of its rows."""
    folding = folded_axes(context, group)
    for stage in group.stages:
        axes = sequence(context, group, stage)
        stage.width = axis_widths.get(stage.vector, 1)
        if not folding:
            stage.lanes = pack_lanes(context.sub, group, stage, axes)
            continue
        folds = {a for m in stage.members for a in context.sub.values[m].reduce}
        lanes = _powers(group, axes, _steps(context.sub, group, stage, axes), folds, serial)
        stage.lanes = tuple((a, lanes[a]) for a in reversed(axes) if lanes[a] > 1)


def _steps(sub: Subgraph, group: GroupDraft, stage: StageDraft, axes: list[int]) -> dict[int, int]:
    """Strips that a task has along each axis."""
    return {a: -(-group.trip(sub, a) // (stage.width if a == stage.vector else 1)) for a in axes}


def widest_access(sub: Subgraph, axes: Sequence[int], size: int) -> int:
    """Neighbouring elements of `size` bytes that a thread may take at once from a tensor stored along `axes`."""
    extent = max(1, sub.extents[axes[-1]])
    width = min(max(1, ACCESS_BYTES // size), ceil_power(extent))
    while len(axes) > 1 and extent % width:
        width //= 2
    return width


def best_run(threads: int, steps: int) -> int:
    """Threads along the innermost axis of `steps`, so that few idle when outer axes get the rest of them."""
    return _best(threads, steps, threads)


def _busy(lanes: int, steps: int, outer: int, threads: int) -> float:
    """About which share of `threads` has work: an axis of `steps` gets `lanes`, `outer` positions the rest."""
    if lanes < min(steps, LEAST_RUN):
        return 0.0
    return round(lanes * min(outer, threads // lanes) / threads * steps / (-(-steps // lanes) * lanes), 2)


def pack_lanes(sub: Subgraph, group: GroupDraft, stage: StageDraft, axes: list[int]) -> tuple[tuple[int, int], ...]:
    """Lanes where nothing is folded: any number of threads along an axis, as few idle as possible.

    `axes`: those of the stage, from the one that lies in memory outward.
    """
    steps = _steps(sub, group, stage, axes)
    left = group.threads
    found: list[tuple[int, int]] = []
    for number, axis in enumerate(axes):
        outer = math.prod(steps[a] for a in axes[number + 1 :])
        count = _best(left, steps[axis], outer)
        left //= count
        if count > 1:
            found.append((axis, count))
    return tuple(reversed(found))


def _best(threads: int, steps: int, outer: int) -> int:
    return max(range(1, min(threads, steps) + 1), key=lambda n: (_busy(n, steps, outer, threads), n))


def _powers(
    group: GroupDraft,
    axes: list[int],
    steps: dict[int, int],
    folds: set[int],
    serial: Sequence[int],
) -> dict[int, int]:
    """Something is folded in the group: powers of two, alike in all stages, the whole block where one folds."""
    lanes = dict.fromkeys(axes, 1)
    left, shared = group.threads, group.row
    columns = bool(folds) and axes[0] not in folds
    for number, axis in enumerate(axes):
        most = left
        if columns:
            # A line of neighbours, and what is left of the block along the reduced axes.
            most = min(left, WARP) if number == 0 else left if axis in folds else 1
        elif axis in serial:
            most = min(left, shared)
        lanes[axis] = min(most, ceil_power(steps[axis]))
        left //= lanes[axis]
        if axis in serial and not columns:
            shared //= lanes[axis]
    for axis in axes:
        more = min(left, ceil_power(-(-steps[axis] // lanes[axis])))
        lanes[axis] *= more
        left //= more
    if folds and left > 1:
        spare = next((a for a in reversed(axes) if a not in folds), axes[-1])
        lanes[spare] *= left
    return lanes
