"""Checking and timing candidates inside the worker's child process.

No timing before correctness: the first run works on aligned buffers, the second on buffers that start at an odd element
with another poison, so that what was not written, what leaks from scratch memory and what depends on
alignment all show as differences. Then the same bits must come out again and again, between timings too.
"""

from __future__ import annotations

import ctypes
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graphs.subgraph import Subgraph
from ..kernels.build import BuiltPlan
from ..kernels.team import Eviction, Team
from .harness import Harness
from .memory import Bytes, Guarded, poison, unwritten
from .protocol import Job, Outcome, Pace, Reply, Timing

Tell = Callable[[str], None]
Check = Callable[[Sequence[NDArray[Any]]], "Outcome | None"]

SAMPLE = 60e-6
"""Seconds that a timing sample lasts at least: short kernels run in batches."""

SAMPLES = 9
"""Samples per contestant and round, when the time allows."""

_libc = ctypes.CDLL(None)
_libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass(frozen=True)
class Material:
    """A loaded subject: inputs aligned to 64 bytes, the same inputs at odd elements, and what checks results."""

    sub: Subgraph
    inputs: tuple[Guarded, ...]
    shifted: tuple[Guarded, ...]
    check: Check


@dataclass(frozen=True)
class Contestant:
    """A candidate or rival ready to be timed, and the bits it must reproduce (none for a rival)."""

    harness: Harness
    bits: tuple[Bytes, ...] = ()


def examine(material: Material, job: Job, team: Team, evict: Eviction | None, tell: Tell) -> Reply:
    """The job's outcomes. `tell` is called with what comes next, often enough for the watchdog."""
    rivals = [Contestant(prepare(material, built, team)) for built in job.rivals]
    fastest = _glance(rivals)
    outcomes: list[Outcome] = []
    right: list[tuple[int, Contestant]] = []
    for position, built in enumerate(job.candidates):
        tell("checking")
        found = check(material, built, team, tell)
        outcome: Outcome | None = None
        if isinstance(found, Contestant):
            slow = _slow(found, fastest, job.pace)
            # Repeating is cheap for all but the slowest: those only lose by being cut off.
            if slow is None or slow.seconds * job.pace.checks <= job.pace.check_seconds:
                outcome = repeat(found, job.pace, tell)
            if outcome is None and slow is not None:
                outcome = Outcome("cut-off", timing=slow)
            if outcome is None:
                right.append((position, found))
        else:
            outcome = found
        outcomes.append(outcome or Outcome("ok"))
    if not right:
        # What a candidate that is far too slow was compared with.
        glanced = Timing(fastest, 0.0, (fastest,), 1) if rivals else None
        return Reply(tuple(outcomes), tuple(glanced for _ in rivals))
    timings, broken = take_turns([*(c for _, c in right), *rivals], len(right), job.pace, evict, tell)
    for at, (position, _) in enumerate(right):
        cut = len(timings[at].rounds) < job.pace.rounds
        outcomes[position] = Outcome("cut-off" if cut else "ok", timing=timings[at])
        if at in broken:
            outcomes[position] = Outcome("nondeterministic", "other bits came out while it was timed")
    return Reply(tuple(outcomes), tuple(timings[len(right) :]))


def _glance(contestants: Sequence[Contestant]) -> float:
    """Least seconds of one run among the contestants, from a few runs; infinite without any."""
    return min((min(c.harness.time(3, limit_ns=20_000_000)) for c in contestants), default=math.inf)


def _slow(contestant: Contestant, fastest: float, pace: Pace) -> Timing | None:
    """The timing of a candidate that is so much slower than a rival that no noise explains it; None for others."""
    seconds = _glance([contestant])
    if seconds <= 1.5 * pace.cut_off * fastest:
        return None
    return Timing(seconds, 0.0, (seconds,), 1)


# --- correctness


def check(material: Material, built: BuiltPlan, team: Team, tell: Tell) -> Outcome | Contestant:
    """A contestant when two runs of `built` give the right result, else how it failed."""
    first = _launch_once(material, built, team, 0)
    if isinstance(first, Outcome):
        return first
    second = _launch_once(material, built, team, 1)
    if isinstance(second, Outcome):
        return second
    sub = material.sub
    for position, number in enumerate(sub.outputs):
        a, b = first.harness.outputs[position].data, second.harness.outputs[position].data
        if _equal(a, b):
            continue
        item = sub.values[number].dtype.size
        element = unwritten(a, b, item)
        if element is not None:
            return Outcome("unwritten", f"output {position}: element {element} keeps what was there before")
        element = int(np.flatnonzero(a != b)[0]) // item
        return Outcome("nondeterministic", f"output {position}: element {element} differs between two runs")
    tell("comparing")
    results = [
        buffer.typed(sub.values[number].dtype, sub.shape(number))
        for buffer, number in zip(first.harness.outputs, sub.outputs, strict=True)
    ]
    wrong = material.check(results)
    if wrong is not None:
        return wrong
    return first


