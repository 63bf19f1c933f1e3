"""Many processes on one database file, some of them killed: every row that was committed is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from stitchtune.results.database import Database

WRITER = """
import sys
from dataclasses import replace
from stitchtune.results.database import Database
from stitchtune.results.records import Measurement, PlanKey
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.target import Target
place, writer, rows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
target = Target("cpu", "cpu", "avx2", 2, 32, 1, 1, 1, 1)
key = PlanKey("shared", (4,), (), target, "g++", "g")
db = Database.open(place)
for trial in range(rows):
    plan = Plan((), dynamic=(trial % 5,))
    at = replace(key, extents=(trial % 3,))
    m = Measurement(at, plan, "ok", seconds=1e-3 * (1 + trial), trial=trial, seed=writer)
    print(db.record(m), flush=True)
"""


def start(place: Path, writer: int, rows: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(place), str(writer), str(rows)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_eight_writers_lose_nothing(tmp_path: Path) -> None:
    place = tmp_path / "new" / "plans.db"  # all eight find no folder, no file and no tables
    writers = [start(place, writer, 12) for writer in range(8)]
    outputs = [w.communicate(timeout=120) for w in writers]
    assert [(w.returncode, error) for w, (_, error) in zip(writers, outputs, strict=True)] == [(0, "")] * 8
    ids = sorted(int(line) for out, _ in outputs for line in out.split())
    stored = Database.open(place).measurements()
    assert ids == [s.id for s in stored] == list(range(1, 97))
    for writer in range(8):
        assert [s.measurement.trial for s in stored if s.measurement.seed == writer] == list(range(12))


def test_killed_writers_lose_nothing_that_was_committed(tmp_path: Path) -> None:
    place = tmp_path / "plans.db"
    killed = [start(place, writer, 10**6) for writer in range(3)]
    survivor = start(place, 9, 40)
    reported = []
    for number, process in enumerate(killed):
        assert process.stdout is not None
        reported += [int(process.stdout.readline()) for _ in range(8 + 5 * number)]
        os.kill(process.pid, signal.SIGKILL)
        reported += [int(line) for line in process.stdout.read().split("\n")[:-1]]  # the last line may be cut
        process.communicate(timeout=60)
    out, error = survivor.communicate(timeout=60)
    assert (survivor.returncode, error) == (0, "")
    reported += [int(line) for line in out.split()]
    db = Database.open(place)
    stored = {s.id: s.measurement for s in db.measurements()}
    assert set(reported) <= set(stored)
    assert len(stored) <= len(reported) + 3  # at most the row each was killed in reporting
    for key in {m.key for m in stored.values()}:  # the choice is of the same transaction
        best = db.best(key)
        assert best is not None
        assert best.measurement.seconds == min(m.seconds for m in stored.values() if m.key == key and m.seconds)
    db.record(next(iter(stored.values())))
