"""What checking and timing ask of the place where candidates run, whatever the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from ..graphs.subgraph import Subgraph
from .memory import Bytes
from .protocol import Outcome

if TYPE_CHECKING:
    from .protocol import Built

Check = Callable[[Sequence[NDArray[Any]]], "Outcome | None"]
"""How results are wrong; None when they are right."""


class Misbehaved(Exception):
    """A candidate failed in a way that the device itself reports. `lost`: this process can use the device no more."""

    def __init__(self, outcome: Outcome, lost: bool) -> None:
        super().__init__(outcome.message)
        self.outcome = outcome
        self.lost = lost


class Buffer(Protocol):
    """Memory of a known size between guard zones."""

    @property
    def bytes(self) -> int: ...

    def poison(self, run: int) -> None:
        """Fills it as it is before run 0 or 1."""

    def damage(self) -> int | None:
        """Offset of the nearest byte outside that was written (negative: before the buffer); None when none was."""

    def host(self) -> Bytes:
        """The contents in host memory."""

    def keep(self) -> Any:
        """A copy of the contents for `same`."""

    def same(self, kept: Any) -> bool:
        """True when the contents are what they were when `keep` was called."""


class Harness(Protocol):
    """One plan on memory of its own."""

    @property
    def inputs(self) -> Sequence[Buffer]: ...
    @property
    def outputs(self) -> Sequence[Buffer]: ...
    @property
    def scratch(self) -> Sequence[Buffer]: ...

    def launch(self) -> None:
        """Runs every kernel of the plan once, to its end. Raises Misbehaved."""

    def time(self, repeats: int, *, batch: int = 1, cold: bool = False, limit_ns: int = 2**62) -> list[float]:
        """Seconds of one run, from each of at most `repeats` samples of `batch` runs; with `cold`, after emptying the
        caches. Sampling stops once the samples add up to more than `limit_ns`. Raises Misbehaved."""


class Bench(Protocol):
    """A subgraph's recorded inputs on a device, and what judges results."""

    @property
    def sub(self) -> Subgraph: ...
    @property
    def check(self) -> Check: ...
    @property
    def cold(self) -> bool:
        """The caches can be emptied."""

    def prepare(self, built: Built, run: int = 0) -> Harness:
        """`built` bound to poisoned outputs and scratch; at other addresses, on another copy of the inputs, when `run`
        is 1. Raises Misbehaved."""

    def changed(self) -> tuple[int, int] | None:
        """The first input that a run has written to, and the byte; None when none has."""
