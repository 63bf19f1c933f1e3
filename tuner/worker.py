"""The worker: a light process that lets candidates run in children, which may die.

It loads a subgraph's inputs once and forks for every job, so a candidate that scribbles over memory, traps or hangs
takes nothing with it, and the next one starts within a millisecond. The worker itself runs no candidate and
starts no thread. Started by measure.py; ends when its pipe closes.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels.team import load_runtime
from .device import CudaDevice, Device, SharedEviction
from .examine import examine
from .harness import HostBench, Material
from .memory import Guarded
from .protocol import Channel, Job, Outcome, Reply, Subject


def main(read_fd: int, write_fd: int) -> None:
    """Serves jobs until the other side closes the pipe. The first message is the Device."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tuner, which then closes the pipe
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    channel = Channel(read_fd, write_fd)
    device: Device | CudaDevice = channel.receive()
    if isinstance(device, CudaDevice):
        serve_cuda(device, channel)
        return
    load_runtime(device.runtime)  # children inherit it
    evict = SharedEviction(device.cache_bytes)
    material: Material | None = None
    while True:
        try:
            message = channel.receive()
        except EOFError:
            return
        if isinstance(message, Subject):
            material = load(message)
        else:
            assert material is not None
            channel.send(supervise(device, evict, material, message))


def serve_cuda(device: CudaDevice, channel: Channel) -> None:
    """Serves jobs for a CUDA device until the other side closes the pipe."""
    from .cuda_measure.worker import Supervisor

    supervisor = Supervisor(device)
    try:
        while True:
            message = channel.receive()
            if isinstance(message, Subject):
                supervisor.load(message)
            else:
                channel.send(supervisor.run(message))
    except EOFError:
        supervisor.end()


def load(subject: Subject) -> Material:
    """Reads what measure.py wrote."""
    folder = Path(subject.folder)
    sub, check = pickle.loads((folder / subject.reference).read_bytes())
    aligned: list[Guarded] = []
    shifted: list[Guarded] = []
    for number, name in zip(sub.inputs, subject.inputs, strict=True):
        data = np.fromfile(folder / name, np.uint8)
        for buffers, shift in ((aligned, 0), (shifted, sub.values[number].dtype.size)):
            buffer = Guarded(len(data), shift)
            buffer.data[:] = data
            buffers.append(buffer)
    return Material(sub, tuple(aligned), tuple(shifted), check)


def supervise(device: Device, evict: SharedEviction, material: Material, job: Job) -> Reply:
    """Runs `job` in a child and turns its death or silence into an outcome."""
    read_fd, write_fd = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read_fd)
        _child(device, evict, material, job, Channel(read_fd, write_fd))
    os.close(write_fd)
    doing = "starting"
    try:
        while True:
            message: Any = Channel(read_fd, -1).receive(job.pace.silence)
            if isinstance(message, Reply):
                return message
            doing = message.doing
    except TimeoutError:
        return _all(job, Outcome("hung", f"no sign of life for {job.pace.silence:g} s while {doing}"))
    except EOFError:
        _, status = os.waitpid(child, 0)
        child = 0
        return _all(job, _death(status, doing))
    finally:
        os.close(read_fd)
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _child(device: Device, evict: SharedEviction, material: Material, job: Job, channel: Channel) -> None:
    """The child's whole life; it never returns."""
    try:
        team = device.open()
        channel.send(examine(HostBench(material, team, evict), job, channel.send))
    except Exception as error:  # noqa: BLE001  the worker's boundary: whatever a candidate provokes is its outcome
        channel.send(_all(job, Outcome("crashed", f"{type(error).__name__}: {error}")))
    finally:
        os._exit(0)


def _death(status: int, doing: str) -> Outcome:
    if not os.WIFSIGNALED(status):
        return Outcome("crashed", f"left with exit code {os.waitstatus_to_exitcode(status)} while {doing}")
    number = os.WTERMSIG(status)
    name = signal.Signals(number).name
    return Outcome("trapped" if number == signal.SIGFPE else "crashed", f"{name} while {doing}")


def _all(job: Job, outcome: Outcome) -> Reply:
    return Reply(tuple(outcome for _ in job.candidates), tuple(None for _ in job.rivals))
