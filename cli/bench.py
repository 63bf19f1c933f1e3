"""The verb `bench`: stitched kernels against the peers that are installed, subgraph by subgraph and as a whole."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from .. import feeds, pipeline
from ..benchmarks.contest import contest
from ..benchmarks.extract import alone, exported
from ..benchmarks.peers import PEERS, missing
from ..benchmarks.task import Entry, Task, ratio
from ..graphs.errors import InputError
from ..search_space import stitch
from ..settings import Settings, parse_one
from . import options
from .options import duration

DEFAULT = ("unfused", "onnxruntime", "xla", "numpy")
"""TorchInductor compiles for half a minute a subgraph, so it is asked for by name."""
SMALL, LARGE = 256 << 10, 2 << 20
"""Working sets, in bytes, below and above which geometric means are given."""


@click.command()
@options.graph
@options.inputs
@options.seed
@click.option("--peers", default=",".join(DEFAULT), show_default=True, help=f"Any of {', '.join(PEERS)}.")
@click.option("--bursts", type=click.IntRange(4), default=15, show_default=True, help="Turns of each contestant.")
@click.option("--threads", type=click.IntRange(1), help="Threads of every contestant.  [default: all processors]")
@click.option("--subgraph", "only", type=click.IntRange(0), multiple=True, help="Only this one, as inspect numbers.")
@click.option("--whole/--no-whole", default=True, show_default=True, help="Also the whole graph.")
def bench(
    graph: Path,
    dims: Sequence[str],
    target: str | None,
    db: str | None,
    precision: str,
    inputs: Path | None,
    seed: int,
    peers: str,
    bursts: int,
    threads: int | None,
    only: Sequence[int],
    whole: bool,
    as_json: bool,
) -> int:
    """Compare with unfused kernels, ONNX Runtime, XLA and others."""
    names = ("stitched", *dict.fromkeys(_known(name) for name in peers.split(",") if name != "stitched"))
    chosen = options.settings(target, db, precision)
    if chosen.target.kind != "cpu":
        raise InputError("bench compares on the CPU: benchmarks/device_check.py compares with peers on a GPU")
    options.announce(chosen, as_json)
    for name in names:
        if missing(name):
            options.echo(f"{name} is left out: {', '.join(missing(name))} is not installed", as_json)
    names = tuple(name for name in names if not missing(name))
    sizes = parse_one(dims)
    compiled = pipeline.compile_file(graph, sizes, chosen)
    given = feeds.given_or_made(compiled.loaded, inputs, seed)
    options.echo(given.note, as_json)
    how = How(graph, sizes, chosen, compiled, given.arrays, threads or chosen.target.processors)
    rows = []
    for row in contests(how, names, bursts, only=frozenset(only), whole=whole):
        rows.append(row)
        if not as_json:
            print_row(row)
    means = geometric_means(rows)
    if as_json:
        document = {"graph": compiled.loaded.name, "target": chosen.target.name, "threads": how.threads}
        options.print_json({**document, "synthetic": given.synthetic, "rows": rows, "geometric_means": means})
    else:
        print_means(means)
    return 0


def _known(name: str) -> str:
    if name not in PEERS:
        raise InputError(f"--peers {name}: the contestants are {', '.join(PEERS)}")
    return name


@dataclass(frozen=True)
class How:
    """What every contest of one call shares."""

    path: Path
    sizes: Mapping[str, int]
    settings: Settings
    compiled: pipeline.Compiled
    feeds: Mapping[str, NDArray[Any]]
    threads: int

    def task(self, name: str, **forms: Any) -> Task:
        settings = self.settings
        return Task(name=name, target=settings.target, threads=self.threads, cache=str(settings.cache), **forms)


def contests(
    how: How, names: Sequence[str], bursts: int, *, only: frozenset[int] = frozenset(), whole: bool = True
) -> Iterator[dict[str, Any]]:
    """One row for each distinct subgraph, then one for the whole graph."""
    compiled = how.compiled
    first: dict[Any, int] = {}
    for number, decision in enumerate(compiled.decisions):
        first.setdefault(pipeline.without_slots(decision.component.subgraph), number)
    wanted = {n for n in first.values() if not only or n in only}
    arrays = _recorded(how, wanted)
    for number in sorted(wanted):
        decision = compiled.decisions[number]
        component, sub = decision.component, decision.component.subgraph
        forms = {
            "partition": alone(compiled.partition, component),
            "model": exported(how.path, compiled.partition, component),
        }
        forms |= {"path": "", "dims": (), "feeds": arrays[number]}
        plans = {"stitched": decision.plan, "unfused": stitch.unfused(sub, how.settings.target)}
        tasks = [how.task(n, plans=(plans[n],) if n in plans else (), **forms) for n in names]
        kind = pipeline.without_slots(sub)
        times = sum(pipeline.without_slots(d.component.subgraph) == kind for d in compiled.decisions)
        facts = {"subgraph": number, "digest": decision.key.digest, "bytes": sub.bytes_min, "occurrences": times}
        yield {**facts, "plan": decision.found.why, **_results(contest(tasks, bursts))}
    if whole and not only:
        forms = {"partition": None, "model": b"", "path": str(how.path), "dims": tuple(how.sizes.items())}
        forms |= {"feeds": tuple(how.feeds[name] for name in compiled.loaded.inputs)}
        target = how.settings.target
        sets = {
            "stitched": tuple(d.plan for d in compiled.decisions),
            "unfused": tuple(stitch.unfused(d.component.subgraph, target) for d in compiled.decisions),
        }
        fit = [name for name in names if name in (*sets, "onnxruntime")]
        tasks = [how.task(name, plans=sets.get(name, ()), **forms) for name in fit]
        yield {"subgraph": None, "bytes": None, "occurrences": 1, **_results(contest(tasks, bursts))}


def _recorded(how: How, wanted: set[int]) -> dict[int, tuple[NDArray[Any], ...]]:
    """The inputs of subgraphs in one run of the graph, so that indices and masks are realistic, as tensors."""
    types = how.compiled.partition.graph.types
    found: dict[int, tuple[NDArray[Any], ...]] = {}

    def keep(number: int, arrays: list[NDArray[Any]]) -> None:
        if number in wanted:
            tensors = how.compiled.decisions[number].component.inputs
            found[number] = tuple(
                np.array(a).reshape(types[name].shape) for a, name in zip(arrays, tensors, strict=True)
            )

    how.compiled.executor.record(how.feeds, keep)
    return found


def _results(entries: Sequence[Entry]) -> dict[str, Any]:
    ours = entries[0]
    if ours.failure:
        return {"failure": f"{ours.name}: {ours.failure}", "contestants": []}
    return {"contestants": [_contestant(ours, entry) for entry in entries]}


def _contestant(ours: Entry, entry: Entry) -> dict[str, Any]:
    """Times are medians of bursts in seconds; ratios are this one over ours, with quartiles."""
    if entry.failure:
        return {"name": entry.name, "failure": entry.failure}
    found: dict[str, Any] = {"name": entry.name, "compile": entry.compile_seconds, "error": entry.error}
    for what in ("kernel", "call"):
        pairs = ratio(getattr(ours, what), entry.name, getattr(entry, what))
        found[what] = statistics.median(getattr(entry, what))
        found[f"{what}_ratio"] = {"median": pairs.median, "low": pairs.low, "high": pairs.high}
    return found


def geometric_means(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Geometric means of the ratios of each peer, by size of the working set."""
    classes = {
        "under 256 KB": (0, SMALL),
        "between": (SMALL, LARGE),
        "over 2 MB": (LARGE, 1 << 62),
        "all": (0, 1 << 62),
    }
    found = []
    for label, (low, high) in classes.items():
        ratios: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if row["bytes"] is None or not low <= row["bytes"] < high:
                continue
            for one in row["contestants"][1:]:
                if "failure" not in one:
                    pair = (one["kernel_ratio"]["median"], one["call_ratio"]["median"])
                    ratios.setdefault(one["name"], []).append(pair)
        for name, pairs in ratios.items():
            kernel, call = (math.exp(statistics.fmean(map(math.log, values))) for values in zip(*pairs, strict=True))
            found.append({"peer": name, "working_set": label, "subgraphs": len(pairs), "kernel": kernel, "call": call})
    return found


