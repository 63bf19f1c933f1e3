"""Rules for gathers, one-hot encodings and masks by position."""

from __future__ import annotations

import math

from ..dtypes import DType
from ..shapes import TypeMismatch
from .call import Call, Rule, normal_axis, whole_of


def _gather(c: Call) -> str:
    axis = normal_axis(c.int_attr("axis", 0), c.rank())
    size = c.shape()[axis]
    index = c.b.value(c.input(1)) if c.rank(1) == 0 else None
    if index is None or not c.dtype(1).is_integer:
        return c.b.op("gather", c.input(0), c.input(1), axis=axis)
    # A known position is a slice, whose start is no part of the structure.
    at = whole_of(index)
    if not -size <= at < size:
        raise TypeMismatch(f"Gather at {at} of a dimension of {size}")
    piece = c.b.slice(c.input(0), axis, at % size, 1)
    return c.b.reshape(piece, [d for i, d in enumerate(c.shape()) if i != axis])


def _gather_elements(c: Call) -> str:
    return c.b.op("gather_elements", c.input(0), c.input(1), axis=normal_axis(c.int_attr("axis", 0), c.rank()))


def _from_end(c: Call, index: str, size: int) -> str:
    """`index` with negative ones counted from the end of a dimension of `size`."""
    return c.do("where", c.with_scalar("lt", index, 0), c.with_scalar("add", index, size), index)


def _gather_nd(c: Call) -> str:
    """A gather along one axis that merges the indexed ones, by their row-major position."""
    data, indices, batch = c.shape(0), c.shape(1), c.int_attr("batch_dims", 0)
    if not indices or not 0 <= batch < min(len(data), len(indices)) or data[:batch] != indices[:batch]:
        raise TypeMismatch(f"GatherND of {list(data)} by {list(indices)} with {batch} batch dimensions")
    depth, lead = indices[-1], indices[:-1]
    if not 1 <= depth <= len(data) - batch:
        raise TypeMismatch(f"GatherND of {list(data)} by {list(indices)} with {batch} batch dimensions")
    position = ""
    for i, size in enumerate(data[: batch + depth]):
        if i < batch:
            part = c.b.op("iota", dtype=DType.I64, sizes=lead, axis=i)
        else:
            part = c.b.reshape(c.b.slice(c.input(1), len(lead), i - batch, 1), lead)
            part = _from_end(c, part, size) if batch + depth > 1 else part
        position = c.do("add", c.with_scalar("mul", position, size), part) if position else part
    merged = c.b.reshape(c.input(0), (math.prod(data[: batch + depth]), *data[batch + depth :]))
    return c.b.op("gather", merged, position, axis=0)


def _one_hot(c: Call) -> str:
    depth = whole_of(c.value(1))
    if depth < 0 or c.shape(2) != (2,):
        raise TypeMismatch(f"OneHot of depth {depth} with values of shape {list(c.shape(2))}")
    axis = normal_axis(c.int_attr("axis", -1), c.rank() + 1)
    index = _from_end(c, c.b.cast(c.input(0), DType.I64), depth)
    shape = (*c.shape()[:axis], depth, *c.shape()[axis:])
    column = c.b.reshape(index, (*c.shape()[:axis], 1, *c.shape()[axis:]))
    hot = c.do("eq", c.b.op("iota", dtype=DType.I64, sizes=shape, axis=axis), column)
    off, on = (c.b.reshape(c.b.slice(c.input(2), 0, i, 1), ()) for i in (0, 1))
    return c.do("where", hot, on, off)


def _diagonal(c: Call, rows: int, columns: int) -> str:
    """column - row at every element of [rows, columns] (int64)."""
    row, column = (c.b.op("iota", dtype=DType.I64, sizes=(rows, columns), axis=i) for i in (0, 1))
    return c.do("sub", column, row)


def _trilu(c: Call) -> str:
    if c.rank() < 2:
        raise TypeMismatch(f"Trilu of rank {c.rank()}")
    k = c.b.reshape(c.input(1), ()) if c.has(1) else c.b.scalar(0, DType.I64)
    diagonal = _diagonal(c, *c.shape()[-2:])
    kept = c.do("ge" if c.int_attr("upper", 1) else "le", diagonal, k)
    return c.do("where", kept, c.input(0), c.scalar(0, c.input(0)))


def _eye_like(c: Call) -> str:
    if c.rank() != 2:
        raise TypeMismatch(f"EyeLike of rank {c.rank()}")
    dtype = c.dtype_attr("dtype") if "dtype" in c.attrs else c.dtype()
    rows, columns = c.shape()
    return c.b.cast(c.with_scalar("eq", _diagonal(c, rows, columns), c.int_attr("k", 0)), dtype)


def _rotary_embedding(c: Call) -> str:
    """Pairs of the head's elements turned by cached angles: (cos a - sin b, sin a + cos b).

    Works on [batch, heads, sequence, size]; operands of rank 3 have the heads in their last dimension.
    """
    x, shape = c.wide(c.input(0)), c.shape()
    if len(shape) == 3:
        heads = c.int_attr("num_heads")
        if heads < 1 or shape[2] % heads:
            raise TypeMismatch(f"{heads} heads of {shape[2]} elements")
        x = c.b.transpose(c.b.reshape(x, (*shape[:2], heads, shape[2] // heads)), (0, 2, 1, 3))
    elif len(shape) != 4:
        raise TypeMismatch(f"RotaryEmbedding of rank {len(shape)}")
    batch, heads, length, size = c.b.shape(x)
    turned = c.int_attr("rotary_embedding_dim", 0) or size
    if turned % 2 or not 0 < turned <= size:
        raise TypeMismatch(f"attribute rotary_embedding_dim is {turned} for heads of {size}")
    half = turned // 2
    cos, sin = (_angles(c, i, (batch, 1, length, half)) for i in (1, 2))
    interleaved = bool(c.int_attr("interleaved", 0))
    step = 2 if interleaved else 1
    a = c.b.slice(x, 3, 0, half, step)
    b = c.b.slice(x, 3, 1 if interleaved else half, half, step)
    first = c.do("sub", c.do("mul", cos, a), c.do("mul", sin, b))
    second = c.do("add", c.do("mul", sin, a), c.do("mul", cos, b))
    if interleaved:
        pairs = [c.b.reshape(part, (batch, heads, length, half, 1)) for part in (first, second)]
        parts = [c.b.reshape(c.b.op("concat", *pairs, axis=4), (batch, heads, length, turned))]
    else:
        parts = [first, second]
    if turned < size:
        parts.append(c.b.slice(x, 3, turned, size - turned))
    y = parts[0] if len(parts) == 1 else c.b.op("concat", *parts, axis=3)
    if len(shape) == 3:
        y = c.b.reshape(c.b.transpose(y, (0, 2, 1, 3)), shape)
    return c.b.cast(y, c.dtype())


def _angles(c: Call, i: int, shape: tuple[int, ...]) -> str:
    """A cache of cosines or sines as [batch, 1, sequence, half], gathered by position where positions are given."""
    cache = c.wide(c.input(i))
    if c.has(3):
        cache = c.b.op("gather", cache, c.input(3), axis=0)
    return c.b.reshape(cache, shape)


RULES: dict[str, Rule] = {
    "EyeLike": _eye_like,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "RotaryEmbedding": _rotary_embedding,
    "Trilu": _trilu,
}
