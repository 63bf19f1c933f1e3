"""Measurement of candidates that misbehave: each gets its status, and the good one is still timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from stitchtune.graphs.tolerance import expect
from stitchtune.kernels.build import BuildFailure, BuiltPlan, build_plans
from stitchtune.kernels.compile import find_compiler
from stitchtune.kernels.host import host_target
from stitchtune.search_space.stitch import heuristic
from stitchtune.tuner.device import prepare_device
from stitchtune.tuner.measure import Measurer, write_subject
from stitchtune.tuner.protocol import Pace
from stitchtune.tuner.reference import Reference

from .examples import scaled
from .planted import BODIES, GOOD, planted

SUB = scaled(10007)
PACE = Pace(silence=3.0, seconds=0.02)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def good(cache: Path) -> BuiltPlan:
    target = host_target()
    [built] = build_plans([(SUB, heuristic(SUB, target))], target, cache=cache)
    assert isinstance(built, BuiltPlan)
    return built


@pytest.fixture(scope="module")
def measurer(cache: Path) -> Iterator[Measurer]:
    inputs = [np.linspace(-2, 2, SUB.extents[0], dtype=np.float32)]
    with Measurer(prepare_device(host_target(), cache)) as found:
        found.load(write_subject(cache / "subject", SUB, inputs, Reference(expect(SUB, inputs))))
        yield found


def test_a_good_candidate_is_timed(good: BuiltPlan, measurer: Measurer) -> None:
    [outcome] = measurer.measure(good, pace=PACE).candidates
    assert (outcome.status, outcome.message) == ("ok", "")
    assert outcome.timing is not None
    assert 1e-7 < outcome.timing.seconds < 1e-3
    assert outcome.timing.spread < outcome.timing.seconds
    assert outcome.timing.cold is not None
    assert outcome.timing.cold > outcome.timing.seconds


@pytest.mark.parametrize("status", sorted(BODIES))
def test_a_bad_candidate_gets_its_status(status: str, good: BuiltPlan, measurer: Measurer, cache: Path) -> None:
    bad = planted(BODIES[status], good, cache)
    begin = time.monotonic()
    [outcome] = measurer.measure(bad, [good], PACE).candidates
    assert outcome.status == status, outcome.message
    assert outcome.message
    assert outcome.timing is None
    assert time.monotonic() - begin < 20
    [after] = measurer.measure(good, pace=PACE).candidates
    assert after.status == "ok"


def test_what_does_not_compile(good: BuiltPlan, cache: Path) -> None:
    from stitchtune.kernels.compile import compile_units

    compiler = find_compiler()
    assert compiler is not None
    [failure] = compile_units(["int main( { nonsense"], compiler, cache)
    assert isinstance(failure, BuildFailure)
    assert "error" in failure.message


def test_more_ways_to_misbehave(good: BuiltPlan, measurer: Measurer, cache: Path) -> None:
    for body, status in [
        (GOOD + "y[-1] = 0;", "out-of-bounds"),
        (GOOD + "x[-2] = 0;", "out-of-bounds"),
        (GOOD + "static int runs; if (++runs > 210) y[0] = 2;", "nondeterministic"),
        ("static bool done; if (!done) {" + GOOD + "} done = true;", "unwritten"),
        ('asm volatile("ud2");', "crashed"),
        ("y[0] = 3;", "unwritten"),
        (GOOD + "y[3] = (float)((long)y & 0xffff);", "nondeterministic"),
    ]:
        [outcome] = measurer.measure(planted(body, good, cache), pace=PACE).candidates
        assert outcome.status == status, (body, outcome)


def test_a_slow_candidate_is_cut_off(good: BuiltPlan, measurer: Measurer, cache: Path) -> None:
    slow = planted(f"for (volatile int again = 0; again < 30; again = again + 1) {{ {GOOD} }}", good, cache)
    reply = measurer.measure(slow, [good], PACE)
    [outcome], [rival] = reply.candidates, reply.rivals
    assert outcome.status == "cut-off"
    assert outcome.timing is not None
    assert rival is not None
    assert len(outcome.timing.rounds) == len(rival.rounds) == 1
    assert outcome.timing.seconds > PACE.cut_off * rival.seconds


def test_the_worker_itself_may_die(good: BuiltPlan, measurer: Measurer) -> None:
    measurer.measure(good, pace=PACE)
    worker = measurer._worker
    assert worker is not None
    worker._process.kill()
    worker._process.wait()
    [outcome] = measurer.measure(good, pace=PACE).candidates
    assert outcome.status == "crashed"
    [after] = measurer.measure(good, pace=PACE).candidates
    assert after.status == "ok"


def test_closing_leaves_nothing(good: BuiltPlan, cache: Path) -> None:
    inputs = [np.ones(SUB.extents[0], np.float32)]
    with Measurer(prepare_device(host_target(), cache)) as found:
        found.load(write_subject(cache / "other", SUB, inputs, Reference(expect(SUB, inputs))))
        assert found.measure(good, pace=PACE).candidates[0].status == "ok"
        worker = found._worker
        assert worker is not None
    assert worker._process.poll() is not None
