"""The analytical cost model for CUDA: seconds a plan takes on a device, present or not, compiled or not.

    t = sum over kernels of launch(mode)
      + sum over phases of (bound^3 + path^3)^(1/3)
      + barriers

    bound = max(DRAM, L2, and on the busiest multiprocessor: shared memory and L1, port to L2, issue, special functions)
    path  = waves, the last one whole, times the time of a block that is alone

Bandwidths are what copies and streams reach. The path is Little's law: bytes in flight are those of all resident blocks
over the time of one. The two are joined by a smooth maximum rather than by min(1, in flight / needed): a device
reaches 80 %, not 100 %, of its bandwidth when exactly the bytes needed are in flight. docs/cost-model.md has the
derivation, the constants and what is ignored.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ...kernels.cuda.built import Report
from ...search_space.target import WARP, DeviceModel
from ..view import View
from .fit import Fit, fit_kernel
from .touch import Accesses, accesses
from .work import PORT_BYTES, Where, Work, group_work, kept_in_cache, task_count

State = Literal["hot", "cold"]
"""Whether L2 holds what the plan touched last time (as far as it fits) or nothing."""

Mode = Literal["graph", "stream"]
"""How kernels are launched: replayed in a CUDA graph, or one by one."""

KNEE = 3.0
"""Exponent that joins bandwidth and latency: fitted to gpu-benches' gpu-stream of V100, A100 and Hopper (reads at all
occupancies), where bandwidth reaches 2^(-1/3) = 79 % of the peak when exactly the bytes needed are in flight."""


@dataclass(frozen=True)
class PhaseTime:
    """A phase over all its blocks. Bytes from DRAM, through L2; cycles of shared memory; warp instructions; seconds.

    bound, path   seconds that throughput and latency allow
    tail          seconds over those of blocks spread evenly over waves and multiprocessors, at least 1
    """

    far: float
    cache: float
    wavefronts: float
    instructions: float
    bound: float
    path: float
    tail: float
    blocks: int
    slots: int
    seconds: float


@dataclass(frozen=True)
class CudaCost:
    """Seconds of one run, and what they are made of."""

    phases: tuple[PhaseTime, ...]
    launch: float
    barriers: float

    @property
    def seconds(self) -> float:
        return self.launch + self.barriers + sum(p.seconds for p in self.phases)


def predict_cuda(
    seen: View,
    working_set: float,
    *,
    reports: Sequence[Report | None] = (),
    state: State = "hot",
    mode: Mode = "graph",
) -> CudaCost:
    """The predicted cost of the plan of `seen`, whose inputs, outputs and scratch take `working_set` bytes.

    `reports` are the compiler's, kernel by kernel; without them registers are estimated.
    """
    model = seen.model
    groups = [[[accesses(seen, g) for g in phase.groups] for phase in kernel.phases] for kernel in seen.plan.kernels]
    misses = iter(_misses(seen, [phase for kernel in groups for phase in kernel], working_set, state))
    evicted = 1 - kept_in_cache(model, working_set) if state == "hot" else 1.0
    found: list[PhaseTime] = []
    barriers = 0.0
    for number, (kernel, phases) in enumerate(zip(seen.plan.kernels, groups, strict=True)):
        report = reports[number] if number < len(reports) else None
        fit = fit_kernel(seen, kernel, phases, report)
        slots = fit.resident * model.target.processors if kernel.team else 1
        times = [
            _phase(seen, phase, Where(model, fit.resident, slots, fit.l1, next(misses), evicted), fit, len(phases) == 1)
            for phase in phases
        ]
        found.extend(times)
        grid = min(slots, max((t.blocks for t in times), default=1))
        barriers += (len(times) - 1) * (model.barrier + model.barrier_per_block * grid)
    each = model.graph_launch if mode == "graph" and model.graph_launch else model.launch
    return CudaCost(tuple(found), each * len(seen.plan.kernels), barriers)


def _misses(
    seen: View, phases: Sequence[Sequence[Accesses]], working_set: float, state: State
) -> Iterator[dict[int, float]]:
    """For every phase, the share of each value's first touch that L2 does not hold.

    What a phase touched is wanted again by a later one after all that lies between: of the two phases themselves half,
    since both go through their data in one order. An input that nobody touched before comes from the last run.
    """
    sizes: list[float] = []
    last: dict[int, int] = {}
    for number, phase in enumerate(phases):
        touched = {part: touch for group in phase for part, touch in group.distinct.items()}
        sizes.append(sum(t.phase for t in touched.values()))
        misses = {}
        for value in {t.value for t in touched.values()}:
            if value in last:
                before = last[value]
                distance = sum(sizes[before + 1 : number]) + (sizes[before] + sizes[number]) / 2
                misses[value] = 1 - kept_in_cache(seen.model, distance)
            else:
                misses[value] = 1.0 if state == "cold" else 1 - kept_in_cache(seen.model, working_set)
            last[value] = number
        yield misses


def _phase(seen: View, phase: Sequence[Accesses], where: Where, fit: Fit, replaced: bool) -> PhaseTime:
    """`replaced`: blocks end and others take their places; those of a kernel with barriers stay and go round."""
    model, slots = seen.model, where.slots
    tasks = [task_count(found.group, seen.sub.extents) for found in phase]
    counts = [-(-n // found.group.tasks_per_block) for n, found in zip(tasks, phase, strict=True)]
    blocks = sum(counts)
    together = -(-blocks // model.target.processors)
    where = replace(where, resident=max(1, min(where.resident, together)), slots=max(1, min(slots, blocks)))
    total = Work()
    for found, task in zip(phase, tasks, strict=True):
        if task:
            total += (group_work(seen, found, where) + _spills(found, where, fit)) * task
    if not blocks:
        return PhaseTime(0, 0, 0, 0, 0, 0, 1.0, 0, slots, 0.0)
    active = min(blocks, slots, model.target.processors)
    each, start = total.path / blocks, model.turnover if replaced else 0.0
    waves = max(1.0, blocks / slots)
    even = _joined(_bound(model, total, active, 1.0), each * waves + start * (waves - 1))
    bound = _bound(model, total, active, math.ceil(blocks / active) / (blocks / active))
    path = each * math.ceil(waves) + start * (math.ceil(waves) - 1)
    seconds = _joined(bound, path)
    return PhaseTime(
        far=total.far_reads + total.far_writes,
        cache=total.reads + total.writes,
        wavefronts=total.wavefronts,
        instructions=total.instructions,
        bound=bound,
        path=path,
        tail=seconds / even if even else 1.0,
        blocks=blocks,
        slots=slots,
        seconds=seconds,
    )


def _spills(found: Accesses, where: Where, fit: Fit) -> Work:
    """What local memory moves in a task: every spilled word out to L2 and back.

    It goes on to DRAM, and comes back from there, when what all blocks in flight move in the meantime displaces it.
    """
    if not fit.stored and not fit.loaded:
        return Work()
    threads = found.group.threads
    stored, loaded = threads * fit.stored, threads * fit.loaded
    moved = where.slots * (sum(t.task for t in found.distinct.values()) + stored)
    return Work(
        reads=loaded,
        writes=stored,
        far_reads=loaded * (1 - kept_in_cache(where.model, moved / 2)),
        far_writes=stored * (1 - kept_in_cache(where.model, moved)),
        wavefronts=(loaded + stored) / 128,
        instructions=(loaded + stored) / 128,
        path=where.model.cache_latency,
    )


def _joined(bound: float, path: float) -> float:
    most = max(bound, path)
    return most * ((bound / most) ** KNEE + (path / most) ** KNEE) ** (1 / KNEE) if most else 0.0


def _bound(model: DeviceModel, work: Work, active: int, uneven: float) -> float:
    """Seconds that throughput allows on `active` multiprocessors, the busiest of which has `uneven` times the mean."""
    wavefronts = 128 * work.wavefronts / (model.block_bandwidth / model.target.processors)
    cycles = max(
        work.instructions * WARP / model.issue,
        work.special * WARP / model.special,
        (work.reads + work.writes) / PORT_BYTES,
    )
    return max(
        paired(work.far_reads, work.far_writes, model.dram_bandwidth, model.dram_stream),
        paired(work.reads, work.writes, model.cache_bandwidth, model.cache_stream),
        max(wavefronts, cycles / model.clock) / active * uneven,
    )


def paired(reads: float, writes: float, both: float, one: float) -> float:
    """Seconds to move bytes when a mix of reads and writes goes at `both` and the rest, in one direction, at `one`.

    A triad's two reads and a write then come between a copy and a sum, as measured (DRAM pays for turning round).
    """
    mixed = 2 * min(reads, writes)
    return mixed / both + (reads + writes - mixed) / (one or both)


def least_seconds(model: DeviceModel, reads: float, writes: float) -> float:
    """Seconds that moving bytes once takes at least, with a launch: through L2, from DRAM what it does not keep."""
    miss = 1 - kept_in_cache(model, reads + writes)
    far = paired(miss * reads, miss * writes, model.dram_bandwidth, model.dram_stream)
    near = paired(reads, writes, model.cache_bandwidth, model.cache_stream)
    return max(far, near) + (model.graph_launch or model.launch)
