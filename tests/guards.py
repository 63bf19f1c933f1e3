"""Operands made suitable for an operator: what both random generators share.

V is a value number of a subgraph draft or a tensor name of a graph draft.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import numpy as np
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.primitives import PRIMITIVES
from stitchtune.graphs.shapes import SUPPORTED
from stitchtune.graphs.subgraph import Scalar

V = TypeVar("V")

Feature = tuple[str, DType]
"""A computing primitive and a type it supports: that of its operands; of its result for a cast and an iota."""
COMPUTING: tuple[Feature, ...] = tuple(
    (op, dtype)
    for op, primitive in PRIMITIVES.items()
    if primitive.kind != "movement"
    for dtype in DType
    if dtype in SUPPORTED[op]
)

DTYPES = tuple(DType)
WEIGHTS = np.array([6 if d is DType.F32 else 2.5 if d.is_float else 1.4 for d in DTYPES])


def focus_of(seed: int, count: int) -> list[Feature]:
    """`count` of the features, such that neighbouring seeds take turns and any run of seeds meets all equally often."""
    return [COMPUTING[(seed * count + i) * 7 % len(COMPUTING)] for i in range(count)]


class Guards(ABC, Generic[V]):
    """Guards on values; the derived class knows how to add operators."""

    rng: np.random.Generator

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, items: Any) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def random_dtype(self) -> DType:
        return DTYPES[int(self.rng.choice(len(DTYPES), p=WEIGHTS / WEIGHTS.sum()))]

    def random_scalar(self, dtype: DType) -> Scalar:
        if dtype is DType.BOOL:
            return self.chance(0.5)
        if dtype.is_float:
            return round(float(self.rng.uniform(-2, 2)), 2)
        return int(self.rng.integers(-3 if dtype.is_signed else 0, 5))

    @abstractmethod
    def type_of(self, value: V) -> DType: ...

    @abstractmethod
    def unary(self, op: str, value: V, to: DType | None = None) -> V: ...

    @abstractmethod
    def with_const(self, op: str, value: V, number: Scalar) -> V: ...

    @abstractmethod
    def zero_unless(self, condition: V, value: V) -> V: ...

    def clip(self, value: V, low: float, high: float) -> V:
        return self.with_const("maximum", self.with_const("minimum", value, high), low)

    def guarded(self, op: str, value: V) -> V:
        """A float value that suits as the first operand of `op`, made from `value`."""
        match op:
            case "sqrt" | "log1p":
                return self.unary("abs", value)
            case "log" | "recip" | "pow":
                return self.with_const("add", self.unary("abs", value), 0.5)
            case "acosh":
                return self.with_const("add", self.unary("abs", value), 1.25)
            case "asin" | "acos" | "atanh":
                return self.with_const("mul", self.unary("sin", self.clip(value, -50.0, 50.0)), 0.875)
            case "exp" | "expm1" | "sinh" | "cosh":
                return self.clip(value, -8.0, 4.0)
            case "tan":
                return self.clip(value, -1.0, 1.0)
            case "sin" | "cos":
                return self.clip(value, -50.0, 50.0)
            case "prod":
                return self.with_const("add", self.with_const("mul", self.unary("tanh", value), 0.0625), 1.0)
        return value

    def guarded_second(self, op: str, value: V) -> V:
        """A value that suits as the second operand of `op`: no zero divisor, no shift beyond the width."""
        dtype = self.type_of(value)
        if op not in ("div", "mod", "fmod", "shl", "shr", "pow"):
            return value
        if op in ("shl", "shr"):
            return self.with_const("bitand", value, dtype.size * 8 - 1)
        if op == "pow":
            return self.clip(value, -2.0, 2.0) if dtype.is_float else self.with_const("bitand", value, 3)
        if dtype.is_float:
            value = self.with_const("add", self.unary("abs", value), 0.75)
        else:
            value = self.with_const("add", self.with_const("bitand", value, 6), 2)
        return self.unary("neg", value) if dtype.is_signed and self.chance(0.4) else value

    def castable(self, value: V, to: DType) -> V:
        """A value that can be cast to `to` without leaving its range."""
        if not (self.type_of(value).is_float and to.is_integer):
            return value
        size = self.unary("abs", value)
        return self.zero_unless(self.with_const("lt", size, 100.0), value if to.is_signed else size)
