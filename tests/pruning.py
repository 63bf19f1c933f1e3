"""Subgraphs without what nothing needs."""

from __future__ import annotations

from stitchtune.graphs.subgraph import (
    AxisVar,
    Bound,
    FloorDiv,
    Index,
    Lookup,
    Mod,
    Read,
    Slot,
    Subgraph,
    Sum,
    Value,
    all_reads,
)


def pruned(sub: Subgraph) -> Subgraph:
    """`sub` without values, axes and slots that nothing mentions, numbered anew in their old order."""
    needed = set(sub.outputs)
    for i in reversed(range(len(sub.values))):
        if i in needed:
            needed |= {read.value for read in all_reads(sub.values[i])}
    values = {old: new for new, old in enumerate(sorted(needed))}
    axes: dict[int, int] = {}
    slots: dict[int, int] = {}

    def axis(old: int) -> int:
        return axes.setdefault(old, len(axes))

    def index(old: Index) -> Index:
        match old:
            case AxisVar(a):
                return AxisVar(axis(a))
            case Slot(s):
                return Slot(slots.setdefault(s, len(slots)))
            case Sum(terms):
                return Sum(tuple((c, index(t)) for c, t in terms))
            case FloorDiv(term, divisor):
                return FloorDiv(index(term), divisor)
            case Mod(term, divisor):
                return Mod(index(term), divisor)
            case Lookup(inner, extent):
                return Lookup(read(inner), axis(extent))
        return old

    def read(old: Read) -> Read:
        where = tuple(Bound(index(b.index), axis(b.axis)) for b in old.where)
        return Read(values[old.value], tuple(index(i) for i in old.index), where, old.fill)

    made = []
    for old in sorted(needed):
        v = sub.values[old]
        own, group = tuple(axis(a) for a in v.axes), tuple(axis(a) for a in v.reduce)
        position = None if v.position is None else index(v.position)
        made.append(Value(v.op, v.dtype, own, group, tuple(read(r) for r in v.reads), v.attrs, position))
    extents = tuple(sub.extents[a] for a in axes)
    return Subgraph(tuple(made), tuple(values[o] for o in sub.outputs), extents, tuple(sub.slots[s] for s in slots))
