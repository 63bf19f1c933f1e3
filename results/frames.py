"""The database as pandas frames, one row a measurement, a subgraph, a point of a curve or a cause.

Times are seconds, traffic is bytes. A predicted plan never has `seconds`, so it can never become a speed-up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..graphs.errors import InputError
from ..search_space.describe import schemes
from ..search_space.target import DeviceModel
from .database import Database
from .records import FAULTS, GraphRecord, Measurement, Part, key_id, plan_id
from .rows import Choice, Stored

MEASUREMENT_COLUMNS = (
    "id key digest extents target compiler generator precision plan kernels barriers independent local regional global "
    "alias status kind seconds spread cold cold_spread samples traffic predicted trial seed run elapsed synthetic "
    "message created origin in_use"
).split()


def measurements(db: Database, stored: Sequence[Stored] | None = None) -> pd.DataFrame:
    """Every readable measurement (or those given, already read), oldest first."""
    in_use = db.in_use_ids()
    held = db.measurements() if stored is None else stored
    return _frame((_measurement(one, one.id in in_use) for one in held), MEASUREMENT_COLUMNS)


def _measurement(stored: Stored, in_use: bool) -> dict[str, Any]:
    one = stored.measurement
    same = "status kind seconds spread cold cold_spread samples traffic predicted trial seed run elapsed".split()
    row = {name: getattr(one, name) for name in (*same, "synthetic", "message", "created", "origin")}
    row |= {name: getattr(one.key, name) for name in ("digest", "compiler", "generator", "precision")}
    row |= {"id": stored.id, "key": key_id(one.key), "extents": "x".join(map(str, one.key.extents))}
    row |= {"target": one.key.target.name, "in_use": in_use}
    if one.plan is not None:
        row |= {"plan": plan_id(one.plan), "kernels": len(one.plan.kernels), "barriers": one.plan.barriers}
        row |= schemes(one.plan)
    return row


def _frame(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    return pd.DataFrame(list(rows), columns=pd.Index(columns))


# --- one row a subgraph

SUBGRAPH_COLUMNS = (
    "graph number label key digest extents occurrences nodes bytes_min operations unfused unfused_spread heuristic "
    "seconds spread predicted speedup saved limit share_of_limit kernels_unfused kernels_heuristic kernels barriers "
    "traffic traffic_unfused how measurement plan trials faults synthetic independent local regional global alias"
).split()


def graphs(db: Database, name: str | None = None) -> list[GraphRecord]:
    """The latest record of each graph, or of the one named. Raises InputError when that name is unknown."""
    started = {run.id: run.started for run in db.runs()}
    latest: dict[str, GraphRecord] = {}
    for graph in sorted(db.graphs(), key=lambda g: started.get(g.run, 0.0)):
        latest[graph.name] = graph
    if name is None:
        return list(latest.values())
    if name not in latest:
        known = ", ".join(sorted(latest)) or "none"
        raise InputError(f"no tuning run of {name!r} in {db.name}; graphs there: {known}")
    return [latest[name]]


def strays(stored: Sequence[Stored], known: Iterable[GraphRecord]) -> GraphRecord | None:
    """The measured keys that belong to no recorded graph, as a graph of their own; None when there are none."""
    named = {part.key for graph in known for part in graph.parts}
    rest = dict.fromkeys(s.measurement.key for s in stored if s.measurement.key not in named)
    return GraphRecord("", "other subgraphs", tuple(Part(key, 1) for key in rest)) if rest else None


def subgraphs(db: Database, graph: GraphRecord, stored: Sequence[Stored] | None = None) -> pd.DataFrame:
    """One row for each distinct subgraph of a graph, the largest saving first.

    unfused, heuristic, seconds  medians of the baselines and of the plan in use; speedup = unfused / seconds, only when
                                 both were measured by one machine
    saved                        seconds per run of the graph: occurrences * (unfused - seconds)
    limit                        bytes_min over the device's bandwidth at that working set
    how                          confirmed, fastest so far, pinned, imported, predicted, unfused kept, or none
    """
    held = db.measurements() if stored is None else stored
    by_key: dict[str, list[Stored]] = {}
    for one in held:
        by_key.setdefault(key_id(one.measurement.key), []).append(one)
    choices = db.choices()
    devices = {model.target: model for model in db.devices()}
    rows = []
    for number, part in enumerate(graph.parts):
        name = key_id(part.key)
        device = devices.get(part.key.target)
        rows.append(_subgraph(graph, number, part, by_key.get(name, []), choices.get(name), device))
    frame = _frame(rows, SUBGRAPH_COLUMNS)
    return frame.sort_values("saved", ascending=False, na_position="last", kind="stable").reset_index(drop=True)


def _subgraph(
    graph: GraphRecord,
    number: int,
    part: Part,
    attempts: Sequence[Stored],
    choice: Choice | None,
    device: DeviceModel | None,
) -> dict[str, Any]:
    row: dict[str, Any] = {name: getattr(part, name) for name in ("occurrences", "nodes", "operations")}
    row |= {"graph": graph.name, "number": number, "key": key_id(part.key), "digest": part.key.digest}
    extents = "x".join(map(str, part.key.extents))
    row |= {"label": part.label or f"{part.key.digest[:8]} {extents}", "extents": extents}
    row |= {"bytes_min": part.bytes_min or None, "kernels_unfused": part.kernels_unfused or None}
    row |= {"kernels_heuristic": part.kernels_heuristic or None, "how": "none"}
    row["trials"] = sum(s.measurement.kind == "search" for s in attempts)
    row["faults"] = sum(s.measurement.status in FAULTS for s in attempts)
    if part.bytes_min and device is not None:
        row["limit"] = part.bytes_min / bandwidth(device, part.bytes_min)
    used = next((s for s in attempts if choice is not None and s.id == choice.in_use), None)
    if used is None:
        return row
    best = used.measurement
    unfused = _baseline(attempts, "unfused", best)
    heuristic = _baseline(attempts, "heuristic", best)
    row |= {"measurement": used.id, "how": _how(used, choice), "synthetic": best.synthetic}
    row |= {"seconds": best.seconds if best.ok else None, "spread": best.spread if best.ok else None}
    row |= {"predicted": best.predicted, "traffic": best.traffic}
    if unfused is not None:
        row |= {"unfused": unfused.seconds, "unfused_spread": unfused.spread, "traffic_unfused": unfused.traffic}
        if unfused.plan is not None and row["kernels_unfused"] is None:
            row["kernels_unfused"] = len(unfused.plan.kernels)
    row["heuristic"] = None if heuristic is None else heuristic.seconds
    if best.ok and best.seconds and unfused is not None and unfused.seconds:
        row |= {"speedup": unfused.seconds / best.seconds}
        row |= {"saved": part.occurrences * (unfused.seconds - best.seconds)}
    if best.ok and best.seconds and row.get("limit"):
        row["share_of_limit"] = row["limit"] / best.seconds
    if best.plan is not None:
        row |= {"plan": plan_id(best.plan), "kernels": len(best.plan.kernels), "barriers": best.plan.barriers}
        row |= schemes(best.plan)
    return row


def _baseline(attempts: Sequence[Stored], kind: str, best: Measurement) -> Measurement | None:
    """The latest right measurement of a baseline plan by the machine of `best`, of its own run where there is one."""
    found = [s.measurement for s in attempts if s.measurement.kind == kind and s.measurement.ok]
    found = [m for m in found if m.origin == best.origin]
    latest = [m for m in found if m.run == best.run] or found
    return latest[-1] if latest else None


def _how(used: Stored, choice: Choice | None) -> str:
    one = used.measurement
    if choice is not None and choice.pinned == used.id:
        return "pinned" if one.ok else f"pinned, {one.status}"
    if one.status == "predicted":
        return "predicted"
    if one.origin:
        return "imported"
    if one.kind == "unfused":
        return "unfused kept"
    return "confirmed" if choice is not None and choice.chosen == used.id else "fastest so far"


def bandwidth(device: DeviceModel, working_set: float) -> float:
    """Bytes per second that a device reaches at a working set: the shared cache's while it fits there."""
    fits = 0 < working_set <= device.target.cache_bytes
    return device.cache_bandwidth if fits and device.cache_bandwidth > 0 else device.dram_bandwidth


