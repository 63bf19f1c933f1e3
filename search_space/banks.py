"""Layouts of block buffers that one stage fills along one axis and another reads along another, free of bank conflicts.

Shared memory serves 32 words in a wavefront, one from each bank. The layouts tried have either stage's axis innermost
and rows padded by up to a bank's turn; the one with the fewest wavefronts for both stages is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..graphs.subgraph import Subgraph
from .draft import Context, GroupDraft, StageDraft
from .plan import Edge
from .residency import Sites
from .shared_memory import group_bytes, kept_size

BANKS = 32

PACK = 0.75
"""Cost of an element in a pack against one by itself: as many wavefronts, fewer instructions."""

Layout = tuple[tuple[int, ...], int]
"""Axes outer to inner, and by how many elements a row is padded."""


def lay_out(context: Context, group: GroupDraft, reads: Sites, edges: tuple[Edge, ...]) -> None:
    """Sets `group.layouts` of values that stages of the group pass on through block memory across the grain."""
    elsewhere = {e.value for e in edges if e.place in ("global", "alias")}
    for number, stage in enumerate(group.stages):
        for value in stage.members:
            consumers = [e.consumer for e in edges if e.value == value and e.place == "block"]
            if not consumers or value in elsewhere or value in group.partial:
                continue
            roots = {a.root for c in consumers for a in reads[value, c]}
            readers = [s for s in group.stages[number + 1 :] if roots & set(s.members)]
            best = best_layout(context.sub, group, value, context.sub.values[value].axes, [stage, *readers])
            if best != (context.sub.values[value].axes, 0):
                group.layouts[value] = best
                if sum(group_bytes(context.sub, group, edges).values()) > context.target.block_bytes:
                    del group.layouts[value]


def best_layout(
    sub: Subgraph, group: GroupDraft, value: int, axes: tuple[int, ...], stages: list[StageDraft]
) -> Layout:
    """The layout of a value over `axes` with the fewest wavefronts in `stages`: as it is, where all go one way."""
    ways = [way for s in stages if (way := _fast(s, axes)) >= 0]
    if len(set(ways)) < 2:
        return axes, 0
    choices = [(axes, 0), *_choices(axes, dict.fromkeys(ways))]
    return min(choices, key=lambda c: (sum(_wavefronts(sub, group, value, s, c) for s in stages), c[1]))


def _fast(stage: StageDraft, axes: tuple[int, ...]) -> int:
    """The axis of the value along which neighbouring threads are neighbours; -1: none."""
    return next((a for a, n in reversed(stage.lanes) if n > 1 and a in axes), -1)


def _choices(axes: tuple[int, ...], ways: dict[int, None]) -> Iterator[Layout]:
    for inner in ways:
        order = (*(a for a in axes if a != inner), inner)
        yield from ((order, pad) for pad in range(BANKS + 1))


def _wavefronts(sub: Subgraph, group: GroupDraft, value: int, stage: StageDraft, layout: Layout) -> float:
    """Turns that one access of the first warp takes, for each element that a thread accesses."""
    order, pad = layout
    strides: dict[int, int] = {}
    step = 1
    for axis in reversed(order):
        strides[axis] = step
        step *= group.trip(sub, axis) + (pad if axis == order[-1] else 0)
    row = group.trip(sub, order[-1]) + pad
    if stage.width > 1 and stage.vector == order[-1] and row % stage.width == 0:
        return PACK
    size = kept_size(sub, value)
    busy = math.prod(n for _, n in stage.lanes)
    words: dict[int, set[int]] = {}
    for thread in range(min(BANKS, busy)):
        rest, offset = thread, 0
        for axis, count in reversed(stage.lanes):
            rest, coordinate = divmod(rest, count)
            if axis in strides:
                at = coordinate * (stage.width if axis == stage.vector else 1)
                offset += min(at, group.trip(sub, axis) - 1) * strides[axis]
        word = offset * size // 4
        words.setdefault(word % BANKS, set()).add(word)
    return float(max(len(found) for found in words.values()))
