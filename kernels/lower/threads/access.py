"""Which thread touches which element of an array, as far as syncs need to know."""

from __future__ import annotations

from dataclasses import dataclass

from ....search_space.target import WARP
from .lanes import Lane


@dataclass(frozen=True)
class Pattern:
    """How threads share the axes of a stage: (axis, threads, stride, neighbours a step), slowest first."""

    lanes: tuple[tuple[int, int, int, int], ...] = ()

    @property
    def far(self) -> tuple[tuple[int, int, int, int], ...]:
        """The lanes that tell warps apart."""
        return tuple(lane for lane in self.lanes if lane[2] >= WARP)

    @property
    def by_warp(self) -> bool:
        """True when no lane lies across the border of a warp."""
        return all(stride >= WARP or stride * count <= WARP for _, count, stride, _ in self.lanes)


def pattern(lanes: dict[int, Lane], vector: int, width: int) -> Pattern:
    found = [(a, lane.count, lane.stride, width if a == vector else 1) for a, lane in lanes.items()]
    return Pattern(tuple(sorted(found, key=lambda lane: -lane[2])))


@dataclass(frozen=True)
class Access:
    """One stage's access to one array.

    pattern  how its threads share the loops; None: any thread may touch any element
    axes     of the value in the array
    same     axes along which elements are touched at the thread's own position. A store is at its own position along
             all axes; of the threads that differ along other axes, the first one stores.
    """

    array: str
    write: bool
    pattern: Pattern | None = None
    axes: frozenset[int] = frozenset()
    same: frozenset[int] = frozenset()

    def stays_in_thread(self, other: Access) -> bool:
        """True when elements that both touch are touched by one thread."""
        if self.pattern is None or self.pattern != other.pattern:
            return False
        shared = {axis for axis, *_ in self.pattern.lanes}
        return shared <= self.same and shared <= other.same

    def stays_in_warp(self, other: Access) -> bool:
        """True when elements that both touch are touched by threads of one warp."""
        if self.pattern is None or other.pattern is None or self.pattern.far != other.pattern.far:
            return False
        if not (self.pattern.by_warp and other.pattern.by_warp):
            return False
        shared = {axis for axis, *_ in self.pattern.far}
        return shared <= self.same and shared <= other.same
