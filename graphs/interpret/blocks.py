"""Large arrays piece by piece, so that the temporaries of one operator stay in the cache."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from ..rounding import Array

BLOCK = 1 << 15
"""Elements of a block, more or less."""

Cut = tuple[slice, ...]


def blocks(shape: tuple[int, ...], inner: int = 1) -> Iterator[Cut]:
    """Slices that tile an index space; each point stands for `inner` elements."""
    size = max(1, inner)
    split = len(shape) - 1
    while split > 0 and size * shape[split] <= BLOCK:
        size *= shape[split]
        split -= 1
    if split < 0 or math.prod(shape) * inner <= BLOCK:
        yield tuple(slice(None) for _ in shape)
        return
    step = max(1, BLOCK // size)
    for outer in np.ndindex(*shape[:split]):
        for start in range(0, shape[split], step):
            rest = tuple(slice(None) for _ in shape[split + 1 :])
            yield (*(slice(i, i + 1) for i in outer), slice(start, start + step), *rest)


def piece(array: Array, cut: Cut) -> Array:
    """The part of a compact array (of size 1 where nothing varies) that `cut` of the whole index space reads."""
    return array[tuple(c if n != 1 else slice(None) for c, n in zip(cut, array.shape, strict=False))]
