"""Elementwise primitives on wide arrays: floats are float64, integers and bools have their own type and wrap."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..dtypes import DType
from ..rounding import Array, round_to, wide


def erf(x: Array) -> Array:
    """The error function, to the last bit or two: that of the C library, element by element."""
    flat = np.ascontiguousarray(x, dtype=np.float64).ravel()
    return np.fromiter(map(math.erf, flat.tolist()), dtype=np.float64, count=flat.size).reshape(np.shape(x))


def _int_divide(a: Array, b: Array) -> Array:
    """Truncated quotient; 0 where the divisor is 0."""
    divisor = np.where(b == 0, b.dtype.type(1), b)
    quotient = np.floor_divide(a, divisor)
    inexact = (quotient * divisor != a) & ((a < 0) != (divisor < 0))
    return np.asarray(np.where(b == 0, b.dtype.type(0), quotient + inexact.astype(b.dtype)))


def _div(a: Array, b: Array) -> Array:
    if a.dtype.kind != "f":
        return _int_divide(a, b)
    return np.asarray(np.divide(a, b))


def _pow(a: Array, b: Array) -> Array:
    """C99's power of floats; of integers the wrapping one, a negative exponent giving the truncated reciprocal."""
    if a.dtype.kind == "f":
        return np.asarray(np.power(a, b))
    power = np.asarray(np.power(a, np.where(b < 0, b.dtype.type(0), b)))
    if not (b < 0).any():
        return power
    unit = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0)).astype(a.dtype)
    return np.asarray(np.where(b < 0, unit, power))


UNARY: dict[str, Callable[[Array], Array]] = {
    "copy": lambda x: x,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "trunc": np.trunc,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "not": np.logical_not,
    "bitnot": np.invert,
    "sqrt": np.sqrt,
    "recip": lambda x: 1.0 / x,
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "expm1": np.expm1,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": erf,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}

BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "mod": np.mod,
    "fmod": np.fmod,
    "pow": _pow,
}


def cast(x: Array, to: DType) -> Array:
    """`x` converted: floats are rounded, float to integer truncates (out of range: any value), integers wrap."""
    if to is DType.BOOL:
        return np.asarray(x != 0)
    if to.is_integer and x.dtype.kind == "f":
        return np.nan_to_num(np.trunc(x)).astype(wide(to))
    return round_to(x.astype(wide(to)), to)


def apply(op: str, operands: list[Array], to: DType) -> Array:
    """Elementwise primitive `op` on wide arrays that broadcast together, giving a wide array of type `to`.

    The result is not yet rounded (only `cast` rounds). Raises KeyError when `op` is not elementwise.
    """
    with np.errstate(all="ignore"):
        if op == "cast":
            return cast(operands[0], to)
        if op == "where":
            return np.where(operands[0], operands[1], operands[2])
        if len(operands) == 1:
            return np.asarray(UNARY[op](operands[0]))
        return np.asarray(BINARY[op](operands[0], operands[1]))
