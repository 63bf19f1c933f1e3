"""Bytes of shared memory that the groups of a CUDA plan need."""

from __future__ import annotations

from ..graphs.subgraph import Subgraph
from .draft import GroupDraft
from .plan import Edge

FOLD = -1
"""Stands for the scratch of folds across warps, beside value numbers."""


def kept_size(sub: Subgraph, value: int) -> int:
    """Bytes of an element in block memory: low-precision floats may stay float32 there (precision `fast`)."""
    dtype = sub.values[value].dtype
    return 4 if dtype.is_low_precision else dtype.size


def group_bytes(sub: Subgraph, group: GroupDraft, edges: tuple[Edge, ...]) -> dict[int, int]:
    """Bytes of block memory of each value that a block edge of this group needs, and of its folds (`FOLD`)."""
    stored = {e.value for e in edges if e.place == "block"}
    here = {v for s in group.stages for v in (*s.members, *s.combine, *s.inputs)} - group.partial
    sizes: dict[int, int] = {}
    for value in sorted(stored & here):
        total = kept_size(sub, value)
        for axis in sub.values[value].axes:
            total *= group.trip(sub, axis)
        sizes[value] = -(-total // 16) * 16
    if any(sub.values[m].reduce for s in group.stages for m in s.members):
        sizes[FOLD] = fold_bytes(group.threads, max(s.width for s in group.stages))
    return sizes


def fold_bytes(threads: int, width: int) -> int:
    """Most that folding across warps takes: two 8-byte components of `width` accumulators from every thread."""
    return threads * width * 16
