"""Thread mapping: tile sizes of the parallel axes (horizontal packing, row splitting), vector width, accumulators.

AStitch's adaptive mapping: many short rows are packed into one task, few long rows are split over tasks. Here the
tile of each parallel axis says both.
"""

from __future__ import annotations

from .draft import Context, GroupDraft
from .knobs import Ask, Knob
from .staging import moving, touched

TASK_POINTS = 8192
"""Iteration points of a one-stage task: its own cost vanishes, and tasks are left for balance."""

STAGED_POINTS = 2048
"""The same for several stages, whose buffers should stay in the first-level cache between them."""

VECTOR_TILE = 64
"""Least tile of a parallel axis that the vector loop runs along."""

TILES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def choose_tiles(context: Context, group: GroupDraft, ask: Ask) -> None:
    """Sets `group.tiles`: one tile per parallel axis, at least 1 and at most the extent."""
    sub = context.sub
    domain = largest_domain(context, group)
    serial = context.extent(a for a in domain if a not in group.parallel)
    inner = _innermost_first(context, group)
    points = TASK_POINTS if len(group.stages) == 1 else STAGED_POINTS
    budget = max(1, points // max(1, serial))
    reduced = split_axes(context, group)
    vectors = {s.vector for s in group.stages}
    crossed = _crossed(context, group)
    tiles: dict[int, int] = {}
    for axis in inner:
        extent = max(1, sub.extents[axis])
        if axis in reduced:
            tiles[axis] = _part(context, group, extent, serial)
            continue
        if axis in crossed:
            tiles[axis] = min(extent, max(1, context.target.vector_bytes // 4))
        else:
            least = min(extent, VECTOR_TILE) if axis in vectors else 1
            tiles[axis] = max(least, _tile(extent, budget))
        budget = max(1, budget // tiles[axis])
    _spread(context, group, tiles, inner, reduced | vectors)
    space = "_".join(map(str, group.parallel))
    for axis in group.parallel:
        extent = max(1, sub.extents[axis])
        powers = tuple(dict.fromkeys((*(t for t in TILES if t <= extent), extent)))
        near = _nearest(powers, tiles[axis])
        # The window moves with the default, so the default is part of the name.
        at = powers.index(near)
        knob = Knob(f"tile.{group.label}.{space}.{axis}.{near}", powers[max(0, at - 3) : at + 4], near)
        group.tiles[axis] = int(ask(knob))


def _part(context: Context, group: GroupDraft, extent: int, serial: int) -> int:
    """Elements of a split axis per part: few parts, but small enough that a later stage finds them in cache."""
    part = -(-extent // (4 * context.target.processors))
    if len(group.stages) > 1:
        part = min(part, max(1, context.target.block_bytes // (8 * max(1, serial))))
    return max(1, part)


def _nearest(choices: tuple[int, ...], wanted: int) -> int:
    return min(choices, key=lambda c: (abs(c - wanted), c))


def _tile(extent: int, wanted: int) -> int:
    """The largest power of two up to `wanted`, or the whole extent where that fits."""
    if wanted >= extent:
        return extent
    return max((t for t in TILES if t <= wanted), default=1)


def largest_domain(context: Context, group: GroupDraft) -> tuple[int, ...]:
    domains = [context.sub.values[v].domain for v in group.members]
    domains += [context.sub.values[v].axes for v in group.combine]
    return max(domains, key=context.extent, default=())


def split_axes(context: Context, group: GroupDraft) -> frozenset[int]:
    """Parallel axes over which a member's reduction is split."""
    found: set[int] = set()
    for member in group.partial:
        found |= set(context.sub.values[member].reduce) & set(group.parallel)
    return frozenset(found)


def _crossed(context: Context, group: GroupDraft) -> frozenset[int]:
    """Vector axes along which a large tensor lies apart: a tile of one vector keeps the lines it touches in cache."""
    found: set[int] = set()
    for stage in group.stages:
        tensors = [t for member in stage.members for t in touched(context, group, member)]
        most = max((elements for _, elements, _, _ in tensors), default=0)
        for indices, elements, _, _ in tensors:
            apart = any(stage.vector in moving(i) for i in indices[:-1])
            if apart and 2 * elements >= most and stage.vector not in moving(indices[-1]):
                found.add(stage.vector)
    return frozenset(found & set(group.parallel))


def _innermost_first(context: Context, group: GroupDraft) -> list[int]:
    order: list[int] = []
    for stage in sorted(group.stages, key=lambda s: -context.extent(s.order)):
        order.extend(a for a in reversed(stage.order) if a in group.parallel and a not in order)
    order.extend(a for a in reversed(group.parallel) if a not in order)
    return order


def _spread(
    context: Context, group: GroupDraft, tiles: dict[int, int], inner: list[int], fixed: frozenset[int] | set[int]
) -> None:
    """Halves the outermost tiles while there are too few tasks to keep the processors busy."""
    wanted = 4 * context.target.processors

    def tasks() -> int:
        total = 1
        for axis, tile in tiles.items():
            total *= -(-max(1, context.sub.extents[axis]) // tile)
        return total

    work = context.extent(largest_domain(context, group))
    while tasks() < wanted and work // max(1, tasks()) > TASK_POINTS // 4:
        axis = next((a for a in reversed(inner) if tiles[a] > 1 and a not in fixed), None)
        if axis is None:
            break
        tiles[axis] = -(-tiles[axis] // 2)
