"""What contestants are given, what they offer, and what a contest finds: plain values that cross processes."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any, Protocol

from numpy.typing import NDArray

from ..graphs.ir import Graph
from ..graphs.partition import Partition
from ..search_space.plan import Plan
from ..search_space.target import Target


@dataclass(frozen=True)
class Task:
    """One computation in every form that a contestant may want.

    name       the contestant it is for
    partition  the computation as primitives and as steps of ours: one component, or None for the whole graph of `path`
    plans      what our own contestants run the components by
    model      as ONNX made of the exported operators (their composite forms), same inputs and outputs; b"" when the
               subgraph cannot be cut out of the exported graph
    path       the exported graph and `dims` its sizes, when the computation is all of it
    feeds      one array per input
    threads    how many a contestant may use
    cache      folder of compiled kernels
    """

    name: str
    partition: Partition | None
    plans: tuple[Plan, ...]
    model: bytes
    path: str
    dims: tuple[tuple[str, int], ...]
    target: Target
    feeds: tuple[NDArray[Any], ...]
    threads: int
    cache: str

    @property
    def graph(self) -> Graph:
        """The primitives of a subgraph. Raises ValueError where library ops are among them, which no peer knows."""
        if self.partition is None or any(node.op == "library" for node in self.partition.graph.nodes):
            raise ValueError("the subgraph cannot be cut out of its graph")
        return self.partition.graph


class Contestant(Protocol):
    """A computation made ready. Both timings repeat it back to back and give seconds in all."""

    def outputs(self) -> list[NDArray[Any]]:
        """One result, as host arrays, in the task's order."""

    def kernel(self, times: int) -> float:
        """Inputs and outputs stay in the contestant's own arrays."""

    def call(self, times: int) -> float:
        """Host arrays in, fresh host arrays out: what a caller of the library waits for."""


@dataclass(frozen=True)
class Entry:
    """What one contestant showed: seconds per run of each burst.

    error      norm of the difference from the first contestant's outputs over their norm, the worst output
    failure    "" or why there are no times
    """

    name: str
    kernel: tuple[float, ...] = ()
    call: tuple[float, ...] = ()
    compile_seconds: float = 0.0
    error: float = 0.0
    failure: str = ""


@dataclass(frozen=True)
class Ratio:
    """How much longer `other` took, burst by burst: the median and the quartiles."""

    other: str
    median: float
    low: float
    high: float


def ratio(ours: tuple[float, ...], other: str, theirs: tuple[float, ...]) -> Ratio:
    """Pair by pair: burst i of both ran right after one another."""
    pairs = sorted(b / a for a, b in zip(ours, theirs, strict=True))
    quarter = len(pairs) // 4
    return Ratio(other, median(pairs), pairs[quarter], pairs[-1 - quarter])
