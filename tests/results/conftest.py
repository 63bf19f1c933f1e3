"""Small hand-made values that the tests of the database, the lookup and the reports share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stitchtune.results.database import Database
from stitchtune.results.records import Measurement, PlanKey
from stitchtune.search_space.plan import Edge, Group, Kernel, Phase, Plan, Stage
from stitchtune.search_space.target import Target

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
