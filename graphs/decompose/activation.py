"""Rules for activation functions and the softmax family."""

from __future__ import annotations

import math

from ..dtypes import DType
from ..shapes import TypeMismatch
from .call import Call, NotLowered, Rule, normal_axis


def _floating(formula: Rule) -> Rule:
    """A formula over one float operand, evaluated in float32 where the operand is float16 or bfloat16."""

    def rule(c: Call) -> str:
        if not c.dtype().is_float:
            raise TypeMismatch(f"{c.op} has no meaning on {c.dtype().value}")
        result = formula(c)
        assert isinstance(result, str)
        return c.b.cast(result, c.dtype())

    return rule


def _relu(c: Call) -> str:
    return c.with_scalar("maximum", c.input(0), 0)


def sigmoid(c: Call, x: str) -> str:
    """1 / (1 + exp(-x)): exp overflows to infinity only where the result is 0."""
    return c.do("recip", c.with_scalar("add", c.do("exp", c.do("neg", x)), 1))


def softplus(c: Call, x: str) -> str:
    """log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), which does not overflow."""
    tail = c.do("log1p", c.do("exp", c.do("neg", c.do("abs", x))))
    return c.do("add", c.with_scalar("maximum", x, 0), tail)


def _sigmoid(c: Call) -> str:
    return sigmoid(c, c.wide(c.input(0)))


def _leaky_relu(c: Call) -> str:
    x = c.wide(c.input(0))
    slope = c.with_scalar("mul", x, c.float_attr("alpha", 0.01))
    return c.do("where", c.with_scalar("lt", x, 0), slope, x)


def _prelu(c: Call) -> str:
    x = c.input(0)
    below = c.do("lt", x, c.scalar(0, x))
    return c.do("where", below, c.do("mul", x, c.input(1)), x)


def _thresholded_relu(c: Call) -> str:
    x = c.input(0)
    return c.do("where", c.with_scalar("gt", x, c.float_attr("alpha", 1.0)), x, c.scalar(0, x))


def _elu(c: Call) -> str:
    x = c.wide(c.input(0))
    below = c.with_scalar("mul", c.do("expm1", x), c.float_attr("alpha", 1.0))
    return c.do("where", c.with_scalar("lt", x, 0), below, x)


def _selu(c: Call) -> str:
    x = c.wide(c.input(0))
    alpha = c.float_attr("alpha", 1.6732631921768188)
    below = c.with_scalar("mul", c.do("expm1", x), alpha)
    inner = c.do("where", c.with_scalar("gt", x, 0), x, below)
    return c.with_scalar("mul", inner, c.float_attr("gamma", 1.0507010221481323))


def _celu(c: Call) -> str:
    x = c.wide(c.input(0))
    alpha = c.float_attr("alpha", 1.0)
    below = c.with_scalar("mul", c.do("expm1", c.with_scalar("div", x, alpha)), alpha)
    return c.do("add", c.with_scalar("maximum", x, 0), c.with_scalar("minimum", below, 0))


def _ramp(c: Call, x: str, alpha: float, beta: float) -> str:
    """max(0, min(1, alpha x + beta))."""
    line = c.with_scalar("add", c.with_scalar("mul", x, alpha), beta)
    return c.with_scalar("maximum", c.with_scalar("minimum", line, 1), 0)


def _hard_sigmoid(c: Call) -> str:
    return _ramp(c, c.wide(c.input(0)), c.float_attr("alpha", 0.2), c.float_attr("beta", 0.5))


def _hard_swish(c: Call) -> str:
    x = c.wide(c.input(0))
    return c.do("mul", x, _ramp(c, x, 1 / 6, 0.5))


def _softplus(c: Call) -> str:
    return softplus(c, c.wide(c.input(0)))


def _softsign(c: Call) -> str:
    x = c.wide(c.input(0))
    return c.do("div", x, c.with_scalar("add", c.do("abs", x), 1))


def _mish(c: Call) -> str:
    x = c.wide(c.input(0))
    return c.do("mul", x, c.do("tanh", softplus(c, x)))


def _swish(c: Call) -> str:
    x = c.wide(c.input(0))
    return c.do("mul", x, sigmoid(c, c.with_scalar("mul", x, c.float_attr("alpha", 1.0))))


