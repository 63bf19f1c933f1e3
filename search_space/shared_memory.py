"""Bytes of shared memory that the groups of a CUDA plan need."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

from ..graphs.dtypes import DType
from ..graphs.subgraph import Subgraph
from .draft import GroupDraft
from .plan import Edge
from .registers import Sharing, busy
from .target import WARP

ALIGNMENT = 64
"""Bytes that every array in shared memory starts at a multiple of."""


FOLD = -1
"""Stands for the scratch of folds across warps, beside value numbers."""

PAIR = 5
"""Most components of what two coupled reductions accumulate together."""

FOLD_BUFFERS = 2
"""Arrays that folds take in turn, so that one synchronisation a fold is enough."""


class Folding(Sharing, Protocol):
    """A stage, or its draft, as far as its folds are concerned."""

    @property
    def combine(self) -> Iterable[int]: ...


def kept_size(sub: Subgraph, value: int) -> int:
    """Bytes of an element in block memory: low-precision floats may stay float32 there (precision `fast`)."""
    dtype = sub.values[value].dtype
    return 4 if dtype.is_low_precision else dtype.size


def rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def tile_bytes(sub: Subgraph, value: int, axes: tuple[int, ...], trip: Callable[[int], int], pad: int = 0) -> int:
    """Bytes that a task needs for its part of a value over `axes`, the last of which is padded by `pad` elements."""
    sizes = [trip(a) for a in axes]
    if sizes:
        sizes[-1] += pad
    return rounded(kept_size(sub, value) * math.prod(sizes))


def group_bytes(sub: Subgraph, group: GroupDraft, edges: Iterable[Edge]) -> dict[int, int]:
    """Bytes of block memory of each value that a block edge of this group needs, and of its folds (`FOLD`)."""
    stored = {e.value for e in edges if e.place == "block"}
    axes: dict[int, tuple[int, ...]] = {}
    for stage in group.stages:
        axes.update((v, sub.values[v].axes) for v in stage.members if v not in group.partial)
        axes.update((v, sub.values[v].axes) for v in stage.combine)
        axes.update(stage.inputs)
    layouts = {v: group.layouts.get(v, (axes[v], 0)) for v in sorted(stored & set(axes))}
    sizes = {v: tile_bytes(sub, v, order, lambda a: group.trip(sub, a), pad) for v, (order, pad) in layouts.items()}
    coupled = frozenset(v for pairs in (group.coupled, group.joined) for pair in pairs.items() for v in pair)
    folds = fold_bytes(sub, group.threads, ((s, s.members) for s in group.stages), coupled)
    return {**sizes, FOLD: folds} if folds else sizes


def fold_bytes(
    sub: Subgraph,
    threads: int,
    stages: Iterable[tuple[Folding, Iterable[int]]],
    coupled: frozenset[int] = frozenset(),
) -> int:
    """What folds across warps take in a group; `stages` come with the values that they compute.

    `coupled`: reductions that belong to a pair, whose common accumulator has up to `PAIR` components.
    """
    needs: dict[tuple[DType, int], int] = {}

    def need(value: int, elements: int) -> None:
        kinds = [_computing(sub.values[value].dtype)] * PAIR if value in coupled else _components(sub, value)
        for k, dtype in enumerate(kinds):
            needs[dtype, k] = max(needs.get((dtype, k), 0), elements)

    for stage, values in stages:
        for value in values:
            reduction = sub.values[value]
            if reduction.reduce:
                need(value, _elements(threads, stage, set(reduction.reduce), reduction.axes))
        for value in stage.combine:
            # Threads that the own axes leave idle share the parts; they are the slowest varying ones.
            across = threads > WARP and busy(stage) < threads
            width = stage.width if stage.vector in sub.values[value].axes else 1
            need(value, max(threads // WARP, min(threads, busy(stage) * threads // WARP)) * width * across)
    return FOLD_BUFFERS * sum(rounded(elements * dtype.size) for (dtype, _), elements in needs.items())


def _components(sub: Subgraph, value: int) -> list[DType]:
    """The most components that the accumulator of a reduction has: a sum may carry what its last addition lost."""
    reduction = sub.values[value]
    operand = _computing(sub.values[reduction.reads[0].value].dtype)
    if reduction.op.startswith("arg"):
        return [operand, DType.I64]
    return [_computing(reduction.dtype)] * (2 if reduction.op == "sum" else 1)


def _computing(dtype: DType) -> DType:
    return DType.F32 if dtype.is_low_precision else dtype


def _elements(threads: int, stage: Sharing, reduced: set[int], own: tuple[int, ...]) -> int:
    """Elements of a fold's scratch: one for every thread, less those that shuffles merge; none within a warp."""
    near, far, stride = 1, False, 1
    for axis, count in reversed(stage.lanes):
        if axis in reduced and count > 1:
            inside = max(1, min(count, WARP // stride))
            near *= inside
            far = far or inside < count
        stride *= count
    width = stage.width if stage.vector in own else 1
    return threads // near * width if far else 0
