"""Transposes through shared memory: an input that lies along another axis than the loop that stores runs along.

A block loads a tile of it along its own memory, and reads it across from shared memory, laid out and padded such that
neither way has two threads of a warp in one bank.
"""

from __future__ import annotations

from .banks import best_layout
from .draft import Context, GroupDraft, StageDraft
from .knobs import Ask, Knob
from .lanes import pack_lanes, widest_access
from .plan import Edge
from .residency import Sites, inputs_read, is_loaded, loadable
from .shared_memory import group_bytes
from .staging import moving, touched

TILE = 32
"""Positions of a tile along either axis, of four-byte elements: a line of memory each way."""

LEAST = 8
"""Positions along either axis below which a tile does not pay: four bytes each fill a sector."""


def crossing_axes(context: Context, group: GroupDraft, inner: int) -> list[int]:
    """Axes along which a tensor as large as any that the group touches lies in memory: loads that cross axis `inner`,
    or all tensors, where that is -1."""
    tensors = [t for s in group.stages for m in s.members for t in touched(context, group, m)]
    most = max((elements for _, elements, _, _ in tensors), default=0)
    found: dict[int, None] = {}
    for indices, elements, _, stored in tensors:
        along = moving(indices[-1]) if indices else []
        crosses = not stored and inner not in along and any(inner in moving(i) for i in indices)
        if 2 * elements >= most and (crosses or inner < 0):
            found.update((a, None) for a in along if a in group.parallel)
    return list(found)


def tile_inputs(
    context: Context, group: GroupDraft, reads: Sites, edges: tuple[Edge, ...], ask: Ask
) -> tuple[Edge, ...]:
    """Loads inputs that cross the vector axis of the first stage that reads them through padded tiles."""
    for value in inputs_read(context.sub, group, reads):
        found = loadable(context.sub, group, reads, value)
        if found is None or is_loaded(edges, value):
            continue
        first = min(min(stages) for stages in found[1].values())
        if not _crosses(context, group, group.stages[first], found[0]):
            continue
        if ask(Knob(f"transpose.{value}", ("tile", "direct"), "tile")) == "direct":
            continue
        axes, by_consumer = found
        size = context.sub.values[value].dtype.size
        load = StageDraft([], axes, axes[-1], inputs={value: axes})
        load.width = widest_access(context.sub, axes, size)
        load.lanes = pack_lanes(context.sub, group, load, list(reversed(axes)))
        readers = [group.stages[s] for s in sorted(set().union(*by_consumer.values()))]
        if ask(Knob(f"pad.{value}", (True, False), True)):
            group.layouts[value] = best_layout(context.sub, group, value, axes, [load, *readers])
        group.stages.insert(first, load)
        wanted = (*edges, *(Edge(value, consumer, "block") for consumer in by_consumer))
        if sum(group_bytes(context.sub, group, wanted).values()) <= context.target.block_bytes:
            edges = wanted
        else:
            group.stages.remove(load)
            group.layouts.pop(value, None)
    return edges


def _crosses(context: Context, group: GroupDraft, stage: StageDraft, axes: tuple[int, ...]) -> bool:
    sub = context.sub
    if not axes or axes[-1] == stage.vector or stage.vector not in axes:
        return False
    return group.trip(sub, axes[-1]) >= LEAST and group.trip(sub, stage.vector) >= LEAST