def _gelu(c: Call) -> str:
    x = c.wide(c.input(0))
    match c.str_attr("approximate", "none"):
        case "none":
            inner = c.do("erf", c.with_scalar("mul", x, math.sqrt(0.5)))
        case "tanh":
            cube = c.do("mul", c.do("mul", x, x), x)
            line = c.do("add", x, c.with_scalar("mul", cube, 0.044715))
            inner = c.do("tanh", c.with_scalar("mul", line, math.sqrt(2 / math.pi)))
        case other:
            raise TypeMismatch(f"attribute approximate is {other!r}, not none or tanh")
    return c.do("mul", c.with_scalar("mul", x, 0.5), c.with_scalar("add", inner, 1))


def _shrink(c: Call) -> str:
    x = c.wide(c.input(0))
    limit, bias = c.float_attr("lambd", 0.5), c.float_attr("bias", 0.0)
    above = c.do("where", c.with_scalar("gt", x, limit), c.with_scalar("sub", x, bias), c.scalar(0, x))
    return c.do("where", c.with_scalar("lt", x, -limit), c.with_scalar("add", x, bias), above)


# --- softmax family


def _softmax_axes(c: Call) -> tuple[int, ...]:
    """The axes that a softmax runs over: one, but all from `axis` on before opset 13 (default 1)."""
    if c.opset >= 13:
        return (normal_axis(c.int_attr("axis", -1), c.rank()),)
    axis = c.int_attr("axis", 1)
    if axis == c.rank():
        # Flattened to [n, 1]: one element a row.
        raise NotLowered("not-lowered")
    return tuple(range(normal_axis(axis, c.rank()), c.rank()))


def shifted(c: Call, x: str, axes: tuple[int, ...]) -> str:
    """x - max(x): nothing overflows in its exponential. A row of all -inf gives NaN."""
    return c.do("sub", x, c.b.reduce("max", x, axes, keepdims=True))


def log_softmax(c: Call, x: str, axes: tuple[int, ...]) -> str:
    """(x - max) - log(sum(exp(x - max)))."""
    difference = shifted(c, x, axes)
    total = c.b.reduce("sum", c.do("exp", difference), axes, keepdims=True)
    return c.do("sub", difference, c.do("log", total))


def _softmax(c: Call) -> str:
    axes = _softmax_axes(c)
    e = c.do("exp", shifted(c, c.wide(c.input(0)), axes))
    return c.do("div", e, c.b.reduce("sum", e, axes, keepdims=True))


def _log_softmax(c: Call) -> str:
    return log_softmax(c, c.wide(c.input(0)), _softmax_axes(c))


def _hardmax(c: Call) -> str:
    """1 at the first greatest element, 0 elsewhere."""
    x, axes = c.input(0), _softmax_axes(c)
    shape = c.shape()
    best = c.b.op("argmax", x, axes=axes, select_last=False)
    kept = [1 if i in axes else d for i, d in enumerate(shape)]
    position = linear_index(c, shape, axes)
    return c.b.cast(c.do("eq", position, c.b.reshape(best, kept)), c.dtype())


def linear_index(c: Call, shape: tuple[int, ...], axes: tuple[int, ...]) -> str:
    """For every element of `shape`, its row-major position within `axes` (int64)."""
    stride, total = 1, ""
    for axis in reversed(axes):
        step = c.b.op("iota", dtype=DType.I64, sizes=shape, axis=axis)
        scaled = step if stride == 1 else c.with_scalar("mul", step, stride)
        total = c.do("add", scaled, total) if total else scaled
        stride *= shape[axis]
    return total


RULES: dict[str, Rule] = {
    "Celu": _floating(_celu),
    "Elu": _floating(_elu),
    "Gelu": _floating(_gelu),
    "HardSigmoid": _floating(_hard_sigmoid),
    "HardSwish": _floating(_hard_swish),
    "Hardmax": _hardmax,
    "LeakyRelu": _floating(_leaky_relu),
    "LogSoftmax": _floating(_log_softmax),
    "Mish": _floating(_mish),
    "PRelu": _prelu,
    "Relu": _relu,
    "Selu": _floating(_selu),
    "Shrink": _floating(_shrink),
    "Sigmoid": _floating(_sigmoid),
    "Softmax": _floating(_softmax),
    "Softplus": _floating(_softplus),
    "Softsign": _floating(_softsign),
    "Swish": _floating(_swish),
    "ThresholdedRelu": _thresholded_relu,
}
