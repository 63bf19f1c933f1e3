"""Pairs of reductions that one pass over the data can compute, although the second one's definition reads the first.

softmax: m = max(x), then sum(exp(x - m)). moments: s = sum(x), then sum((x - s / n)^2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from ..graphs.dtypes import DType
from ..graphs.subgraph import AxisVar, Read, Subgraph
from .listing import Listing
from .plan import Plan
from .refusal import Refusal

Pair = Literal["softmax", "moments"]


def pair_kind(sub: Subgraph, first: int, second: int) -> Pair | None:
    """What pair `second` beside `first` is; None when it is none."""
    one, two = sub.values[first], sub.values[second]
    if two.dtype not in (DType.F32, DType.F64) or two.op != "sum" or not one.reduce:
        return None
    if one.axes != two.axes or one.reduce != two.reduce or not _plain(sub, two.reads[0]):
        return None
    if one.op == "max" and _is_softmax(sub, first, second):
        return "softmax"
    if one.op == "sum" and _is_moments(sub, first, second):
        return "moments"
    return None


def pairs(plan: Plan) -> dict[int, int]:
    """The pairs that a plan couples: the first reduction to the second."""
    return {r.coupled: r.value for r in plan.reductions if r.coupled >= 0}


def check_pairs(sub: Subgraph, plan: Plan, listing: Listing, *, cuda: bool = False) -> Iterator[Refusal]:
    """Reasons why reductions cannot run beside each other.

    On CUDA they may be split over tasks: these store their common accumulator, and each stage that combines one of
    them combines both.
    """
    coupled = [(r.coupled, r.value) for r in plan.reductions if r.coupled >= 0]
    members = [v for pair in coupled for v in pair]
    if len(set(members)) != len(members):
        yield Refusal("coupled", "a reduction belongs to two pairs")
        return
    for first, second in coupled:
        name = f"v{second} beside v{first}"
        if pair_kind(sub, first, second) is None:
            yield Refusal("coupled", f"{name}: no pair that one pass can compute")
        elif listing.values.get(first) != listing.values.get(second):
            yield Refusal("coupled", f"{name}: not in one stage")
        elif listing.is_partial(first) and not cuda:
            yield Refusal("coupled", f"{name}: split over tasks")
        elif listing.combines.get(first) != listing.combines.get(second):
            yield Refusal("coupled", f"{name}: not combined in the same stages")


def all_pairs(sub: Subgraph) -> Iterator[tuple[int, int]]:
    """Every (first, second) of a subgraph that could be coupled."""
    reductions = [v for v in sub.computed if sub.values[v].reduce]
    for second in reductions:
        yield from ((first, second) for first in reductions if first < second and pair_kind(sub, first, second))


def _plain(sub: Subgraph, read: Read) -> bool:
    return not read.where and read.index == tuple(AxisVar(a) for a in sub.values[read.value].axes)


def _operand(sub: Subgraph, value: int, op: str, arity: int) -> tuple[Read, ...] | None:
    """The reads of a value that is `op`, when each is through the identity, or of an input or a constant."""
    v = sub.values[value]
    if v.op != op or len(v.reads) != arity:
        return None
    return v.reads if all(_plain(sub, r) or sub.values[r.value].op in ("input", "const") for r in v.reads) else None


def _is_softmax(sub: Subgraph, first: int, second: int) -> bool:
    (data,), (summed,) = sub.values[first].reads, sub.values[second].reads
    exponential = _operand(sub, summed.value, "exp", 1)
    shifted = _operand(sub, exponential[0].value, "sub", 2) if exponential else None
    return shifted is not None and shifted[0] == data and shifted[1].value == first


def _is_moments(sub: Subgraph, first: int, second: int) -> bool:
    (data,), (summed,) = sub.values[first].reads, sub.values[second].reads
    square = _operand(sub, summed.value, "mul", 2)
    if square is None or square[0] != square[1]:
        return False
    shifted = _operand(sub, square[0].value, "sub", 2)
    if shifted is None or shifted[0] != data:
        return False
    count = math.prod(sub.extents[a] for a in sub.values[first].reduce)
    digits = 1e-15 if sub.values[first].dtype is DType.F64 else 1e-6  # an exporter may have rounded it to float32
    for op, factor in (("mul", 1 / max(count, 1)), ("div", count)):
        scaled = _operand(sub, shifted[1].value, op, 2)
        if scaled is None or scaled[0].value != first:
            continue
        constant = sub.values[scaled[1].value].attr("value") if sub.values[scaled[1].value].op == "const" else None
        if isinstance(constant, int | float) and math.isclose(constant, factor, rel_tol=digits):
            return True
    return False
