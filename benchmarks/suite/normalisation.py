"""Normalisations: of rows, of channels, of groups, and their gradients."""

from __future__ import annotations

from ...graphs.builder import GraphBuilder
from ...graphs.dtypes import DType
from ...graphs.ir import Graph
from .parts import F32, mean, number, sigmoid, standardised


def residual_layer_norm(dtype: DType, rows: int, columns: int) -> Graph:
    """Layer norm of x + residual: the end of a transformer's sublayer."""
    b = GraphBuilder("residual_layer_norm")
    shape = (rows, columns)
    total = b.elementwise("add", b.input("x", dtype, shape), b.input("residual", dtype, shape))
    normal, _, _ = standardised(b, b.cast(total, F32), (1,), 1e-5)
    scaled = b.elementwise("mul", normal, b.input("scale", F32, (columns,)))
    b.output(b.cast(b.elementwise("add", scaled, b.input("bias", F32, (columns,))), dtype))
    return b.build()


def layer_norm_backward(dtype: DType, rows: int, columns: int) -> Graph:
    """dx [rows, columns], dscale and dbias [columns] of layer norm: sums over rows and over columns at once."""
    b = GraphBuilder("layer_norm_backward")
    dy, normal = b.input("dy", dtype, (rows, columns)), b.input("normal", dtype, (rows, columns))
    scale, inverse = b.input("scale", dtype, (columns,)), b.input("inverse_deviation", dtype, (rows, 1))
    scaled = b.elementwise("mul", dy, scale)
    first = mean(b, scaled, (1,))
    second = mean(b, b.elementwise("mul", scaled, normal), (1,))
    centred = b.elementwise("sub", scaled, first)
    b.output(b.elementwise("mul", b.elementwise("sub", centred, b.elementwise("mul", normal, second)), inverse))
    b.output(b.reduce("sum", b.elementwise("mul", dy, normal), (0,)))
    b.output(b.reduce("sum", dy, (0,)))
    return b.build()


def batch_norm_training(dtype: DType, n: int, c: int, h: int, w: int) -> Graph:
    """Batch norm in training mode on NCHW, then ReLU; the running statistics are updated."""
    b = GraphBuilder("batch_norm_training")
    x = b.input("x", dtype, (n, c, h, w))
    scale, bias = b.input("scale", dtype, (c,)), b.input("bias", dtype, (c,))
    old = b.input("running_mean", dtype, (c,)), b.input("running_variance", dtype, (c,))
    normal, average, variance = standardised(b, x, (0, 2, 3), 1e-5)
    wide = (1, c, 1, 1)
    y = b.elementwise("add", b.elementwise("mul", normal, b.reshape(scale, wide)), b.reshape(bias, wide))
    b.output(b.elementwise("maximum", y, number(b, 0.0, y)))
    for before, now in zip(old, (average, variance), strict=True):
        kept = b.elementwise("mul", before, number(b, 0.9, before))
        b.output(b.elementwise("add", kept, b.elementwise("mul", b.reshape(now, (c,)), number(b, 0.1, before))))
    return b.build()


def group_norm(dtype: DType, n: int, groups: int, channels: int, h: int, w: int) -> Graph:
    """Group norm of [n, groups x channels, h, w], scaled per channel, then SiLU: a block of a diffusion model."""
    b = GraphBuilder("group_norm")
    x = b.input("x", dtype, (n, groups * channels, h, w))
    normal, _, _ = standardised(b, b.reshape(x, (n, groups, channels * h * w)), (2,), 1e-5)
    wide = (1, groups * channels, 1, 1)
    scale, bias = (b.reshape(b.input(name, dtype, (groups * channels,)), wide) for name in ("scale", "bias"))
    y = b.elementwise("add", b.elementwise("mul", b.reshape(normal, (n, groups * channels, h, w)), scale), bias)
    b.output(b.elementwise("mul", y, sigmoid(b, y)))
    return b.build()


def rms_norm_rotary(dtype: DType, batch: int, length: int, heads: int, size: int) -> Graph:
    """RMSNorm of each head of a query, then the rotary embedding: halves rotated against each other."""
    b = GraphBuilder("rms_norm_rotary")
    x = b.cast(b.input("x", dtype, (batch, length, heads, size)), F32)
    square = mean(b, b.elementwise("mul", x, x), (3,))
    root = b.elementwise("sqrt", b.elementwise("add", square, number(b, 1e-6, x)))
    normal = b.elementwise("mul", b.elementwise("div", x, root), b.cast(b.input("weight", dtype, (size,)), F32))
    half = size // 2
    cos, sin = (b.reshape(b.input(name, F32, (length, half)), (length, 1, half)) for name in ("cos", "sin"))
    low, high = b.slice(normal, 3, 0, half), b.slice(normal, 3, half, half)
    first = b.elementwise("sub", b.elementwise("mul", low, cos), b.elementwise("mul", high, sin))
    second = b.elementwise("add", b.elementwise("mul", high, cos), b.elementwise("mul", low, sin))
    b.output(b.cast(b.op("concat", first, second, axis=3), dtype))
    return b.build()
