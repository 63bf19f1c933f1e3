"""The report: one self-contained HTML page, its figures as PNG files and its tables as CSV files."""

from __future__ import annotations

import base64
import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import pandas as pd
from matplotlib.figure import Figure

from ..graphs.errors import InputError
from ..search_space.target import DeviceModel
from . import device_check, frames, plots, searches, units
from .database import Database
from .records import FAULTS, Fact, GraphRecord, Run
from .rows import Stored

PAGE = "report.html"
_WIDTH = {"comparison": 860, "accuracy": 560, "failures": 640, "schemes": 640}
_BAR = 48


@dataclass(frozen=True)
class Report:
    """What was written: the page, everything beside it, and one line for each graph."""

    page: Path
    files: tuple[Path, ...]
    lines: tuple[str, ...]


def write_report(db: Database, out: Path, graph: str | None = None, checks: Sequence[Path] = ()) -> Report:
    """Write the report on all graphs of a database, or on one, into folder `out` (made when missing).

    checks   files of benchmarks/device_check.py, shown in sections of their own

    An empty database gives a page that says what to do. Raises InputError when the graph is unknown, a check
    is no such file or the folder cannot be written, DatabaseError when the database cannot be used.
    """
    shown = [device_check.read(path) for path in checks]
    stored = db.measurements()
    records = frames.graphs(db, graph)
    if graph is None:
        rest = frames.strays(stored, db.graphs())
        records += [rest] if rest is not None else []
    else:
        keys = {part.key for record in records for part in record.parts}
        stored = [s for s in stored if s.measurement.key in keys]
    try:
        out.mkdir(parents=True, exist_ok=True)
        return _write(db, out, stored, records if stored else [], shown)
    except OSError as error:
        raise InputError(f"cannot write the report to {out}: {error.strerror or error}") from error


def _write(
    db: Database,
    out: Path,
    stored: Sequence[Stored],
    records: Sequence[GraphRecord],
    checks: Sequence[Mapping[str, Any]],
) -> Report:
    table = frames.measurements(db, stored)
    devices, runs = db.devices(), {run.id: run for run in db.runs()}
    curves, accuracy = searches.curves(table), searches.accuracy(table)
    statuses, causes = searches.statuses(table), searches.causes(table)
    files: list[Path] = []

    def draw(name: str, figure: Figure | None, alt: str) -> Mapping[str, Any] | None:
        if figure is None:
            return None
        data = plots.to_png(figure)
        files.append(out / f"{name}.png")
        files[-1].write_bytes(data)
        width = _WIDTH.get(name.rpartition("-")[2], 720)
        return {"data": base64.b64encode(data).decode(), "alt": alt, "width": width}

    parts, sections = [], []
    for slug, record in zip(_slugs([r.name for r in records]), records, strict=True):
        rows = frames.subgraphs(db, record, stored)
        parts.append(rows)
        figures = _figures(draw, slug, record, rows, curves, devices)
        sections.append(_section(record, rows, runs.get(record.run), figures))
    shared = {
        "accuracy": draw("accuracy", plots.accuracy(table), "Predicted against measured time of each plan"),
        "failures": draw("failures", plots.failures(statuses), "Attempts without a time, by cause"),
    }
    csv = {"measurements": table, "curves": curves, "accuracy": accuracy, "statuses": statuses, "causes": causes}
    csv["subgraphs"] = pd.concat(parts, ignore_index=True) if len(parts) > 1 else parts[0] if parts else _nothing()
    for name, frame in csv.items():
        files.append(out / f"{name}.csv")
        _harmless(frame).to_csv(files[-1], index=False)
    page = (
        _environment()
        .get_template("page.html")
        .render(
            title="Stitchtune report",
            written=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            database=db.name,
            graphs=sections,
            figures=shared,
            accuracy=searches.accuracy_line(accuracy),
            attempts=_attempts(statuses),
            causes=_records(causes),
            checks=checks,
            devices=[_device(model) for model in devices],
            facts=[(name, _fact(value)) for name, value in stored[-1].measurement.facts] if stored else [],
            files=[file.name for file in files],
        )
    )
    (out / PAGE).write_text(page, "utf-8", "backslashreplace")
    return Report(out / PAGE, tuple(files), tuple(_line(s) for s in sections) or (_NOTHING,))


