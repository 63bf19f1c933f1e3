"""The plan database: what goes in comes out, whatever was done to the file."""

from __future__ import annotations

import math
import os
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.errors import InputError
from stitchtune.graphs.subgraph import AxisVar, Read, Subgraph, Value
from stitchtune.results import schema
from stitchtune.results.database import Database
from stitchtune.results.engine import DatabaseError, DatabaseWarning, as_url
from stitchtune.results.records import GraphRecord, Measurement, Part, PlanKey, Run
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.target import DeviceModel

Make = Callable[..., Measurement]
Key = Callable[..., PlanKey]
MakePlan = Callable[..., Plan]


def test_everything_round_trips(db: Database, measurement: Make, key: Key) -> None:
    first = measurement(
        assignment=(("tile", 8), ("scheme", "regional"), ("stream", True)),
        facts=(("driver", "none"), ("load", 0.25)),
        traffic=1 << 40,
        cold=2e-3,
        cold_spread=1e-4,
        trial=3,
        seed=2**40,
        run="r1",
        elapsed=4.5,
        synthetic=False,
        message="naïve ↯",
    )
    failed = measurement(status="crashed", message="signal 11")
    without = measurement(status="illegal", plan=None)
    ids = db.record_all([first, failed, without])
    assert [s.measurement for s in db.measurements()] == [first, failed, without]
    assert [s.id for s in db.measurements()] == ids
    assert [s.measurement for s in db.measurements(run="r1")] == [first]
    assert [s.measurement for s in db.measurements(status="crashed")] == [failed]
    assert db.measurements(key(extents=(1,))) == []

    model = DeviceModel(first.key.target, 1e10, 2e10, 3e10, 1e-6, 1e-7, 1e-6, (("add", 1e9),))
    db.save_device(replace(model, launch=5.0))
    db.save_device(model)
    assert db.device(model.target) == model
    assert db.devices() == [model]
    assert db.device(replace(model.target, processors=64)) is None

    read = Read(0, (AxisVar(1),))
    sub = Subgraph((Value("input", DType.F32, (0,)), Value("exp", DType.F32, (1,), reads=(read,))), (1,), (4, 4))
    db.save_structure("d1", sub)
    assert db.structure("d1") == sub
    assert db.structure("d1", (9, 9)) == sub.resized((9, 9))
    assert db.structure("d2") is None

    run = Run("r1", "bert", (("budget", 60),), started=1.0)
    db.save_run(run)
    db.save_run(replace(run, seconds=60.0))
    assert db.runs("bert") == [replace(run, seconds=60.0)]
    graph = GraphRecord("r1", "bert", (Part(first.key, 12, "softmax"),), 97, 356, (("N", 8),))
    db.save_graph(graph)
    db.save_graph(graph)
    assert db.graphs() == [graph]
    assert db.graphs("dien") == []


def test_reading_makes_no_file(tmp_path: Path, key: Key) -> None:
    db = Database.open(tmp_path / "folder" / "plans.db")
    assert db.measurements() == []
    assert db.best(key()) is None
    assert db.measurement(1) is None
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_an_empty_database(tmp_path: Path, measurement: Make) -> None:
    (tmp_path / "plans.db").touch()
    db = Database.open(tmp_path / "plans.db")
    assert db.measurements() == []
    assert db.record(measurement()) == 1


def test_names_of_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Database.open().name == str(tmp_path / "stitchtune" / "plans.db")
    odd = tmp_path / "a b#%41?.db"
    Database.open(str(odd)).save_run(Run("r", "g"))
    assert odd.exists()
    assert Database.open(f"sqlite:///{tmp_path}/x.db").name == f"{tmp_path}/x.db"
    assert Database.open("postgresql://me:secret@host/db").name == "postgresql+psycopg://me:***@host/db"
    for odd_url in ("://", "abacus://host/db", "postgresql://host:port/db"):
        with pytest.raises(InputError, match="not a database URL"):
            as_url(odd_url)


def test_recording_twice_is_one_row(db: Database, measurement: Make) -> None:
    one = measurement()
    assert db.record(one) == db.record(one)
    assert len(db.measurements()) == 1
    assert db.record(measurement(created=2e9)) == 2


