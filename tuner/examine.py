"""Checking and timing candidates inside the process that may die.

No timing before correctness: the first run works on aligned buffers, the second on buffers that start elsewhere (on the
CPU at an odd element) with another poison, so that what was not written, what leaks from scratch memory and what
depends on alignment all show as differences. Then the same bits must come out again and again, between timings too.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .bench import Bench, Harness, Misbehaved
from .memory import equal, unwritten
from .protocol import Job, News, Outcome, Pace, Reply, Timing

if TYPE_CHECKING:
    from .protocol import Built

Tell = Callable[[News], None]

SAMPLE = 60e-6
"""Seconds that a timing sample lasts at least: short kernels run in batches."""

SAMPLES = 9
"""Samples per contestant and round, when the time allows."""


@dataclass(frozen=True)
class Contestant:
    """A candidate (its position in the job) or rival (-1) ready to be timed, and the bits it must reproduce."""

    harness: Harness
    position: int = -1
    bits: tuple[Any, ...] = ()


class Lost(Exception):
    """The device is lost to this process since the candidate at `position` misbehaved."""

    def __init__(self, position: int, outcome: Outcome) -> None:
        super().__init__(outcome.message)
        self.position = position
        self.outcome = outcome


def examine(bench: Bench, job: Job, tell: Tell) -> Reply:
    """The job's outcomes. `tell` is called with what comes next, often enough for the watchdog. Raises Lost."""
    rivals = [Contestant(bench.prepare(built)) for built in job.rivals]
    fastest = _glance(rivals)
    outcomes: list[Outcome] = []
    right: list[Contestant] = []
    for position, built in enumerate(job.candidates):
        tell(News("checking", position))
        try:
            found = _judge(bench, position, built, fastest, job.pace, tell)
        except Misbehaved as failure:
            found = _blame(position, failure)
        if isinstance(found, Contestant):
            right.append(found)
            found = Outcome("ok")
        outcomes.append(found)
    while right:
        try:
            timings, broken = take_turns([*right, *rivals], len(right), job.pace, bench.cold, tell)
        except _Culprit as culprit:
            outcomes[culprit.position] = _blame(culprit.position, culprit.failure)
            right = [c for c in right if c.position != culprit.position]
            continue
        for at, contestant in enumerate(right):
            cut = len(timings[at].rounds) < job.pace.rounds
            outcomes[contestant.position] = Outcome("cut-off" if cut else "ok", timing=timings[at])
            if at in broken:
                message = "other bits came out while it was timed"
                outcomes[contestant.position] = Outcome("nondeterministic", message)
        return Reply(tuple(outcomes), tuple(timings[len(right) :]))
    # What a candidate that is far too slow was compared with.
    glanced = Timing(fastest, 0.0, (fastest,), 1) if rivals else None
    return Reply(tuple(outcomes), tuple(glanced for _ in rivals))


def _judge(bench: Bench, position: int, built: Built, fastest: float, pace: Pace, tell: Tell) -> Outcome | Contestant:
    """A candidate that is right and fast enough to be timed, or its outcome."""
    found = check(bench, position, built, tell)
    if isinstance(found, Outcome):
        return found
    slow = _slow(found, fastest, pace)
    # Repeating is cheap for all but the slowest: those only lose by being cut off.
    if slow is None or slow.seconds * pace.checks <= pace.check_seconds:
        outcome = repeat(found, pace, tell)
        if outcome is not None:
            return outcome
    return found if slow is None else Outcome("cut-off", timing=slow)


def _blame(position: int, failure: Misbehaved) -> Outcome:
    if failure.lost:
        raise Lost(position, failure.outcome) from failure
    return failure.outcome


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


def check(bench: Bench, position: int, built: Built, tell: Tell) -> Outcome | Contestant:
    """A contestant when two runs of `built` give the right result, else how it failed."""
    first = _launch_once(bench, built, 0)
    if isinstance(first, Outcome):
        return first
    second = _launch_once(bench, built, 1)
    if isinstance(second, Outcome):
        return second
    sub = bench.sub
    contents = [buffer.host() for buffer in first.outputs]
    for output, number in enumerate(sub.outputs):
        a, b = contents[output], second.outputs[output].host()
        if equal(a, b):
            continue
        item = sub.values[number].dtype.size
        element = unwritten(a, b, item)
        if element is not None:
            return Outcome("unwritten", f"output {output}: element {element} keeps what was there before")
        element = int(np.flatnonzero(a != b)[0]) // item
        return Outcome("nondeterministic", f"output {output}: element {element} differs between two runs")
    tell(News("comparing", position))
    results = [
        data.view(sub.values[number].dtype.numpy).reshape(sub.shape(number))
        for data, number in zip(contents, sub.outputs, strict=True)
    ]
    wrong = bench.check(results)
    if wrong is not None:
        return wrong
    return Contestant(first, position, tuple(buffer.keep() for buffer in first.outputs))


