"""A contest: every contestant in a process of its own, taking turns in short bursts with a pause in between.

Each rule was learned by measuring (docs/benchmarks.md): ONNX Runtime's idle threads slow a neighbour, in the same
process or in another, so that contestants are stopped while it is not their turn; glibc hands freed memory back unless
told otherwise, and page faults then dominate the peers' outputs.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .peers import missing
from .task import Entry, Task

PAUSE = 0.01
"""Seconds that a contestant has to itself before its burst."""
TOLERANCE = 1e-3
"""Relative norm up to which outputs count as the same; a contestant further off is not timed."""


@dataclass
class _Process:
    """A started contestant."""

    name: str
    process: subprocess.Popen[bytes]

    def ask(self, request: object) -> Any:
        """The answer to a request; a text that says why when the process died."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        try:
            pickle.dump(request, stdin)
            stdin.flush()
            return pickle.load(stdout)
        except (BrokenPipeError, EOFError):
            return f"its process ended with status {self.process.wait()}"

    def burst(self, what: str) -> Any:
        """The answer to a request for a burst, for which alone the process runs."""
        self.process.send_signal(signal.SIGCONT)
        time.sleep(PAUSE)
        answer = self.ask(what)
        self.rest()
        return answer

    def rest(self) -> None:
        """Stops the process until its next turn: its idle threads would spin on a processor of whoever runs."""
        self.process.send_signal(signal.SIGSTOP)

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def environment(threads: int) -> dict[str, str]:
    """A contestant's environment: one number of threads for all, an allocator that keeps what is freed."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    kept |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), str(threads))
    kept |= {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(1 << 34), "MALLOC_ARENA_MAX": "2"}
    return kept | {"JAX_PLATFORMS": "cpu"}


def contest(tasks: Sequence[Task], bursts: int = 15) -> list[Entry]:
    """One entry per task, all of the same computation; the first one's outputs are what the others must give."""
    entries: dict[str, Entry] = {}
    with ExitStack() as stack:
        racing: list[_Process] = []
        reference: list[NDArray[Any]] = []
        for task in tasks:
            entry, process, outputs = _start(task, reference)
            entries[task.name] = entry
            if process is None:
                continue
            stack.callback(process.close)
            reference = reference or outputs
            process.rest()
            racing.append(process)
        times: dict[tuple[str, str], list[float]] = {}
        for turn in range(bursts):
            for what in ("kernel", "call"):
                for process in racing[turn % len(racing) :] + racing[: turn % len(racing)]:
                    answer = process.burst(what)
                    if isinstance(answer, float):
                        times.setdefault((process.name, what), []).append(answer)
                    else:
                        entries[process.name] = replace(entries[process.name], failure=str(answer))
    for name, entry in entries.items():
        if not entry.failure:
            entries[name] = replace(
                entry, kernel=tuple(times.get((name, "kernel"), ())), call=tuple(times.get((name, "call"), ()))
            )
    return [entries[task.name] for task in tasks]


def _start(task: Task, reference: list[NDArray[Any]]) -> tuple[Entry, _Process | None, list[NDArray[Any]]]:
    """A started contestant that gave the right outputs, or none and an entry that says why."""
    lacking = missing(task.name)
    if lacking:
        return Entry(task.name, failure=f"{', '.join(lacking)} not installed"), None, []
    command = [sys.executable, "-m", "stitchtune.benchmarks.contestant"]
    process = _Process(
        task.name,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(task.threads)),
    )
    answer = process.ask(task)
    if isinstance(answer, str):
        process.close()
        return Entry(task.name, failure=answer), None, []
    outputs, seconds = answer
    error = max((difference(a, b) for a, b in zip(reference, outputs, strict=True)), default=0.0) if reference else 0.0
    entry = Entry(task.name, compile_seconds=seconds, error=error)
    if not error <= TOLERANCE:
        process.close()
        return replace(entry, failure=f"its outputs differ by {error:.1e}"), None, []
    return entry, process, outputs


def difference(wanted: NDArray[Any], got: NDArray[Any]) -> float:
    """Norm of the difference over the norm of what was wanted; infinite where shapes, NaN or infinities differ."""
    a, b = np.asarray(wanted, np.float64), np.asarray(got, np.float64)
    finite = np.isfinite(a)
    if a.shape != b.shape or not np.array_equal(a[~finite], b[~finite], equal_nan=True):
        return float("inf")
    scale = float(np.linalg.norm(a[finite]))
    distance = float(np.linalg.norm(a[finite] - b[finite]))
    return distance / scale if scale else distance
