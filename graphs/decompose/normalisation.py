"""Rules for normalisations. Variances are two-pass; statistics of float16 and bfloat16 are float32."""

from __future__ import annotations

from ..dtypes import DType
from ..shapes import TypeMismatch
from .call import Call, NotLowered, Rule, normal_axes, normal_axis
from .reductions import mean, variance


def _inverse_deviation(c: Call, spread: str, epsilon: float) -> str:
    """1 / sqrt(variance + epsilon)."""
    return c.do("recip", c.do("sqrt", c.with_scalar("add", spread, epsilon)))


def _channels(c: Call, x: str, rank: int, axis: int = 1) -> str:
    """A vector laid along one axis of `rank` dimensions, the others of size 1."""
    shape = c.b.shape(x)
    if len(shape) != 1:
        raise TypeMismatch(f"{c.op} takes vectors per channel, not a tensor of rank {len(shape)}")
    return c.b.reshape(x, [shape[0] if i == axis else 1 for i in range(rank)])


def _scaled(c: Call, y: str, scale: str, bias: str) -> str:
    """y * scale + bias, back in the operand's type."""
    y = c.do("mul", y, scale)
    return c.b.cast(c.do("add", y, bias) if bias else y, c.dtype())


def _layer_normalization(c: Call) -> tuple[str, ...]:
    x = c.wide(c.input(0))
    axes = tuple(range(normal_axis(c.int_attr("axis", -1), c.rank()), c.rank()))
    center, difference, spread = variance(c, x, axes)
    inverse = _inverse_deviation(c, spread, c.float_attr("epsilon", 1e-5))
    y = _scaled(c, c.do("mul", difference, inverse), c.wide(c.input(1)), c.wide(c.input(2)) if c.has(2) else "")
    statistics = (c.b.cast(v, DType.F32) if c.wants(i) else "" for i, v in ((1, center), (2, inverse)))
    return y, *statistics


def _rms_normalization(c: Call) -> str:
    x = c.wide(c.input(0))
    axes = tuple(range(normal_axis(c.int_attr("axis", -1), c.rank()), c.rank()))
    inverse = _inverse_deviation(c, mean(c, c.do("mul", x, x), axes), c.float_attr("epsilon", 1e-5))
    return c.b.cast(c.do("mul", c.do("mul", x, inverse), c.wide(c.input(1))), c.dtype())


def _widest(c: Call, count: int) -> list[str]:
    """The first `count` operands in one type: float64 if one is that, else float32."""
    common = DType.F64 if any(c.dtype(i) is DType.F64 for i in range(count)) else DType.F32
    return [c.b.cast(c.input(i), common) for i in range(count)]


def _batch_normalization(c: Call) -> tuple[str, ...]:
    training = bool(c.int_attr("training_mode", 0)) if c.opset >= 14 else len(c.outputs) > 1
    if training and c.opset < 14:
        raise NotLowered("old-batch-normalization")
    if c.rank() < 2:
        raise TypeMismatch(f"BatchNormalization of rank {c.rank()}")
    x, scale, bias, old_mean, old_variance = _widest(c, 5)
    epsilon = c.float_attr("epsilon", 1e-5)
    laid = [_channels(c, v, c.rank()) for v in (scale, bias, old_mean, old_variance)]
    scale, bias = laid[:2]
    if not training:
        factor = c.do("mul", scale, _inverse_deviation(c, laid[3], epsilon))
        return (_scaled(c, c.do("sub", x, laid[2]), factor, bias),)
    axes = tuple(i for i in range(c.rank()) if i != 1)
    center, difference, spread = variance(c, x, axes)
    y = _scaled(c, c.do("mul", difference, _inverse_deviation(c, spread, epsilon)), scale, bias)
    momentum = c.float_attr("momentum", 0.9)
    running = []
    for i, old, new in ((3, old_mean, center), (4, old_variance, spread)):
        mixed = c.do(
            "add",
            c.with_scalar("mul", old, momentum),
            c.with_scalar("mul", c.b.reshape(new, c.b.shape(old)), 1 - momentum),
        )
        running.append(c.b.cast(mixed, c.dtype(i)))
    return y, *running


def _instance_normalization(c: Call) -> str:
    x = c.wide(c.input(0))
    _, difference, spread = variance(c, x, tuple(range(2, c.rank())))
    y = c.do("mul", difference, _inverse_deviation(c, spread, c.float_attr("epsilon", 1e-5)))
    scale, bias = (_channels(c, c.wide(c.input(i)), c.rank()) for i in (1, 2))
    return _scaled(c, y, scale, bias)


def _group_normalization(c: Call) -> str:
    """Channels in groups that share their statistics; scale and bias are per group before opset 21."""
    shape, groups = c.shape(), c.int_attr("num_groups")
    if len(shape) < 2 or groups < 1 or shape[1] % groups:
        raise TypeMismatch(f"{groups} groups of the channels of {list(shape)}")
    split = (shape[0], groups, shape[1] // groups, *shape[2:])
    x = c.b.reshape(c.wide(c.input(0)), split)
    _, difference, spread = variance(c, x, tuple(range(2, len(split))))
    y = c.do("mul", difference, _inverse_deviation(c, spread, c.float_attr("epsilon", 1e-5)))
    scale, bias = c.wide(c.input(1)), c.wide(c.input(2))
    if c.opset < 21:
        y = _scaled(c, y, _channels(c, scale, len(split)), _channels(c, bias, len(split)))
        return c.b.reshape(y, shape)
    y = c.b.reshape(y, shape)
    return _scaled(c, y, _channels(c, scale, len(shape)), _channels(c, bias, len(shape)))


def _lp_normalization(c: Call) -> str:
    """x over its norm along one axis; 0 where the norm is 0."""
    x, p = c.wide(c.input(0)), c.int_attr("p", 2)
    axes = (normal_axis(c.int_attr("axis", -1), c.rank()),)
    if p not in (1, 2):
        raise TypeMismatch(f"attribute p is {p}, not 1 or 2")
    powers = c.do("abs", x) if p == 1 else c.do("mul", x, x)
    norm = c.b.reduce("sum", powers, axes, keepdims=True)
    if p == 2:
        norm = c.do("sqrt", norm)
    y = c.do("where", c.with_scalar("eq", norm, 0), c.scalar(0, x), c.do("div", x, norm))
    return c.b.cast(y, c.dtype())


def _mean_variance_normalization(c: Call) -> str:
    x = c.wide(c.input(0))
    _, difference, spread = variance(c, x, normal_axes(c.ints_attr("axes", (0, 2, 3)), c.rank()))
    deviation = c.with_scalar("add", c.do("sqrt", spread), 1e-9)
    return c.b.cast(c.do("div", difference, deviation), c.dtype())


RULES: dict[str, Rule] = {
    "BatchNormalization": _batch_normalization,
    "GroupNormalization": _group_normalization,
    "InstanceNormalization": _instance_normalization,
    "LayerNormalization": _layer_normalization,
    "LpNormalization": _lp_normalization,
    "MeanVarianceNormalization": _mean_variance_normalization,
    "RMSNormalization": _rms_normalization,
}
