"""Tuning for a device that is not here, and what a machine that has the device makes of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from onnx import TensorProto, helper, save
from stitchtune import feeds, pipeline
from stitchtune.devices import resolve_target
from stitchtune.kernels.compile import find_compiler
from stitchtune.kernels.cuda.nvrtc import find_nvrtc
from stitchtune.results.database import Database
from stitchtune.results.records import Measurement, plan_id
from stitchtune.results.report import write_report
from stitchtune.search_space.target import Target
from stitchtune.settings import Settings
from stitchtune.tuner.events import TuneResult

from tests.command_line import CommandLine

needs_nvrtc = pytest.mark.skipif(find_nvrtc() is None, reason="NVRTC is not installed (extra cuda13)")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A bias and a softmax of rows."""
    nodes = [helper.make_node("Add", ["x", "b"], ["z"]), helper.make_node("Softmax", ["z"], ["y"], axis=-1)]
    info = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [64, 256]), ("b", [256]))]
    made = helper.make_graph(nodes, "rows", info, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 256])])
    path = tmp_path / "rows.onnx"
    save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def tune(graph: Path, target: Target, cache: Path, budget: float = 30, **search: int) -> tuple[TuneResult, Database]:
    settings = Settings(target, str(graph.with_suffix(".db")), cache)
    loaded, parted = pipeline.read(graph, {})
    given = feeds.synthetic(loaded, 0)
    result = pipeline.tune(parted, given, settings, pipeline.Search(budget, **search), lambda event: None)
    return result, pipeline.database(settings)


@needs_nvrtc
def test_plans_are_compiled_and_predicted_and_nothing_is_measured(graph: Path, cache: Path) -> None:
    result, db = tune(graph, resolve_target("cuda:h200"), cache, trials=8)
    [part] = result.parts
    assert result.measured == 0
    assert result.predicted >= 3
    assert result.note == ""
    assert part.standing.predicted
    assert part.standing.speedup is None
    assert not part.won
    rows = [s.measurement for s in db.measurements()]
    assert {m.status for m in rows} <= {"predicted", "illegal"}
    assert [m.kind for m in rows[:2]] == ["unfused", "heuristic"]
    compiled = [m for m in rows if m.status == "predicted" and "compiled" in dict(m.facts)]
    for row in compiled:
        facts = dict(row.facts)
        assert row.seconds is None
        assert row.predicted is not None
        assert row.predicted > 0
        assert facts["compiled"] is True
        assert 0 < int(facts["registers"]) <= 255
        assert facts["spill_bytes"] == facts["stack_bytes"] == 0
        assert 0 < float(facts["occupancy"]) <= 1
    best = db.best(part.standing.key)
    assert best is not None
    assert best.measurement.plan == part.plan
    assert best.measurement.predicted == min(
        m.predicted for m in rows if m.predicted is not None and m.status == "predicted"
    )

    again, _ = tune(graph, resolve_target("cuda:h200"), cache)
    assert again.predicted == 0
    assert again.parts[0].standing.stop == "found"
    assert again.parts[0].standing.best == best.measurement.predicted
    assert again.parts[0].standing.speedup is None


def test_subgraphs_that_the_budget_did_not_reach_passed_for_predicted_before(graph: Path, tmp_path: Path) -> None:
    done = CommandLine(tmp_path)("tune", graph, "--target", "cuda:a100", "--budget", 0, "--db", "p.db")
    assert done.code == 0, done.err
    assert "1 of 1 subgraphs were not predicted" in done.out
    assert "predicted before" not in done.out


@needs_nvrtc
def test_predictions_are_marked_everywhere(graph: Path, tmp_path: Path) -> None:
    tune_py = CommandLine(tmp_path)
    done = tune_py("tune", graph, "--target", "cuda:a100", "--budget", 20, "--trials", 4, "--db", "p.db")
    assert done.code == 0, done.err
    assert "predicted: nothing was run" in done.out
    assert "no such device here" in done.out.splitlines()[0]
    assert not re.search(r"\d\.\d\dx", done.out), "a speed-up of times that nobody measured"
    listed = tune_py("plans", "list", "--db", "p.db")
    assert "predicted" in listed.out
    assert {p["status"] for p in tune_py("plans", "list", "--db", "p.db", "--json").document["plans"]} == {"predicted"}
    found = tune_py("source", graph, "--target", "cuda:a100", "--db", "p.db").out
    assert "predicted" in found.splitlines()[0]
    assert "__global__" in found
    report = write_report(Database.open(tmp_path / "p.db"), tmp_path / "report")
    assert "no measured speed-up" in report.lines[0]
    assert "redicted" in report.page.read_text()


def test_without_nvrtc_the_model_alone_ranks_and_says_so(
    graph: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from stitchtune.tuner import predicting

    monkeypatch.setattr(predicting, "find_nvrtc", lambda: None)
    result, db = tune(graph, resolve_target("cuda:h200"), cache, trials=6)
    assert "pip install 'stitchtune[cuda13]'" in result.note
    assert result.predicted > 0
    assert {dict(s.measurement.facts).get("compiled", False) for s in db.measurements()} == {False}


@needs_nvrtc
def test_a_device_that_the_compiler_dropped_is_ranked_by_the_model(graph: Path, cache: Path) -> None:
    result, _ = tune(graph, resolve_target("cuda:v100"), cache, trials=4)
    assert "sm_70" in result.note
    assert result.predicted > 0


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
def test_a_machine_with_the_device_measures_predicted_plans_first(graph: Path, cache: Path) -> None:
    target = resolve_target("cpu")
    first, db = tune(graph, target, cache, budget=20, trials=8)
    rows = [s.measurement for s in db.measurements() if s.measurement.ok and s.measurement.kind == "search"]
    distinct = {plan_id(m.plan): m for m in rows if m.plan is not None}
    chosen = list(distinct.values())[:3]
    assert first.measured > 3
    assert len(chosen) == 3

    other = graph.with_name("other.onnx")
    other.write_bytes(graph.read_bytes())
    elsewhere = Database.open(other.with_suffix(".db"))
    for place, one in enumerate(chosen):
        elsewhere.record(_as_predicted(one, seconds=(3 - place) * 1e-6))
    assert tune(other, target, cache, budget=20, trials=6)[0].measured > 0
    measured = [s.measurement for s in elsewhere.measurements() if s.measurement.status not in ("predicted",)]
    searched = [plan_id(m.plan) for m in measured if m.kind == "search" and m.plan is not None]
    assert searched[:3] == [plan_id(m.plan) for m in reversed(chosen) if m.plan is not None]


def _as_predicted(one: Measurement, seconds: float) -> Measurement:
    """A row as another machine would have predicted it: another compiler, and no time."""
    key = replace(one.key, compiler="another")
    return replace(
        one, key=key, status="predicted", seconds=None, spread=None, cold=None, cold_spread=None, samples=0,
        predicted=seconds, origin="elsewhere", facts=(), run="",
    )  # fmt: skip
