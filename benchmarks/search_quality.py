"""Does the search earn its place: six spaces measured to the last plan, and how near 24 measurements come.

    search_quality.py count                     distinct plans of each space, without measuring
    search_quality.py measure --out DIR         builds and measures every plan (tens of minutes; wants a quiet machine)
    search_quality.py replay --out DIR          compares searches on what was measured, for 10 seeds; prints the table

A space here is a subgraph's, with some knobs held at the heuristic's answer so that all of it can be measured. Every
distinct loop program is measured once against the same anchor; the best 20 are then measured again in turns, and the
winner is *the best*. The replay gives each search 24 measurements, looked up in the table: Optuna with the cost model
and its learned residual, Optuna alone, and random choice (its expectation is computed, not drawn).
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from stitchtune import feeds
from stitchtune.graphs.builder import GraphBuilder
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.partition import partition
from stitchtune.graphs.simplify import simplify
from stitchtune.graphs.tolerance import expect
from stitchtune.kernels.build import BuiltPlan, build_plans
from stitchtune.kernels.host import host_target
from stitchtune.kernels.lower import lower
from stitchtune.search_space import codec, legality
from stitchtune.search_space.knobs import Ask
from stitchtune.search_space.size import every_leaf
from stitchtune.search_space.space import Proposal, Space
from stitchtune.search_space.stitch import unfused
from stitchtune.search_space.target import DeviceModel, Target
from stitchtune.settings import cache_folder
from stitchtune.tuner.device import prepare_device
from stitchtune.tuner.measure import Measurer, write_subject
from stitchtune.tuner.microbench import measure_device
from stitchtune.tuner.protocol import Job, Pace, Timing
from stitchtune.tuner.reference import Reference
from stitchtune.tuner.residual import Observation, Residual, fit, spearman
from stitchtune.tuner.strategy import Search, program_name
from stitchtune.tuner.task import ratio_of

TRIALS, SEEDS, FINALISTS, BATCH = 24, 10, 20, 4
PACE = Pace(seconds=0.03, rounds=4, cold=0, cut_off=1e9, check_seconds=0.01)
FINAL = Pace(seconds=0.3, rounds=15, cold=0, cut_off=1e9)


@dataclass(frozen=True)
class Restricted(Space):
    """A space in which only knobs whose names begin with one of `free` are asked; the others keep their default."""

    free: tuple[str, ...] = ()

    def suggest(self, ask: Ask) -> Proposal:
        found = super().suggest(lambda knob: ask(knob) if knob.name.startswith(self.free) else knob.default)
        return replace(found, knobs=tuple(k for k in found.knobs if k.name.startswith(self.free)))


def spaces(target: Target) -> dict[str, Restricted]:
    """The six, by name."""
    given: dict[str, tuple[GraphBuilder, tuple[str, ...]]] = {
        "column sum": (column_sum(4096, 512), ("axes", "vector", "tile")),
        "transpose and bias": (transpose(8, 120, 200), ("vector", "tile")),
        "softmax of rows": (softmax(2048, 384, 1), ("vector", "keep", "tile", "tasks", "accumulators")),
        "softmax of columns": (softmax(1000, 768, 0), ("vector", "keep", "tile", "unroll.1", "tasks", "accumulators")),
        "softmax split, two barriers": (softmax(2, 200_000, 1), ("tile", "cut.1")),
        "layer norm": (layer_norm(2048, 768), ("vector", "keep", "tile", "accumulators")),
    }
    found = {}
    for name, (builder, free) in given.items():
        [component] = partition(simplify(builder.build())).components
        found[name] = Restricted(component.subgraph, target, free)
    return found


# --- subgraphs


def softmax(rows: int, columns: int, axis: int) -> GraphBuilder:
    b = GraphBuilder("softmax")
    x = b.input("x", DType.F32, (rows, columns))
    e = b.elementwise("exp", b.elementwise("sub", x, b.reduce("max", x, (axis,), True)))
    b.output(b.elementwise("div", e, b.reduce("sum", e, (axis,), True)))
    return b


def layer_norm(rows: int, columns: int) -> GraphBuilder:
    b = GraphBuilder("layer norm")
    x, scale, bias = b.input("x", DType.F32, (rows, columns)), *(b.input(n, DType.F32, (columns,)) for n in "sb")
    count = b.scalar(float(columns), DType.F32)
    centred = b.elementwise("sub", x, b.elementwise("div", b.reduce("sum", x, (1,), True), count))
    squares = b.reduce("sum", b.elementwise("mul", centred, centred), (1,), True)
    variance = b.elementwise("add", b.elementwise("div", squares, count), b.scalar(1e-5, DType.F32))
    normal = b.elementwise("div", centred, b.elementwise("sqrt", variance))
    b.output(b.elementwise("add", b.elementwise("mul", normal, scale), bias))
    return b


def column_sum(rows: int, columns: int) -> GraphBuilder:
    b = GraphBuilder("column sum")
    x = b.input("x", DType.F32, (rows, columns))
    b.output(b.reduce("sum", b.elementwise("mul", x, x), (0,)))
    return b


def transpose(heads: int, rows: int, columns: int) -> GraphBuilder:
    b = GraphBuilder("transpose")
    x, bias = b.input("x", DType.F32, (heads, rows, columns)), b.input("bias", DType.F32, (rows,))
    turned = b.transpose(x, (2, 0, 1))
    b.output(b.elementwise("add", turned, b.broadcast(bias, (columns, heads, rows), (2,))))
    return b


# --- measuring


@dataclass(frozen=True)
class Row:
    """One distinct plan of a space. `again` is its time when the best were measured again, 0 for the others."""

    space: str
    program: str
    kind: str
    status: str
    seconds: float
    again: float
    assignment: str


def programs(space: Restricted) -> Iterator[tuple[str, Proposal]]:
    """Every distinct loop program of legal plans, the first proposal that gives it."""
    seen = set()
    for proposal in every_leaf(space):
        if legality.check(space.sub, proposal.plan, space.target):
            continue
        name = program_name(lower(space.sub, proposal.plan, space.target))
        if name not in seen:
            seen.add(name)
            yield name, proposal


def measure_space(name: str, space: Restricted, measurer: Measurer, folder: Path, jobs: int) -> list[Row]:
    """Times every plan of a space and the unfused one."""
    sub = space.sub
    inputs = feeds.for_subgraph(sub)
    measurer.load(write_subject(folder / name.replace(" ", "-"), sub, inputs, Reference(expect(sub, inputs))))
    baseline = unfused(sub, space.target)
    found = {program_name(lower(sub, baseline, space.target)): Proposal((), baseline)}
    found |= {program: proposal for program, proposal in programs(space) if program not in found}
    rows: list[Row] = []
    built: dict[str, BuiltPlan] = {}
    anchor: tuple[BuiltPlan, float] | None = None
    names = list(found)
    for start in range(0, len(names), 32):
        batch = names[start : start + 32]
        made = build_plans([(sub, found[n].plan) for n in batch], space.target, cache=cache_folder(), jobs=jobs)
        for program, one in zip(batch, made, strict=True):
            assert isinstance(one, BuiltPlan), one
            built[program] = one
            reply = measurer.measure(one, [anchor[0]] if anchor else [], PACE)
            [outcome], timing = reply.candidates, reply.candidates[0].timing
            seconds = 0.0
            if timing is not None:
                seconds = statistics.median(timing.rounds)
                if anchor is None:
                    anchor = (one, seconds)
                elif reply.rivals[0] is not None:
                    seconds = ratio_of(timing, reply.rivals[0])[0] * anchor[1]
            kind = "search" if found[program].assignment else "unfused"
            rows.append(
                Row(name, program, kind, outcome.status, seconds, 0.0, json.dumps(dict(found[program].assignment)))
            )
        print(f"{name}: {len(rows)} of {len(names)}", file=sys.stderr, flush=True)
    return measured_again(rows, built, measurer)


def measured_again(rows: list[Row], built: Mapping[str, BuiltPlan], measurer: Measurer) -> list[Row]:
    """The rows, with the best ones' times of a second measurement in turns."""
    right = sorted((r for r in rows if r.status == "ok"), key=lambda r: r.seconds)[:FINALISTS]
    reply = measurer.run(Job(tuple(built[r.program] for r in right), (), FINAL))
    timings: list[Timing | None] = [o.timing for o in reply.candidates]
    again = {r.program: statistics.median(t.rounds) for r, t in zip(right, timings, strict=True) if t is not None}
    # Back to the anchor's scale: between the two measurements the machine may have changed its pace.
    scale = statistics.median(r.seconds / again[r.program] for r in right if r.program in again)
    again = {program: seconds * scale for program, seconds in again.items()}
    return [replace(r, again=again.get(r.program, 0.0)) for r in rows]