_NOTHING = "nothing measured yet: tune a graph first, with tune.py tune MODEL.onnx"


def _nothing() -> pd.DataFrame:
    return pd.DataFrame(columns=pd.Index(frames.SUBGRAPH_COLUMNS))


def _environment() -> jinja2.Environment:
    """Every value is escaped; a name that the template lacks is an error."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    made = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    made.filters |= {"seconds": units.seconds, "bytes": units.nbytes, "ratio": units.ratio}
    made.filters |= {"percent": units.percent, "count": units.count}
    return made


def _figures(
    draw: Callable[[str, Figure | None, str], Mapping[str, Any] | None],
    slug: str,
    record: GraphRecord,
    rows: pd.DataFrame,
    curves: pd.DataFrame,
    devices: Sequence[DeviceModel],
) -> Mapping[str, Any]:
    """The figures of one graph; those without data are None."""
    names = dict(zip(rows["key"], rows["label"], strict=True))
    times = dict(zip(rows["key"], rows["occurrences"], strict=True))
    own = curves[curves["key"].isin(rows["key"])]
    targets = {part.key.target for part in record.parts}
    device = next((d for d in devices if d.target in targets), None)
    last = own[own["run"] == record.run] if record.run else own
    made = {
        "progress": (plots.progress(searches.progress(times, own, record.run)), "Total time against tuning time"),
        "comparison": (plots.comparison(rows), "Unfused, heuristic and stitched time of each subgraph"),
        "roofline": (plots.roofline(rows, device), "Bandwidth reached against bytes that must move"),
        "searches": (plots.searches(last, names), "Best speed-up so far against measurements"),
        "schemes": (plots.schemes(rows), "Uses of each stitching scheme"),
    }
    return {name: draw(f"{slug}-{name}", figure, alt) for name, (figure, alt) in made.items()}


def _section(record: GraphRecord, rows: pd.DataFrame, run: Run | None, figures: Mapping[str, Any]) -> dict[str, Any]:
    total = frames.summary(rows)
    unfused, seconds = total["unfused"], total["seconds"]
    return {
        "name": record.name,
        "about": _about(record, run),
        "library_ops": record.library_ops,
        "total": total,
        "overall": unfused / seconds if unfused and seconds else None,
        "caveats": _caveats(rows, total),
        "rows": _rows(rows),
        "figures": figures,
    }


def _about(record: GraphRecord, run: Run | None) -> str:
    parts = [f"{name} = {size}" for name, size in record.sizes]
    if record.nodes:
        parts.append(f"{record.nodes} memory-intensive nodes in {sum(p.occurrences for p in record.parts)} subgraphs")
    targets = dict.fromkeys(f"target {p.key.target.name}, precision {p.key.precision}" for p in record.parts)
    parts += targets
    if run is not None:
        when = time.strftime("%Y-%m-%d %H:%M", time.gmtime(run.started))
        took = f"took {run.seconds:.0f} s" if run.seconds is not None else "was interrupted"
        options = ", ".join(f"{name} {_fact(value)}" for name, value in run.options)
        parts.append(f"last tuned {when} UTC ({took}{'; ' + options if options else ''})")
    return " · ".join(parts)


def _caveats(rows: pd.DataFrame, total: Mapping[str, Any]) -> str:
    parts = [f"{total['measured']} of {total['subgraphs']} distinct subgraphs were measured against unfused."]
    counts = {
        "Only predicted, and in no number above": total["predicted"],
        "Unfused plan kept, nothing faster was found": total["kept"],
        "Slower than unfused": int((rows["speedup"] < 0.995).sum()),
        "Winners that were not measured again at the end": int((rows["how"] == "fastest so far").sum()),
    }
    parts += [f"{name}: {number}." for name, number in counts.items() if number]
    if (rows["synthetic"] == True).any():  # noqa: E712 - None where nothing was measured
        parts.append("Inputs were synthetic.")
    return " ".join(parts)


def _rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    rows = _records(frame)
    most = max((r["speedup"] for r in rows if r["speedup"]), default=1.0)
    for row in rows:
        speedup = row["speedup"]
        row["predicted_only"] = row["how"].endswith("predicted")
        row["noise"] = row["spread"] / row["seconds"] if row["seconds"] and row["spread"] is not None else None
        row["excess"] = row["traffic"] / row["bytes_min"] if row["traffic"] and row["bytes_min"] else None
        row["bar"] = max(1, round(_BAR * speedup / most)) if speedup else 0
        row["mood"] = "" if not speedup else "slow" if speedup < 0.995 else "fast" if speedup >= 1.05 else "dim"
    return rows


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dictionaries of Python values, None where pandas has NaN."""
    return [{str(name): _python(value) for name, value in row.items()} for row in frame.to_dict("records")]


