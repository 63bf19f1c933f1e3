"""A contestant's process: reads a task, makes it ready, then times one burst whenever it is told to.

Started by contest.py as `python -m stitchtune.benchmarks.contestant`. Pickled values pass over standard input and
output; only the parent process of the same user and program writes to it. Whatever a library prints goes to standard
error.
"""

from __future__ import annotations

import os
import pickle
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import BinaryIO

from .peers import PEERS
from .task import Contestant, Task


def main() -> None:
    with os.fdopen(os.dup(1), "wb") as answers:
        os.dup2(2, 1)
        serve(sys.stdin.buffer, answers)


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answers until the requests end. A failure to get ready is the answer, as text."""
    task = pickle.load(requests)
    assert isinstance(task, Task)
    _confine(task.threads)
    started = time.perf_counter()
    try:
        contestant: Contestant = import_module(PEERS[task.name][0], "stitchtune.benchmarks").prepare(task)
        ready = (contestant.outputs(), time.perf_counter() - started)
    except Exception as error:  # noqa: BLE001 -- a worker's boundary: a peer that cannot do a graph is a result
        _answer(answers, f"{type(error).__name__}: {error}")
        return
    _answer(answers, ready)
    times: dict[str, int] = {}
    while request := _next(requests):
        timed = getattr(contestant, request)
        if request not in times:
            times[request] = _calibrate(timed)
        _answer(answers, timed(times[request]) / times[request])


def _confine(threads: int) -> None:
    """Leaves this process as many processors as it may use threads: the one limit that every library respects."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def _calibrate(timed: Callable[[int], float]) -> int:
    """How often to repeat for a burst of about 20 ms; warms up on the way."""
    timed(2)
    once = timed(3) / 3
    return max(1, min(2000, int(0.02 / max(once, 1e-7))))


def _next(requests: BinaryIO) -> str:
    try:
        return str(pickle.load(requests))
    except EOFError:
        return ""


def _answer(answers: BinaryIO, value: object) -> None:
    pickle.dump(value, answers)
    answers.flush()


if __name__ == "__main__":
    main()
