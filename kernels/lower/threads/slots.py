"""How far from zero each slot can be: a slot is the start of a slice or an index, so where it is read bounds it."""

from __future__ import annotations

from collections.abc import Iterator

from ....graphs.subgraph import AxisVar, FloorDiv, Index, Int, Lookup, Mod, Slot, Subgraph, Sum, Value, all_reads
from ..integers import Range


def slot_ranges(sub: Subgraph) -> dict[int, Range]:
    """The range of each slot, whose sign is that of its own value here.

    An index that reads axis a of a value lies in it, or, under a bound, no further outside than its other terms reach.
    """
    most = max([0, *sub.extents, *(sub.elements(v) for v in range(len(sub.values)))])
    limits: dict[int, int] = {}
    for value in sub.values:
        for index, extent in _indices(sub, value):
            for slot, limit in _limits(sub, index, extent, most):
                limits[slot] = max(limits.get(slot, 0), limit)
    found: dict[int, Range] = {}
    for slot, own in enumerate(sub.slots):
        limit = limits.get(slot, most)
        if abs(own) <= limit:
            found[slot] = (0, limit) if own >= 0 else (-limit, -1)
    return found


def _indices(sub: Subgraph, value: Value) -> Iterator[tuple[Index, int]]:
    """Every index of a value with the extent of what it indexes."""
    for read in all_reads(value):
        yield from zip(read.index, sub.shape(read.value), strict=True)
        yield from ((bound.index, sub.extents[bound.axis]) for bound in read.where)


def _limits(sub: Subgraph, index: Index, reach: int, most: int) -> Iterator[tuple[int, int]]:
    """The slots of an index that gives numbers up to `reach`, each with its own limit."""
    match index:
        case Slot(slot):
            yield slot, reach
        case Sum(terms):
            whole = reach + sum(abs(c) * _span(sub, term, most) for c, term in terms)
            for _, term in terms:
                yield from _limits(sub, term, whole, most)
        case FloorDiv(term, divisor):
            yield from _limits(sub, term, (reach + 1) * divisor, most)
        case Mod(term):
            yield from _limits(sub, term, most, most)
        case _:
            pass


def _span(sub: Subgraph, index: Index, most: int) -> int:
    """How far from zero an index without slots can be."""
    match index:
        case AxisVar(axis):
            return sub.extents[axis]
        case Int(value):
            return abs(value)
        case Slot():
            return 0
        case Sum(terms):
            return sum(abs(c) * _span(sub, term, most) for c, term in terms)
        case FloorDiv(term, divisor):
            return _span(sub, term, most) // divisor + 1
        case Mod(_, divisor):
            return divisor
        case Lookup():
            return most
