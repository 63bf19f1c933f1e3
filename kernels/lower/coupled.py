"""Two reductions in one pass over the data, where the second one's definition reads the first one's result.

1. softmax: m = max(x), t = sum(exp(x - m)). The sum is kept relative to the running maximum and rescaled when that
   grows (Milakov and Gimelshein, arXiv 1805.02867).
2. moments: s = sum(x), q = sum((x - s / n)^2). Count, mean and squared deviations are merged pairwise (Chan, Golub and
   LeVeque 1979; of one element that is Welford's update); the plain sum is carried beside them.
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


class CouplingError(LoweringError):
    """The plan couples two reductions that are no known pair."""


@dataclass(frozen=True)
class Coupled(Algebra):
    """The joint accumulator; `op` is "softmax" (maximum, sum) or "moments" (count, sum, mean, squared deviations)."""

    @property
    def _type(self) -> DType:
        return self.dtypes[0]

    def lift(self, nest: Scope, operand: Expr, index: Expr | None) -> tuple[Expr, ...]:
        one, zero = Literal(1.0, self._type), Literal(0.0, self._type)
        return (operand, one) if self.op == "softmax" else (one, operand, operand, zero)

    def merge(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return self._merge_softmax(a, b) if self.op == "softmax" else self._merge_moments(a, b)

    def _merge_softmax(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        top = self._apply("max", a[0], b[0])

        def scaled(part: tuple[Expr, ...]) -> Expr:
            # equal infinities: their difference would be NaN where the weight is 1
            same = Apply("eq", DType.BOOL, (part[0], top))
            zero = Literal(0.0, self._type)
            distance = Apply("select", self._type, (same, zero, self._apply("sub", part[0], top)))
            return self._apply("mul", part[1], self._apply("exp", distance))

        return top, self._apply("add", scaled(a), scaled(b))

    def _merge_moments(self, a: tuple[Expr, ...], b: tuple[Expr, ...]) -> tuple[Expr, ...]:
        count = self._apply("add", a[0], b[0])
        share = self._apply("div", b[0], self._apply("max", count, Literal(1.0, self._type)))
        distance = self._apply("sub", b[2], a[2])
        step = self._apply("mul", distance, share)
        spread = self._apply("mul", self._apply("mul", distance, step), a[0])
        return (
            count,
            self._apply("add", a[1], b[1]),
            self._apply("add", a[2], step),
            self._apply("add", self._apply("add", a[3], b[3]), spread),
        )

    def results(self, components: tuple[Expr, ...]) -> tuple[Expr, Expr]:
        """The first reduction's value, then the second's."""
        if self.op == "moments":
            return components[1], components[3]
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
            return Coupled("moments", (kind,) * 4, (zero,) * 4)
        case _:
            raise CouplingError(f"reductions {first} and {second} are no pair for one pass")
