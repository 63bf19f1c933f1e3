"""The inputs that each subgraph is tuned with: recorded from one run of the whole graph, so that they are realistic.

The run happens in a child process, because it executes plans that nobody has checked yet: a crash there costs the
recordings that were still to come, not the tuner.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graphs.partition import Partition
from ..graphs.rounding import Precision
from ..graphs.subgraph import Subgraph
from ..kernels.executor import compile_graph
from ..kernels.host import host_target
from ..search_space.plan import Plan
from ..search_space.target import Target

DONE = "done"


def recording_target(target: Target) -> Target:
    """Where inputs for tuning on `target` are recorded: there, or on the CPU when this process has used CUDA, which no
    child of it can then do. The inputs are the same but for rounding."""
    return host_target() if target.kind == "cuda" and _cuda_used() else target


def _cuda_used() -> bool:
    """True when the driver was initialised in this process, by whomever."""
    try:
        if "libcuda.so" not in Path("/proc/self/maps").read_text():
            return False
        return int(ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(ctypes.c_void_p()))) != _NOT_INITIALIZED
    except OSError:
        return False


_NOT_INITIALIZED = 3
"""CUDA_ERROR_NOT_INITIALIZED"""


def record_inputs(
    partition: Partition,
    plans: Sequence[Plan],
    wanted: frozenset[int],
    feeds: Mapping[str, NDArray[Any]],
    folder: Path,
    target: Target,
    *,
    cache: Path,
    precision: Precision,
    jobs: int,
    timeout: float,
) -> None:
    """Runs the graph on `feeds` by `plans` and writes the inputs of the `wanted` components, by number, into `folder`.

    Whatever ends the run early leaves some unrecorded. Components recorded before are left alone.
    """
    missing = frozenset(c for c in wanted if not (folder / str(c) / DONE).exists())
    if not missing:
        return
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            executor = compile_graph(partition, plans, target, cache=cache, precision=precision, jobs=jobs)
            executor.record(feeds, lambda component, arrays: _write(folder, component, arrays, missing))
            status = 0
        finally:
            os._exit(status)
    until = time.monotonic() + timeout
    try:
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > until:
                break
            time.sleep(0.01)
        else:
            child = 0
    finally:
        if child:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _write(folder: Path, component: int, arrays: Sequence[NDArray[Any]], wanted: frozenset[int]) -> None:
    if component not in wanted:
        return
    place = folder / str(component)
    place.mkdir(parents=True, exist_ok=True)
    for position, array in enumerate(arrays):
        (place / str(position)).write_bytes(np.ascontiguousarray(array).tobytes())
    (place / DONE).touch()


def recorded(folder: Path, component: int, sub: Subgraph) -> list[NDArray[Any]] | None:
    """The recorded inputs of a component, None when the run did not get there."""
    place = folder / str(component)
    if not (place / DONE).exists():
        return None
    return [
        np.fromfile(place / str(position), sub.values[number].dtype.numpy).reshape(sub.shape(number))
        for position, number in enumerate(sub.inputs)
    ]
