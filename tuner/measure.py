"""Measuring built plans in a worker process that may die; the tuner's side of it.

The worker starts at the first job and again whenever it is gone. Inputs and reference results of a subgraph are
written to files once; the worker reads them when the subgraph's turn comes.
"""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..graphs.subgraph import Subgraph
from .bench import Check
from .device import CudaDevice, Device
from .protocol import Job, Outcome, Pace, Reply, Subject
from .spawn import Spawned

if TYPE_CHECKING:
    from .protocol import Built

GRACE = 60.0
"""Seconds beyond a job's own watch that the worker may be silent before it is given up."""

PACE = Pace()


class Measurer:
    """Owns one worker process. Not for use by several threads at a time; close it, or use it in a `with`."""

    def __init__(self, device: Device | CudaDevice) -> None:
        self._device = device
        self._worker: Spawned | None = None
        self._subject: Subject | None = None

    def __enter__(self) -> Measurer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self, subject: Subject) -> None:
        """Makes `subject` what jobs are about. Its files must stay until another one is loaded."""
        if subject == self._subject:
            return
        self._subject = subject
        if self._worker is not None:
            self._send(subject)

    def measure(self, candidate: Built, rivals: Sequence[Built] = (), pace: Pace = PACE) -> Reply:
        """Checks one candidate and times it in turns with `rivals`, which were found right before."""
        return self.run(Job((candidate,), tuple(rivals), pace))

    def run(self, job: Job) -> Reply:
        """Runs a job about the loaded subgraph. A worker that dies itself is an outcome too."""
        if self._subject is None:
            raise ValueError("load a subgraph before measuring")
        channel = (self._worker or self._start()).channel
        turns = 2 + len(job.candidates) + len(job.rivals)
        try:
            channel.send(job)
            reply = channel.receive(GRACE + turns * (job.pace.silence + job.pace.seconds + self._device.opening))
        except (EOFError, BrokenPipeError):
            self._stop()
            return _all(job, Outcome("crashed", "the measuring process died"))
        except TimeoutError:
            self._stop()
            return _all(job, Outcome("hung", "the measuring process does not answer"))
        assert isinstance(reply, Reply)
        return reply

    def close(self) -> None:
        """Ends the worker, and what it may be running."""
        self._stop()

    def _start(self) -> Spawned:
        self._worker = Spawned("worker")
        self._send(self._device)
        if self._subject is not None:
            self._send(self._subject)
        return self._worker

    def _send(self, message: Any) -> None:
        """Sends outside a job: a worker that is gone is noticed at the next job."""
        assert self._worker is not None
        with contextlib.suppress(BrokenPipeError):
            self._worker.channel.send(message)

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None


def write_subject(folder: Path, sub: Subgraph, inputs: Sequence[NDArray[Any]], check: Check) -> Subject:
    """Puts a subgraph, its inputs and what judges results (it is pickled) into the empty or missing `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    names = tuple(f"input{position}" for position in range(len(inputs)))
    for name, array in zip(names, inputs, strict=True):
        (folder / name).write_bytes(np.ascontiguousarray(array).tobytes())
    (folder / "reference").write_bytes(pickle.dumps((sub, check), protocol=pickle.HIGHEST_PROTOCOL))
    return Subject(str(folder), names, "reference")


def _all(job: Job, outcome: Outcome) -> Reply:
    return Reply(tuple(replace(outcome) for _ in job.candidates), tuple(None for _ in job.rivals))