def repeat(contestant: Contestant, pace: Pace, tell: Tell) -> Outcome | None:
    """How a candidate fails to give the same bits again and again; None when it does not."""
    begin = last = time.monotonic()
    runs = 0
    for buffer in contestant.harness.outputs:
        buffer.poison(1)
    while runs < pace.checks or (time.monotonic() - begin < pace.check_seconds and runs < 8 * pace.checks):
        contestant.harness.launch()
        runs += 1
        if not _same(contestant):
            return Outcome("nondeterministic", f"other bits in repeated run {runs}")
        if time.monotonic() - last > 0.5:
            last = time.monotonic()
            tell(News("repeating", contestant.position))
    return None


def _launch_once(bench: Bench, built: Built, run: int) -> Outcome | Harness:
    """Run 0 or 1 on buffers of their own; an outcome when memory shows that it misbehaved."""
    harness = bench.prepare(built, run)
    harness.launch()
    for what, buffers in (("output", harness.outputs), ("scratch", harness.scratch), ("input", harness.inputs)):
        for position, buffer in enumerate(buffers):
            offset = buffer.damage()
            if offset is not None:
                return Outcome("out-of-bounds", f"{what} {position} of {buffer.bytes} bytes: wrote byte {offset}")
    changed = bench.changed()
    if changed is not None:
        return Outcome("changed-input", "input {}: byte {} was overwritten".format(*changed))
    return harness


def _same(contestant: Contestant) -> bool:
    buffers = contestant.harness.outputs
    return all(buffer.same(bits) for buffer, bits in zip(buffers, contestant.bits, strict=True))


# --- time


class _Culprit(Exception):
    """The candidate at `position` of the job misbehaved while it was timed."""

    def __init__(self, position: int, failure: Misbehaved) -> None:
        super().__init__(str(failure))
        self.position = position
        self.failure = failure


def take_turns(
    contestants: Sequence[Contestant], candidates: int, pace: Pace, cold: bool, tell: Tell
) -> tuple[list[Timing], set[int]]:
    """Times the contestants in turns, and which of them gave other bits on the way.

    The first `candidates` of them are cut off after a round in which all are far slower than a rival. With `cold`, a
    few samples are taken with empty caches too.
    """
    batches = [_batch(c) for c in contestants]
    share = int(pace.seconds * 1e9 / pace.rounds)
    samples: list[list[float]] = [[] for _ in contestants]
    rounds: list[list[float]] = [[] for _ in contestants]
    broken: set[int] = set()
    for turn in range(pace.rounds):
        for i, contestant in enumerate(contestants):
            tell(News("timing", contestant.position))
            taken = _time(contestant, SAMPLES, batch=batches[i], limit_ns=share)
            samples[i] += taken
            rounds[i].append(min(taken))
            if contestant.bits and not _same(contestant):
                broken.add(i)
        fastest = min((r[-1] for r in rounds[candidates:]), default=math.inf)
        if turn == 0 and all(r[-1] > pace.cut_off * fastest for r in rounds[:candidates]):
            break
    chilled: list[list[float]] = [[] for _ in contestants]
    if cold and len(rounds[0]) == pace.rounds:
        for _ in range(pace.cold):
            for i, contestant in enumerate(contestants):
                tell(News("timing with cold caches", contestant.position))
                chilled[i] += _time(contestant, 1, cold=True)
    return [_timing(*each) for each in zip(samples, rounds, chilled, strict=True)], broken


def _time(contestant: Contestant, repeats: int, **how: Any) -> list[float]:
    try:
        return contestant.harness.time(repeats, **how)
    except Misbehaved as failure:
        if contestant.position < 0:
            raise
        raise _Culprit(contestant.position, failure) from failure


def _batch(contestant: Contestant) -> int:
    """Runs per sample, after warming up."""
    once = min(_time(contestant, 3, limit_ns=20_000_000))
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
