"""Proposals: baselines first, nothing twice, the same for the same seed, better than chance."""

from __future__ import annotations

import hashlib
import math
import random

import pytest
from stitchtune.search_space import legality
from stitchtune.search_space.space import Space
from stitchtune.tuner.cost import predict
from stitchtune.tuner.residual import Observation, Residual, fit
from stitchtune.tuner.strategy import Candidate, Search

from .examples import MODEL, TARGET, column_sum, softmax

SUB = softmax(4000, 128)


def truth(candidate: Candidate) -> float:
    """A made-up time: the model's, off by factors that depend on the knobs."""
    off = 0.0
    for name, value in candidate.assignment:
        off += random.Random(f"{name}={value}").uniform(-0.15, 0.15)
    return candidate.cost.seconds * math.exp(off)


def run(search: Search, trials: int, batch: int = 4) -> list[Candidate]:
    """Measures `trials` candidates by `truth`, baselines first."""
    measured: list[Candidate] = []
    lessons: list[Observation] = []
    for candidate in search.baselines():
        search.tell(candidate, truth(candidate))
        lessons.append(search.observe(candidate, truth(candidate)))
        measured.append(candidate)
    while len(measured) < trials:
        for candidate in search.propose(min(batch, trials - len(measured)), fit(lessons)):
            search.tell(candidate, truth(candidate))
            lessons.append(search.observe(candidate, truth(candidate)))
            measured.append(candidate)
    return measured


def test_baselines_come_first_and_nothing_twice() -> None:
    measured = run(Search(SUB, "s", TARGET, MODEL), 20)
    assert [c.kind for c in measured[:3]] == ["unfused", "heuristic", "search"]
    assert len({c.program for c in measured}) == len({c.plan for c in measured}) == 20
    assert all(not legality.check(SUB, c.plan, TARGET) for c in measured)


def test_the_same_seed_proposes_the_same() -> None:
    first, again, other = (run(Search(SUB, "s", TARGET, MODEL, seed=seed), 14) for seed in (7, 7, 8))
    assert [c.plan for c in first] == [c.plan for c in again]
    assert [c.plan for c in first] != [c.plan for c in other]


@pytest.mark.parametrize("sub", [SUB, column_sum(4096, 768)], ids=["softmax", "column sum"])
def test_it_finds_what_chance_needs_many_more_trials_for(sub: object) -> None:
    found = min(truth(c) for c in run(Search(sub, "s", TARGET, MODEL), 24))  # type: ignore[arg-type]
    rng = random.Random(0)
    space = Space(sub, TARGET)  # type: ignore[arg-type]
    times = []
    for _ in range(120):
        proposal = space.suggest(lambda knob: rng.choice(knob.choices))
        cost = predict(sub, proposal.plan, MODEL)  # type: ignore[arg-type]
        times.append(truth(Candidate(proposal.plan, proposal.assignment, cost, cost.seconds, "")))
    assert found <= 1.1 * min(times)


def test_without_the_model_it_still_searches() -> None:
    measured = run(Search(SUB, "s", TARGET, MODEL, ranked=False), 16)
    assert len({c.program for c in measured}) == 16


def test_replayed_measurements_are_known() -> None:
    first = Search(SUB, "s", TARGET, MODEL)
    measured = run(first, 12)
    second = Search(SUB, "s", TARGET, MODEL)
    for candidate in measured:
        replayed = second.replay(candidate.plan, dict(candidate.assignment), truth(candidate))
        assert replayed is not None
        assert replayed.program == candidate.program
        assert dict(replayed.assignment) == dict(candidate.assignment)
    known = {c.program for c in measured}
    assert not known & {c.program for c in second.propose(6, Residual())}


def test_a_plan_of_an_older_space_is_replayed_without_knobs() -> None:
    search = Search(SUB, "s", TARGET, MODEL)
    plan = run(Search(SUB, "s", TARGET, MODEL), 4)[3].plan
    replayed = search.replay(plan, {"no.such.knob": 3}, 1e-3)
    assert replayed is not None
    assert replayed.plan == plan
    assert replayed.assignment == ()


def test_failures_are_told_apart_from_slow_plans() -> None:
    search = Search(SUB, "s", TARGET, MODEL)
    candidates = search.baselines() + search.propose(6, Residual())
    for number, candidate in enumerate(candidates):
        search.tell(candidate, None if number % 2 else 1e-3)
    assert search.propose(3, Residual())


def test_names_of_programs_do_not_depend_on_the_process() -> None:
    [first, *_] = Search(SUB, "s", TARGET, MODEL).baselines()
    assert len(first.program) == len(hashlib.sha256().hexdigest())
