"""How the searches went: best-so-far curves, how good the cost model's ranking was, and what failed and why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pandas as pd

from .records import FAULTS

TOP = 5
"""The k of top-k regret."""
MIN_RANKED = 4
"""Measured plans from which a rank correlation says something."""


def curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Best time so far, per key and run, after each right measurement (rows of `frames.measurements`).

    Columns key, run, step (measurements so far), elapsed (seconds into the run), seconds (best so far), unfused (that
    of the run; NaN without one), ratio (unfused / seconds).
    """
    right = frame[(frame["status"] == "ok") & (frame["origin"] == "") & (frame["run"] != "")].sort_values("id")
    found = right[["key", "run", "elapsed", "seconds"]].copy()
    groups = [right["key"], right["run"]]
    found["step"] = right.groupby(["key", "run"]).cumcount() + 1
    found["elapsed"] = right["elapsed"].astype(float).groupby(groups).cummax()
    found["seconds"] = right["seconds"].astype(float).groupby(groups).cummin()
    unfused = right[right["kind"] == "unfused"].groupby(["key", "run"])["seconds"].first().rename("unfused")
    found = found.merge(unfused, left_on=["key", "run"], right_index=True, how="left")
    found["ratio"] = found["unfused"].astype(float) / found["seconds"]
    return found[["key", "run", "step", "elapsed", "seconds", "unfused", "ratio"]].reset_index(drop=True)


def progress(occurrences: Mapping[str, int], table: pd.DataFrame, run: str) -> pd.DataFrame:
    """Time of all memory-intensive subgraphs of a graph against tuning time: columns elapsed, seconds, unfused.

    `occurrences` is by key, `table` comes from `curves`. Each subgraph counts its occurrences times its best so far,
    and its unfused time until it has one; those that the run did not measure unfused are left out.
    """
    points = table[(table["run"] == run) & table["key"].isin(occurrences) & table["unfused"].notna()]
    points = points.sort_values("elapsed", kind="stable")
    now = {str(key): float(value) for key, value in points.groupby("key")["unfused"].first().items()}
    unfused = total = sum(occurrences[key] * value for key, value in now.items())
    rows = [(0.0, total, unfused)]
    for key, elapsed, seconds in zip(points["key"], points["elapsed"], points["seconds"], strict=True):
        if seconds < now[key]:
            total -= occurrences[key] * (now[key] - seconds)
            now[key] = seconds
        rows.append((float(elapsed), total, unfused))
    return pd.DataFrame(rows, columns=pd.Index(["elapsed", "seconds", "unfused"]))


def accuracy(frame: pd.DataFrame) -> pd.DataFrame:
    """How well the cost model ranked the measured plans of each key with at least `MIN_RANKED` of them.

    spearman  rank correlation of predicted and measured time
    regret_1, regret_5  time of the fastest among the model's first one and five, over the fastest of all, minus 1
    bias      median of predicted over measured
    """
    usable = frame[(frame["status"] == "ok") & frame["predicted"].notna() & frame["seconds"].notna()]
    usable = usable[(usable["predicted"] > 0) & (usable["origin"] == "")]
    rows = []
    for key, group in usable.groupby("key", sort=False):
        distinct = group.sort_values("seconds").drop_duplicates("plan")
        if len(distinct) < MIN_RANKED:
            continue
        measured, predicted = distinct["seconds"].astype(float), distinct["predicted"].astype(float)
        ordered = measured[predicted.sort_values(kind="stable").index]
        rows.append(
            {
                "key": key,
                "plans": len(distinct),
                "spearman": measured.rank().corr(predicted.rank()),
                "regret_1": ordered.iloc[0] / measured.min() - 1,
                "regret_5": ordered.iloc[:TOP].min() / measured.min() - 1,
                "bias": (predicted / measured).median(),
            }
        )
    return pd.DataFrame(rows, columns=pd.Index("key plans spearman regret_1 regret_5 bias".split()))


def accuracy_line(table: pd.DataFrame) -> str:
    """The cost model's quality in one line, from `accuracy`; "" when too little was measured."""
    if table.empty:
        return ""
    middle = table[["spearman", "regret_1", "regret_5"]].median()
    return (
        f"median over {len(table)} subgraphs: rank correlation {middle['spearman']:.2f}, "
        f"top-1 regret {100 * middle['regret_1']:.1f} %, top-{TOP} regret {100 * middle['regret_5']:.1f} %"
    )


def statuses(frame: pd.DataFrame) -> pd.DataFrame:
    """Attempts by how they ended, commonest first: columns status, count, fault (a legal plan that did not hold)."""
    counts = frame["status"].value_counts()
    rows = [{"status": name, "count": int(count), "fault": name in FAULTS} for name, count in counts.items()]
    return pd.DataFrame(rows, columns=pd.Index(["status", "count", "fault"]))


def causes(frame: pd.DataFrame, limit: int = 12) -> pd.DataFrame:
    """The commonest reasons of attempts that did not end in a time: columns status, cause, count, example (row number).

    Messages that differ in numbers only are one cause.
    """
    failed = frame[~frame["status"].isin(["ok", "predicted"])]
    found: dict[tuple[str, str], list[Any]] = {}
    for ident, status, message in zip(failed["id"], failed["status"], failed["message"], strict=True):
        cause = re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", message)[:160]
        found.setdefault((status, cause), []).append((ident, message))
    commonest = sorted(found.items(), key=lambda item: -len(item[1]))[:limit]
    rows = [
        {"status": status, "cause": hits[0][1] if len(hits) == 1 else cause, "count": len(hits), "example": hits[0][0]}
        for (status, cause), hits in commonest
    ]
    return pd.DataFrame(rows, columns=pd.Index(["status", "cause", "count", "example"]))
