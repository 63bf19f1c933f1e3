"""What the measuring process and its worker say to each other, and how it is sent.

Messages are pickles between two processes of ours on one machine; nothing that comes from a database or a file of
somebody else is ever sent. This module stays light: the worker imports it at every start.
"""

from __future__ import annotations

import os
import pickle
import select
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..kernels.build import BuiltPlan
    from ..kernels.cuda.built import BuiltCuda
    from ..results.records import Fact, Status

    Built = BuiltPlan | BuiltCuda

_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Subject:
    """A subgraph with recorded inputs and the right results, as files in `folder`.

    inputs     file names of the inputs' raw row-major bytes, in the subgraph's order
    reference  file name of the pickled reference that candidates are checked against
    """

    folder: str
    inputs: tuple[str, ...]
    reference: str


@dataclass(frozen=True)
class Pace:
    """How long a measurement may take.

    silence     seconds without news after which a candidate counts as hung
    checks      runs whose results are compared bit by bit, at least; more while they fit into `check_seconds`
    seconds     of timing per candidate, all rounds together
    rounds      interleaved rounds of candidate and rivals
    cold        samples with evicted caches (0: none)
    cut_off     a candidate this many times slower than the fastest rival is not timed further
    """

    silence: float = 4.0
    checks: int = 20
    check_seconds: float = 0.04
    seconds: float = 0.06
    rounds: int = 5
    cold: int = 3
    cut_off: float = 2.0


@dataclass(frozen=True)
class Job:
    """Check `candidates` and time them with `rivals`, which were found right before, in turns."""

    candidates: tuple[Built, ...]
    rivals: tuple[Built, ...] = ()
    pace: Pace = Pace()


@dataclass(frozen=True)
class Timing:
    """Seconds of one run: median and median absolute deviation, hot and cold.

    rounds  the least of each round, in order: whatever else runs on the machine only adds time
    facts   what was seen of the device meanwhile; "disturbed" says why the times are not to be trusted
    """

    seconds: float
    spread: float
    rounds: tuple[float, ...]
    samples: int
    cold: float | None = None
    cold_spread: float | None = None
    facts: tuple[tuple[str, Fact], ...] = ()

    @property
    def disturbed(self) -> bool:
        """Something else used the device meanwhile, or its clocks moved."""
        return any(name == "disturbed" for name, _ in self.facts)


@dataclass(frozen=True)
class Outcome:
    """How one candidate fared: a status of results.records, one line, and times when it was right."""

    status: Status
    message: str = ""
    timing: Timing | None = None
    excluded: int = 0
    """Elements not compared because their comparison, rounding or ArgMax lies within tolerance of flipping."""


@dataclass(frozen=True)
class Reply:
    """Outcomes of a job's candidates, then the timings of its rivals (None when nothing was timed)."""

    candidates: tuple[Outcome, ...]
    rivals: tuple[Timing | None, ...] = ()


@dataclass(frozen=True)
class News:
    """A sign of life: what happens, to which of the job's candidates (-1: to all)."""

    doing: str
    candidate: int = -1


class Channel:
    """Pickled messages over a pair of file descriptors."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._poll = select.poll()
        self._poll.register(read_fd, select.POLLIN)

    def send(self, message: Any) -> None:
        """Raises BrokenPipeError when the other side is gone."""
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        view = memoryview(_LENGTH.pack(len(data)) + data)
        while view:
            view = view[os.write(self._write_fd, view) :]

    def receive(self, seconds: float | None = None) -> Any:
        """The next message. Raises EOFError when the other side is gone, TimeoutError after `seconds` of waiting."""
        until = None if seconds is None else time.monotonic() + seconds
        (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size, until))
        return pickle.loads(self._exactly(size, until))

    def _exactly(self, size: int, until: float | None) -> bytes:
        parts = bytearray()
        while len(parts) < size:
            left = None if until is None else max(0.0, until - time.monotonic()) * 1000
            if not self._poll.poll(left):
                raise TimeoutError
            data = os.read(self._read_fd, min(size - len(parts), 1 << 20))
            if not data:
                raise EOFError
            parts += data
        return bytes(parts)

    def close(self) -> None:
        for fd in {self._read_fd, self._write_fd}:
            os.close(fd)
