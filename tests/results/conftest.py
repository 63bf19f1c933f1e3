"""Small hand-made values that the tests of the database, the lookup and the reports share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stitchtune.results.database import Database
from stitchtune.results.records import GraphRecord, Measurement, Part, PlanKey, Run
from stitchtune.search_space.plan import Edge, Group, Kernel, Phase, Plan, Stage
from stitchtune.search_space.target import DeviceModel, Target

TARGET = Target("cpu", "cpu", "avx512", 2, 64, 1, 1 << 20, 1 << 15, 1 << 25)


def make_key(**fields: Any) -> PlanKey:
    base: dict[str, Any] = {"digest": "d" * 16, "extents": (128, 768), "slots": (), "target": TARGET}
    return PlanKey(**(base | {"compiler": "g++ 12.2", "generator": "abc"} | fields))


def make_plan(tile: int = 8, phases: int = 1) -> Plan:
    stage = Stage((1, 2), (0, 1), vector=1, width=16)
    phase = Phase((Group(((0, tile),), (stage,)),))
    return Plan((Kernel((phase,) * phases),), (Edge(1, 2, "register"),))


def make_measurement(**fields: Any) -> Measurement:
    base: dict[str, Any] = {"key": make_key(), "plan": make_plan(), "status": "ok", "seconds": 1e-3, "spread": 1e-5}
    if fields.get("status", "ok") != "ok" and "seconds" not in fields:
        base |= {"seconds": None, "spread": None}
    return Measurement(**(base | {"samples": 30, "predicted": 9e-4, "created": 1.7e9} | fields))


@pytest.fixture
def key() -> Callable[..., PlanKey]:
    return make_key


@pytest.fixture
def plan() -> Callable[..., Plan]:
    return make_plan


@pytest.fixture
def measurement() -> Callable[..., Measurement]:
    return make_measurement


@pytest.fixture
def db(tmp_path: Path) -> Database:
    return Database.open(tmp_path / "plans.db")


@pytest.fixture(scope="session")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Database:
    """A database as a tuning run of a transformer leaves it: 60 distinct subgraphs. For reading only."""
    return fill(Database.open(tmp_path_factory.mktemp("tuned") / "tuned.db"))


NAMES = (
    "residual + layer norm",
    "scale + mask + softmax",
    "bias + GELU",
    "embedding sum",
    "transpose",
    "rotary embedding",
    "mean pool",
    "$Q_k$ <split> & concat of heads",
)
MODEL = DeviceModel(TARGET, 1.9e10, 6.2e10, 1.2e11, 4e-6, 3e-7, 1.5e-6, (("add", 4e9), ("exp", 1.4e9)))


def fill(db: Database, subgraphs: int = 60, trials: int = 14) -> Database:
    """Store a seeded tuning run of 60 s: everything that happens in one, at sizes that models have."""
    random = np.random.default_rng(7)
    db.save_device(MODEL)
    db.save_run(Run("run-1", "bert-base", (("budget", 60), ("seed", 0)), (("load", 0.3),), started=1.7e9, seconds=61.5))
    parts: list[Part] = []
    rows: list[Measurement] = []
    for number in range(subgraphs):
        rows_, columns = int(2 ** random.uniform(5, 13)), int(2 ** random.uniform(5, 12))
        label = f"{NAMES[number % len(NAMES)]} {rows_}x{columns}"
        kernels = int(random.integers(2, 9))
        key = make_key(digest=f"{number:032x}", extents=(rows_, columns))
        size = 8 * rows_ * columns
        times = int(random.choice([1, 2, 12]))
        parts.append(Part(key, times, label, 5, size, kernels, 1, operations=10 * rows_ * columns))
        start = 60 * number / subgraphs
        rows += study(
            random, parts[-1], [start + 60 / subgraphs * t / trials for t in range(1, trials + 1)], number == 5
        )
    db.save_graph(GraphRecord("run-1", "bert-base", tuple(parts), 97, 356, (("N", 8),)))
    db.record_all(rows)
    for number in range(0, subgraphs, 2):
        confirmed = db.best(parts[number].key)
        assert confirmed is not None
        db.choose(parts[number].key, confirmed.id)
    db.pin(parts[1].key, db.measurements(parts[1].key)[1].id)
    return db


def study(random: np.random.Generator, part: Part, clock: list[float], only_predicted: bool) -> list[Measurement]:
    """The attempts at one subgraph, one for each time of `clock`."""
    bandwidth = MODEL.cache_bandwidth if part.bytes_min < TARGET.cache_bytes else MODEL.dram_bandwidth
    limit = part.bytes_min / bandwidth
    unfused = limit * part.kernels_unfused * random.uniform(0.8, 1.3) + 4e-6 * part.kernels_unfused
    found = []
    for trial, elapsed in enumerate(clock):
        kind = "unfused" if trial == 0 else "heuristic" if trial == 1 else "search"
        seconds = float(limit * (1.05 + random.lognormal(-0.3, 0.9)) + 4e-6)
        seconds = {"unfused": unfused, "heuristic": unfused * random.uniform(0.3, 0.9)}.get(kind, seconds)
        plan = make_plan(tile=trial + 1, phases=1 + trial % 2)
        places = random.choice(
            ["inline", "register", "block", "global", "shuffle"], size=6, p=[0.5, 0.2, 0.2, 0.05, 0.05]
        )
        plan = replace(plan, edges=tuple(Edge(i, i + 1, place) for i, place in enumerate(map(str, places))))
        if kind == "unfused":
            plan = Plan(plan.kernels * part.kernels_unfused, tuple(replace(e, place="global") for e in plan.edges))
        odds = {"ok": 0.8, "illegal": 0.08, "cut-off": 0.08, "compile-failed": 0.02, "wrong": 0.02}
        status = str(random.choice(list(odds), p=list(odds.values()))) if kind == "search" else "ok"
        status = "predicted" if only_predicted else status
        fields: dict[str, Any] = {"key": part.key, "plan": plan, "kind": kind, "status": status, "trial": trial}
        fields |= {"run": "run-1", "elapsed": elapsed, "created": 1.7e9 + elapsed}
        fields |= {"facts": (("clock", 2.6e9), ("driver", "none")), "predicted": seconds * random.lognormal(-0.1, 0.25)}
        if status == "ok":
            traffic = int(part.bytes_min * (part.kernels_unfused if trial == 0 else 1.1))
            fields |= {"seconds": seconds, "spread": seconds * 0.02, "traffic": traffic}
        elif status == "illegal":
            fields["message"] = f"tile {trial} exceeds extent {part.key.extents[0]}"
        elif status == "wrong":
            fields["message"] = f"output 0: max error {seconds:.2e} at lane 15"
        found.append(make_measurement(**fields))
    return found
