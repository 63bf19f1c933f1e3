"""The value of one primitive over known operands, for folding constants: computed in float64, rounded to its type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .interpret.elementwise import apply
from .interpret.reductions import reduce
from .ir import Attr, TensorType
from .primitives import PRIMITIVES
from .rounding import narrow, widen

Array = NDArray[Any]


def evaluate(
    op: str, attrs: Mapping[str, Attr], args: Sequence[Array], types: Sequence[TensorType], out: TensorType
) -> Array:
    """What primitive `op` gives for `args` of `types`, as an array of type `out`.

    Movement keeps every bit, and gives views where NumPy does. Raises IndexError for a gather out of range.
    """
    kind = PRIMITIVES[op].kind
    if kind == "elementwise":
        return narrow(apply(op, [widen(a, t.dtype) for a, t in zip(args, types, strict=True)], out.dtype), out.dtype)
    if kind == "reduce":
        source = types[0].dtype
        axes: Any = attrs["axes"]
        return narrow(
            reduce(op, widen(args[0], source), axes, source, bool(attrs.get("select_last", False))), out.dtype
        )
    if kind == "source":
        axis: Any = attrs["axis"]
        shape = [-1 if i == axis else 1 for i in range(len(out.shape))]
        return np.array(np.broadcast_to(np.arange(out.shape[axis]).reshape(shape), out.shape), dtype=out.dtype.numpy)
    return _move(op, dict(attrs), args, out)


def _move(op: str, attrs: dict[str, Any], args: Sequence[Array], out: TensorType) -> Array:
    x = args[0]
    match op:
        case "broadcast":
            shape = [1] * len(out.shape)
            for size, d in zip(x.shape, attrs["dims"], strict=True):
                shape[d] = size
            return np.broadcast_to(x.reshape(shape), out.shape)
        case "transpose":
            return x.transpose(attrs["perm"])
        case "reshape":
            return x.reshape(out.shape)
        case "slice":
            return x[tuple(_range(*part) for part in zip(attrs["starts"], attrs["steps"], out.shape, strict=True))]
        case "pad":
            return _pad(x, attrs)
        case "concat":
            return np.concatenate(args, axis=attrs["axis"])
        case "gather":
            return np.take(x, args[1], axis=attrs["axis"])
        case "gather_elements":
            axis = attrs["axis"]
            where: list[Array] = list(np.indices(args[1].shape, sparse=True))
            where[axis] = args[1]
            return np.asarray(x[tuple(where)])
    raise KeyError(op)


def _range(start: int, step: int, length: int) -> slice:
    stop = start + step * length
    return slice(start, None if stop < 0 else stop, step)


def _pad(x: Array, attrs: dict[str, Any]) -> Array:
    crops = tuple(
        slice(max(0, -b), size - max(0, -a))
        for b, a, size in zip(attrs["before"], attrs["after"], x.shape, strict=True)
    )
    width = [(max(0, b), max(0, a)) for b, a in zip(attrs["before"], attrs["after"], strict=True)]
    if "mode" in attrs:
        return np.pad(x[crops], width, mode=attrs["mode"])
    return np.pad(x[crops], width, constant_values=np.asarray(attrs["value"]).astype(x.dtype))
