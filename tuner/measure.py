"""Measuring built plans in a worker process that may die; the tuner's side of it.

The worker starts at the first job and again whenever it is gone. Inputs and reference results of a subgraph are
written to files once; the worker reads them when the subgraph's turn comes.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..graphs.subgraph import Subgraph
from .bench import Check
from .device import CudaDevice, Device
from .protocol import Channel, Job, Outcome, Pace, Reply, Subject

if TYPE_CHECKING:
    from .protocol import Built

GRACE = 60.0
"""Seconds beyond a job's own watch that the worker may be silent before it is given up."""

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from {package}.worker import main; main(int(sys.argv[2]), int(sys.argv[3]))"
)


PACE = Pace()


class Measurer:
    """Owns one worker process. Not for use by several threads at a time; close it, or use it in a `with`."""

    def __init__(self, device: Device | CudaDevice) -> None:
        self._device = device
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
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
        if self._channel is not None:
            self._send(subject)

    def measure(self, candidate: Built, rivals: Sequence[Built] = (), pace: Pace = PACE) -> Reply:
        """Checks one candidate and times it in turns with `rivals`, which were found right before."""
        return self.run(Job((candidate,), tuple(rivals), pace))

    def run(self, job: Job) -> Reply:
        """Runs a job about the loaded subgraph. A worker that dies itself is an outcome too."""
        if self._subject is None:
            raise ValueError("load a subgraph before measuring")
        if self._channel is None:
            self._start()
        channel = self._channel
        assert channel is not None
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

    def _start(self) -> None:
        here_read, there_write = os.pipe()
        there_read, here_write = os.pipe()
        package = __name__.rpartition(".")[0]
        # The worker needs one thread of NumPy's, and starts faster with it.
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                _START.format(package=package),
                json.dumps(sys.path),
                str(there_read),
                str(there_write),
            ],
            pass_fds=(there_read, there_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # a group of its own, so that its children end with it
        )
        os.close(there_read)
        os.close(there_write)
        self._channel = Channel(here_read, here_write)
        self._send(self._device)
        if self._subject is not None:
            self._send(self._subject)

    def _send(self, message: Any) -> None:
        """Sends outside a job: a worker that is gone is noticed at the next job."""
        assert self._channel is not None
        with contextlib.suppress(BrokenPipeError):
            self._channel.send(message)

    def _stop(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


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
