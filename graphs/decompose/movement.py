"""Rules for what only moves data: shapes, slices, joins, padding and layout."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..dtypes import DType
from ..shapes import TypeMismatch, broadcast_shapes
from .call import Call, NotLowered, Rule, normal_axes, normal_axis, scalar_of

_FAR = 1 << 62
"""Beyond every position, for a slice without an end."""


def _transpose(c: Call) -> str:
    perm = c.ints_attr("perm", tuple(reversed(range(c.rank()))))
    return c.b.transpose(c.input(0), perm)


# --- shapes


def _reshape(c: Call) -> str:
    source, wanted = c.shape(), list(c.ints(1))
    if not c.int_attr("allowzero", 0):
        for i, size in enumerate(wanted):
            if size == 0:
                if i >= len(source):
                    raise TypeMismatch(f"Reshape copies dimension {i} of {list(source)}")
                wanted[i] = source[i]
    return c.b.reshape(c.input(0), _inferred(source, wanted))


def _inferred(source: Sequence[int], wanted: list[int]) -> list[int]:
    """`wanted` with its -1, if any, replaced by what makes the number of elements right."""
    if any(d < -1 for d in wanted) or wanted.count(-1) > 1:
        raise TypeMismatch(f"Reshape to {wanted}")
    if -1 in wanted:
        known = -math.prod(wanted)
        total = math.prod(source)
        if known == 0 or total % known:
            raise TypeMismatch(f"Reshape of {list(source)} to {wanted}")
        wanted[wanted.index(-1)] = total // known
    return wanted


def _flatten(c: Call) -> str:
    axis, shape = c.int_attr("axis", 1), c.shape()
    if not -len(shape) <= axis <= len(shape):
        raise TypeMismatch(f"Flatten at axis {axis} of rank {len(shape)}")
    axis += len(shape) if axis < 0 else 0
    return c.b.reshape(c.input(0), (math.prod(shape[:axis]), math.prod(shape[axis:])))


def _axes_operand(c: Call, since: int = 13) -> tuple[int, ...] | None:
    """Axes given as an attribute, from opset `since` on as an operand; None when absent."""
    if c.opset < since:
        return c.ints_attr("axes") if "axes" in c.attrs else None
    return c.ints(1) if c.has(1) else None


def _squeeze(c: Call) -> str:
    given, shape = _axes_operand(c), c.shape()
    axes = normal_axes(given, len(shape)) if given is not None else tuple(i for i, d in enumerate(shape) if d == 1)
    if any(shape[a] != 1 for a in axes):
        raise TypeMismatch(f"Squeeze of axes {list(axes)} of {list(shape)}")
    return c.b.reshape(c.input(0), [d for i, d in enumerate(shape) if i not in axes])


def _unsqueeze(c: Call) -> str:
    given = _axes_operand(c)
    if given is None:
        raise TypeMismatch("axes are missing")
    rank = c.rank() + len(given)
    axes, sizes = normal_axes(given, rank), iter(c.shape())
    return c.b.reshape(c.input(0), [1 if i in axes else next(sizes) for i in range(rank)])


def _expand(c: Call) -> str:
    shape = c.ints(1)
    if any(d < 0 for d in shape):
        raise TypeMismatch(f"Expand to {list(shape)}")
    return c.b.broadcast(c.input(0), broadcast_shapes([c.shape(), shape]))


def _tile(c: Call) -> str:
    """Each axis as (repeats, size), repeated, and merged again."""
    repeats, shape = c.ints(1), c.shape()
    if len(repeats) != len(shape) or any(r < 0 for r in repeats):
        raise TypeMismatch(f"Tile of {list(shape)} by {list(repeats)}")
    wide: list[int] = []
    dims: list[int] = []
    for count, size in zip(repeats, shape, strict=True):
        if count != 1 and size != 1:
            wide.append(count)
        dims.append(len(wide))
        wide.append(count if size == 1 else size)
    tiled = c.b.broadcast(c.input(0), wide, dims)
    return c.b.reshape(tiled, [r * d for r, d in zip(repeats, shape, strict=True)])


# --- slices


def slice_range(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """(first position, length) of a slice of a dimension of `size`, clamped as ONNX Slice says."""
    if step == 0:
        raise TypeMismatch("Slice with step 0")
    start += size if start < 0 else 0
    end += size if end < 0 else 0
    if step > 0:
        start, end = min(max(start, 0), size), min(max(end, 0), size)
        length = max(0, -(-(end - start) // step))
    else:
        start, end = min(max(start, 0), size - 1), min(max(end, -1), size - 1)
        length = max(0, -(-(start - end) // -step))
    return (start, length) if length else (0, 0)


def _slice(c: Call) -> str:
    shape = c.shape()
    if c.opset < 10:
        starts, ends = c.ints_attr("starts"), c.ints_attr("ends")
        axes, steps = c.ints_attr("axes", range(len(starts))), (1,) * len(starts)
    else:
        starts, ends = c.ints(1), c.ints(2)
        axes = c.ints(3) if c.has(3) else tuple(range(len(starts)))
        steps = c.ints(4) if c.has(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise TypeMismatch("Slice with starts, ends, axes and steps of different lengths")
    if len({normal_axis(a, len(shape)) for a in axes}) != len(axes):
        raise TypeMismatch(f"Slice with axes {list(axes)} of rank {len(shape)}")
    first, by, sizes = [0] * len(shape), [1] * len(shape), list(shape)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        axis = normal_axis(axis, len(shape))
        first[axis], sizes[axis] = slice_range(start, end, step, shape[axis])
        by[axis] = step if sizes[axis] > 1 else 1
    if tuple(sizes) == shape and all(step == 1 for step in by):
        return c.input(0)
    return c.b.op("slice", c.input(0), sizes=sizes, starts=tuple(first), steps=tuple(by))


def _split(c: Call) -> tuple[str, ...]:
    axis = normal_axis(c.int_attr("axis", 0), c.rank())
    size, count = c.shape()[axis], len(c.outputs)
    if c.opset < 13 and "split" in c.attrs:
        parts = c.ints_attr("split")
    elif c.opset >= 13 and c.has(1):
        parts = c.ints(1)
    else:
        if c.opset >= 18 and c.int_attr("num_outputs", count) != count:
            raise TypeMismatch(f"attribute num_outputs is not {count}, the number of outputs")
        if c.opset < 18 and size % count:
            raise TypeMismatch(f"Split of {size} into {count} equal parts")
        each = -(-size // count)
        parts = tuple(max(0, min(each, size - i * each)) for i in range(count))
    if len(parts) != count or sum(parts) != size or any(p < 0 for p in parts):
        raise TypeMismatch(f"Split of {size} into {list(parts)} for {count} outputs")
    starts = [sum(parts[:i]) for i in range(count)]
    return tuple(
        c.b.slice(c.input(0), axis, start if part else 0, part) if c.outputs[i] else ""
        for i, (start, part) in enumerate(zip(starts, parts, strict=True))
    )


# --- joins and padding


def _concat(c: Call) -> str:
    names = [c.input(i) for i in range(len(c.inputs))]
    axis = normal_axis(c.int_attr("axis"), c.rank())
    return names[0] if len(names) == 1 else c.b.op("concat", *names, axis=axis)


def _pads(c: Call) -> list[int]:
    """Elements to add before every axis, then after every axis."""
    rank = c.rank()
    given = list(c.ints_attr("pads") if c.opset < 11 else c.ints(1))
    axes = c.ints(3) if c.opset >= 18 and c.has(3) else tuple(range(rank))
    if len(given) != 2 * len(axes):
        raise TypeMismatch(f"Pad with {len(given)} numbers for {len(axes)} axes")
    pads = [0] * (2 * rank)
    for i, axis in enumerate(axes):
        axis = normal_axis(axis, rank)
        pads[axis], pads[rank + axis] = given[i], given[len(axes) + i]
    return pads


def _pad(c: Call) -> str:
    x, rank, pads = c.input(0), c.rank(), _pads(c)
    mode = c.str_attr("mode", "constant")
    if mode not in ("constant", "edge", "reflect"):
        raise NotLowered("pad-mode")
    # Crop first: what is cropped must not show in a reflection.
    crops = [(max(0, -pads[i]), max(0, -pads[rank + i])) for i in range(rank)]
    for axis, (first, last) in enumerate(crops):
        size = c.b.shape(x)[axis]
        if first + last > size:
            raise TypeMismatch(f"Pad by {pads} crops more than {list(c.shape())} has")
        x = c.b.slice(x, axis, first if first + last < size else 0, size - first - last)
    before, after = tuple(max(0, p) for p in pads[:rank]), tuple(max(0, p) for p in pads[rank:])
    if not any(before + after):
        return x
    if mode == "constant":
        return _constant_pad(c, x, before, after)
    least = 0 if mode == "edge" else 1
    for size, first, last in zip(c.b.shape(x), before, after, strict=True):
        if (first or last) and (size == 0 or least * max(first, last) >= size):
            raise NotLowered("pad-mode")
    return c.b.op("pad", x, before=before, after=after, mode=mode)


def _constant_pad(c: Call, x: str, before: tuple[int, ...], after: tuple[int, ...]) -> str:
    dtype = c.b.dtype(x)
    zero: int | float | bool = 0.0 if dtype.is_float else False if dtype is DType.BOOL else 0
    if c.opset < 11:
        return c.b.op("pad", x, before=before, after=after, value=c.float_attr("value", 0.0))
    if not c.has(2):
        return c.b.op("pad", x, before=before, after=after, value=zero)
    value = c.b.value(c.input(2))
    if value is not None:
        return c.b.op("pad", x, before=before, after=after, value=scalar_of(value))
    inside = c.b.op("pad", c.b.full(True, DType.BOOL, c.b.shape(x)), before=before, after=after, value=False)
    padded = c.b.op("pad", x, before=before, after=after, value=zero)
    return c.do("where", inside, padded, c.b.reshape(c.input(2), ()))


# --- blocks


def _depth_to_space(c: Call) -> str:
    size, shape = c.int_attr("blocksize"), c.shape()
    if len(shape) != 4 or size < 1 or shape[1] % (size * size):
        raise TypeMismatch(f"DepthToSpace of {list(shape)} with blocks of {size}")
    n, channels, height, width = shape
    depth = channels // (size * size)
    match c.str_attr("mode", "DCR"):
        case "DCR":
            split, perm = (n, size, size, depth, height, width), (0, 3, 4, 1, 5, 2)
        case "CRD":
            split, perm = (n, depth, size, size, height, width), (0, 1, 4, 2, 5, 3)
        case other:
            raise TypeMismatch(f"attribute mode is {other!r}, not DCR or CRD")
    moved = c.b.transpose(c.b.reshape(c.input(0), split), perm)
    return c.b.reshape(moved, (n, depth, height * size, width * size))


def _space_to_depth(c: Call) -> str:
    size, shape = c.int_attr("blocksize"), c.shape()
    if len(shape) != 4 or size < 1 or shape[2] % size or shape[3] % size:
        raise TypeMismatch(f"SpaceToDepth of {list(shape)} with blocks of {size}")
    n, channels, height, width = shape
    split = (n, channels, height // size, size, width // size, size)
    moved = c.b.transpose(c.b.reshape(c.input(0), split), (0, 3, 5, 1, 2, 4))
    return c.b.reshape(moved, (n, channels * size * size, height // size, width // size))


def _nearest_scales(c: Call) -> list[int]:
    """The factor of each axis of a Resize (or Upsample) by whole numbers. NotLowered when there is another."""
    shape = c.shape()
    if c.has(3) and c.opset >= 11:
        wanted = list(c.ints(3))
    else:
        scales = c.value(1 if c.op == "Upsample" or c.opset < 11 else 2).reshape(-1)
        if not np.isfinite(scales).all():
            raise TypeMismatch(f"{c.op} by {scales.tolist()}")
        wanted = [math.floor(d * float(s)) for d, s in zip(shape, scales, strict=False)]
    if len(wanted) != len(shape):
        raise TypeMismatch(f"{c.op} of {list(shape)} by {len(wanted)} numbers")
    if any(d == 0 or w % d for d, w in zip(shape, wanted, strict=True)):
        raise NotLowered("resampling")
    return [w // d for d, w in zip(shape, wanted, strict=True)]


def _resize(c: Call) -> str:
    """Nearest neighbour by whole factors: each element repeated. Everything else is resampling."""
    plain = not c.int_attr("antialias", 0) and c.str_attr("keep_aspect_ratio_policy", "stretch") == "stretch"
    if c.str_attr("mode", "nearest") != "nearest" or not plain or "axes" in c.attrs:
        raise NotLowered("resampling")
    if c.op == "Resize" and c.opset >= 11:
        where = c.str_attr("coordinate_transformation_mode", "half_pixel")
        rounding = c.str_attr("nearest_mode", "round_prefer_floor")
        # Both give position i the source i // factor: half pixels never lie half way between two sources.
        exact = (where == "asymmetric" and rounding == "floor") or (
            where == "half_pixel" and rounding in ("round_prefer_floor", "round_prefer_ceil")
        )
        if not exact:
            raise NotLowered("resampling")
    shape, factors = c.shape(), _nearest_scales(c)
    wide: list[int] = []
    dims: list[int] = []
    for size, factor in zip(shape, factors, strict=True):
        dims.append(len(wide))
        wide += [size] if factor == 1 else [size, factor]
    repeated = c.b.broadcast(c.input(0), wide, dims)
    return c.b.reshape(repeated, [d * f for d, f in zip(shape, factors, strict=True)])


RULES: dict[str, Rule] = {
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Expand": _expand,
    "Flatten": _flatten,
    "Pad": _pad,
    "Reshape": _reshape,
    "Resize": _resize,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": _split,
    "Squeeze": _squeeze,
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Upsample": _resize,
}
