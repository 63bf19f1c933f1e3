"""Movement primitives and iota on arrays of any type."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import DType
from ..errors import InputError
from ..ir import Node, TensorType
from ..rounding import Array, wide, wide_scalar


def move(node: Node, args: list[Array], to: TensorType) -> Array:
    """The result of a movement or source primitive, of shape `to.shape`; a view where NumPy can give one.

    Raises InputError for a gathered index out of range, KeyError when the operator is none of them.
    """
    match node.op:
        case "broadcast":
            shape = [1] * len(to.shape)
            for size, dim in zip(args[0].shape, node.attr("dims"), strict=True):
                shape[dim] = size
            return np.broadcast_to(args[0].reshape(shape), to.shape)
        case "transpose":
            return args[0].transpose(node.attr("perm"))
        case "reshape":
            return args[0].reshape(to.shape)
        case "slice":
            return _slice(args[0], node.attr("starts"), node.attr("steps"), to.shape)
        case "concat":
            return np.concatenate(args, axis=node.attr("axis"))
        case "pad":
            return _pad(args[0], dict(node.attrs), to.dtype)
        case "gather":
            axis = node.attr("axis")
            return np.take(args[0], _wrapped(args[1], args[0].shape[axis]), axis=axis)
        case "gather_elements":
            return _gather_elements(args[0], args[1], node.attr("axis"))
        case "iota":
            axis = node.attr("axis")
            line = np.arange(to.shape[axis]).astype(to.dtype.numpy).astype(wide(to.dtype))
            return np.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(to.shape))]), to.shape)
    raise KeyError(node.op)


def _slice(x: Array, starts: tuple[int, ...], steps: tuple[int, ...], sizes: tuple[int, ...]) -> Array:
    index = []
    for start, step, size in zip(starts, steps, sizes, strict=True):
        stop = start + step * size
        index.append(slice(0, 0) if size == 0 else slice(start, None if stop < 0 else stop, step))
    return x[tuple(index)]


def _pad(x: Array, attrs: dict[str, Any], dtype: DType) -> Array:
    before, after = attrs["before"], attrs["after"]
    crop = tuple(slice(max(0, -b), n - max(0, -a)) for n, b, a in zip(x.shape, before, after, strict=True))
    width = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    if not width:
        return x
    if "mode" in attrs:
        return np.pad(x[crop], width, mode=attrs["mode"])
    result: Array = np.pad(x[crop], width, constant_values=wide_scalar(attrs["value"], dtype))
    return result


def _wrapped(indices: Array, size: int) -> Array:
    """Indices with negative ones counted from the end."""
    at = indices.astype(np.int64)
    at = np.where(at < 0, at + size, at)
    if at.size and (at.min() < 0 or at.max() >= size):
        wrong = indices[(at < 0) | (at >= size)].flat[0]
        raise InputError(f"gather index out of range: {wrong} for a dimension of {size}")
    return at


def _gather_elements(data: Array, indices: Array, axis: int) -> Array:
    grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grid[axis] = _wrapped(indices, data.shape[axis])
    return np.asarray(data[tuple(grid)])