def test_settling(db: Database, measurement: Make) -> None:
    ident = db.record(
        measurement(status="wrong", predicted=math.inf, message="m" * 9999 + "\0", created=0.0, spread=math.nan)
    )
    stored = db.measurement(ident)
    assert stored is not None
    assert stored.measurement.predicted is None
    assert stored.measurement.spread is None
    assert len(stored.measurement.message) == 2000
    assert abs(stored.measurement.created - time.time()) < 60
    for nonsense in ({"seconds": None}, {"seconds": math.nan}, {"plan": None}, {"status": "predicted", "seconds": 1.0}):
        with pytest.raises(ValueError, match=r"status|predicted"):
            db.record(measurement(**nonsense))


def test_memory_database(measurement: Make) -> None:
    db = Database.open("sqlite://")
    assert db.measurements() == []
    db.record(measurement())
    assert len(db.measurements()) == 1


# --- which plan is best


def best_tile(db: Database, key: PlanKey) -> int:
    stored = db.best(key)
    assert stored is not None
    assert stored.measurement.plan is not None
    return stored.measurement.plan.kernels[0].phases[0].groups[0].parallel[0][1]


def test_the_fastest_is_best_until_the_tuner_or_a_user_decides(db: Database, measurement: Make, plan: MakePlan) -> None:
    key = measurement().key
    db.record(measurement(plan=plan(1), seconds=3e-3, kind="unfused"))
    second = db.record(measurement(plan=plan(2), seconds=2e-3))
    db.record(measurement(plan=plan(4), seconds=1e-3))
    db.record(measurement(plan=plan(8), status="predicted", predicted=1e-9))
    db.record(measurement(plan=plan(16), status="cut-off", seconds=1e-9))
    assert best_tile(db, key) == 4
    db.choose(key, second)  # 1e-3 did not hold when measured again
    assert best_tile(db, key) == 2
    db.pin(key, 1)
    assert best_tile(db, key) == 1
    db.record(measurement(plan=plan(32), seconds=1e-6))
    assert best_tile(db, key) == 1
    db.pin(key, None)
    assert best_tile(db, key) == 2
    for ident in (99, 0):
        with pytest.raises(DatabaseError, match="no plan for this key"):
            db.pin(key, ident)


def test_a_fault_takes_a_plan_out_even_when_pinned(db: Database, measurement: Make, plan: MakePlan) -> None:
    key = measurement().key
    first = db.record(measurement(plan=plan(1), seconds=1e-3))
    db.record(measurement(plan=plan(2), seconds=2e-3))
    db.pin(key, first)
    db.record(measurement(plan=plan(1), status="nondeterministic"))
    assert best_tile(db, key) == 2
    db.record(measurement(plan=plan(1), seconds=1e-3, created=2e9))  # mended: measured right again since
    assert best_tile(db, key) == 1
    db.record_check(key, plan(1), False, "wrong in the last lane")
    assert best_tile(db, key) == 2


def test_predicted_is_used_only_where_nothing_was_measured(db: Database, measurement: Make, plan: MakePlan) -> None:
    key = measurement().key
    db.record(measurement(plan=plan(1), status="predicted", predicted=2e-6))
    db.record(measurement(plan=plan(2), status="predicted", predicted=1e-6))
    assert best_tile(db, key) == 2
    db.record(measurement(plan=plan(4), seconds=1.0))
    assert best_tile(db, key) == 4


def test_imported_wins_only_beyond_the_spread_and_untried(db: Database, measurement: Make, plan: MakePlan) -> None:
    key = measurement().key
    db.record(measurement(plan=plan(1), seconds=1e-3, spread=5e-5))
    db.record(measurement(plan=plan(2), seconds=0.95e-3, spread=1e-5, origin="other"))
    assert best_tile(db, key) == 1
    db.record(measurement(plan=plan(4), seconds=0.5e-3, spread=1e-5, origin="other"))
    assert best_tile(db, key) == 4
    db.record(measurement(plan=plan(4), seconds=2e-3, kind="imported"))  # tried here: slower
    assert best_tile(db, key) == 1
    db.record(measurement(plan=plan(1), status="crashed", origin="other"))  # their fault is not ours
    assert best_tile(db, key) == 1


# --- files that are not as they should be