def summary(frame: pd.DataFrame) -> dict[str, float | int | None]:
    """The headline of a graph from its `subgraphs` frame; sums count occurrences, None where nothing was measured."""
    times = frame["occurrences"]
    timed = frame[frame["speedup"].notna()]
    moved = frame[frame["traffic"].notna() & frame["bytes_min"].notna()]
    counted = frame[frame["kernels"].notna() & frame["kernels_unfused"].notna()]
    return {
        "subgraphs": len(frame),
        "occurrences": int(times.sum()),
        "measured": len(timed),
        "predicted": int((frame["how"] == "predicted").sum()),
        "kept": int((frame["how"] == "unfused kept").sum()),
        "geomean": _geomean(timed["speedup"]),
        "unfused": _total(timed, "unfused"),
        "seconds": _total(timed, "seconds"),
        "kernels_unfused": _total(counted, "kernels_unfused"),
        "kernels": _total(counted, "kernels"),
        "traffic": _total(moved, "traffic"),
        "traffic_unfused": _total(moved[moved["traffic_unfused"].notna()], "traffic_unfused"),
        "bytes_min": _total(moved, "bytes_min"),
        "faults": int(frame["faults"].sum()),
        "trials": int(frame["trials"].sum()),
    }


def _geomean(values: pd.Series[Any]) -> float | None:
    return math.exp(float(np.log(values.astype(float)).mean())) if len(values) else None


def _total(frame: pd.DataFrame, column: str) -> float | None:
    return float((frame[column].astype(float) * frame["occurrences"]).sum()) if len(frame) else None


def listing(db: Database) -> pd.DataFrame:
    """The plans in use, for `plans list`: one row a key, newest measurement first."""
    frame = measurements(db)
    chosen = frame[frame["in_use"].astype(bool)]
    columns = (
        "id digest extents target precision status kind seconds predicted kernels barriers generator origin created"
    )
    return chosen[columns.split()].sort_values("id", ascending=False).reset_index(drop=True)
