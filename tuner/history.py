"""What the plan database already knows: a key's earlier attempts, and what the device's other measurements teach."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..graphs.subgraph import Subgraph
from ..results.database import Database
from ..results.records import Measurement, PlanKey
from ..results.rows import Stored
from ..search_space import legality
from ..search_space.knobs import Choice
from ..search_space.target import DeviceModel
from .cost import predict
from .residual import MOST_POINTS, Observation

FINISHED = "finished"
"""The fact that a winner's confirming measurement carries: why its search ended."""

RUNS = 4
"""Latest tuning runs whose measurements teach the residual."""


def finished(rows: Sequence[Stored], present: bool = True) -> str | None:
    """Why an earlier run, here, ended the search of the key of `rows`; None when none did.

    A search that only predicted is none where the device is `present`.
    """
    found = None
    for row in rows:
        one = row.measurement
        reason = dict(one.facts).get(FINISHED)
        if reason is not None and not one.origin and (one.ok or (one.status == "predicted" and not present)):
            found = str(reason)
    return found


def subgraph_name(key: PlanKey) -> str:
    """What the residual knows a subgraph by."""
    return f"{key.digest} {key.extents}"


def choices(measurement: Measurement) -> dict[str, Choice]:
    """The knobs a measured plan was built from."""
    return {name: value for name, value in measurement.assignment if not isinstance(value, float)}


def lessons(db: Database, model: DeviceModel, skip: frozenset[str]) -> list[Observation]:
    """Observations from the latest runs on the same target, without those of digests in `skip`, oldest first."""
    rows: list[Stored] = []
    for run in reversed(db.runs()[-RUNS:]):
        found = [r for r in db.measurements(run=run.id, status="ok") if r.measurement.key.target == model.target]
        rows = [r for r in found if r.measurement.key.digest not in skip and not r.measurement.origin] + rows
        if len(rows) >= MOST_POINTS:
            break
    structures: dict[str, Subgraph | None] = {}
    observations = []
    for row in rows[-MOST_POINTS:]:
        key, plan = row.measurement.key, row.measurement.plan
        if key.digest not in structures:
            structures[key.digest] = db.structure(key.digest)
        known = structures[key.digest]
        if known is None or plan is None or row.measurement.seconds is None:
            continue
        sub = known.resized(key.extents, key.slots)
        if legality.check(sub, plan, model.target):
            continue
        cost = predict(sub, plan, model)
        ratio = math.log(row.measurement.seconds / cost.seconds)
        observations.append(
            Observation(subgraph_name(key), cost.features, tuple(choices(row.measurement).items()), ratio)
        )
    return observations
