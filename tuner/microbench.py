"""Constants of a device, measured once: bandwidth by working set, launches, barriers, operator throughput.

The microbenchmarks are subgraphs with hand-made plans that go through the same lowering, compiler and launcher as every
other plan, so the constants hold for what the tuner compiles, and a second target needs no second set of them. All
kernels together are one build; measuring takes well under five seconds.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..graphs.dtypes import DType
from ..graphs.subgraph import AxisVar, Read, Subgraph, Value
from ..kernels.build import BuiltPlan, build_plans
from ..kernels.compile import BuildFailure
from ..kernels.launch import Bound, Launcher
from ..kernels.team import Team
from ..search_space.plan import Edge, Group, Kernel, Phase, Plan, Stage
from ..search_space.target import DeviceModel, Target
from .device import CudaDevice, Device, DeviceError

OPERATORS = ("maximum", "div", "sqrt", "exp", "log", "tanh", "erf", "sin", "pow")
"""Operators measured one by one; the cost model scales the others from "add" and "exp"."""

BARRIERS = 8
ADDS = 16
ELEMENTS = 2048
"""Elements of an operator's benchmark: input and output stay in a first-level cache."""

ROWS, COLUMNS = 256, 32
"""A table whose short rows show what it costs to start a loop and a task."""

PASSES, LONGEST = 3, 3.0
"""Passes over the benchmarks at least; more while a time still improves, for so many seconds at most."""

LARGEST = 256 << 20
"""Most bytes a bandwidth benchmark may touch."""


@dataclass(frozen=True)
class Bench:
    """A benchmark: what it measures, the subgraph and plan that run, and units of that per run."""

    name: str
    sub: Subgraph
    plan: Plan
    units: float


def measure_device(target: Target, device: Device | CudaDevice, cache: Path, jobs: int = 2) -> DeviceModel:
    """The DeviceModel of `target`, measured on `device` with kernels built into `cache`.

    Raises DeviceError when one of the kernels does not build, or a CUDA device cannot be used.
    """
    if isinstance(device, CudaDevice):
        from .cuda_measure.microbench import measure_cuda

        return measure_cuda(device, cache)
    benches = tuple(benchmarks(target))
    built = build_plans([(b.sub, b.plan) for b in benches], target, precision="strict", cache=cache, jobs=jobs)
    times: dict[str, float] = {}
    with contextlib.closing(device.open()) as team:
        runs: dict[str, Bound] = {}
        for bench, item in zip(benches, built, strict=True):
            if isinstance(item, BuildFailure):
                raise DeviceError(f"microbenchmark {bench.name} does not build: {item.message}")
            assert isinstance(item, BuiltPlan)  # the microbenchmarks are the CPU's
            runs[bench.name] = _bind(bench.sub, item, team)
        # Passes over all of them, so that a moment's load of the machine does not fall on one.
        begin, improved, passes = time.monotonic(), True, 0
        while passes < PASSES or (improved and time.monotonic() - begin < LONGEST):
            passes, improved = passes + 1, False
            for name, bound in runs.items():
                seconds = _seconds(bound)
                improved = improved or seconds < 0.97 * times.get(name, math.inf)
                times[name] = min(times.get(name, math.inf), seconds)
    return model_of(target, benches, times)


