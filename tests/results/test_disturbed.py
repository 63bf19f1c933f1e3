"""Measurements that were taken while something disturbed the device never beat clean ones."""

from __future__ import annotations

from collections.abc import Callable

from stitchtune.results.database import Database
from stitchtune.results.lookup import find
from stitchtune.results.records import DISTURBED, Measurement, PlanKey
from stitchtune.search_space.plan import Plan

Make = Callable[..., Measurement]
MakePlan = Callable[..., Plan]
MARK = ((DISTURBED, "another process used the device"),)


def seconds_in_use(db: Database, key: PlanKey) -> float | None:
    best = db.best(key)
    return None if best is None else best.measurement.seconds


def test_a_clean_measurement_wins_over_a_faster_disturbed_one(
    db: Database, measurement: Make, plan: MakePlan, key: Callable[..., PlanKey]
) -> None:
    fast = measurement(plan=plan(4), seconds=1e-4, facts=(("load", 0.5), *MARK))
    assert fast.disturbed == MARK[0][1]
    db.record(fast)
    assert seconds_in_use(db, key()) == 1e-4  # better than nothing
    db.record(measurement(plan=plan(8), seconds=5e-4))
    assert seconds_in_use(db, key()) == 5e-4
    found = find(db, key(), lambda wanted, plan, source: plan)
    assert (found.plan, found.seconds) == (plan(8), 5e-4)
    db.record(measurement(plan=plan(16), seconds=2e-4))
    assert seconds_in_use(db, key()) == 2e-4


def test_a_disturbed_confirmation_does_not_stand(
    db: Database, measurement: Make, plan: MakePlan, key: Callable[..., PlanKey]
) -> None:
    chosen = db.record(measurement(plan=plan(4), seconds=1e-4, facts=MARK))
    db.choose(key(), chosen)
    assert seconds_in_use(db, key()) == 1e-4
    db.record(measurement(plan=plan(8), seconds=3e-4))
    assert seconds_in_use(db, key()) == 3e-4


def test_an_imported_clean_plan_beats_a_disturbed_local_one(
    db: Database, measurement: Make, plan: MakePlan, key: Callable[..., PlanKey]
) -> None:
    db.record(measurement(plan=plan(4), seconds=1e-4, facts=MARK))
    db.record(measurement(plan=plan(8), seconds=9e-4, origin="elsewhere"))
    assert seconds_in_use(db, key()) == 9e-4


def test_a_fact_that_only_mentions_the_word_disturbs_nothing(
    db: Database, measurement: Make, plan: MakePlan, key: Callable[..., PlanKey]
) -> None:
    db.record(measurement(plan=plan(4), seconds=1e-4, facts=(("note", DISTURBED),)))
    db.record(measurement(plan=plan(8), seconds=2e-4))
    assert seconds_in_use(db, key()) == 1e-4
