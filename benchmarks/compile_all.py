"""Compiles the kernels of all heuristic plans of graphs for CUDA architectures; no device is needed.

usage: python -m stitchtune.benchmarks.compile_all GRAPH.onnx... [--arch sm_75,sm_80,sm_90,sm_100] [--jobs 2] [--json]

A line per graph and architecture:

plans     different subgraphs, each with its heuristic plan for the architecture's commonest device
kernels   launches that these plans have
regs      most registers of a thread, and below how many the middle kernel stays
stack     bytes of stack frame, spills: bytes stored and loaded, over all kernels
refused   plans that do not fit the device, and why
seconds   lowering and compiling, the cache being empty
Exit code 1 when a plan is refused or a kernel has a stack or spills.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from .. import pipeline
from ..graphs.errors import StitchtuneError
from ..graphs.partition import Component
from ..graphs.subgraph import Subgraph
from ..kernels.cuda.build import build_cuda
from ..kernels.cuda.built import BuiltCuda
from ..search_space.devices import device_target
from ..search_space.stitch import heuristic

ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")
PER_UNIT = 8
"""Plans in a unit: enough that what every unit costs is little, few enough that two cores have work."""


@dataclass(frozen=True)
class Row:
    """What came of one graph on one architecture."""

    graph: str
    arch: str
    plans: int
    kernels: int
    most_registers: int
    median_registers: float
    stack_bytes: int
    spill_bytes: int
    refused: tuple[str, ...]
    seconds: float

    @property
    def clean(self) -> bool:
        return not (self.refused or self.stack_bytes or self.spill_bytes)


def subgraphs(graph: Path) -> list[Subgraph]:
    """The different subgraphs of a graph, slots aside (a slot is an argument of the launch)."""
    _, parted = pipeline.read(graph, {})
    found = (step.subgraph for step in parted.steps if isinstance(step, Component))
    return list({pipeline.without_slots(sub): sub for sub in found}.values())


def compile_graph(name: str, subs: Sequence[Subgraph], arch: str, cache: Path, jobs: int) -> Row:
    """Compiles the heuristic plans of subgraphs for an architecture."""
    target = device_target(f"cuda:{arch}")
    plans = [(sub, heuristic(sub, target)) for sub in subs]
    start = time.perf_counter()
    built = build_cuda(plans, target, cache=cache, jobs=jobs, per_unit=PER_UNIT)
    seconds = time.perf_counter() - start
    reports = [x.report for b in built if isinstance(b, BuiltCuda) for x in b.launches if x.report is not None]
    return Row(
        name,
        arch,
        plans=len(plans),
        kernels=len(reports),
        most_registers=max((r.registers for r in reports), default=0),
        median_registers=median(r.registers for r in reports) if reports else 0,
        stack_bytes=sum(r.stack_bytes for r in reports),
        spill_bytes=sum(r.spill_store_bytes + r.spill_load_bytes for r in reports),
        refused=tuple(f"{b.stage}: {b.message}" for b in built if not isinstance(b, BuiltCuda)),
        seconds=seconds,
    )


def table(rows: Iterable[Row]) -> Iterable[str]:
    names = f"{'plans':>6}{'kernels':>8}{'regs':>10}{'stack':>7}{'spills':>7}{'refused':>8}{'seconds':>9}"
    yield f"{'graph':14}{'arch':8}{names}"
    for row in rows:
        registers = f"{row.most_registers} ({row.median_registers:.0f})"
        yield (
            f"{row.graph:14}{row.arch:8}{row.plans:6}{row.kernels:8}{registers:>10}{row.stack_bytes:7}"
            f"{row.spill_bytes:7}{len(row.refused):8}{row.seconds:9.1f}"
        )


def totals(rows: Sequence[Row]) -> Iterable[str]:
    """The time of each architecture's whole set, and what was refused."""
    for arch in dict.fromkeys(row.arch for row in rows):
        own = [row for row in rows if row.arch == arch]
        yield f"{arch}: {sum(r.kernels for r in own)} kernels in {sum(r.seconds for r in own):.1f} s"
    for (where, what), count in Counter((f"{r.graph} {r.arch}", what) for r in rows for what in r.refused).items():
        yield f"refused, {where}: {what}" + (f" ({count} times)" if count > 1 else "")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="compile_all", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("graphs", nargs="+", type=Path)
    parser.add_argument("--arch", default=",".join(ARCHITECTURES), help="architectures, separated by commas")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    given = parser.parse_args(arguments)
    rows: list[Row] = []
    try:
        graphs = [(graph.stem, subgraphs(graph)) for graph in given.graphs]
        with tempfile.TemporaryDirectory() as folder:
            for (name, subs), arch in itertools.product(graphs, given.arch.split(",")):
                rows.append(compile_graph(name, subs, arch, Path(folder) / "cache", given.jobs))
                print(f"{name} {arch}: {rows[-1].seconds:.1f} s", file=sys.stderr)
    except StitchtuneError as error:
        parser.exit(2, f"error: {error}\n")
    if given.json:
        print(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        print("\n".join((*table(rows), *totals(rows))))
    return int(not all(row.clean for row in rows))


if __name__ == "__main__":
    sys.exit(main())