def model_of(target: Target, benches: tuple[Bench, ...], times: dict[str, float]) -> DeviceModel:
    """The model that follows from seconds per run of each benchmark."""
    units = {b.name: b.units for b in benches}
    serial, team = times["serial"], times["team"]
    triad = []
    for name in times:
        kind, _, size = name.partition(" ")
        if kind == "triad":
            everyone = units[name] / max(times[name] - team, 1e-9)
            single = units[f"alone {size}"] / max(times[f"alone {size}"] - serial, 1e-9)
            triad.append((int(size), max(everyone, single), single))
    triad.sort()
    throughput = [
        (name, units[name] / max(times[name] - serial, 1e-9)) for name in ("add", *OPERATORS, "chain", "gather")
    ]
    loop = (times["loop"] - serial) / ROWS - COLUMNS / throughput[0][1]
    task = (times["task"] - times["loop"]) / ROWS
    throughput += [("loop", 1 / max(loop, 1e-9)), ("task", 1 / max(task, 2e-9))]
    return DeviceModel(
        target=target,
        dram_bandwidth=triad[-1][1],
        cache_bandwidth=next((all_ for size, all_, _ in reversed(triad) if size <= target.cache_bytes), triad[0][1]),
        block_bandwidth=next(all_ for size, all_, _ in triad if size > target.processors * target.l1_bytes),
        launch=team,
        serial_launch=serial,
        barrier=max(times["barriers"] - team, 0.0) / BARRIERS,
        throughput=tuple(throughput),
        triad=tuple(triad),
    )


