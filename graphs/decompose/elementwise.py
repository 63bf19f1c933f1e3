"""Rules for arithmetic, comparison, logic, rounding and casts."""

from __future__ import annotations

import math

from ..dtypes import DType
from ..shapes import TypeMismatch
from .call import Call, NotLowered, Rule, scalar_of


def _direct(op: str) -> Rule:
    """An exported operator that is one primitive."""
    return lambda c: c.do(op, *(c.input(i) for i in range(len(c.inputs))))


def _pow(c: Call) -> str:
    base, exponent = c.input(0), c.input(1)
    if c.dtype(0).is_integer and c.dtype(1).is_float:
        # The result is the base's type: compute in float64 as libraries do, then truncate.
        wide = c.do("pow", c.b.cast(base, DType.F64), c.b.cast(exponent, DType.F64))
        return c.b.cast(wide, c.dtype(0))
    value = c.b.value(exponent)
    if value is not None and value.size == 1 and (short := _short_power(c, base, float(scalar_of(value)))):
        rank = max(0, len(c.b.shape(exponent)) - c.rank())
        return c.b.reshape(short, (1,) * rank + c.shape())
    return c.do("pow", base, c.b.cast(exponent, c.dtype(0)))


def _short_power(c: Call, x: str, exponent: float) -> str:
    """`x ** exponent` in a few cheap operators that agree with pow on every value, or ""."""
    match exponent:
        case 1:
            return x
        case 2:
            return c.do("mul", x, x)
        case 3:
            wide = c.wide(x)
            return c.b.cast(c.do("mul", c.do("mul", wide, wide), wide), c.dtype())
        case -1 if c.dtype().is_float:
            return c.do("recip", x)
        case 0.5 if c.dtype().is_float:
            # pow gives +0 for -0 and +inf for -inf, where sqrt gives -0 and NaN.
            root = c.do("abs", c.do("sqrt", x))
            return c.do("where", c.with_scalar("eq", x, -math.inf), c.scalar(math.inf, x), root)
        case _:
            return ""


def _mod(c: Call) -> str:
    return c.do("fmod" if c.int_attr("fmod", 0) else "mod", c.input(0), c.input(1))


def _bit_shift(c: Call) -> str:
    direction = c.str_attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise TypeMismatch(f"attribute direction is {direction!r}, not LEFT or RIGHT")
    return c.do("shl" if direction == "LEFT" else "shr", c.input(0), c.input(1))


def _is_inf(c: Call) -> str:
    x = c.input(0)
    positive, negative = c.int_attr("detect_positive", 1), c.int_attr("detect_negative", 1)
    if positive and negative:
        return c.do("isinf", x)
    if not positive and not negative:
        return c.b.full(False, DType.BOOL, c.shape())
    return c.with_scalar("eq", x, math.inf if positive else -math.inf)


def _where(c: Call) -> str:
    return c.do("where", c.input(0), c.input(1), c.input(2))


def to_dtype(c: Call, x: str, dtype: DType) -> str:
    """A cast as ONNX means it: to bool is a test for non-zero."""
    if dtype is DType.BOOL and c.b.dtype(x) is not DType.BOOL:
        return c.with_scalar("ne", x, 0)
    return c.b.cast(x, dtype)


def _cast(c: Call) -> str:
    return to_dtype(c, c.input(0), c.dtype_attr("to"))


def _cast_like(c: Call) -> str:
    return to_dtype(c, c.input(0), c.dtype(1))


def _clip(c: Call) -> str:
    x = c.input(0)
    if c.opset < 11:
        low = c.scalar(c.float_attr("min"), x) if "min" in c.attrs else ""
        high = c.scalar(c.float_attr("max"), x) if "max" in c.attrs else ""
    else:
        low, high = (c.b.reshape(c.input(i), ()) if c.has(i) else "" for i in (1, 2))
    if low:
        x = c.do("maximum", x, low)
    return c.do("minimum", x, high) if high else x


def _fold(op: str) -> Rule:
    """A variadic operator as a chain of a binary one."""

    def rule(c: Call) -> str:
        first, *others = (c.input(i) for i in range(len(c.inputs)))
        if not others:
            return first
        # Two operands round once anyway; a longer sum would round at every step.
        wide = c.wide if op == "add" and len(others) > 1 else (lambda name: name)
        total = wide(first)
        for other in others:
            total = c.do(op, total, wide(other))
        return c.b.cast(total, c.dtype())

    return rule


def _mean(c: Call) -> str:
    total = c.wide(c.input(0))
    for i in range(1, len(c.inputs)):
        total = c.do("add", total, c.wide(c.input(i)))
    return c.b.cast(c.with_scalar("div", total, len(c.inputs)), c.dtype())


def _identity(c: Call) -> str:
    return c.input(0)


def _dropout(c: Call) -> tuple[str, ...]:
    """Inference, or training with ratio 0: nothing is dropped."""
    x = c.input(0)
    training = c.opset >= 12 and c.has(2) and bool(scalar_of(c.value(2)))
    if training and (float(scalar_of(c.value(1))) if c.has(1) else 0.5) != 0:
        raise NotLowered("random")
    mask_type = DType.BOOL if c.opset >= 10 else c.dtype()
    return x, c.b.full(1, mask_type, c.shape()) if c.wants(1) else ""


_UNARY = {
    "Abs": "abs",
    "Acos": "acos",
    "Acosh": "acosh",
    "Asin": "asin",
    "Asinh": "asinh",
    "Atan": "atan",
    "Atanh": "atanh",
    "BitwiseNot": "bitnot",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "IsNaN": "isnan",
    "Log": "log",
    "Neg": "neg",
    "Not": "not",
    "Reciprocal": "recip",
    "Round": "round",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
_BINARY = {
    "Add": "add",
    "And": "and",
    "BitwiseAnd": "bitand",
    "BitwiseOr": "bitor",
    "BitwiseXor": "bitxor",
    "Div": "div",
    "Equal": "eq",
    "Greater": "gt",
    "GreaterOrEqual": "ge",
    "Less": "lt",
    "LessOrEqual": "le",
    "Mul": "mul",
    "Or": "or",
    "Sub": "sub",
    "Xor": "xor",
}

RULES: dict[str, Rule] = {
    **{name: _direct(op) for name, op in _UNARY.items()},
    **{name: _direct(op) for name, op in _BINARY.items()},
    "BitShift": _bit_shift,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "Dropout": _dropout,
    "Identity": _identity,
    "IsInf": _is_inf,
    "Max": _fold("maximum"),
    "Mean": _mean,
    "Min": _fold("minimum"),
    "Mod": _mod,
    "Pow": _pow,
    "Sum": _fold("add"),
    "Where": _where,
}