def _python(value: Any) -> Any:
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    return value


def _device(model: DeviceModel) -> dict[str, Any]:
    target = model.target
    rates = ", ".join(f"{name} {value / 1e9:.2g} G/s" for name, value in model.throughput)
    facts = [
        ("architecture", f"{target.arch}, {target.processors} processors, {target.vector_bytes}-byte vectors"),
        ("caches", f"shared {units.nbytes(target.cache_bytes)}, block memory {units.nbytes(target.block_bytes)}"),
        ("memory bandwidth", units.rate(model.dram_bandwidth)),
        ("cache bandwidth", units.rate(model.cache_bandwidth)),
        ("block memory bandwidth", units.rate(model.block_bandwidth)),
        ("launch", f"{units.seconds(model.launch)} on all processors, {units.seconds(model.serial_launch)} on one"),
        ("barrier", units.seconds(model.barrier)),
        ("elements per processor", rates or "–"),
        ("constants", model.source),
    ]
    return {"name": target.name, "facts": facts}


def _fact(value: Fact) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _attempts(statuses: pd.DataFrame) -> str:
    counts = {str(row["status"]): int(row["count"]) for row in _records(statuses)}
    faults = sum(count for status, count in counts.items() if status in FAULTS)
    return (
        f"{units.count(sum(counts.values()))} attempts: {units.count(counts.get('ok', 0))} measured, "
        f"{units.count(counts.get('cut-off', 0))} ended early because they were slow, "
        f"{units.count(counts.get('illegal', 0))} refused by the legality rules, "
        f"{units.count(counts.get('predicted', 0))} only predicted, {units.count(faults)} faults."
    )


def _line(section: Mapping[str, Any]) -> str:
    total = section["total"]
    if not total["measured"]:
        return f"{section['name']}: no measured speed-up ({total['predicted']} predicted plans)"
    kernels = f", kernels {total['kernels_unfused']:.0f} to {total['kernels']:.0f}" if total["kernels_unfused"] else ""
    return (
        f"{section['name']}: {units.ratio(total['geomean'])} faster than unfused "
        f"(geometric mean of {total['measured']} subgraphs){kernels}"
    )


def _slugs(names: Iterable[str]) -> list[str]:
    """File names for graphs: distinct, and nothing that a path could take for more."""
    found: list[str] = []
    for name in names:
        base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "graph"
        slug, number = base, 2
        while slug in found:
            slug, number = f"{base}-{number}", number + 1
        found.append(slug)
    return found


def _harmless(frame: pd.DataFrame) -> pd.DataFrame:
    """Texts that a spreadsheet would run as formulas get a quote in front."""
    texts = frame.select_dtypes(include=["object", "string"]).columns
    guarded = {
        name: frame[name].map(lambda v: f"'{v}" if isinstance(v, str) and v[:1] in "=+-@\t\r" and v else v)
        for name in texts
    }
    return frame.assign(**guarded)
