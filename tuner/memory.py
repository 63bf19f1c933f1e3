"""Buffers that show what a kernel did to them: poisoned outputs between guard zones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..graphs.dtypes import DType

Bytes = NDArray[np.uint8]

GUARD = 1 << 16
"""Bytes of canary before and after each buffer."""

_CANARY = 0xC5
POISONS = (0xFF, 0x7E)
"""Two fillings: as floats NaN and huge, as integers -1 and large, as bool no value at all."""


class Guarded:
    """`size` bytes with canaries around them, starting `shift` bytes after a multiple of 64."""

    def __init__(self, size: int, shift: int = 0) -> None:
        whole = np.empty(size + 2 * GUARD + 128, np.uint8)
        start = GUARD + (-whole.ctypes.data - GUARD) % 64 + shift
        self.data: Bytes = whole[start : start + size]
        self._before: Bytes = whole[:start]
        self._after: Bytes = whole[start + size :]
        self._before[:] = _CANARY
        self._after[:] = _CANARY

    @property
    def address(self) -> int:
        """Where the first byte lies."""
        return int(self.data.ctypes.data)

    def damage(self) -> int | None:
        """Offset of the nearest byte outside that was written (negative: before the buffer); None when none was."""
        before = np.flatnonzero(self._before != _CANARY)
        after = np.flatnonzero(self._after != _CANARY)
        if len(after):
            return len(self.data) + int(after[0])
        return int(before[-1]) - len(self._before) if len(before) else None

    def typed(self, dtype: DType, shape: tuple[int, ...]) -> NDArray[np.generic]:
        """The buffer as an array; it may start at any element."""
        return self.data.view(dtype.numpy).reshape(shape)


def poison(buffer: Bytes, run: int) -> None:
    """Fills an output before run 0 or 1."""
    buffer[:] = POISONS[run]


def unwritten(first: Bytes, second: Bytes, item: int) -> int | None:
    """The first element that differs between two runs because one of them left its poison; None when none does."""
    a, b = first.reshape(-1, item), second.reshape(-1, item)
    left = ((a == POISONS[0]).all(axis=1) | (b == POISONS[1]).all(axis=1)) & (a != b).any(axis=1)
    elements = np.flatnonzero(left)
    return int(elements[0]) if len(elements) else None
