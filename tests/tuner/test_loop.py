"""The tuning loop on a small graph: results, resuming, interruption, planted failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from stitchtune.graphs.digest import structural_digest
from stitchtune.graphs.onnx_reader import load
from stitchtune.graphs.partition import Partition, partition
from stitchtune.graphs.simplify import simplify
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.build import BuildFailure, BuiltPlan, build_plans
from stitchtune.kernels.host import host_target
from stitchtune.results.database import Database
from stitchtune.results.records import PlanKey, plan_id
from stitchtune.tuner import effort, task
from stitchtune.tuner.budget import Rules
from stitchtune.tuner.cost import FEATURES
from stitchtune.tuner.effort import EFFORTS, Options
from stitchtune.tuner.events import Event, TuneResult
from stitchtune.tuner.history import lessons
from stitchtune.tuner.loop import tune_graph

from .examples import MODEL
from .planted import BODIES, planted


def key_of(sub: Subgraph) -> PlanKey:
    return PlanKey(structural_digest(sub), sub.extents, sub.slots, host_target(), "compiler", "generator")


def graph(folder: Path, nodes: Sequence[onnx.NodeProto], shape: tuple[int, ...]) -> Partition:
    """A model from x to y with a square weight `w`."""
    weight = np.random.default_rng(0).standard_normal((shape[-1], shape[-1])).astype(np.float32)
    model = helper.make_model(
        helper.make_graph(
            list(nodes),
            "small",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
            [onnx.numpy_helper.from_array(weight, "w")],
        ),
        opset_imports=[helper.make_opsetid("", 21)],
        ir_version=10,
    )
    onnx.save(model, folder / "small.onnx")
    return partition(simplify(load(folder / "small.onnx")))


@pytest.fixture
def twice(tmp_path: Path) -> Partition:
    """Softmax, MatMul, softmax: one distinct subgraph, twice."""
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"]),
        helper.make_node("MatMul", ["a", "w"], ["b"]),
        helper.make_node("Softmax", ["b"], ["y"]),
    ]
    return graph(tmp_path, nodes, (64, 96))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def db(tmp_path: Path) -> Database:
    """With a device model, so that nothing is measured for one."""
    found = Database.open(tmp_path / "plans.sqlite")
    found.save_device(replace(MODEL, target=host_target()))
    return found


def tune(
    graph: Partition, db: Database, options: Options, progress: Callable[[Event], None] = lambda event: None
) -> TuneResult:
    feeds = {"x": np.random.default_rng(1).standard_normal(graph.graph.types["x"].shape).astype(np.float32)}
    return tune_graph(graph, feeds, db, host_target(), key_of, options, progress)


def test_tunes_stores_and_does_not_repeat(twice: Partition, db: Database, cache: Path) -> None:
    options = Options(cache, budget=40, trials=6, effort="quick")
    events: list[Event] = []
    result = tune(twice, db, options, events.append)
    [part] = result.parts
    assert not result.interrupted
    assert part.standing.occurrences == 2
    assert part.standing.stop in ("trials", "limit")
    assert part.plan is not None
    best = db.best(part.standing.key)
    assert best is not None
    assert best.measurement.plan == part.plan
    rows = db.measurements(part.standing.key)
    assert [r.measurement.kind for r in rows[:2]] == ["unfused", "heuristic"]
    searched = [plan_id(r.measurement.plan) for r in rows if r.measurement.plan][: result.measured]
    assert len(set(searched)) == len(searched) == result.measured
    assert {e.doing for e in events} >= {"inputs", "compiling", "measuring", "measured", "confirming", "finished"}
    assert db.runs()[0].seconds is not None
    [record] = db.graphs("small")
    assert record.parts[0].occurrences == 2
    assert record.library_ops == 1

    model = db.device(host_target())
    assert model is not None
    learned = lessons(db, model, frozenset())
    assert len(learned) >= 3
    assert {len(o.features) for o in learned} == {len(FEATURES)}
    assert lessons(db, model, frozenset({part.standing.key.digest})) == []
    elsewhere = replace(model, target=replace(model.target, name="elsewhere"))
    assert lessons(db, elsewhere, frozenset()) == [], "another target teaches nothing"

    again = tune(twice, db, options)
    assert again.measured == 0
    assert again.seconds < 10
    assert again.parts[0].standing.stop == "found"
    assert again.parts[0].plan == part.plan
    assert len(db.measurements(part.standing.key)) == len(rows)

    more = tune(twice, db, replace(options, more=True, trials=3))
    assert more.measured >= 1
    plans = [plan_id(r.measurement.plan) for r in db.measurements(part.standing.key)[len(rows) :] if r.measurement.plan]
    assert not set(plans[: more.measured]) & set(searched)


def test_ctrl_c_keeps_what_was_found(twice: Partition, db: Database, cache: Path) -> None:
    measured = 0

    def interrupt(event: Event) -> None:
        nonlocal measured
        measured += event.doing == "measured"
        if measured == 4:
            raise KeyboardInterrupt

    options = Options(cache, budget=40, trials=8, effort="quick")
    result = tune(twice, db, options, interrupt)
    assert result.interrupted
    [part] = result.parts
    assert part.standing.stop == "interrupted"
    rows = db.measurements(part.standing.key)
    assert len(rows) == 4
    assert part.plan is not None
    first = {plan_id(r.measurement.plan) for r in rows if r.measurement.plan}

    resumed = tune(twice, db, options)
    assert 1 <= resumed.measured <= 4
    searched = db.measurements(part.standing.key)[4 : 4 + resumed.measured]
    assert not first & {plan_id(r.measurement.plan) for r in searched if r.measurement.plan}


def test_an_empty_budget_gives_baselines_only(twice: Partition, db: Database, cache: Path) -> None:
    result = tune(twice, db, Options(cache, budget=0.0, effort="quick"))
    assert result.measured <= 2
    assert result.parts[0].standing.stop == "budget"


def test_planted_failures_are_recorded_and_the_winner_is_found(
    tmp_path: Path, db: Database, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Mul", ["a", "x"], ["y"])]
    single = graph(tmp_path, nodes, (37, 271))
    left = [*BODIES.items(), ("compile-failed", "")]

    def sabotage(items: Sequence[Any], *args: Any, **options: Any) -> list[BuiltPlan | BuildFailure]:
        """Real builds; each plan of the search's first ones is replaced by a planted one."""
        found = build_plans(items, *args, **options)
        if len(items) == 2 and not planting:
            planting.append(True)
            return found
        for position, made in enumerate(found):
            if left and isinstance(made, BuiltPlan):
                status, body = left.pop()
                bad = BuildFailure("compile", "unit.cpp:1: error: planted")
                found[position] = bad if status == "compile-failed" else planted(body, made, tmp_path)
        return found

    planting: list[bool] = []
    monkeypatch.setattr(task, "build_plans", sabotage)
    patient = replace(EFFORTS["quick"], rules=Rules(16, 16), pace=replace(EFFORTS["quick"].pace, silence=3.0))
    monkeypatch.setitem(effort.EFFORTS, "quick", patient)
    result = tune(single, db, Options(cache, budget=60, effort="quick"))
    [part] = result.parts
    statuses = Counter(r.measurement.status for r in db.measurements(part.standing.key))
    assert set(statuses) >= {*BODIES, "compile-failed"}, statuses
    assert part.plan is not None
    best = db.best(part.standing.key)
    assert best is not None
    assert best.measurement.status == "ok"
    assert dict(part.standing.failures).keys() >= {*BODIES, "compile-failed"}