def repeat(contestant: Contestant, pace: Pace, tell: Tell) -> Outcome | None:
    """How a candidate fails to give the same bits again and again; None when it does not."""
    begin = last = time.monotonic()
    runs = 0
    for buffer in contestant.harness.outputs:
        poison(buffer.data, 1)
    while runs < pace.checks or (time.monotonic() - begin < pace.check_seconds and runs < 8 * pace.checks):
        contestant.harness.launch()
        runs += 1
        if not _same(contestant):
            return Outcome("nondeterministic", f"other bits in repeated run {runs}")
        if time.monotonic() - last > 0.5:
            last = time.monotonic()
            tell("repeating")
    return None


def _launch_once(material: Material, built: BuiltPlan, team: Team, run: int) -> Outcome | Contestant:
    """Run 0 on aligned, run 1 on odd addresses; an outcome when memory shows that it misbehaved."""
    harness = prepare(material, built, team, run)
    harness.launch()
    for what, buffers in (("output", harness.outputs), ("scratch", harness.scratch), ("input", harness.inputs)):
        for position, buffer in enumerate(buffers):
            offset = buffer.damage()
            if offset is not None:
                return Outcome("out-of-bounds", f"{what} {position} of {len(buffer.data)} bytes: wrote byte {offset}")
    for position, (a, b) in enumerate(zip(material.inputs, material.shifted, strict=True)):
        if not _equal(a.data, b.data):
            byte = int(np.flatnonzero(a.data != b.data)[0])
            return Outcome("changed-input", f"input {position}: byte {byte} was overwritten")
    return Contestant(harness, tuple(buffer.data.copy() for buffer in harness.outputs))


def prepare(material: Material, built: BuiltPlan, team: Team, run: int = 0) -> Harness:
    """`built` bound to poisoned outputs and scratch; at odd addresses when `run` is 1."""
    sub = material.sub
    outputs = [Guarded(sub.bytes(v), run * sub.values[v].dtype.size) for v in sub.outputs]
    scratch = [Guarded(size) for size in built.scratch_bytes]
    for buffer in (*outputs, *scratch):
        poison(buffer.data, run)
    return Harness(built, team, material.shifted if run else material.inputs, outputs, scratch)


def _same(contestant: Contestant) -> bool:
    buffers = contestant.harness.outputs
    return all(_equal(buffer.data, bits) for buffer, bits in zip(buffers, contestant.bits, strict=True))


def _equal(a: Bytes, b: Bytes) -> bool:
    return bool(_libc.memcmp(a.ctypes.data, b.ctypes.data, len(a)) == 0)


# --- time


def take_turns(
    contestants: Sequence[Contestant], candidates: int, pace: Pace, evict: Eviction | None, tell: Tell
) -> tuple[list[Timing], set[int]]:
    """Times the contestants in turns, and which of them gave other bits on the way.

    The first `candidates` of them are cut off after a round in which all are far slower than a rival.
    """
    batches = [_batch(c.harness) for c in contestants]
    share = int(pace.seconds * 1e9 / pace.rounds)
    samples: list[list[float]] = [[] for _ in contestants]
    rounds: list[list[float]] = [[] for _ in contestants]
    broken: set[int] = set()
    for turn in range(pace.rounds):
        tell("timing")
        for i, contestant in enumerate(contestants):
            taken = contestant.harness.time(SAMPLES, batch=batches[i], limit_ns=share)
            samples[i] += taken
            rounds[i].append(min(taken))
            if contestant.bits and not _same(contestant):
                broken.add(i)
        fastest = min((r[-1] for r in rounds[candidates:]), default=math.inf)
        if turn == 0 and all(r[-1] > pace.cut_off * fastest for r in rounds[:candidates]):
            break
    cold: list[list[float]] = [[] for _ in contestants]
    if evict is not None and len(rounds[0]) == pace.rounds:
        for _ in range(pace.cold):
            tell("timing with cold caches")
            for i, contestant in enumerate(contestants):
                cold[i] += contestant.harness.time(1, evict=evict)
    return [_timing(*each) for each in zip(samples, rounds, cold, strict=True)], broken


def _batch(harness: Harness) -> int:
    """Runs per sample, after warming up."""
    once = min(harness.time(3, limit_ns=20_000_000))
    return max(1, min(1000, int(SAMPLE / max(once, 1e-9))))


def _timing(samples: list[float], rounds: list[float], cold: list[float]) -> Timing:
    median = statistics.median(samples)
    return Timing(
        seconds=median,
        spread=_deviation(samples, median),
        rounds=tuple(rounds),
        samples=len(samples),
        cold=statistics.median(cold) if cold else None,
        cold_spread=_deviation(cold, statistics.median(cold)) if cold else None,
    )


def _deviation(samples: Sequence[float], median: float) -> float:
    """Median absolute deviation."""
    return statistics.median(abs(s - median) for s in samples)
