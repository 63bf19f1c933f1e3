"""How a library op is cut into pieces that the threads of a team run side by side, each on one thread.

A piece reads and writes contiguous parts of the operands, so nothing is copied. Where no such cut exists the op
stays whole, and the library runs it on threads of its own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..graphs.ir import TensorType


@dataclass(frozen=True)
class Part:
    """Elements `start` up to `start + product(shape)` of a tensor in row-major order, seen as `shape`."""

    start: int
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Piece:
    """The parts that one piece works on, one per operand; None is an absent optional input."""

    inputs: tuple[Part | None, ...]
    outputs: tuple[Part, ...]


Types = Sequence[TensorType | None]

SMALL = 200_000
"""Multiply-adds below which one thread is as fast as several (about 5 us)."""

_CHANNELS = 16
"""Output channels that ONNX Runtime's convolutions compute at once on the widest vectors."""


def pieces(op_type: str, attrs: Mapping[str, Any], inputs: Types, outputs: Types, parts: int) -> tuple[Piece, ...]:
    """About `parts` pieces of equal work, or () when the op cannot be cut that way. One piece: too small to cut.

    `op_type` and `attrs` are ONNX's. `inputs` are None where an optional input is absent.
    """
    cut = _CUTS.get(op_type)
    if cut is None or len(outputs) != 1 or outputs[0] is None or inputs[0] is None or outputs[0].elements == 0:
        return ()
    return cut(attrs, inputs, outputs[0], parts)


def whole(inputs: Types, outputs: Types) -> Piece:
    """The op in one piece."""
    return Piece(tuple(_all(t) for t in inputs), tuple(Part(0, t.shape) for t in outputs if t))


def split(extent: int, parts: int, unit: int = 1) -> list[tuple[int, int]]:
    """At most `parts` (start, size) ranges of nearly equal size that cover 0..extent, edges at multiples of `unit`."""
    units = -(-extent // unit)
    parts = max(1, min(parts, units))
    edges = [min(extent, units * i // parts * unit) for i in range(parts + 1)]
    return [(a, b - a) for a, b in itertools.pairwise(edges)]


def _matmul(attrs: Mapping[str, Any], inputs: Types, output: TensorType, parts: int) -> tuple[Piece, ...]:
    a, b = _two(inputs)
    if len(a.shape) < 2 or len(b.shape) < 2:
        return ()
    rows, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    batches = math.prod(a.shape[:-2])
    if math.prod(b.shape[:-2]) == 1:  # one right-hand side: the batch is more rows
        rows, batches = rows * batches, 1
    elif a.shape[:-2] != b.shape[:-2]:
        return ()
    if output.elements * k < SMALL:
        return (whole(inputs, [output]),)
    if batches % parts == 0 or batches >= 4 * parts:
        return tuple(
            Piece((Part(i * rows * k, (c, rows, k)), Part(i * k * n, (c, k, n))), (Part(i * rows * n, (c, rows, n)),))
            for i, c in split(batches, parts)
        )
    if rows < parts:
        return ()
    return tuple(
        Piece(
            (Part((i * rows + r) * k, (c, k)), Part(i * k * n, (k, n))),
            (Part((i * rows + r) * n, (c, n)),),
        )
        for i in range(batches)
        for r, c in split(rows, parts)
    )


def _gemm(attrs: Mapping[str, Any], inputs: Types, output: TensorType, parts: int) -> tuple[Piece, ...]:
    a, b = _two(inputs)
    if attrs.get("transA", 0):
        return ()
    (m, n), k = output.shape, a.shape[1]
    if m * n * k < SMALL:
        return (whole(inputs, [output]),)
    if m == 1 and attrs.get("transB", 0):  # a linear layer on one sample: its weights are cut
        ranges = split(n, parts, _CHANNELS)
        return tuple(
            Piece((Part(0, a.shape), Part(r * k, (c, k)), *_bias(inputs, 1, r, c)), (Part(r, (1, c)),))
            for r, c in ranges
        )
    if m < parts:
        return ()
    return tuple(
        Piece((Part(r * k, (c, k)), Part(0, b.shape), *_bias(inputs, 0, r, c)), (Part(r * n, (c, n)),))
        for r, c in split(m, parts)
    )


def _bias(inputs: Types, axis: int, start: int, count: int) -> tuple[Part | None, ...]:
    """The part of Gemm's third input (if there is one) that rows or columns `start`, ... of the output need."""
    if len(inputs) < 3 or inputs[2] is None:
        return tuple(None for _ in inputs[2:])
    shape = (1,) * (2 - len(inputs[2].shape)) + inputs[2].shape
    if shape[axis] == 1:
        return (Part(0, inputs[2].shape),)
    if axis == 0:
        return (Part(start * shape[1], (count, shape[1])),)
    return (Part(start, (1, count)),)


def _conv(attrs: Mapping[str, Any], inputs: Types, output: TensorType, parts: int) -> tuple[Piece, ...]:
    x, w = _two(inputs)
    group = int(attrs.get("group", 1))
    samples, channels = output.shape[:2]
    if output.elements * math.prod(w.shape[1:]) < SMALL:
        return (whole(inputs, [output]),)
    rest = [_all(t) for t in inputs[1:]]
    if samples % parts == 0 or samples >= 4 * parts:
        size, made = x.elements // samples, output.elements // samples
        return tuple(
            Piece((Part(i * size, (c, *x.shape[1:])), *rest), (Part(i * made, (c, *output.shape[1:])),))
            for i, c in split(samples, parts)
        )
    if group > 1:  # a piece must hold whole groups, and its `group` attribute would differ
        return ()
    plane, filters = math.prod(output.shape[2:]), w.elements // channels
    return tuple(
        Piece(
            (
                Part(i * (x.elements // samples), (1, *x.shape[1:])),
                Part(o * filters, (c, *w.shape[1:])),
                *(None if t is None else Part(o, (c,)) for t in inputs[2:]),
            ),
            (Part((i * channels + o) * plane, (1, c, *output.shape[2:])),),
        )
        for i in range(samples)
        for o, c in split(channels, parts, _CHANNELS)
    )


def _pool(attrs: Mapping[str, Any], inputs: Types, output: TensorType, parts: int) -> tuple[Piece, ...]:
    x = inputs[0]
    assert x is not None
    planes = math.prod(x.shape[:2])
    if x.elements < SMALL // 8:
        return (whole(inputs, [output]),)
    size, made = x.elements // planes, output.elements // planes
    return tuple(
        Piece((Part(i * size, (1, c, *x.shape[2:])),), (Part(i * made, (1, c, *output.shape[2:])),))
        for i, c in split(planes, parts)
    )


def _all(kind: TensorType | None) -> Part | None:
    return None if kind is None else Part(0, kind.shape)


def _two(inputs: Types) -> tuple[TensorType, TensorType]:
    a, b = inputs[:2]
    assert a is not None
    assert b is not None
    return a, b


_CUTS: dict[str, Callable[[Mapping[str, Any], Types, TensorType, int], tuple[Piece, ...]]] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "Conv": _conv,
    "MaxPool": _pool,
    "AveragePool": _pool,
    "GlobalMaxPool": _pool,
    "GlobalAveragePool": _pool,
}
