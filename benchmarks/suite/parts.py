"""Expressions that several subjects are made of."""

from __future__ import annotations

import math

from ...graphs.builder import GraphBuilder
from ...graphs.dtypes import DType

F32 = DType.F32


def number(b: GraphBuilder, value: float, like: str) -> str:
    return b.scalar(value, b.dtype(like))


def mean(b: GraphBuilder, x: str, axes: tuple[int, ...]) -> str:
    """The mean over `axes`, which stay with extent 1."""
    count = math.prod(b.shape(x)[a] for a in axes)
    return b.elementwise("div", b.reduce("sum", x, axes, keepdims=True), number(b, float(count), x))


def sigmoid(b: GraphBuilder, x: str) -> str:
    power = b.elementwise("exp", b.elementwise("neg", x))
    return b.elementwise("recip", b.elementwise("add", power, number(b, 1.0, x)))


def standardised(b: GraphBuilder, x: str, axes: tuple[int, ...], eps: float) -> tuple[str, str, str]:
    """(x - mean) / sqrt(variance + eps), with the mean and the variance."""
    average = mean(b, x, axes)
    centred = b.elementwise("sub", x, average)
    variance = mean(b, b.elementwise("mul", centred, centred), axes)
    root = b.elementwise("sqrt", b.elementwise("add", variance, number(b, eps, x)))
    return b.elementwise("div", centred, root), average, variance


def exponentials(b: GraphBuilder, x: str, axis: int) -> tuple[str, str, str]:
    """x - max, its exponential and their sum along `axis`, which stays with extent 1."""
    shifted = b.elementwise("sub", x, b.reduce("max", x, (axis,), keepdims=True))
    power = b.elementwise("exp", shifted)
    return shifted, power, b.reduce("sum", power, (axis,), keepdims=True)