def measure(out: Path, jobs: int) -> None:
    target = host_target()
    device = prepare_device(target, cache_folder())
    out.mkdir(parents=True, exist_ok=True)
    model = measure_device(target, device, cache_folder(), jobs)
    (out / "search_quality_device.json").write_text(codec.dumps(model))
    rows: list[Row] = []
    with Measurer(device) as measurer:
        for name, space in spaces(target).items():
            begin = time.monotonic()
            rows += measure_space(name, space, measurer, out / "subjects", jobs)
            print(f"{name}: {time.monotonic() - begin:.0f} s", file=sys.stderr)
            write(out / "search_quality.csv", rows)


def write(path: Path, rows: Sequence[Row]) -> None:
    with path.open("w", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(Row.__dataclass_fields__)
        table.writerows(tuple(vars(r).values()) for r in rows)


def read(path: Path) -> list[Row]:
    with path.open(newline="") as stream:
        return [
            Row(
                r["space"],
                r["program"],
                r["kind"],
                r["status"],
                float(r["seconds"]),
                float(r["again"]),
                r["assignment"],
            )
            for r in csv.DictReader(stream)
        ]


# --- comparing searches


def replay(out: Path) -> None:
    """Prints the table of the issue, and keeps it as CSV."""
    model = codec.loads(DeviceModel, (out / "search_quality_device.json").read_text())
    rows = read(out / "search_quality.csv")
    lines = [("space", "plans", "worst / best", "rank correlation", "search", "median", "worst seed", "mean")]
    for name, space in spaces(model.target).items():
        own = [r for r in rows if r.space == name and r.status == "ok"]
        # Where a plan was measured again, that time is the better one.
        times = {r.program: r.again or r.seconds for r in own}
        best = min(r.again for r in own if r.again)
        correlation = rank_correlation(space, model, own, times)
        head = (name, str(len(own)), f"{max(times.values()) / best:.1f}", f"{correlation:.2f}")
        for label, ranked in (("Optuna and cost model", True), ("Optuna alone", False)):
            found = sorted(search(space, model, times, seed, ranked) / best for seed in range(SEEDS))
            shown = f"{statistics.median(found):.3f}", f"{found[-1]:.3f}", f"{statistics.fmean(found):.3f}"
            lines.append((*head, label, *shown))
        lines.append((*head, "random (expected)", "", "", f"{expected_least(list(times.values()), TRIALS) / best:.3f}"))
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))
    with (out / "search_quality_table.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows(lines)


def search(space: Restricted, model: DeviceModel, times: Mapping[str, float], seed: int, ranked: bool) -> float:
    """Seconds of the best plan that one search finds with its measurements."""
    one = Search(space.sub, "replayed", space.target, model, seed=seed, ranked=ranked, space=space)
    lessons: list[Observation] = []
    found: list[float] = []
    waiting = one.baselines()
    while waiting and len(found) < TRIALS:
        for candidate in waiting:
            seconds = times.get(candidate.program)
            one.tell(candidate, seconds)
            found.append(math.inf if seconds is None else seconds)
            if seconds is not None:
                lessons.append(one.observe(candidate, seconds))
        residual = fit(lessons) if ranked else Residual()
        waiting = one.propose(min(BATCH, TRIALS - len(found)), residual, 24)
    return min(found)


def expected_least(times: Sequence[float], draws: int) -> float:
    """Expectation of the least of `draws` different times drawn at random, from their order statistics."""
    ordered, total = sorted(times), math.comb(len(times), draws)
    return sum(t * math.comb(len(ordered) - i - 1, draws - 1) / total for i, t in enumerate(ordered))


def rank_correlation(space: Restricted, model: DeviceModel, rows: Sequence[Row], times: Mapping[str, float]) -> float:
    """Spearman's, of the cost model without its residual over the whole space."""
    from stitchtune.search_space.space import build
    from stitchtune.tuner.cost import predict

    own = [r for r in rows if r.kind == "search"]
    predicted = [
        predict(space.sub, build(space.sub, json.loads(r.assignment), space.target), model).seconds for r in own
    ]
    return spearman(np.array(predicted), np.array([times[r.program] for r in own]))


def count() -> None:
    target = host_target()
    for name, space in spaces(target).items():
        begin = time.monotonic()
        found = list(programs(space))
        barriers = max(p.plan.barriers for _, p in found)
        print(f"{name}: {len(found)} distinct plans, up to {barriers} barriers ({time.monotonic() - begin:.0f} s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("count", "measure", "replay"))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "data")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    match options.what:
        case "count":
            count()
        case "measure":
            measure(options.out, options.jobs)
        case _:
            replay(options.out)


if __name__ == "__main__":
    main()
