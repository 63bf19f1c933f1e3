"""Plans between machines: what may come in, what it may do, and what is passed over."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stitchtune.graphs.digest import structural_digest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.errors import InputError
from stitchtune.graphs.subgraph import AxisVar, Read, Subgraph, Value
from stitchtune.results import transfer
from stitchtune.results.database import Database
from stitchtune.results.lookup import find
from stitchtune.results.records import GraphRecord, Measurement, Part, PlanKey, Run
from stitchtune.results.transfer import Imported, export_plans, import_plans, merge, prune
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.target import DeviceModel

Make = Callable[..., Measurement]
Key = Callable[..., PlanKey]
MakePlan = Callable[..., Plan]

SUB = Subgraph(
    (Value("input", DType.F32, (0,)), Value("exp", DType.F32, (1,), reads=(Read(0, (AxisVar(1),)),))), (1,), (4, 4)
)
DIGEST = structural_digest(SUB)


@pytest.fixture
def other(tmp_path: Path, measurement: Make, key: Key, plan: MakePlan) -> Database:
    """Another machine's database: two keys, one searched well."""
    db = Database.open(tmp_path / "other.db")
    one = key(digest=DIGEST, extents=SUB.extents)
    db.save_structure(DIGEST, SUB)
    db.record_all(
        [
            measurement(key=one, plan=plan(1), seconds=4e-3, kind="unfused"),
            measurement(key=one, plan=plan(2), seconds=1e-3),
            measurement(key=one, plan=plan(4), status="crashed"),
            measurement(key=key(), plan=plan(8), seconds=5e-3),
        ]
    )
    return db


def test_what_is_exported_comes_in(db: Database, other: Database, tmp_path: Path, key: Key, plan: MakePlan) -> None:
    file = tmp_path / "plans.jsonl"
    assert export_plans(other, file, source="lab 3/../x") == 3  # two in use, one baseline
    assert import_plans(db, file) == Imported(added=3, used=2)
    assert db.structure(DIGEST) == SUB
    rows = [s.measurement for s in db.measurements()]
    assert {m.origin for m in rows} == {"lab-3-..-x"}
    assert sorted(m.kind for m in rows) == ["search", "search", "unfused"]
    found = find(db, key(digest=DIGEST, extents=SUB.extents), lambda _wanted, plan, _source: plan)
    assert (found.plan, found.how, found.needs_check) == (plan(2), "exact", True)

    assert import_plans(db, file) == Imported(known=3)
    assert import_plans(other, file) == Imported(known=3)  # home again: nothing new
    assert export_plans(other, file, [key()]) == 1
    assert export_plans(other, file, everything=True) == 4
    assert import_plans(db, file) == Imported(added=1, known=3)


def test_sizes_that_a_structure_cannot_have_are_passed_over(
    db: Database, other: Database, tmp_path: Path, measurement: Make, key: Key
) -> None:
    for extents in ((4,), (4, 5), (4, 4, 4)):
        other.record(measurement(key=key(digest=DIGEST, extents=extents)))
    assert merge(db, other).skipped == (("impossible sizes", 3),)
    assert {s.measurement.key.extents for s in db.measurements() if s.measurement.key.digest == DIGEST} == {(4, 4)}


def test_a_better_local_plan_stays(
    db: Database, other: Database, tmp_path: Path, measurement: Make, key: Key, plan: MakePlan
) -> None:
    local = db.record(measurement(key=key(digest=DIGEST, extents=SUB.extents), plan=plan(16), seconds=0.9e-3))
    export_plans(other, tmp_path / "p")
    assert import_plans(db, tmp_path / "p").used == 1  # the other key's
    best = db.best(key(digest=DIGEST, extents=SUB.extents))
    assert best is not None
    assert best.id == local


def write(path: Path, *lines: Any, head: Any = None) -> Path:
    header = {"stitchtune-plans": 1, "rows": len(lines)} if head is None else head
    texts = [line if isinstance(line, str) else json.dumps(line) for line in (header, *lines)]
    path.write_text("\n".join(texts) + "\n", "utf-8")
    return path


def row(measurement: Measurement, **changes: Any) -> dict[str, Any]:
    outer: dict[str, Any] = json.loads(transfer._line("measurement", measurement))
    for path, value in changes.items():
        *steps, last = path.split("__")
        place = outer["data"]
        for step in steps:
            place = place[step]
        place[last] = value
    outer["sum"] = transfer._sum(transfer.codec.text_of(outer["data"]))
    return outer


