"""Rules for linear quantisation."""

from __future__ import annotations

import numpy as np

from ..dtypes import DType
from .call import Call, NotLowered, Rule, normal_axis

_STORED = (DType.I8, DType.U8, DType.I16, DType.U16)


def _parameter(c: Call, x: str) -> str:
    """A scale or zero point laid along the quantised axis. NotLowered for blocks."""
    shape = c.b.shape(x)
    if c.int_attr("block_size", 0) or len(shape) > 1:
        raise NotLowered("blocked-quantisation")
    if shape in ((), (1,)):
        return c.b.reshape(x, ())
    axis = normal_axis(c.int_attr("axis", 1), c.rank())
    return c.b.reshape(x, [shape[0] if i == axis else 1 for i in range(c.rank())])


def _dequantize(c: Call) -> str:
    """(x - zero point) * scale."""
    x = c.b.cast(c.input(0), DType.I32)
    if c.has(2):
        x = c.do("sub", x, c.b.cast(_parameter(c, c.input(2)), DType.I32))
    scale = _parameter(c, c.wide(c.input(1)))
    result = c.dtype_attr("output_dtype") if c.int_attr("output_dtype", 0) else c.dtype(1)
    return c.b.cast(c.do("mul", c.b.cast(x, c.b.dtype(scale)), scale), result)


def _quantize(c: Call) -> str:
    """round(x / scale) + zero point, saturated to the stored type before it becomes an integer."""
    stored = c.dtype(2) if c.has(2) else DType.U8
    if not c.has(2) and c.int_attr("output_dtype", 0):
        stored = c.dtype_attr("output_dtype")
    if stored not in _STORED:
        raise NotLowered("element-type")
    x = c.b.cast(c.input(0), DType.F32)
    scaled = c.do("round", c.do("div", x, c.b.cast(_parameter(c, c.input(1)), DType.F32)))
    if c.has(2):
        scaled = c.do("add", scaled, c.b.cast(_parameter(c, c.input(2)), DType.F32))
    limits = np.iinfo(stored.numpy)
    clipped = c.with_scalar("minimum", c.with_scalar("maximum", scaled, limits.min), limits.max)
    return c.b.cast(clipped, stored)


RULES: dict[str, Rule] = {
    "DequantizeLinear": _dequantize,
    "QuantizeLinear": _quantize,
}
