"""Values that stay in registers from one stage of a CUDA group to a later one: which threads hold which elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Protocol

from .target import Target

MAX_HELD = 64
"""Most elements of one value that a thread may hold."""

WORKING_REGISTERS = 32
"""Registers that a thread needs beside what it keeps and what is on its way there."""

KEPT_ELEMENTS = 48
"""Most elements that a thread keeps by default: beyond, too few threads are resident."""


class Sharing(Protocol):
    """How the threads of a block share the loops of a stage: a Stage, or its draft."""

    @property
    def lanes(self) -> tuple[tuple[int, int], ...]: ...
    @property
    def vector(self) -> int: ...
    @property
    def width(self) -> int: ...


def coordinates(stage: Sharing, axes: Iterable[int]) -> dict[int, tuple[int, int, int]]:
    """For each axis: how many threads share it, the distance of two of them, and the neighbours each takes a step."""
    found: dict[int, tuple[int, int, int]] = {}
    stride = 1
    for axis, count in reversed(stage.lanes):
        if count > 1:
            found[axis] = (count, stride, 1)
        stride *= count
    for axis in axes:
        count, stride, _ = found.get(axis, (1, 0, 1))
        found[axis] = (count, stride, stage.width if axis == stage.vector else 1)
    return {a: found[a] for a in axes}


def busy(stage: Sharing) -> int:
    """Threads that have work in a stage; those beyond hold nothing."""
    return math.prod(n for _, n in stage.lanes)


def same_threads(first: Sharing, second: Sharing, axes: tuple[int, ...]) -> bool:
    """True when every thread at work in `second` visits, along `axes`, just the elements that it visited in `first`."""
    return busy(second) <= busy(first) and coordinates(first, axes) == coordinates(second, axes)


def held(stage: Sharing, axes: tuple[int, ...], trip: Callable[[int], int]) -> int:
    """Elements of a value of these axes that a thread of the stage visits at most; `trip`: positions along an axis."""
    total = 1
    for axis, (count, _, width) in coordinates(stage, axes).items():
        total *= width * max(1, -(-trip(axis) // (count * width)))
    return total


def allowance(target: Target, threads: int) -> int:
    """Elements of four bytes that each thread of a block may keep by default."""
    return max(0, min(KEPT_ELEMENTS, (target.registers // threads - WORKING_REGISTERS) // 2))
