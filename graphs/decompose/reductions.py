"""Rules for reductions and global pooling."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..dtypes import DType
from ..shapes import TypeMismatch
from .call import Call, NotLowered, Rule, normal_axes, normal_axis

_AXES_INPUT = {"ReduceSum": 13}
"""First opset whose reduction takes its axes as an input; 18 for the others."""


def _axes(c: Call) -> tuple[int, ...]:
    """The reduced axes: none given means all, or none at all with noop_with_empty_axes."""
    if c.opset < _AXES_INPUT.get(c.op, 18):
        given = c.ints_attr("axes", ())
    else:
        given = c.ints(1) if c.has(1) else ()
        if not given and c.int_attr("noop_with_empty_axes", 0):
            return ()
    return normal_axes(given, c.rank()) if given else tuple(range(c.rank()))


def mean(c: Call, x: str, axes: tuple[int, ...], keepdims: bool = True) -> str:
    """The mean of a wide tensor over `axes`; of nothing it is NaN."""
    count = math.prod(c.b.shape(x)[axis] for axis in axes)
    if count == 0 and not c.b.dtype(x).is_float:
        raise NotLowered("empty-mean")
    total = c.b.reduce("sum", x, axes, keepdims)
    return c.with_scalar("div", total, count) if axes else total


def variance(c: Call, x: str, axes: tuple[int, ...]) -> tuple[str, str, str]:
    """(mean, x - mean, variance) of a wide tensor, in two passes; dimensions are kept."""
    center = mean(c, x, axes)
    difference = c.do("sub", x, center)
    return center, difference, mean(c, c.do("mul", difference, difference), axes)


_Formula = Callable[[Call, str, tuple[int, ...], bool], str]


def _reduction(formula: _Formula, floats_only: bool = False) -> Rule:
    """A rule that reduces by `formula(call, wide operand, axes, keepdims)` and rounds to the operand's type once."""

    def rule(c: Call) -> str:
        if floats_only and not c.dtype().is_float:
            raise NotLowered("element-type")
        result = formula(c, c.wide(c.input(0)), _axes(c), bool(c.int_attr("keepdims", 1)))
        return c.b.cast(result, c.dtype())

    return rule


def _plain(op: str) -> Rule:
    """One reduction primitive: the kernel accumulates float16 and bfloat16 in float32, so no cast is needed."""

    def rule(c: Call) -> str:
        x, axes, keepdims = c.input(0), _axes(c), bool(c.int_attr("keepdims", 1))
        if c.dtype() is DType.BOOL and op in ("max", "min"):
            x = c.b.cast(x, DType.U8)
        return c.b.cast(c.b.reduce(op, x, axes, keepdims), c.dtype())

    return rule


def _l1(c: Call, x: str, axes: tuple[int, ...], keepdims: bool) -> str:
    return c.b.reduce("sum", c.do("abs", x), axes, keepdims)


def _sum_square(c: Call, x: str, axes: tuple[int, ...], keepdims: bool) -> str:
    return c.b.reduce("sum", c.do("mul", x, x), axes, keepdims)


def _l2(c: Call, x: str, axes: tuple[int, ...], keepdims: bool) -> str:
    return c.do("sqrt", _sum_square(c, x, axes, keepdims))


def _log_sum(c: Call, x: str, axes: tuple[int, ...], keepdims: bool) -> str:
    return c.do("log", c.b.reduce("sum", x, axes, keepdims))


def _log_sum_exp(c: Call, x: str, axes: tuple[int, ...], keepdims: bool) -> str:
    """max + log(sum(exp(x - max))), with 0 for an infinite max so that infinities come out as they should."""
    greatest = c.b.reduce("max", x, axes, keepdims=True)
    shift = c.do("where", c.do("isinf", greatest), c.scalar(0, x), greatest)
    total = c.b.reduce("sum", c.do("exp", c.do("sub", x, shift)), axes, keepdims)
    return c.do("add", c.do("log", total), c.b.reshape(shift, c.b.shape(total)))


def _arg(op: str) -> Rule:
    def rule(c: Call) -> str:
        axis = normal_axis(c.int_attr("axis", 0), c.rank())
        result = c.b.op(op, c.input(0), axes=(axis,), select_last=bool(c.int_attr("select_last_index", 0)))
        if not c.int_attr("keepdims", 1):
            return result
        return c.b.reshape(result, [1 if i == axis else d for i, d in enumerate(c.shape())])

    return rule


def _global_axes(c: Call) -> tuple[int, ...]:
    if c.rank() < 2:
        raise TypeMismatch(f"{c.op} of rank {c.rank()}")
    return tuple(range(2, c.rank()))


def _global_average_pool(c: Call) -> str:
    return c.b.cast(mean(c, c.wide(c.input(0)), _global_axes(c)), c.dtype())


def _global_max_pool(c: Call) -> str:
    return c.b.reduce("max", c.input(0), _global_axes(c), keepdims=True)


RULES: dict[str, Rule] = {
    "ArgMax": _arg("argmax"),
    "ArgMin": _arg("argmin"),
    "GlobalAveragePool": _global_average_pool,
    "GlobalMaxPool": _global_max_pool,
    "ReduceL1": _reduction(_l1),
    "ReduceL2": _reduction(_l2, floats_only=True),
    "ReduceLogSum": _reduction(_log_sum, floats_only=True),
    "ReduceLogSumExp": _reduction(_log_sum_exp, floats_only=True),
    "ReduceMax": _plain("max"),
    "ReduceMean": _reduction(mean),
    "ReduceMin": _plain("min"),
    "ReduceProd": _plain("prod"),
    "ReduceSum": _plain("sum"),
    "ReduceSumSquare": _reduction(_sum_square),
}