def test_hostile_rows_are_counted_by_reason(db: Database, tmp_path: Path, measurement: Make) -> None:
    good = measurement()
    broken = row(good) | {"sum": "0" * 16}
    nan = json.dumps(row(good)).replace("0.001", "1e999")
    newer = row(good, plan__schema=9)
    renamed = transfer._line("structure", transfer._Structure("ab" * 16, SUB))
    structure = json.loads(transfer._line("structure", transfer._Structure(DIGEST, SUB)))
    structure["data"]["subgraph"]["outputs"] = [7]
    structure["sum"] = transfer._sum(transfer.codec.text_of(structure["data"]))
    file = write(
        tmp_path / "p",
        row(good),
        "{" * 5000,
        '{"row":' + "[" * 100_000,
        broken,
        nan,
        newer,
        row(good, key__digest="../../etc/passwd"),
        row(good, key__target__name="<script>alert(1)</script>"),
        row(good, key__compiler="g++\x1b[31m"),
        row(good, key__extents=[-1]),
        row(good, seconds="soon"),
        row(good, seconds=-1.0),
        row(good, status="predicted"),
        row(good, run="r\ud800"),
        row(good, seed=2**63),
        row(good, samples=2**31),
        row(good, created=0.0),
        row(good, surprise=1),
        {"row": "code", "sum": transfer._sum('"import os"'), "data": "import os"},
        [],
        structure,
        renamed,
        " " * (transfer.MAX_LINE + 10) + "{}",
        row(good),
    )
    result = import_plans(db, file)
    assert dict(result.skipped) == {
        "not in the form of a plan": 14,
        "odd name": 3,
        "checksum does not match": 1,
        "written by a newer version": 1,
        "inconsistent subgraph": 2,
        "too large": 1,
    }
    assert (result.added, [s.measurement.seconds for s in db.measurements()]) == (1, [1e-3])


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("", "is not a file of plans; `plans export` writes one"),
        ("\x7fELF", "is not a file of plans"),
        ("[" * 9999, "is not a file of plans"),
        ({"stitchtune-plans": "1"}, "is not a file of plans"),
        ({"stitchtune-plans": 1, "rows": "many"}, "is not a file of plans"),
        ({"stitchtune-plans": 2, "rows": 0}, "has format 2, newer than 1: upgrade"),
    ],
)
def test_other_files_are_refused_in_one_line(db: Database, tmp_path: Path, head: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        import_plans(db, write(tmp_path / "p", head=head))
    assert "\n" not in str(caught.value)
    assert not Path(db.name).exists()


def test_files_that_are_not_there(db: Database, other: Database, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        import_plans(db, tmp_path / "none")
    with pytest.raises(InputError, match="directory"):
        import_plans(db, tmp_path)
    with pytest.raises(InputError, match="cannot write"):
        export_plans(other, Path("/proc/none/plans"))


def test_messages_cannot_write_to_the_terminal(db: Database, tmp_path: Path, measurement: Make) -> None:
    import_plans(db, write(tmp_path / "p", row(measurement(status="wrong", message="a\x1b[2J\nb"))))
    assert db.measurements()[0].measurement.message == "a [2J b"


def test_merging_a_whole_database(db: Database, other: Database, measurement: Make, key: Key) -> None:
    model = DeviceModel(key().target, 1e10, 1e10, 1e10, 1e-6, 1e-6, 1e-6)
    other.save_device(model)
    other.save_run(Run("r1", "bert"))
    other.save_graph(GraphRecord("r1", "bert", (Part(key(), 2),)))
    other.record(measurement(key=key(digest="../up")))
    result = merge(db, other)
    assert (result.added, result.known, result.used, result.skipped) == (4, 0, 2, (("odd name", 1),))
    assert db.device(model.target) == model
    assert [r.id for r in db.runs()] == [g.run for g in db.graphs()] == ["r1"]
    assert {s.measurement.origin for s in db.measurements()} == {"other.db"}
    again = merge(db, other)
    assert (again.added, again.known, again.used) == (0, 4, 0)
    back = merge(other, db)
    assert (back.added, back.known) == (0, 4)


def test_pruning(db: Database, measurement: Make, key: Key, plan: MakePlan) -> None:
    def tile(number: int) -> PlanKey:
        return key(extents=(number,))

    old = [
        measurement(key=tile(1), plan=plan(1), kind="unfused", seconds=3.0),
        measurement(key=tile(1), plan=plan(2), seconds=2.0),
        measurement(key=tile(1), plan=plan(3), seconds=2.5),
        measurement(key=tile(1), plan=plan(4), status="wrong"),
        measurement(key=tile(2), status="hung"),
    ]
    new = [measurement(key=key(generator="new"), plan=plan(5), created=4e9)] * 1
    db.record_all([*old, *new])
    db.record_check(tile(7), plan(2), True)
    pruned = prune(db, generator="new")
    assert (pruned.measurements, pruned.damaged) == (3, 0)
    assert [s.id for s in db.measurements()] == [1, 2, 6]
    assert find(db, tile(7), lambda _wanted, plan, _source: plan).needs_check is False
    assert db.best(tile(2)) is None
    assert prune(db, days=30.0).measurements == 0
    assert db.record(measurement(key=tile(2), plan=plan(9))) == 7  # numbers are not used twice