def print_row(row: Mapping[str, Any]) -> None:
    """One row of `contests` as a table."""
    if row["subgraph"] is None:
        title = "whole graph"
    else:
        title = f"subgraph {row['subgraph']}, {row['bytes'] / 1e6:.3g} MB, {row['occurrences']} times; {row['plan']}"
    if "failure" in row:
        options.echo(f"{title}: {row['failure']}")
        return
    rows = [
        (one["name"], "-", "", "-", "", "-", one["failure"])
        if "failure" in one
        else (
            one["name"],
            duration(one["kernel"]),
            _ratio(one["kernel_ratio"]),
            duration(one["call"]),
            _ratio(one["call_ratio"]),
            duration(one["compile"]),
            f"differs by {one['error']:.0e}" if one["error"] else "",
        )
        for one in row["contestants"]
    ]
    options.table(("", "kernel", "ratio", "call", "ratio", "compile", ""), rows, title=title)


def _ratio(one: Mapping[str, float]) -> str:
    return f"{one['median']:.2f} ({one['low']:.2f} to {one['high']:.2f})"


def print_means(means: Sequence[Mapping[str, Any]]) -> None:
    """Geometric means as a table."""
    rows = [(m["peer"], m["working_set"], m["subgraphs"], f"{m['kernel']:.2f}", f"{m['call']:.2f}") for m in means]
    options.table(("over", "working set", "subgraphs", "kernel", "call"), rows, title="stitched, geometric means")
