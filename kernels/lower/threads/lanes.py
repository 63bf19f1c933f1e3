"""How the threads of a block share the loops of a stage: which coordinate a thread has along each axis.

Thread number t is decoded row-major over the stage's (axis, threads) pairs, the last pair varying fastest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...loops import THREAD, Expr, Let, Literal, Stmt
from ..errors import LoweringError
from ..integers import Range, divide, modulo, number
from ..names import Names


@dataclass(frozen=True)
class Lane:
    """`count` threads share an axis; a thread's coordinate is `t / stride % count`."""

    axis: int
    count: int
    stride: int
    coordinate: Expr


@dataclass
class Coordinates:
    """Thread coordinates of one group, named once each; `lets` stand before its stages."""

    threads: int
    names: Names
    ranges: dict[Expr, Range]
    lets: list[Stmt] = field(default_factory=list)
    known: dict[tuple[int, int, bool], Expr] = field(default_factory=dict)

    def share(self, lanes: Sequence[tuple[int, int]]) -> dict[int, Lane]:
        """The lanes of a stage by axis, those of a single thread left out."""
        found: dict[int, Lane] = {}
        stride = 1
        product = math.prod(n for _, n in lanes)
        if product > self.threads:
            raise LoweringError(f"{product} lanes are more than the {self.threads} threads of a block")
        for axis, count in reversed(lanes):
            if count < 1 or axis in found:
                raise LoweringError(f"axis {axis} has no such lanes")
            if count > 1:
                found[axis] = Lane(axis, count, stride, self._coordinate(stride, count, stride * count == product))
            stride *= count
        return found

    def _coordinate(self, stride: int, count: int, slowest: bool) -> Expr:
        key = (stride, count, slowest)
        if key not in self.known:
            below = (0, self.threads - 1)
            quotient = divide(THREAD, number(stride), below)
            # threads beyond all lanes skip the stage, so that the slowest coordinate needs no remainder
            value = quotient if slowest else modulo(quotient, number(count), below)
            if isinstance(value, Literal) or value == THREAD:
                self.known[key] = value
            else:
                local = self.names.fresh("t")
                self.lets.append(Let(local, value))
                self.known[key] = local
            self.ranges[self.known[key]] = (0, count - 1) if value != THREAD else below
        return self.known[key]


def busy(lanes: dict[int, Lane]) -> int:
    """Threads that have work."""
    return math.prod(lane.count for lane in lanes.values())
