"""Stitched subgraphs of several graphs against peers, as a CSV file and geometric means over all of them.

usage: python -m stitchtune.benchmarks.bench_peers OUT.csv GRAPH.onnx ... [--db DB] [--peers NAMES] [--bursts N]

Tune the graphs into DB first (`tune.py GRAPH --db DB --budget 300`); a subgraph without a plan runs as the heuristic
plan.
Columns: graph, subgraph, occurrences, bytes (that must move), plan, contestant, kernel and call (median seconds), their
ratios to ours with quartiles, compile (seconds), error (of the outputs' norm), failure.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import feeds, pipeline
from ..cli import bench, options


def main() -> None:
    parser = argparse.ArgumentParser(description="Subgraphs of several graphs against peers.")
    parser.add_argument("out", type=Path)
    parser.add_argument("graphs", type=Path, nargs="+")
    parser.add_argument("--db")
    parser.add_argument("--peers", default="unfused,onnxruntime,xla")
    parser.add_argument("--bursts", type=int, default=15)
    given = parser.parse_args()
    chosen = options.settings(None, given.db)
    rows: list[dict[str, Any]] = []
    with given.out.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for path in given.graphs:
            compiled = pipeline.compile_file(path, {}, chosen)
            arrays = feeds.synthetic(compiled.loaded).arrays
            how = bench.How(path, {}, chosen, compiled, arrays, chosen.target.processors)
            for row in bench.contests(how, ("stitched", *given.peers.split(",")), given.bursts, whole=True):
                rows.append(row)
                writer.writerows(_lines(compiled.loaded.name, row))
                file.flush()
                bench.print_row(row)
    bench.print_means(bench.geometric_means(rows))


COLUMNS = (
    "graph subgraph occurrences bytes plan contestant kernel call kernel_ratio kernel_low kernel_high call_ratio "
    "call_low call_high compile error failure"
).split()


def _lines(graph: str, row: Mapping[str, Any]) -> Iterator[list[Any]]:
    head = [graph, row["subgraph"], row["occurrences"], row["bytes"], row.get("plan")]
    for one in row["contestants"]:
        if "failure" in one:
            yield [*head, one["name"], *[""] * 10, one["failure"]]
            continue
        ratios = [one[f"{what}_ratio"][part] for what in ("kernel", "call") for part in ("median", "low", "high")]
        numbers = [one["kernel"], one["call"], *ratios, one["compile"], one["error"]]
        yield [*head, one["name"], *(f"{number:.4g}" for number in numbers), ""]


if __name__ == "__main__":
    main()
