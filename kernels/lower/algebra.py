"""What a reduction carries: its accumulator's components, their identity, how two are merged, how one ends.

Sums, products and extrema carry one component; a float32 sum of very many terms carries a second one, what the last
addition lost and the next one adds (Kahan's compensated summation, by Knuth's TwoSum), since a plain one loses digits.
argmax and argmin carry the value and its index; NaN comes before everything, among equals the first index wins (the
last with `select_last`), and an index that no element has marks an accumulator that saw nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...graphs.dtypes import DType
from ...graphs.subgraph import Subgraph, Value
from ..loops import Apply, Expr, Literal
from .errors import LoweringError
from .scope import Scope


def computing(dtype: DType) -> DType:
    """The dtype that values of `dtype` have in registers."""
    return DType.F32 if dtype.is_low_precision else dtype


_SMALL = 2**31
COMPENSATED = 8192
"""Terms per accumulator from which a float32 sum is compensated."""


@dataclass(frozen=True)
class Algebra:
    """One reduction's accumulator. `fold` is the operator of a single component that lanes can be folded with."""

    op: str
    dtypes: tuple[DType, ...]
    identity: tuple[Literal, ...]
    last: bool = False

    @property
    def fold(self) -> str | None:
        return self.op if len(self.dtypes) == 1 else None

    def lift(self, nest: Scope, operand: Expr, index: Expr | None) -> tuple[Expr, ...]:
        """One element as an accumulator."""
        if len(self.dtypes) == 1:
            return (operand,)
        if self.op == "sum":
            return operand, _ZERO
        assert index is not None
        if self.dtypes[1] is not DType.I64:
            index = nest.bind(Apply("cast", self.dtypes[1], (index,)))
        return operand, index

    @property
    def indexed(self) -> bool:
        return self.op in ("argmax", "argmin")

    def merge(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        """Accumulators `a` then `b` as one (expressions, not named; operands are used several times)."""
        if len(self.dtypes) == 1:
            return (Apply(_BINARY[self.op], self.dtypes[0], (a[0], b[0])),)
        if self.op == "sum":
            lost = a[1] if b[1] == _ZERO else Apply("add", DType.F32, (a[1], b[1]))
            term = Apply("add", DType.F32, (b[0], lost))
            return Apply("add", DType.F32, (a[0], term)), Apply("sum_error", DType.F32, (a[0], term))
        order = f"{self.op}_{'last' if self.last else 'first'}"
        better = Apply(f"before_{order}", DType.BOOL, (b[0], b[1], a[0], a[1]))
        return tuple(Apply("select", t, (better, y, x)) for t, x, y in zip(self.dtypes, a, b, strict=True))

    def finish(self, components: tuple[Expr, ...]) -> Expr:
        """The reduction's value in its computing dtype."""
        if len(self.dtypes) == 1:
            return components[0]
        if self.op == "sum":
            return Apply("add", DType.F32, components)
        index = components[1]
        seen = Apply("max", index.dtype, (index, Literal(0, index.dtype)))
        least = Literal(_limit(index.dtype), index.dtype)
        found = Apply("select", index.dtype, (Apply("eq", DType.BOOL, (index, least)), Literal(0, index.dtype), seen))
        return found if index.dtype is DType.I64 else Apply("cast", DType.I64, (found,))


_ZERO = Literal(0.0, DType.F32)
_BINARY = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def _limit(dtype: DType) -> int:
    return int(2 ** (8 * dtype.size - 1) - 1)


def algebra(sub: Subgraph, value: Value, dynamic: tuple[int, ...], terms: int) -> Algebra:
    """The accumulator of a reduction that adds `terms` elements into each of its accumulators."""
    operand = computing(sub.values[value.reads[0].value].dtype)
    match value.op:
        case "sum" | "prod":
            start = 0 if value.op == "sum" else 1
            kind = computing(value.dtype)
            if value.op == "sum" and kind is DType.F32 and terms >= COMPENSATED:
                return Algebra("sum", (kind, kind), (_ZERO, _ZERO))
            return Algebra(value.op, (kind,), (Literal(float(start) if kind.is_float else start, kind),))
        case "max" | "min":
            return Algebra(value.op, (operand,), (_extreme(value.op, operand),))
        case "argmax" | "argmin":
            count = math.prod(sub.extents[a] for a in value.reduce)
            small = count < _SMALL and not any(a in dynamic for a in value.reduce)
            index = DType.I32 if small else DType.I64
            last = bool(value.attr("select_last", False))
            nothing = Literal(-1 if last else _limit(index), index)
            return Algebra(value.op, (operand, index), (_extreme(value.op[3:], operand), nothing), last)
        case _:
            raise LoweringError(f"no reduction called {value.op}")


def _extreme(op: str, dtype: DType) -> Literal:
    """The identity of max or min."""
    if dtype.is_float:
        return Literal(-math.inf if op == "max" else math.inf, dtype)
    if dtype is DType.BOOL:
        return Literal(op == "min", dtype)
    bits = 8 * dtype.size
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.is_signed else (0, 2**bits - 1)
    return Literal(low if op == "max" else high, dtype)
