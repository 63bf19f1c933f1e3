"""What a device check found (benchmarks/device_check.py), ready for the report: sections with their tables as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..graphs.errors import InputError
from . import units

FORMAT = 1
MAX_ROWS = 60
"""Rows of a table that the page shows; failures come first."""
_KEPT = Path(__file__).parent


def kept() -> list[Path]:
    """The checks that this version brings along."""
    return sorted(_KEPT.glob("device_check*.json"))


def read(path: Path) -> dict[str, Any]:
    """A device check as the page shows it. Raises InputError for any other file."""
    refusal = InputError(f"{path} is no device check; benchmarks/device_check.py writes one")
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    except (ValueError, RecursionError):
        raise refusal from None
    if not isinstance(data, dict) or data.get("stitchtune-device-check") != FORMAT:
        raise refusal
    sections = [s for s in data.get("sections", ()) if isinstance(s, dict)]
    return {
        "target": str(data.get("target", "")),
        "emulated": data.get("emulated") is not False,
        "sections": [_section(s) for s in sections],
    }


def _section(section: Mapping[str, Any]) -> dict[str, Any]:
    rows = [row for row in section.get("rows", ()) if isinstance(row, dict)]
    summary = section.get("summary")
    name = str(section.get("name", ""))
    head, table = _suite(rows) if name == "suite" else _table(sorted(rows, key=_right))
    taken = section.get("seconds")
    return {
        "name": name,
        "state": str(section.get("state", "")),
        "why": str(section.get("why", "")),
        "seconds": float(taken) if isinstance(taken, int | float) else None,
        "summary": [(str(k), _text(k, v)) for k, v in summary.items()] if isinstance(summary, dict) else [],
        "head": head,
        "rows": table[:MAX_ROWS],
        "more": max(0, len(table) - MAX_ROWS),
    }


def _right(row: Mapping[str, Any]) -> bool:
    return bool(row.get("ok", True)) and row.get("state", "right") == "right" and not row.get("failure")


def _table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """All scalar fields of the rows, in the order in which they first appear."""
    head = [str(name) for name in dict.fromkeys(name for row in rows for name in row)]
    return head, [[_text(name, row.get(name)) for name in head] for row in rows]


def _suite(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """A row a subject: the stitched kernel's time, then how many times as long each other contestant takes."""
    parts = [(row, row["contestants"]) for row in rows if isinstance(row.get("contestants"), dict)]
    peers = [p for p in dict.fromkeys(name for _, found in parts for name in found) if p != "stitched"]
    head = ["subject", "bytes", "stitched kernel", "stitched call"]
    head += [f"{peer} {what}" for peer in peers for what in ("kernel", "call")]
    table = []
    for row, found in parts:
        ours = {what: _median(found.get("stitched"), what) for what in ("kernel", "call")}
        line = [_text("subject", row.get("subject")), _text("bytes", row.get("bytes"))]
        line += [units.seconds(ours["kernel"]), units.seconds(ours["call"])]
        for peer in peers:
            for what in ("kernel", "call"):
                theirs, mine = _median(found.get(peer), what), ours[what]
                line.append(units.ratio(theirs / mine) if theirs and mine else "–")
        table.append(line)
    return head, table


def _median(entry: Any, what: str) -> float | None:
    spread = entry.get(what) if isinstance(entry, dict) else None
    median = spread.get("median") if isinstance(spread, dict) else None
    return float(median) if isinstance(median, int | float) and median > 0 else None


def _text(name: object, value: Any) -> str:
    """A cell for people; what is nested is shown as it stands in the file."""
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case float() | int() if str(name) in ("seconds", "predicted", "measured", "profile", "profile_seconds"):
            return units.seconds(float(value))
        case float() | int() if "bandwidth" in str(name) or name == "device_copy":
            return units.rate(float(value))
        case int() if name == "bytes":
            return units.nbytes(value)
        case float():
            return f"{value:.3g}"
        case str():
            return value[:200]
        case _:
            return json.dumps(value)[:300]
