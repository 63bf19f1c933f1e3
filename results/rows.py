"""Measurements as rows and back: every column is checked on reading, whoever wrote it."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..search_space import codec
from ..search_space.plan import Plan
from ..search_space.target import Target
from .records import Fact, Measurement, PlanKey, key_id, plan_id

MAX_MESSAGE = 2000
"""Characters of a message that are kept."""
MAX_ROW_BYTES = 1 << 20
"""Largest key, plan or set of facts that is read; a thousand times what a plan takes."""


@dataclass(frozen=True)
class Stored:
    """A measurement and its row number, the ID that a user sees."""

    id: int
    measurement: Measurement


@dataclass(frozen=True)
class Choice:
    """Measurements of one key: the one in use unless one is pinned, the one the tuner confirmed, the one pinned."""

    best: int | None
    chosen: int | None
    pinned: int | None

    @property
    def in_use(self) -> int | None:
        return self.best if self.pinned is None else self.pinned


PLAIN = (
    "status kind seconds spread cold cold_spread samples traffic predicted trial seed run elapsed message created "
    "origin"
).split()
"""Fields that are columns of the same name and value."""
PAIRS = "assignment facts".split()
"""Fields that are columns of JSON text."""
_Pairs = tuple[tuple[str, Fact], ...]


def settle(measurement: Measurement) -> Measurement:
    """The measurement as it is stored: dated, its message cut to size, times that are not finite left out.

    Raises ValueError for an "ok" without a time: there is no such thing.
    """
    settled = replace(
        measurement,
        seconds=_finite(measurement.seconds),
        spread=_finite(measurement.spread),
        cold=_finite(measurement.cold),
        cold_spread=_finite(measurement.cold_spread),
        predicted=_finite(measurement.predicted),
        message=measurement.message.replace("\0", " ")[:MAX_MESSAGE],
        created=measurement.created or time.time(),
    )
    if problem := _problem(settled):
        raise ValueError(problem)
    return settled


def _finite(value: float | None) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


def _problem(measurement: Measurement) -> str:
    """Why a measurement contradicts itself, or ""."""
    if measurement.status == "ok" and (measurement.seconds is None or measurement.seconds <= 0):
        return "status ok without a time"
    if measurement.status in ("ok", "predicted") and measurement.plan is None:
        return f"status {measurement.status} without a plan"
    if measurement.status == "predicted" and measurement.seconds is not None:
        return "a predicted plan with a measured time"
    if not 0 <= measurement.samples < 2**31 or not -(2**31) <= measurement.trial < 2**31:
        return "a count beyond 32 bits"
    if not -(2**63) <= measurement.seed < 2**63 or not 0 <= (measurement.traffic or 0) < 2**63:
        return "a number beyond 63 bits"
    return ""


def uid(measurement: Measurement) -> str:
    """Names the content of a settled measurement, wherever it is imported to."""
    return hashlib.sha256(codec.dumps(replace(measurement, origin="")).encode()).hexdigest()[:32]


def row(measurement: Measurement) -> dict[str, Any]:
    """The columns of a settled measurement."""
    values: dict[str, Any] = {name: getattr(measurement, name) for name in PLAIN}
    for name in PAIRS:
        values[name] = codec.dumps(getattr(measurement, name), _Pairs)
    return values | {
        "uid": uid(measurement),
        "key": key_id(measurement.key),
        "plan": None if measurement.plan is None else plan_id(measurement.plan),
        "synthetic": int(measurement.synthetic),
    }


def read(found: Mapping[Any, Any]) -> Stored:
    """The measurement of a row of `queries.MEASUREMENTS`. Raises CodecError when any part of it is damaged."""
    key = read_key(found["key_text"])
    plan = None if found["plan_text"] is None else read_plan(found["plan_text"])
    data: dict[str, Any] = {name: found[name] for name in PLAIN}
    data |= {name: codec.parse(text(found[name]), MAX_ROW_BYTES) for name in PAIRS}
    data |= {"synthetic": bool(found["synthetic"]), "key": codec.to_json(key), "plan": None}
    measurement = replace(codec.from_json(Measurement, data), key=key, plan=plan)
    if problem := _problem(measurement):
        raise codec.CodecError(problem)
    return Stored(int(found["id"]), measurement)


def read_key(value: Any) -> PlanKey:
    """The key in a text column. Raises CodecError."""
    return codec.loads(PlanKey, text(value), MAX_ROW_BYTES)


def read_plan(value: Any) -> Plan:
    """The plan in a text column. Raises CodecError."""
    return codec.loads(Plan, text(value), MAX_ROW_BYTES)


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise codec.CodecError("a column that should hold text does not")
    return value


def target_id(target: Target) -> str:
    """The row name of a target's device model."""
    return hashlib.sha256(codec.dumps(target).encode()).hexdigest()[:24]


def key_row(key: PlanKey) -> dict[str, Any]:
    """The columns of a key."""
    return {
        "id": key_id(key),
        "digest": key.digest,
        "target": key.target.name,
        "precision": key.precision,
        "text": codec.dumps(key),
    }


def plan_row(plan: Plan) -> dict[str, Any]:
    """The columns of a plan."""
    return {"id": plan_id(plan), "text": codec.dumps(plan)}
