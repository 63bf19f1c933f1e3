"""The analytical cost model: seconds a plan takes on a device, without compiling it. CUDA's is in `cuda_model`.

    t = sum over kernels of launch(mode)
      + sum over phases of the slowest processor's run of tasks
      + barriers

where the stages of a task run one after the other and each is bound by the slowest of far memory, shared cache, block
memory and instructions (DESIGN.md 3.6; on a device whose blocks overlap, the bounds are taken over the phase). The
bandwidth of far memory is what a triad of the plan's own working set reaches, so hits in the
last-level cache are not charged as DRAM. `residual.py` corrects what is systematic.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from ..graphs.subgraph import Subgraph, all_reads, axes_of_read
from ..kernels.cuda.built import Report
from ..search_space.plan import Kernel, Phase, Plan
from ..search_space.target import DeviceModel
from .cuda_model.cost import Mode, State, least_seconds, predict_cuda
from .traffic import Work, group_work, task_count
from .view import View, view


@dataclass(frozen=True)
class PhaseCost:
    """One phase over all its tasks: bytes by where they come from, processor seconds, and the slowest processor.

    tail is the slowest processor's share over the mean: 1 when the work is spread evenly.
    """

    far_bytes: float
    cache_bytes: float
    block_bytes: float
    operations: float
    overhead: float
    tail: float
    tasks: int
    seconds: float


@dataclass(frozen=True)
class Cost:
    """Predicted seconds of one run of a plan, and what they are made of."""

    seconds: float
    phases: tuple[PhaseCost, ...]
    launch: float
    barriers: float
    features: tuple[float, ...]
    """What the residual may depend on, all of order one."""


def predict(
    sub: Subgraph,
    plan: Plan,
    model: DeviceModel,
    reports: Sequence[Report | None] = (),
    *,
    state: State = "hot",
    mode: Mode = "graph",
) -> Cost:
    """The predicted cost of `plan` (legal) for `sub` on the device of `model`, everything in its warmest cache.

    CUDA only: the compiler's `reports`, kernel by kernel, replace estimates of registers; `state` "cold" starts with an
    empty L2; `mode` "stream" launches kernel by kernel instead of replaying a graph.
    """
    seen = view(sub, plan, model)
    working_set = _working_set(seen)
    if model.target.kind == "cuda":
        return _cuda(seen, working_set, reports, state, mode)
    launch = sum(model.launch if k.team else model.serial_launch for k in plan.kernels)
    barriers = plan.barriers * model.barrier
    phases = tuple(_phase(seen, kernel, phase, working_set) for kernel in plan.kernels for phase in kernel.phases)
    seconds = launch + barriers + sum(p.seconds for p in phases)
    return Cost(seconds, phases, launch, barriers, _features(seen, phases, launch, barriers, seconds))


def _cuda(seen: View, working_set: float, reports: Sequence[Report | None], state: State, mode: Mode) -> Cost:
    """CUDA's cost in the terms that all targets share: processor seconds of instructions, and of blocks' paths."""
    model = seen.model
    cost = predict_cuda(seen, working_set, reports=reports, state=state, mode=mode)
    phases = tuple(
        PhaseCost(
            far_bytes=p.far,
            cache_bytes=p.cache,
            block_bytes=128 * p.wavefronts,
            operations=p.instructions * model.target.lanes / (model.issue * model.clock),
            overhead=p.path * model.target.processors,
            tail=p.tail,
            tasks=p.blocks,
            seconds=p.seconds,
        )
        for p in cost.phases
    )
    features = _features(seen, phases, cost.launch, cost.barriers, cost.seconds)
    return Cost(cost.seconds, phases, cost.launch, cost.barriers, features)


def limit(sub: Subgraph, model: DeviceModel) -> float:
    """Seconds that no plan can beat by much: each input and output moved once at a triad's speed, one launch."""
    size = bytes_needed(sub)
    if model.target.kind == "cuda":
        writes = sum(sub.bytes(v) for v in sub.outputs)
        return least_seconds(model, max(0, size - writes), writes)
    return size / bandwidth(model, size)[0] + min(model.launch, model.serial_launch)


def bytes_needed(sub: Subgraph) -> int:
    """The least possible traffic: each output once, and of each input what its reads can reach, once.

    A table that few indices look up in is not read as a whole.
    """
    reached = dict.fromkeys(sub.inputs, 0)
    for value in sub.values:
        for read in all_reads(value):
            if read.value in reached:
                reached[read.value] += math.prod(sub.extents[a] for a in axes_of_read(read))
    inputs = sum(min(n, sub.elements(v)) * sub.values[v].dtype.size for v, n in reached.items())
    return max(1, inputs + sum(sub.bytes(v) for v in sub.outputs))


