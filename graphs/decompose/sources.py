"""Rules for constants, ranges and the shapes of tensors."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..dtypes import DType
from ..shapes import TypeMismatch
from .call import Call, NotLowered, Rule, scalar_of


def _constant(c: Call) -> str:
    if len(c.attrs) != 1:
        raise TypeMismatch(f"Constant with {len(c.attrs)} values")
    (name, value), *_ = c.attrs.items()
    match name:
        case "value":
            return c.b.constant(value)
        case "value_float" | "value_floats":
            return c.b.constant(np.asarray(value, np.float32))
        case "value_int" | "value_ints":
            return c.b.constant(np.asarray(value, np.int64))
        case _:
            raise NotLowered("element-type")


def _constant_of_shape(c: Call) -> str:
    shape = c.ints(0)
    if any(d < 0 for d in shape):
        raise TypeMismatch(f"ConstantOfShape of {list(shape)}")
    value: NDArray[Any] = c.attrs.get("value", np.zeros(1, np.float32))
    if not isinstance(value, np.ndarray) or value.size != 1:
        raise TypeMismatch("attribute value is not a tensor of one element")
    return c.b.broadcast(c.b.constant(value.reshape(())), shape)


def _range(c: Call) -> str:
    """start + i * delta for ceil((limit - start) / delta) elements."""
    start, limit, delta = (scalar_of(c.value(i)) for i in range(3))
    if delta == 0 or not all(map(math.isfinite, (start, limit, delta))):
        raise TypeMismatch(f"Range from {start} to {limit} by {delta}")
    exact = all(isinstance(v, int) for v in (start, limit, delta))
    length = -(-(int(limit) - int(start)) // int(delta)) if exact else math.ceil((limit - start) / delta)
    position = c.b.op("iota", dtype=c.dtype(), sizes=(max(0, length),), axis=0)
    scaled = position if delta == 1 else c.with_scalar("mul", position, delta)
    return scaled if start == 0 else c.with_scalar("add", scaled, start)


def _shape(c: Call) -> str:
    start = c.int_attr("start", 0)
    end = c.int_attr("end", c.rank())
    return c.b.constant(np.asarray(c.shape()[slice(*(max(-c.rank(), v) for v in (start, end)))], np.int64))


def _size(c: Call) -> str:
    return c.b.scalar(math.prod(c.shape()), DType.I64)


def _non_zero(c: Call) -> str:
    """Positions of what is not zero; only of constants, since elsewhere the shape depends on the data."""
    return c.b.constant(np.stack(np.nonzero(np.atleast_1d(c.value(0)))).astype(np.int64))


RULES: dict[str, Rule] = {
    "Constant": _constant,
    "ConstantOfShape": _constant_of_shape,
    "NonZero": _non_zero,
    "Range": _range,
    "Shape": _shape,
    "Size": _size,
}
