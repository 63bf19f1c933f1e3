"""Reduction primitives on wide arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import DType
from ..rounding import Array, wide


def least(dtype: DType) -> Any:
    """The identity of max: -inf, or the least value of the type."""
    if dtype.is_float:
        return -np.inf
    return False if dtype is DType.BOOL else np.iinfo(dtype.numpy).min


def greatest(dtype: DType) -> Any:
    """The identity of min: +inf, or the greatest value of the type."""
    if dtype.is_float:
        return np.inf
    return True if dtype is DType.BOOL else np.iinfo(dtype.numpy).max


def reduce(op: str, x: Array, axes: tuple[int, ...], dtype: DType, select_last: bool = False) -> Array:
    """`x` (wide, of type `dtype`) reduced over dimensions `axes`, in that order for argmax and argmin, dropping them.

    argmax and argmin give int64 positions in the row-major order of `axes`; NaN wins over every number; 0 for nothing.
    """
    with np.errstate(all="ignore"):
        match op:
            case "sum":
                return np.asarray(np.sum(x, axis=axes, dtype=wide(dtype)))
            case "prod":
                return np.asarray(np.prod(x, axis=axes, dtype=wide(dtype)))
            case "max":
                return np.asarray(np.max(x, axis=axes, initial=least(dtype)))
            case "min":
                return np.asarray(np.min(x, axis=axes, initial=greatest(dtype)))
            case "argmax" | "argmin":
                rows = flatten(x, axes)
                return position(rows, op, select_last)
    raise KeyError(op)


def flatten(x: Array, axes: tuple[int, ...]) -> Array:
    """`x` with dimensions `axes` merged, in that order, into one last dimension."""
    kept = [i for i in range(x.ndim) if i not in axes]
    size = int(np.prod([x.shape[i] for i in axes], dtype=np.int64))
    return x.transpose([*kept, *axes]).reshape([x.shape[i] for i in kept] + [size])


def position(rows: Array, op: str, select_last: bool) -> Array:
    """Where the extreme stands along the last dimension: the first place or the last one."""
    size = rows.shape[-1]
    if size == 0:
        return np.zeros(rows.shape[:-1], np.int64)
    find = np.argmax if op == "argmax" else np.argmin
    if not select_last:
        return np.asarray(find(rows, axis=-1), dtype=np.int64)
    return np.asarray(size - 1 - find(rows[..., ::-1], axis=-1), dtype=np.int64)
