"""The report: numbers that are right, predicted plans that never count, and a page that is safe to open anywhere."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from stitchtune.graphs.errors import InputError
from stitchtune.results import device_check, frames, units
from stitchtune.results.database import Database
from stitchtune.results.records import GraphRecord, Measurement, Part, PlanKey, Run
from stitchtune.results.report import write_report
from stitchtune.search_space.plan import Plan

Make = Callable[..., Measurement]
Key = Callable[..., PlanKey]
MakePlan = Callable[..., Plan]

HOSTILE = "<script>alert('x')</script>\"><img src=http://evil.example/x onerror=alert(1)>"


class Page(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def check_self_contained(page: Page) -> None:
    assert not {"script", "link", "iframe", "object", "embed", "form", "base", "a"} & set(page.tags)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("href", "action", "srcset")]
    assert all(value.startswith("data:image/png;base64,") for name, value in page.attributes if name == "src")
    assert not re.search(r"url\(|@import", page.text)


def test_a_tuned_graph(tuned: Database, tmp_path: Path) -> None:
    report = write_report(tuned, tmp_path / "out" / "deep")
    assert report.page.parent == tmp_path / "out" / "deep"
    page = Page(report.page.read_text("utf-8"))
    check_self_contained(page)
    names = {file.name for file in report.files}
    pictures = "progress comparison roofline searches schemes".split()
    assert names == {f"bert-base-{name}.png" for name in pictures} | {
        *("accuracy.png", "failures.png"),
        *(f"{name}.csv" for name in "measurements subgraphs curves accuracy statuses causes".split()),
    }
    assert all(file.stat().st_size > 100 for file in report.files)
    assert page.tags.count("img") == 7
    frame = frames.subgraphs(tuned, frames.graphs(tuned)[0])
    assert report.lines == (
        f"bert-base: {units.ratio(frames.summary(frame)['geomean'])} faster than unfused "
        "(geometric mean of 59 subgraphs), kernels 1484 to 279",
    )
    for text in ("59 of 60 distinct subgraphs", "Only predicted, and in no number above: 1.", "N = 8", "19.0 GB/s"):
        assert text in page.text
    assert "$Q_k$ <split> & concat of heads" in page.text
    with (tmp_path / "out" / "deep" / "subgraphs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60
    predicted = next(row for row in rows if row["how"] == "predicted")
    assert (predicted["seconds"], predicted["speedup"], predicted["saved"]) == ("", "", "")


def small(db: Database, measurement: Make, key: Key, plan: MakePlan, name: str = "net") -> None:
    """Three subgraphs: one 4 times faster (twice in the graph), one kept unfused, one only predicted."""
    keys = [key(extents=(number,)) for number in range(3)]
    unfused = replace(plan(), kernels=plan().kernels * 3)
    common = {"run": "r1"}
    db.record_all(
        [
            measurement(key=keys[0], plan=unfused, kind="unfused", seconds=8e-3, traffic=400, elapsed=1.0, **common),
            measurement(key=keys[0], plan=plan(2), seconds=2e-3, traffic=110, elapsed=2.0, **common),
            measurement(key=keys[1], plan=unfused, kind="unfused", seconds=1e-3, traffic=300, elapsed=3.0, **common),
            measurement(key=keys[1], plan=plan(2), seconds=5e-3, elapsed=4.0, **common),
            measurement(key=keys[2], plan=plan(2), status="predicted", predicted=1e-12, elapsed=5.0, **common),
        ]
    )
    parts = (Part(keys[0], 2, "a", bytes_min=100), Part(keys[1], 1, "b", bytes_min=200), Part(keys[2], 7, "c"))
    db.save_run(Run("r1", name, started=1.0))
    db.save_graph(GraphRecord("r1", name, parts))


def test_the_numbers(db: Database, measurement: Make, key: Key, plan: MakePlan) -> None:
    small(db, measurement, key, plan)
    frame = frames.subgraphs(db, frames.graphs(db)[0]).set_index("label")
    assert dict(frame["how"]) == {"a": "fastest so far", "b": "unfused kept", "c": "predicted"}
    assert frame.loc["a", "speedup"] == pytest.approx(4)
    assert frame.loc["a", "saved"] == pytest.approx(12e-3)
    assert frame["speedup"].isna()["c"]
    total = frames.summary(frame.reset_index())
    assert total["geomean"] == pytest.approx(2)
    assert (total["measured"], total["predicted"], total["kept"]) == (2, 1, 1)
    assert total["unfused"] == pytest.approx(17e-3)
    assert total["seconds"] == pytest.approx(5e-3)
    assert (total["kernels_unfused"], total["kernels"]) == (9, 5)
    assert (total["traffic"], total["traffic_unfused"], total["bytes_min"]) == (520, 1100, 400)


def test_times_of_two_machines_are_never_compared(db: Database, measurement: Make, plan: MakePlan) -> None:
    one = measurement(kind="unfused", seconds=9e-3, spread=1e-5)
    db.record_all([one, measurement(plan=plan(2), seconds=1e-3, origin="elsewhere")])
    graph = GraphRecord("", "g", (Part(one.key, 1),))
    row = frames.subgraphs(db, graph).iloc[0]
    assert (row["how"], row["seconds"]) == ("imported", 1e-3)
    assert row.isna()["speedup"]
    assert row.isna()["unfused"]


def test_hostile_names_are_text(db: Database, tmp_path: Path, measurement: Make, key: Key, plan: MakePlan) -> None:
    small(db, measurement, key, plan, name=f"../../{HOSTILE}")
    db.record(measurement(status="wrong", message=HOSTILE, facts=((HOSTILE, HOSTILE),)))
    record = db.graphs()[0]
    parts = tuple(replace(part, label=f"=cmd({HOSTILE}$x_{{$") for part in record.parts)
    db.save_graph(replace(record, parts=parts, sizes=((HOSTILE, 1),)))
    report = write_report(db, tmp_path / "out")
    text = report.page.read_text("utf-8")
    check_self_contained(Page(text))
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert {path.parent for path in report.files} == {tmp_path / "out"}
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        [report.page.name, *(file.name for file in report.files)]
    )
    assert all(re.fullmatch(r"[a-z0-9-]+\.(png|csv)", file.name) for file in report.files)
    with (tmp_path / "out" / "subgraphs.csv").open(encoding="utf-8") as file:
        assert all(
            row["label"].startswith("'=cmd") or row["graph"] == "other subgraphs" for row in csv.DictReader(file)
        )


def test_an_empty_database_says_what_to_do(db: Database, tmp_path: Path) -> None:
    report = write_report(db, tmp_path / "out")
    assert report.lines == ("nothing measured yet: tune a graph first, with tune.py tune MODEL.onnx",)
    text = report.page.read_text("utf-8")
    check_self_contained(Page(text))
    assert "Nothing measured yet" in text
    assert not Path(db.name).exists()


def test_graphs_are_chosen_by_name(db: Database, tmp_path: Path, measurement: Make, key: Key, plan: MakePlan) -> None:
    small(db, measurement, key, plan)
    other = measurement(key=key(digest="e" * 16))
    db.record(other)
    both = write_report(db, tmp_path / "both")
    assert [line.split(":")[0] for line in both.lines] == ["net", "other subgraphs"]
    one = write_report(db, tmp_path / "one", "net")
    assert [line.split(":")[0] for line in one.lines] == ["net"]
    with (tmp_path / "one" / "measurements.csv").open(encoding="utf-8") as file:
        assert {row["digest"] for row in csv.DictReader(file)} == {"d" * 16}
    with pytest.raises(InputError, match=r"no tuning run of 'bert' in .*; graphs there: net"):
        write_report(db, tmp_path / "none", "bert")
    assert not (tmp_path / "none").exists()


def test_the_latest_run_of_a_graph_counts(db: Database, measurement: Make, key: Key, plan: MakePlan) -> None:
    small(db, measurement, key, plan)
    db.save_run(Run("r0", "net", started=0.5))
    db.save_graph(GraphRecord("r0", "net", ()))
    assert [g.run for g in frames.graphs(db)] == ["r1"]


def test_a_database_of_faults_only(db: Database, tmp_path: Path, measurement: Make) -> None:
    db.record_all([measurement(status="crashed", message=f"signal {n}", trial=n) for n in range(3)])
    report = write_report(db, tmp_path / "out")
    assert report.lines == ("other subgraphs: no measured speed-up (0 predicted plans)",)
    assert "signal #" in report.page.read_text("utf-8")


def test_a_folder_that_cannot_be_written(tuned: Database, tmp_path: Path) -> None:
    (tmp_path / "out").touch()
    with pytest.raises(InputError, match="cannot write the report to"):
        write_report(tuned, tmp_path / "out")


def test_plans_are_listed(tuned: Database) -> None:
    frame = frames.listing(tuned)
    assert len(frame) == 60
    assert set(frame["status"]) == {"ok", "predicted"}
    assert list(frame["id"]) == sorted(frame["id"], reverse=True)
    assert frames.listing(Database.open("sqlite://")).empty


# --- the device check


def device_check_file(path: Path, **changes: Any) -> Path:
    """A file as benchmarks/device_check.py writes it: one subject against two peers, one case that is wrong."""
    times = {"stitched": 1e-5, "torch": 4e-5}
    contestants: dict[str, Any] = {n: {"call": {"median": 2 * t}, "kernel": {"median": t}} for n, t in times.items()}
    contestants["xla"] = {"failure": "<b>no GPU</b>"}
    sections: list[dict[str, Any]] = [
        {"name": "cases", "state": "done", "why": "", "seconds": 3.0, "summary": {"cases": 2, "right": 1}}
        | {
            "rows": [
                {"case": "1 softmax", "ok": True, "message": ""},
                {"case": "2 mean", "ok": False, "message": "off"},
            ]
        },
        {"name": "suite", "state": "partial", "why": "time ran out", "seconds": 9.0, "summary": {"torch kernel": 4.0}}
        | {"rows": [{"subject": "Adam", "bytes": 1 << 24, "contestants": contestants}]},
    ]
    data = {"stitchtune-device-check": 1, "target": "cuda:h200", "emulated": False, "sections": sections}
    path.write_text(json.dumps({**data, **changes}))
    return path


def test_a_device_check_has_sections_of_its_own(db: Database, tmp_path: Path) -> None:
    checks = [device_check_file(tmp_path / "c.json"), device_check_file(tmp_path / "e.json", emulated=True)]
    page = write_report(db, tmp_path / "out", checks=checks).page.read_text()
    measured, _, emulated = page.partition("Device check: cuda:h200")[2].partition("Device check: cuda:h200")
    assert "its times mean nothing" not in measured
    assert "its times mean nothing" in emulated
    assert page.index("2 mean") < page.index("1 softmax"), "what is wrong comes first"
    assert "partial in 9.00 s: time ran out" in page
    assert "4.00×" in page
    assert "<b>no GPU</b>" not in page


def test_other_files_are_no_device_check(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", '{"stitchtune-device-check": 2}', "[" * 100_000, "\xff"):
        (tmp_path / "c.json").write_text(text, "latin-1")
        with pytest.raises(InputError, match="is no device check"):
            device_check.read(tmp_path / "c.json")
    odd = [3, {}, {"name": "suite", "rows": [{"contestants": 4}, 5]}]
    assert len(device_check.read(device_check_file(tmp_path / "o.json", sections=odd))["sections"]) == 2
