"""The worker for a CUDA device: it holds one child that has the device open, and replaces it when it has to.

Opening a device takes longer than most jobs, so the child serves many of them. It is replaced when a candidate lost it
the device (an illegal access stays with the process), when it dies, and when it is silent for too long; what it was
at tells which candidate is to blame, and the job goes on without that one.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ...kernels.cuda.device import Device
from ..device import CudaDevice
from ..examine import Lost, Tell, examine
from ..protocol import Channel, Job, News, Outcome, Reply, Subject
from .bench import CudaBench
from .watch import Log, NoWatch, watch_device

LOADING = 60.0
"""Seconds that a child may take to put a subject on the device."""

AGAIN = 2
"""Times that a job is run again when something disturbed it."""


@dataclass(frozen=True)
class Ready:
    """The child has the device open and the subject loaded."""


@dataclass(frozen=True)
class Gone:
    """A child that ends, or has ended, since the candidate at this position (-1: any) had this outcome."""

    position: int
    outcome: Outcome


class Supervisor:
    """Serves jobs by children. Not for several threads."""

    def __init__(self, device: CudaDevice) -> None:
        self._device = device
        self._subject: Subject | None = None
        self._loaded: Subject | None = None
        self._pid = 0
        self._channel: Channel | None = None

    def load(self, subject: Subject) -> None:
        """Makes `subject` what jobs are about."""
        self._subject = subject

    def run(self, job: Job) -> Reply:
        """The outcomes of a job; a candidate that takes the child with it has the outcome that this says."""
        outcomes: dict[int, Outcome] = {}
        while True:
            open_ = [i for i in range(len(job.candidates)) if i not in outcomes]
            answer = self._try(replace(job, candidates=tuple(job.candidates[i] for i in open_)))
            if isinstance(answer, Reply):
                outcomes |= dict(zip(open_, answer.candidates, strict=True))
                return Reply(tuple(outcomes[i] for i in range(len(job.candidates))), answer.rivals)
            culprits = open_ if answer.position < 0 else [open_[answer.position]]
            outcomes |= dict.fromkeys(culprits, answer.outcome)
            if len(outcomes) == len(job.candidates):
                return Reply(tuple(outcomes[i] for i in range(len(job.candidates))), tuple(None for _ in job.rivals))

    def end(self) -> None:
        """Ends the child, and what it may be running."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0

    def _try(self, job: Job) -> Reply | Gone:
        """The reply to a job, or which candidate ended the child and how."""
        at = News("opening the device")
        silence = self._device.opening
        try:
            channel = self._channel or self._start()
            if self._loaded != self._subject:
                channel.send(self._subject)
                message = channel.receive(silence + LOADING)
                if isinstance(message, Gone):
                    self.end()
                    return message
                self._loaded = self._subject
            silence = job.pace.silence
            at = News("starting")
            channel.send(job)
            while isinstance(message := channel.receive(silence), News):
                at = message
            if isinstance(message, Gone):
                self.end()
            assert isinstance(message, Reply | Gone)
            return message
        except TimeoutError:
            self.end()
            return Gone(at.candidate, Outcome("hung", f"no sign of life for {silence:g} s while {at.doing}"))
        except (EOFError, BrokenPipeError):
            return Gone(at.candidate, self._death(at.doing))

    def _start(self) -> Channel:
        here_read, there_write = os.pipe()
        there_read, here_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(here_read)
            os.close(here_write)
            _child(self._device, Channel(there_read, there_write))
        os.close(there_read)
        os.close(there_write)
        self._pid, self._channel, self._loaded = pid, Channel(here_read, here_write), None
        return self._channel

    def _death(self, doing: str) -> Outcome:
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        self.end()
        if os.WIFSIGNALED(status):
            return Outcome("crashed", f"{signal.Signals(os.WTERMSIG(status)).name} while {doing}")
        return Outcome("crashed", f"left with exit code {os.waitstatus_to_exitcode(status)} while {doing}")


def _child(device: CudaDevice, channel: Channel) -> None:
    """The child's whole life; it never returns."""
    try:
        opened = device.open()
        log = Log(watch_device(opened.bus) if opened.real else NoWatch())
        bench: CudaBench | None = None
        while True:
            message = channel.receive()
            if isinstance(message, Subject):
                bench = None  # its memory is free before the next one takes some
                bench = load(message, opened, log)
                channel.send(Ready())
            else:
                assert bench is not None
                channel.send(undisturbed(bench, message, log, channel.send))
    except EOFError:
        pass
    except Lost as lost:
        channel.send(Gone(lost.position, lost.outcome))
    except Exception as error:  # noqa: BLE001  the worker's boundary: whatever a candidate provokes is its outcome
        channel.send(Gone(-1, Outcome("crashed", f"{type(error).__name__}: {error}")))
    finally:
        os._exit(0)


def load(subject: Subject, device: Device, log: Log) -> CudaBench:
    """Reads what measure.py wrote, and puts the inputs on the device."""
    folder = Path(subject.folder)
    sub, check = pickle.loads((folder / subject.reference).read_bytes())
    inputs = [np.fromfile(folder / name, np.uint8) for name in subject.inputs]
    return CudaBench(sub, check, inputs, device, log)


def undisturbed(bench: CudaBench, job: Job, log: Log, tell: Tell) -> Reply:
    """The reply to a job that nothing disturbed, if one of a few tries is; else one whose times say what did."""
    for _ in range(1 + AGAIN):
        reply = examine(bench, job, tell)
        facts = log.facts()
        reply = _noted(reply, facts)
        timings = [o.timing for o in reply.candidates if o.timing is not None]
        if not any(timing.disturbed for timing in timings):
            break
    return reply


def _noted(reply: Reply, facts: Sequence[tuple[str, Any]]) -> Reply:
    """The reply with `facts` beside every time."""
    return Reply(
        tuple(replace(o, timing=replace(o.timing, facts=tuple(facts))) if o.timing else o for o in reply.candidates),
        tuple(replace(t, facts=tuple(facts)) if t else t for t in reply.rivals),
    )