def bandwidth(model: DeviceModel, working_set: float) -> tuple[float, float]:
    """Bytes per second that a triad over `working_set` bytes reaches with all processors, and with one."""
    points = model.triad
    if not points:
        everyone = model.dram_bandwidth if working_set > model.target.cache_bytes else model.cache_bandwidth
        return everyone, everyone / model.target.processors
    at = bisect_left(points, working_set, key=lambda p: float(p[0]))
    if at in (0, len(points)):
        return points[min(at, len(points) - 1)][1:]
    (size0, all0, one0), (size1, all1, one1) = points[at - 1], points[at]
    share = math.log(working_set / size0) / math.log(size1 / size0)
    return all0 * (all1 / all0) ** share, one0 * (one1 / one0) ** share


def _working_set(seen: View) -> float:
    """Bytes of inputs, outputs and global scratch together."""
    sub = seen.sub
    scratch = {v for (v, _), place in seen.places.items() if place == "global"} - set(sub.outputs)
    partials = sum(sub.bytes(v) * parts for v, parts in seen.parts.items() if parts > 1)
    return float(bytes_needed(sub) + sum(sub.bytes(v) for v in scratch) + partials)


def _phase(seen: View, kernel: Kernel, phase: Phase, working_set: float) -> PhaseCost:
    model = seen.model
    counts = [task_count(seen.sub, g) for g in phase.groups]
    works = [group_work(seen, g) for g in phase.groups]
    total = sum(counts)
    active = max(1, min(model.target.processors, total)) if kernel.team else 1
    everyone, single = bandwidth(model, working_set)
    far = min(single, everyone / active)
    task_seconds = [sum(_bound(model, w, far, working_set) for w in stages) + 1 / seen.rate("task") for stages in works]
    loads = _loads(counts, task_seconds, active, max((g.tasks_per_block for g in phase.groups), default=1))
    mean = sum(loads) / active
    summed = [sum((w for w in stages), Work()) for stages in works]
    return PhaseCost(
        far_bytes=sum(n * (w.far + w.stream) for n, w in zip(counts, summed, strict=True)),
        cache_bytes=sum(n * w.cache for n, w in zip(counts, summed, strict=True)),
        block_bytes=sum(n * w.block for n, w in zip(counts, summed, strict=True)),
        operations=sum(n * w.operations for n, w in zip(counts, summed, strict=True)),
        overhead=sum(n * (w.overhead + 1 / seen.rate("task")) for n, w in zip(counts, summed, strict=True)),
        tail=max(loads) / mean if mean else 1.0,
        tasks=total,
        seconds=max(loads),
    )


def _bound(model: DeviceModel, work: Work, far: float, working_set: float) -> float:
    """Seconds of one stage of one task on one processor."""
    processors = model.target.processors
    beyond = working_set > model.target.cache_bytes
    # A store to DRAM first reads its line; a triad's own stores do too, so only streaming differs from the curve.
    streaming = min(far * 4 / 3, model.dram_bandwidth / processors) if not beyond else far * 4 / 3
    memory = work.far / far + work.stream / streaming
    cache = work.cache / (model.cache_bandwidth / processors)
    block = work.block / (model.block_bandwidth / processors)
    return max(memory + cache, block, work.operations) + work.overhead


def _loads(counts: list[int], seconds: list[float], active: int, grain: int) -> list[float]:
    """Seconds of each processor when each takes one contiguous, equally long run of the tasks in order."""
    total = sum(counts)
    blocks = math.ceil(total / grain)
    loads = []
    for i in range(active):
        begin, end = (min(total, blocks * j // active * grain) for j in (i, i + 1))
        load, first = 0.0, 0
        for count, each in zip(counts, seconds, strict=True):
            load += each * max(0, min(end, first + count) - max(begin, first))
            first += count
        loads.append(load)
    return loads


FEATURES = "far cache block operations overhead launch barriers tail tasks intensity seconds phases scalar".split()


def _features(
    seen: View, phases: tuple[PhaseCost, ...], launch: float, barriers: float, seconds: float
) -> tuple[float, ...]:
    """Values of FEATURES: shares of the time, then logarithms of sizes scaled to about one."""
    model = seen.model
    everyone, _ = bandwidth(model, _working_set(seen))
    processors = model.target.processors
    times = [
        sum(p.far_bytes for p in phases) / everyone,
        sum(p.cache_bytes for p in phases) / model.cache_bandwidth,
        sum(p.block_bytes for p in phases) / model.block_bandwidth,
        sum(p.operations for p in phases) / processors,
        sum(p.overhead for p in phases) / processors,
        launch,
        barriers,
    ]
    tail = sum(p.tail * p.seconds for p in phases) / max(1e-12, sum(p.seconds for p in phases))
    stages = [s for k in seen.plan.kernels for p in k.phases for g in p.groups for s in g.stages]
    return (
        *(math.log1p(8 * t / seconds) for t in times),
        math.log2(max(1.0, tail)),
        math.log2(1 + sum(p.tasks for p in phases)) / 8,
        math.log2(1 + bytes_needed(seen.sub)) / 8,
        math.log2(seconds * 1e9 + 1) / 8,
        len(phases) / 4,
        sum(s.vector < 0 for s in stages) / max(1, len(stages)),
    )
