"""bfloat16 by its bits, for array libraries that cannot compute with it."""

from __future__ import annotations

from typing import Any


def widened(xp: Any, halves: Any) -> Any:
    """The bits of bfloat16 numbers as float32 numbers; `xp` is CuPy, or NumPy in tests."""
    return (halves.astype(xp.uint32) << 16).view(xp.float32)


def narrowed(xp: Any, numbers: Any) -> Any:
    """Float32 numbers as the bits of the nearest bfloat16, ties to even; a NaN stays one."""
    bits = numbers.view(xp.uint32)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return xp.where(xp.isnan(numbers), 0x7FC0, nearest).astype(xp.uint16)
