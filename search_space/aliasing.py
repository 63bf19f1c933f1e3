"""Values stored straight into their consumer's storage: the pieces of a concat, the source of a copy.

Every element of the value must have one place in the consumer that nothing else decides, and whoever reads the
consumer must wait for all who write it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..graphs.subgraph import AxisVar, Index, Int, Read, Slot, Subgraph, Sum
from .listing import Listing
from .plan import Plan
from .refusal import Refusal

Box = tuple[tuple[int, int], ...]
"""Positions along each axis of a value: the first, and the first after the last."""


def aliased(plan: Plan) -> dict[int, frozenset[int]]:
    """For each consumer, the values that are stored in its place."""
    found: dict[int, set[int]] = {}
    for edge in plan.edges:
        if edge.place == "alias":
            found.setdefault(edge.consumer, set()).add(edge.value)
    return {consumer: frozenset(values) for consumer, values in found.items()}


def check_aliases(sub: Subgraph, plan: Plan, listing: Listing) -> Iterator[Refusal]:
    """Reasons why a value cannot be stored in its consumer."""
    stored = aliased(plan)
    for consumer, values in stored.items():
        name = f"v{consumer}, which others are to be stored in,"
        places = {e.place for e in plan.edges if e.value == consumer}
        if sub.values[consumer].op not in ("piecewise", "copy"):
            yield Refusal("alias-consumer", f"{name} is neither pieces put together nor a copy")
        elif consumer not in listing.values or not places <= {"global"} or not (consumer in sub.outputs or places):
            yield Refusal("alias-storage", f"{name} has no global storage that all its readers read")
        elif unlisted := sorted(v for v in values if v not in listing.values or v in stored):
            yield Refusal("alias-source", f"v{unlisted[0]} is not computed by a stage, or others are stored in it")
        elif problem := _overlap(sub, consumer, values):
            yield Refusal("alias-place", f"{name} {problem}")


def _overlap(sub: Subgraph, consumer: int, values: frozenset[int]) -> str:
    """Why the stored values do not have their parts of the consumer to themselves; "" when they do."""
    reads = sub.values[consumer].reads
    boxes: dict[int, Box] = {}
    for k, read in enumerate(reads):
        if read.value not in values:
            continue
        box = landing(sub, consumer, read)
        if box is None or not _holds(sub, consumer, read, box):
            return f"reads v{read.value} through a map that cannot be turned around"
        boxes[k] = box
    for k, box in boxes.items():
        others = [*range(k), *(j for j in boxes if j > k)]
        if any(_meet(box, _region(sub, consumer, reads[j])) for j in others):
            return f"has a place for v{reads[k].value} that another operand decides"
    sizes = [math.prod(high - low for low, high in box) for box in boxes.values()]
    if len(boxes) == len(reads) and sum(sizes) != sub.elements(consumer):
        return "is not filled by what is stored in it"
    return ""


def landing(sub: Subgraph, consumer: int, read: Read) -> Box | None:
    """Where in the consumer the elements of the value read lie; None when the map cannot be inverted."""
    axes = sub.values[consumer].axes
    found: dict[int, tuple[int, int]] = {}
    for own, index in zip(sub.values[read.value].axes, read.index, strict=True):
        shifted = shift(sub, index)
        if shifted is None or shifted[0] in found:
            return None
        axis, constant = shifted
        found[axis] = (-constant, sub.extents[own] - constant)
        if found[axis][0] < 0 or found[axis][1] > sub.extents[axis]:
            return None
    return tuple(found[a] for a in axes) if set(found) == set(axes) else None


def shift(sub: Subgraph, index: Index) -> tuple[int, int] | None:
    """An index as one axis plus a constant, at the subgraph's own slots."""
    terms = index.terms if isinstance(index, Sum) else ((1, index),)
    axes = [t.axis for c, t in terms if isinstance(t, AxisVar) and c == 1]
    numbers = [
        c * (t.value if isinstance(t, Int) else sub.slots[t.slot]) for c, t in terms if isinstance(t, Int | Slot)
    ]
    return (axes[0], sum(numbers)) if len(axes) == 1 and len(numbers) == len(terms) - 1 else None


def _holds(sub: Subgraph, consumer: int, read: Read, box: Box) -> bool:
    """True when every bound of the read holds all over the box."""
    axes = sub.values[consumer].axes
    for bound in read.where:
        shifted = shift(sub, bound.index)
        if shifted is None:
            return False
        low, high = box[axes.index(shifted[0])]
        if low < high and not (low + shifted[1] >= 0 and high + shifted[1] <= sub.extents[bound.axis]):
            return False
    return True


def _region(sub: Subgraph, consumer: int, read: Read) -> Box:
    """Positions of the consumer where the bounds of the read may hold."""
    axes = sub.values[consumer].axes
    region = [(0, sub.extents[a]) for a in axes]
    for bound in read.where:
        shifted = shift(sub, bound.index)
        if shifted is not None:
            k = axes.index(shifted[0])
            low, high = region[k]
            region[k] = max(low, -shifted[1]), min(high, sub.extents[bound.axis] - shifted[1])
    return tuple(region)


def _meet(a: Box, b: Box) -> bool:
    return all(max(p[0], q[0]) < min(p[1], q[1]) for p, q in zip(a, b, strict=True))
