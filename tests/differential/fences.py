"""Memory for launches that shows what a kernel does wrong.

A *fenced* array ends where an unreadable page begins, and what lies before it and in the gap behind it is patterned.
Reading or writing behind it kills the process, writing before it changes the pattern.
"""

from __future__ import annotations

import ctypes
import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

PATTERN = 0xA5
LINE = 64
_PAGE = mmap.PAGESIZE
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
_libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


@dataclass
class Fenced:
    """`size` bytes at `address`, a multiple of `align`; `memory` is all that may be touched around them."""

    address: int
    size: int
    memory: NDArray[np.uint8]
    start: int
    _base: int
    _bytes: int

    @property
    def payload(self) -> NDArray[np.uint8]:
        return self.memory[self.start : self.start + self.size]

    def intact(self) -> bool:
        """Whether nothing but the payload was written."""
        before, after = self.memory[: self.start], self.memory[self.start + self.size :]
        return bool((before == PATTERN).all() and (after == PATTERN).all())

    def free(self) -> None:
        """Gives fenced memory back; ordinary memory goes with its last user."""
        self.memory = np.empty(0, np.uint8)
        if self._bytes:
            _libc.munmap(self._base, self._bytes)


def fenced(size: int, align: int) -> Fenced:
    """Memory that ends before an unreadable page, but for what the alignment leaves."""
    room = max(1, -(-size // _PAGE)) * _PAGE
    base = _libc.mmap(
        None, room + _PAGE, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0
    )
    if base in (None, ctypes.c_void_p(-1).value):
        raise MemoryError("no memory for a fenced array")
    _libc.mprotect(base + room, _PAGE, 0)  # PROT_NONE
    memory: NDArray[np.uint8] = np.frombuffer((ctypes.c_uint8 * room).from_address(base), np.uint8)
    start = room - -(-size // align) * align
    memory[:] = PATTERN
    return Fenced(base + start, size, memory, start, base, room + _PAGE)


def padded(size: int, shift: int) -> Fenced:
    """Ordinary memory with `LINE` patterned bytes on each side, `shift` bytes behind a multiple of `LINE`."""
    whole = np.full(size + 4 * LINE, PATTERN, np.uint8)
    start = LINE - whole.ctypes.data % LINE + LINE + shift
    return Fenced(whole.ctypes.data + start, size, whole, start, 0, 0)


def view(memory: Fenced, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """A copy of the payload as an array."""
    return memory.payload.copy().view(dtype).reshape(shape)