def tamper(db: Database, statement: str, *values: object) -> None:
    with sqlite3.connect(str(db.url.database)) as connection:
        connection.execute(statement, values)
    connection.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE plans SET text = '{' WHERE rowid = 1",
        "UPDATE plans SET text = CAST(x'ff00fe' AS TEXT) WHERE rowid = 1",
        "UPDATE plans SET text = 7 WHERE rowid = 1",
        "UPDATE plans SET text = replace(text, '\"schema\":2', '\"schema\":9') WHERE rowid = 1",
        "UPDATE measurements SET seconds = 'fast' WHERE id = 1",
        "UPDATE measurements SET seconds = -1.0 WHERE id = 1",
        "UPDATE measurements SET seconds = 9e999 WHERE id = 1",
        "UPDATE measurements SET status = 'splendid' WHERE id = 1",
        "UPDATE measurements SET facts = '[[[[[[' WHERE id = 1",
        "UPDATE measurements SET assignment = x'00' WHERE id = 1",
        "UPDATE measurements SET trial = 1.5 WHERE id = 1",
    ],
)
def test_a_damaged_row_is_passed_over(db: Database, measurement: Make, plan: MakePlan, statement: str) -> None:
    db.record_all([measurement(), measurement(plan=plan(4), created=1e9)])
    tamper(db, statement)
    with pytest.warns(DatabaseWarning, match="1 damaged measurements of .*plans.db passed over"):
        rest = db.measurements()
    assert [s.id for s in rest] == [2]
    with pytest.raises(DatabaseError, match=r"measurement 1 of .* is damaged"):
        db.measurement(1)
    db.record(measurement(created=2e9))  # recording goes on


def test_a_newer_schema_is_left_alone(db: Database, measurement: Make) -> None:
    db.record(measurement())
    tamper(db, "UPDATE meta SET value = '99' WHERE name = 'schema'")
    before = Path(str(db.url.database)).read_bytes()
    again = Database.open(db.name)
    for use in (again.measurements, lambda: again.record(measurement(trial=5))):
        with pytest.raises(DatabaseError, match=r"has schema 99, newer than 1; upgrade stitchtune"):
            use()
    assert Path(str(db.url.database)).read_bytes() == before


def test_something_else_is_left_alone(tmp_path: Path, measurement: Make) -> None:
    place = tmp_path / "photos.db"
    connection = sqlite3.connect(place)
    connection.execute("CREATE TABLE photos (name TEXT)")
    connection.close()
    before = place.read_bytes()
    db = Database.open(place)
    for use in (db.measurements, lambda: db.record(measurement())):
        with pytest.raises(DatabaseError, match="database of something else"):
            use()
    assert place.read_bytes() == before


@pytest.mark.parametrize("content", [b"no database at all" * 100, b"SQLite format 3\0" + bytes(5000)])
def test_a_file_that_is_no_database_is_one_line(tmp_path: Path, measurement: Make, content: bytes) -> None:
    place = tmp_path / "plans.db"
    place.write_bytes(content)
    db = Database.open(place)
    for use in (db.measurements, lambda: db.record(measurement())):
        with pytest.raises(DatabaseError) as caught:
            use()
        assert "plans.db" in str(caught.value)
        assert "\n" not in str(caught.value)
    assert place.read_bytes() == content


def test_a_damaged_file_is_one_line(db: Database, measurement: Make) -> None:
    for i in range(50):
        db.record(measurement(trial=i))
    place = Path(str(db.url.database))
    whole = bytearray(place.read_bytes())
    whole[4096:] = os.urandom(len(whole) - 4096)
    place.write_bytes(whole)
    with pytest.raises(DatabaseError, match="; move the file away") as caught:
        Database.open(place).measurements()
    assert "\n" not in str(caught.value)


def test_a_folder_is_one_line(tmp_path: Path, measurement: Make) -> None:
    with pytest.raises(DatabaseError, match="--db"):
        Database.open(tmp_path).record(measurement())
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseError, match="plan database"):
        Database.open(tmp_path / "file" / "plans.db").record(measurement())


def test_a_missing_driver_is_one_line() -> None:
    with pytest.raises(DatabaseError, match="plan database"):
        Database.open("postgresql+pg8000://me:secret@localhost:1/x").measurements()


def test_a_database_in_a_folder_that_cannot_be_written(
    db: Database, measurement: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.record(measurement())
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    again = Database.open(db.name)
    assert len(again.measurements()) == 1


def test_migrations_run_in_order() -> None:
    db = Database.open("sqlite://")
    db.save_run(Run("r", "g"))
    ran: list[int] = []
    with db.writing() as connection:
        schema.migrate(connection, 1, {1: lambda _: ran.append(1), 2: lambda _: ran.append(2)})
    assert ran == [1, 2]
    with pytest.raises(DatabaseError, match="schema 3"):
        Database.measurements(_fresh(db))


def _fresh(db: Database) -> Database:
    """The same in-memory database, seen as if just opened."""
    again = Database(db.url)
    again._read = db._write
    return again