def benchmarks(target: Target) -> Iterator[Bench]:
    """All microbenchmarks of a target."""
    tiny = elementwise("add", 16)
    yield Bench("serial", tiny, flat_plan(tiny, 16, target, team=False), 1)
    yield Bench("team", tiny, flat_plan(tiny, 16, target, team=True), 1)
    steps = chain(BARRIERS + 1, 16)
    yield Bench("barriers", steps, barrier_plan(steps), BARRIERS)
    for size in sizes(target):
        elements = max(target.processors * 64, size // 12 // 64 * 64)
        sub = triad(elements)
        tile = -(-elements // target.processors)
        yield Bench(f"triad {size}", sub, flat_plan(sub, tile, target, team=True), 12 * elements)
        yield Bench(f"alone {size}", sub, flat_plan(sub, elements, target, team=False), 12 * elements)
    adds = chain(ADDS, ELEMENTS)
    yield Bench("add", adds, flat_plan(adds, ELEMENTS, target, team=False), ADDS * ELEMENTS)
    for op in OPERATORS:
        sub = elementwise(op, ELEMENTS)
        yield Bench(op, sub, flat_plan(sub, ELEMENTS, target, team=False), ELEMENTS)
    dependent = total(ELEMENTS)
    yield Bench("chain", dependent, scalar_plan(dependent, (), (1,)), ELEMENTS)
    turned = transposed(48)
    yield Bench("gather", turned, _plan(turned, (), (1, 2), 2, target, team=False), 48 * 48)
    rows = table(ROWS, COLUMNS)
    yield Bench("loop", rows, _plan(rows, (), (1, 2), 2, target, team=False), ROWS)
    yield Bench("task", rows, _plan(rows, ((1, 1),), (1, 2), 2, target, team=False), ROWS)


def sizes(target: Target) -> list[int]:
    """Working sets, from half of the first-level caches to well beyond the last level."""
    inner = target.processors * target.l1_bytes // 2
    outer = min(LARGEST, max(4 * target.cache_bytes, 64 << 20))
    middle = target.processors * target.block_bytes
    shared = min(target.cache_bytes // 2, outer // 4)
    return sorted({inner, max(2 * inner, middle // 2), max(4 * inner, middle), 4 * middle, shared, outer})


def _bind(sub: Subgraph, built: BuiltPlan, team: Team) -> Bound:
    inputs = [np.linspace(0.5, 1.5, sub.elements(v), dtype=np.float32) for v in sub.inputs]
    outputs = [np.zeros(sub.elements(v), np.float32) for v in sub.outputs]
    return Launcher(built, team).bind(inputs, outputs)


def _seconds(bound: Bound) -> float:
    """Least seconds of one run, warm: the device's own constants, without what else runs on it."""
    once = min(bound.time(3))
    batch = max(1, min(1000, 100_000 // max(1, once)))
    return min(bound.time(9, batch=batch, limit_ns=60_000_000)) / batch * 1e-9


# --- subgraphs


def _at(value: int, *axes: int) -> Read:
    return Read(value, tuple(AxisVar(a) for a in axes))


def elementwise(op: str, elements: int) -> Subgraph:
    """y = op(x), or op(x, 1.1) for an operator of two operands."""
    binary = op in ("add", "maximum", "div", "pow")
    reads = (_at(0, 1), _at(1)) if binary else (_at(0, 1),)
    values = [Value("input", DType.F32, (0,)), Value("const", DType.F32, (), attrs=(("value", 1.1),))]
    values.append(Value(op, DType.F32, (1,), (), reads))
    return Subgraph(tuple(values), (2,), (elements, elements))


def chain(length: int, elements: int) -> Subgraph:
    """y = x + 1.1 + 1.1 + ..."""
    values = [Value("input", DType.F32, (0,)), Value("const", DType.F32, (), attrs=(("value", 1.1),))]
    for i in range(length):
        values.append(Value("add", DType.F32, (1,), (), (_at(0 if i == 0 else len(values) - 1, 1), _at(1))))
    return Subgraph(tuple(values), (len(values) - 1,), (elements, elements))


def triad(elements: int) -> Subgraph:
    """a = b + 3 c (STREAM; McCalpin, Memory bandwidth and machine balance, 1995)."""
    f32 = DType.F32
    values = (
        Value("input", f32, (0,)),
        Value("input", f32, (1,)),
        Value("const", f32, (), attrs=(("value", 3.0),)),
        Value("mul", f32, (2,), (), (_at(1, 2), _at(2))),
        Value("add", f32, (2,), (), (_at(0, 2), _at(3, 2))),
    )
    return Subgraph(values, (4,), (elements, elements, elements))


def total(elements: int) -> Subgraph:
    values = (Value("input", DType.F32, (0,)), Value("sum", DType.F32, (), (1,), (_at(0, 1),)))
    return Subgraph(values, (1,), (elements, elements))


def transposed(side: int) -> Subgraph:
    """y[i, j] = -x[j, i]"""
    values = (Value("input", DType.F32, (0, 0)), Value("neg", DType.F32, (1, 2), (), (_at(0, 2, 1),)))
    return Subgraph(values, (1,), (side, side, side))


def table(rows: int, columns: int) -> Subgraph:
    """y[i, j] = -x[i, j]"""
    values = (Value("input", DType.F32, (0, 3)), Value("neg", DType.F32, (1, 2), (), (_at(0, 1, 2),)))
    return Subgraph(values, (1,), (rows, rows, columns, columns))


# --- plans


def _plan(
    sub: Subgraph,
    parallel: tuple[tuple[int, int], ...],
    order: tuple[int, ...],
    vector: int,
    target: Target,
    team: bool,
) -> Plan:
    """Everything inlined into the last value, which one stage computes."""
    last = len(sub.values) - 1
    edges = tuple(Edge(v, v + 1, "inline") for v in sub.computed if v != last)
    width = target.vector_bytes // 4 if vector >= 0 else 1
    stage = Stage((last,), order, vector=vector, width=width)
    return Plan((Kernel((Phase((Group(parallel, (stage,)),)),), team=team),), edges)


def flat_plan(sub: Subgraph, tile: int, target: Target, team: bool) -> Plan:
    axis = sub.values[-1].axes[0]
    return _plan(sub, ((axis, tile),), (axis,), axis, target, team)


def scalar_plan(sub: Subgraph, parallel: tuple[tuple[int, int], ...], order: tuple[int, ...]) -> Plan:
    """Without vectors, on one thread."""
    return Plan((Kernel((Phase((Group(parallel, (Stage((len(sub.values) - 1,), order),)),)),), team=False),))


def barrier_plan(sub: Subgraph) -> Plan:
    """Each value in a phase of its own, through global memory."""
    computed = sub.computed
    phases = tuple(Phase((Group(((1, 16),), (Stage((v,), (1,)),)),)) for v in computed)
    edges = tuple(Edge(a, b, "global") for a, b in itertools.pairwise(computed))
    return Plan((Kernel(phases),), edges)
