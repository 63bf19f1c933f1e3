"""Two reductions in one pass over the data, where the second one's definition reads the first one's result.

1. softmax: m = max(x), t = sum(exp(x - m)). The sum is kept relative to the running maximum and rescaled when that
   grows (Milakov and Gimelshein, arXiv 1805.02867).
2. moments: s = sum(x), q = sum((x - s / n)^2). Count, mean and squared deviations are merged pairwise (Chan, Golub and
   LeVeque 1979; of one element that is Welford's update); the plain sum is carried beside them. A float32 mean carries
   what rounding took from it in a second component, without which the deviations of data far from zero are lost.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...graphs.dtypes import DType
from ...graphs.subgraph import Subgraph
from ...search_space.coupling import pair_kind
from ..loops import Apply, Expr, Literal
from .algebra import Algebra
from .errors import LoweringError
from .scope import Scope

MOMENTS = 5
"""Components of float32 moments; others lack the last one."""


class CouplingError(LoweringError):
    """The plan couples two reductions that are no known pair."""


@dataclass(frozen=True)
class Coupled(Algebra):
    """The joint accumulator; `op` is "softmax" (maximum, sum) or "moments" (count, sum, mean, squared deviations,
    what the mean lost)."""

    @property
    def _type(self) -> DType:
        return self.dtypes[0]

    def lift(self, nest: Scope, operand: Expr, index: Expr | None) -> tuple[Expr, ...]:
        one, zero = Literal(1.0, self._type), Literal(0.0, self._type)
        return (operand, one) if self.op == "softmax" else (one, operand, operand, zero, zero)[: len(self.dtypes)]

    def merge(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return self._merge_softmax(a, b) if self.op == "softmax" else self._merge_moments(a, b)

    def _merge_softmax(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        top, low = self._apply("max", a[0], b[0]), self._apply("min", a[0], b[0])
        # equal infinities: their difference would be NaN where the weight is 1
        same = Apply("eq", DType.BOOL, (a[0], b[0]))
        distance = Apply("select", self._type, (same, Literal(0.0, self._type), self._apply("sub", low, top)))
        highest = Apply("gt", DType.BOOL, (a[0], b[0]))
        whole, scaled = (Apply("select", self._type, (highest, x, y)) for x, y in ((a[1], b[1]), (b[1], a[1])))
        return top, self._apply("add", whole, self._apply("mul", scaled, self._apply("exp", distance)))

    def _merge_moments(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        count = self._apply("add", a[0], b[0])
        share = self._apply("div", b[0], self._apply("max", count, Literal(1.0, self._type)))
        distance = self._apply("sub", b[2], a[2])
        step = self._apply("mul", distance, share)
        lost: tuple[Expr, ...] = ()
        if len(a) == MOMENTS:
            # not added to the step, which would lose it again where `a` saw nothing
            near = self._apply("sub", b[4], a[4])
            distance = self._apply("add", distance, near)
            before = self._apply("add", a[4], self._apply("mul", near, share))
            lost = (self._apply("add", before, self._apply("sum_error", a[2], step)),)
        spread = self._apply("mul", self._apply("mul", distance, self._apply("mul", distance, share)), a[0])
        squares = self._apply("add", self._apply("add", a[3], b[3]), spread)
        return count, self._apply("add", a[1], b[1]), self._apply("add", a[2], step), squares, *lost

    def results(self, components: tuple[Expr, ...]) -> tuple[Expr, Expr]:
        """The first reduction's value, then the second's."""
        if self.op == "moments":
            # the definition subtracts an infinite mean from what made it so
            infinite = Apply("isinf", DType.BOOL, (components[2],))
            return components[1], Apply("select", self._type, (infinite, Literal(math.nan, self._type), components[3]))
        # the definition gives NaN where the maximum is infinite, except over nothing
        top, total = components
        infinite = Apply("isinf", DType.BOOL, (top,))
        some = Apply("gt", DType.BOOL, (total, Literal(0.0, self._type)))
        undefined = Apply("and", DType.BOOL, (infinite, some))
        return top, Apply("select", self._type, (undefined, Literal(math.nan, self._type), total))

    def _apply(self, op: str, *operands: Expr) -> Expr:
        return Apply(op, self._type, operands)


def match(sub: Subgraph, first: int, second: int) -> Coupled:
    """The pair's accumulator. Raises CouplingError when `second` beside `first` is no known pair."""
    kind = sub.values[second].dtype
    zero, low = Literal(0.0, kind), Literal(-math.inf, kind)
    match pair_kind(sub, first, second):
        case "softmax":
            return Coupled("softmax", (kind, kind), (low, zero))
        case "moments":
            parts = MOMENTS if kind is DType.F32 else MOMENTS - 1
            return Coupled("moments", (kind,) * parts, (zero,) * parts)
        case _:
            raise CouplingError(f"reductions {first} and {second} are no pair for one pass")
