"""Curves, the cost model's quality and causes of failure, on values small enough to do by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from stitchtune.results import frames, plots, searches, units
from stitchtune.results.database import Database
from stitchtune.results.generator import generator_version, hash_sources
from stitchtune.results.records import GraphRecord, Measurement, PlanKey, key_id
from stitchtune.search_space.describe import schemes
from stitchtune.search_space.plan import Plan

Make = Callable[..., Measurement]
Key = Callable[..., PlanKey]
MakePlan = Callable[..., Plan]


@pytest.fixture
def searched(db: Database, measurement: Make, key: Key, plan: MakePlan) -> Database:
    def attempt(size: int, tile: int, seconds: float, elapsed: float, **fields: object) -> Measurement:
        base: dict[str, object] = {"key": key(extents=(size,)), "plan": plan(tile), "run": "r", "predicted": seconds}
        return measurement(**(base | {"seconds": seconds, "elapsed": elapsed} | fields))

    db.record_all(
        [
            attempt(1, 1, 8.0, 1.0, kind="unfused", predicted=7.0),
            attempt(1, 2, 4.0, 2.0, kind="heuristic", predicted=8.0),
            attempt(2, 1, 10.0, 3.0, kind="unfused"),
            attempt(1, 3, 6.0, 4.0, predicted=1.0),
            attempt(1, 4, 2.0, 5.0, predicted=3.0),
            attempt(2, 2, 5.0, 6.0),
            attempt(1, 5, 1e-9, 7.0, origin="elsewhere"),
            measurement(key=key(extents=(1,)), status="wrong", message="error 1.5e-3 at 7", run="r"),
            measurement(key=key(extents=(1,)), status="wrong", message="error 2 at 12", run="r", created=1.0),
            measurement(key=key(extents=(1,)), status="illegal", message="odd", run="r"),
        ]
    )
    return db


def test_curves(searched: Database, key: Key) -> None:
    table = frames.measurements(searched)
    curves = searches.curves(table)
    first = curves[curves["key"] == curves["key"].iloc[0]]
    assert list(first["step"]) == [1, 2, 3, 4]
    assert list(first["seconds"]) == [8, 4, 4, 2]
    assert list(first["ratio"]) == [1, 2, 2, 4]
    times = {key_id(key(extents=(size,))): count for size, count in ((1, 3), (2, 1), (3, 9))}
    points = searches.progress(times, curves, "r")
    assert list(points["seconds"]) == [34, 34, 22, 22, 22, 16, 11]
    assert set(points["unfused"]) == {34}
    assert searches.progress(times, curves, "other run").shape == (1, 3)


def test_accuracy(searched: Database) -> None:
    accuracy = searches.accuracy(frames.measurements(searched))
    assert len(accuracy) == 1  # the other has too few plans
    row = accuracy.iloc[0]
    assert row["plans"] == 4
    assert row["spearman"] == pytest.approx(0.0)  # ranks 4 2 3 1 against 3 4 1 2
    assert row["regret_1"] == pytest.approx(2.0)  # the model's first took 6, the best 2
    assert row["regret_5"] == 0
    assert "rank correlation 0.00, top-1 regret 200.0 %, top-5 regret 0.0 %" in searches.accuracy_line(accuracy)
    assert searches.accuracy_line(accuracy.iloc[:0]) == ""


def test_causes(searched: Database) -> None:
    table = frames.measurements(searched)
    causes = searches.causes(table)
    assert [tuple(row) for row in causes.to_numpy()] == [("wrong", "error # at #", 2, 8), ("illegal", "odd", 1, 10)]
    statuses = searches.statuses(table).set_index("status")
    assert dict(statuses["count"]) == {"ok": 7, "wrong": 2, "illegal": 1}
    assert dict(statuses["fault"]) == {"ok": False, "wrong": True, "illegal": False}


def test_schemes(plan: MakePlan) -> None:
    assert schemes(plan()) == {"independent": 0, "local": 1, "regional": 0, "global": 0, "alias": 0}


def test_nothing_to_draw_is_no_figure() -> None:
    db = Database.open("sqlite://")
    table = frames.measurements(db)
    rows = frames.subgraphs(db, GraphRecord("r", "g", ()))
    assert plots.comparison(rows) is plots.roofline(rows, None) is plots.schemes(rows) is None
    assert plots.accuracy(table) is plots.failures(searches.statuses(table)) is None
    assert (
        plots.searches(searches.curves(table), {})
        is plots.progress(searches.progress({}, searches.curves(table), "r"))
        is None
    )
    assert searches.accuracy(table).empty
    assert searches.causes(table).empty


def test_many_labels_do_not_overlap() -> None:
    places = plots._spread_out([7.0, 7.01, 7.02, 1.0, 8.0], (1.0, 8.0), gap=0.1)
    at = sorted(math.log(p) / math.log(8.0) for p in places)
    assert all(b - a >= 0.099 for a, b in itertools.pairwise(at))


def test_units() -> None:
    assert [units.seconds(v) for v in (None, 0.0, 5e-10, 3e-9, 9.994e-4, 9.996e-4, 1.5, 123.4)] == [
        *("–", "0 ns", "0 ns", "3.00 ns", "999 µs", "1.00 ms", "1.50 s", "123 s"),
    ]
    assert [units.nbytes(v) for v in (0, 999, 1000, 6_291_456, 2.5e9)] == [
        "0 B",
        "999 B",
        "1.00 kB",
        "6.29 MB",
        "2.50 GB",
    ]
    assert [units.ratio(v) for v in (float("nan"), 0.5, 1.854, 12.34, 123.4)] == [
        "–",
        "0.500×",
        "1.85×",
        "12.3×",
        "123×",
    ]
    assert units.count(1234567) == "1\u2009234\u2009567"
    assert [units.tick(t) for t in ("50.0 ms", "100 µs", "0 ns", "1.50 s")] == ["50 ms", "100 µs", "0", "1.5 s"]


def test_the_generator_version_follows_the_sources(tmp_path: Path) -> None:
    root = tmp_path
    (root / "a.py").write_bytes(b"x\n")
    (root / "b.py").write_bytes(b"y\n")
    files = [root / "a.py", root / "b.py"]
    before = hash_sources(root, files)
    assert before == hash_sources(root, files[::-1])
    (root / "a.py").write_bytes(b"x\r\n")
    assert before == hash_sources(root, files)
    (root / "a.py").write_bytes(b"y\n")
    assert before != hash_sources(root, files)
    assert len(generator_version()) == 12
