"""Places for intermediate tensors in one block of memory, reused when their lifetimes do not meet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64


@dataclass(frozen=True)
class Lifetime:
    """A tensor of `bytes` that holds data from step `first` to step `last`, both included."""

    name: str
    bytes: int
    first: int
    last: int


@dataclass(frozen=True)
class Layout:
    """Byte offsets, multiples of the alignment, and the size of the block that holds all of them."""

    offsets: dict[str, int]
    bytes: int


def place(lifetimes: Sequence[Lifetime], alignment: int = ALIGNMENT) -> Layout:
    """First fit, the largest tensors first (the greedy-by-size rule of Pisarchyk and Lee, arXiv 2001.03288)."""
    placed: list[tuple[int, int, Lifetime]] = []
    offsets: dict[str, int] = {}
    total = 0
    for item in sorted(lifetimes, key=lambda t: (-t.bytes, t.first, t.name)):
        size = max(alignment, -(-item.bytes // alignment) * alignment)
        start = 0
        for begin, end, other in placed:
            if other.last < item.first or item.last < other.first:
                continue
            if begin - start >= size:
                break
            start = max(start, end)
        offsets[item.name] = start
        total = max(total, start + size)
        placed.append((start, start + size, item))
        placed.sort(key=lambda entry: entry[0])
    return Layout(offsets, total)


def allocate(size: int) -> tuple[NDArray[np.uint8], int]:
    """Uninitialised memory for a layout: the owner, and the address of its first 64-byte boundary."""
    memory = np.empty(size + ALIGNMENT, np.uint8)
    address: int = memory.__array_interface__["data"][0]
    return memory, -(-address // ALIGNMENT) * ALIGNMENT
