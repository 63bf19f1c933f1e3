"""How the reference holds numbers: floats of every type in float64, rounded only where a kernel must round."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .dtypes import DType

Array = NDArray[Any]
Precision = Literal["strict", "fast"]
"""strict rounds at every float16 or bfloat16 edge; fast only at explicit casts and at outputs."""

F32_TINY = float(np.finfo(np.float32).tiny)
F32_MAX = float(np.finfo(np.float32).max)


def wide(dtype: DType) -> np.dtype[Any]:
    """The NumPy type that holds values of `dtype` while the reference computes."""
    return np.dtype(np.float64) if dtype.is_float else dtype.numpy


def widen(array: Array, dtype: DType) -> Array:
    """`array` of `dtype` in its wide form, without a copy where it has that already."""
    return array.astype(wide(dtype), copy=False)


def wide_scalar(number: int | float | bool, dtype: DType) -> Array:
    """A number as `dtype` holds it: a wide array of no dimensions."""
    with np.errstate(all="ignore"):
        return widen(np.asarray(number).astype(dtype.numpy), dtype)


def narrow(array: Array, dtype: DType) -> Array:
    """A wide array as an array of `dtype`, rounded half to even, in memory of its own and contiguous."""
    with np.errstate(all="ignore"):
        return np.array(array, dtype=dtype.numpy, order="C")


def round_to(array: Array, dtype: DType) -> Array:
    """A wide array rounded to what `dtype` can hold, still wide. Integers and bools are returned as they are."""
    if not dtype.is_float or dtype is DType.F64:
        return array
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy).astype(np.float64)


def settle(array: Array, dtype: DType) -> Array:
    """A freshly computed wide array with the range of its type, but float64 precision where that type is normal.

    Overflow becomes infinite and results below the normal range of float32 (in which low-precision types compute too)
    are rounded to its subnormals, so that what follows sees the zeros and infinities that a kernel sees.
    """
    if not dtype.is_float or dtype is DType.F64:
        return array
    with np.errstate(all="ignore"):
        single = array.astype(np.float32)
        size = np.abs(single)
        normal = (size >= np.float32(F32_TINY)) & (size <= np.float32(F32_MAX))
    return array if normal.all() else np.where(normal, array, single)


def settle_edge(array: Array, dtype: DType, precision: Precision) -> Array:
    """A freshly computed wide array as its readers see it: `settle`, and in strict mode rounded to low precision."""
    if precision == "strict" and dtype.is_low_precision:
        return round_to(array, dtype)
    return settle(array, dtype)
