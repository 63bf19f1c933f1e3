"""What executors of every target have in common: how they are called, and what they tell of themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray

Visit = Callable[[int, list[NDArray[Any]]], None]
"""Is shown the number of a component and its inputs."""


@dataclass(frozen=True)
class Stats:
    """What an executor is and has done.

    launches, barriers  of stitched kernels, executed in all runs so far
    interpreted         components without compiled kernels
    notes               what makes it slower than it could be, a line each
    """

    runs: int
    launches: int
    barriers: int
    kernels: int
    library_ops: int
    interpreted: int
    arena_bytes: int
    threads: int
    notes: tuple[str, ...] = ()


class Executor(Protocol):
    """A compiled graph. Calls are thread-safe."""

    def __call__(self, feeds: Mapping[str, Any], out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The outputs by name, for arrays of the graph's inputs."""

    def record(self, feeds: Mapping[str, Any], visit: Visit) -> dict[str, Any]:
        """Runs the graph step by step and shows `visit` the inputs of each component before it runs."""

    def stats(self) -> Stats:
        """Sizes, and counts over all runs so far."""
