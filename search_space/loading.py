"""Inputs that a stage loads once for several readers (CUDA): along which axes they are loaded."""

from __future__ import annotations

from ..graphs.subgraph import AxisVar, Subgraph, all_reads
from .plan import Plan


def loaded_axes(sub: Subgraph, plan: Plan, value: int) -> tuple[int, ...] | None:
    """The computed axes that stand for the axes of input `value` where a stage lists it, in the input's own order.

    An input's own axes are mentioned by no index, so it is loaded at the positions where its readers read it: every
    consumer that has an edge from it reads it through the identity on these axes, which are as long as the input's own,
    and nowhere else. None where they do not agree on such axes, or there is no edge: such an input cannot be listed.
    """
    found: set[tuple[int, ...]] = set()
    for consumer in (e.consumer for e in plan.edges if e.value == value):
        if not 0 <= consumer < len(sub.values):
            return None
        axes = identity_axes(sub, value, consumer)
        if axes is None:
            return None
        found.add(axes)
    return found.pop() if len(found) == 1 else None


def identity_axes(sub: Subgraph, value: int, consumer: int) -> tuple[int, ...] | None:
    """The axes of `consumer` along which it reads all of `value`, position by position; None when some read differs."""
    reader = sub.values[consumer]
    whole = {id(r) for r in reader.reads if not r.where}
    found: set[tuple[int, ...]] = set()
    for read in all_reads(reader):
        if read.value != value:
            continue
        axes = tuple(i.axis for i in read.index if isinstance(i, AxisVar))
        same = tuple(sub.extents[a] for a in axes) == sub.shape(value)
        if id(read) not in whole or len(set(axes)) != len(read.index) or not same:
            return None
        found.add(axes)
    return found.pop() if len(found) == 1 else None
