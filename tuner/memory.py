"""Buffers that show what a kernel did to them: poisoned outputs between guard zones."""

from __future__ import annotations

import ctypes

import numpy as np
from numpy.typing import NDArray

from ..graphs.dtypes import DType

Bytes = NDArray[np.uint8]

GUARD = 1 << 16
"""Bytes of canary before and after each buffer."""

CANARY = 0xC5
_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

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
        self._before[:] = CANARY
        self._after[:] = CANARY

    @property
    def address(self) -> int:
        """Where the first byte lies."""
        return int(self.data.ctypes.data)

    def damage(self) -> int | None:
        """Offset of the nearest byte outside that was written (negative: before the buffer); None when none was."""
        return damage(self._before, self._after, len(self.data))

    @property
    def bytes(self) -> int:
        return len(self.data)

    def poison(self, run: int) -> None:
        """Fills it as it is before run 0 or 1."""
        poison(self.data, run)

    def host(self) -> Bytes:
        """The contents."""
        return self.data

    def keep(self) -> Bytes:
        """A copy of the contents."""
        return self.data.copy()

    def same(self, kept: Bytes) -> bool:
        """True when the contents are `kept`."""
        return equal(self.data, kept)

    def typed(self, dtype: DType, shape: tuple[int, ...]) -> NDArray[np.generic]:
        """The buffer as an array; it may start at any element."""
        return self.data.view(dtype.numpy).reshape(shape)


def damage(before: Bytes, after: Bytes, size: int) -> int | None:
    """Offset of the byte that was written in the guard zones around a buffer of `size` bytes; None when none was."""
    low, high = np.flatnonzero(before != CANARY), np.flatnonzero(after != CANARY)
    if len(high):
        return size + int(high[0])
    return int(low[-1]) - len(before) if len(low) else None


def equal(a: Bytes, b: Bytes) -> bool:
    """True for equal bytes: faster than NumPy, which makes an array of comparisons."""
    return bool(_libc.memcmp(a.ctypes.data, b.ctypes.data, len(a)) == 0)


def poison(buffer: Bytes, run: int) -> None:
    """Fills an output before run 0 or 1."""
    buffer[:] = POISONS[run]


def unwritten(first: Bytes, second: Bytes, item: int) -> int | None:
    """The first element that differs between two runs because one of them left its poison; None when none does."""
    a, b = first.reshape(-1, item), second.reshape(-1, item)
    left = ((a == POISONS[0]).all(axis=1) | (b == POISONS[1]).all(axis=1)) & (a != b).any(axis=1)
    elements = np.flatnonzero(left)
    return int(elements[0]) if len(elements) else None
