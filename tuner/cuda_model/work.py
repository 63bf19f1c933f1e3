"""What a task of a CUDA group asks of the device: bytes by the level they come from, cycles, and its critical path.

Bytes count as whole sectors. A first touch comes from DRAM unless L2 still has it; what the block itself touched before
comes from L1 while all resident blocks' footprints fit there, from L2 while those of all blocks in flight do, and from
DRAM otherwise. Shared memory and L1 count in cycles of 128 bytes.

The path is the time one block would take alone: dependent rounds of loads, its bytes through its multiprocessor's port,
folds across threads, synchronisation and its own instructions. Divided by the blocks in flight it is what latency
allows, and the same as Little's law: bytes in flight needed are bandwidth times latency.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from ...search_space.plan import Group
from ...search_space.target import WARP, DeviceModel
from ..view import View
from .instructions import ACCESS, instructions
from .lanes import Shares
from .touch import Accesses, Touch, part_threads

PORT_BYTES = 48.0
"""Bytes per cycle between a multiprocessor and L2: three quarters of the 64 of NVIDIA's A100 white paper, as much as L2
delivers of what that promises altogether (5.4 of 7.2 TB/s, gpu-benches)."""

L1_SHARE = 0.75
"""Share of L1 that footprints may take and still be found there."""

KEPT, LOST = 0.67, 1.1
"""Shares of L2 that a working set may take to be kept whole, and from which on nothing of it is (gpu-l2-cache of
gpu-benches: bandwidth falls from 0.67 to 1.1 of the capacity on A100, H100 and a 60 MiB Hopper; the L40 keeps 0.93)."""

FOLD_CYCLES = 30.0
"""Of one step of a fold: a shuffle's latency and the operator's."""

SYNC_CYCLES = 40.0
"""Of a block's synchronisation beside its memory's latency."""

DEPENDENT_CYCLES = 4.0
"""Between an instruction and one that needs its result (the same on all architectures from Volta on)."""


@dataclass(frozen=True)
class Where:
    """What surrounds a task: the device, blocks per multiprocessor and in flight altogether, what L2 gives.

    l1       bytes of L1 that shared memory leaves, of one multiprocessor
    misses   by value: share of its first touch in this phase that goes to DRAM
    evicted  share of what is written that goes on to DRAM
    """

    model: DeviceModel
    resident: int
    slots: int
    l1: float
    misses: Mapping[int, float]
    evicted: float


@dataclass(frozen=True)
class Work:
    """One task, on average. Bytes between multiprocessor and L2, between L2 and DRAM; cycles; seconds.

    wavefronts    cycles of shared memory and L1
    instructions  of warps; special: those of the special function units among them
    path          seconds of a block that is alone
    """

    reads: float = 0.0
    writes: float = 0.0
    far_reads: float = 0.0
    far_writes: float = 0.0
    wavefronts: float = 0.0
    conflicts: float = 0.0
    instructions: float = 0.0
    special: float = 0.0
    path: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __mul__(self, factor: float) -> Work:
        return Work(*(getattr(self, f.name) * factor for f in fields(self)))


def kept_in_cache(model: DeviceModel, size: float) -> float:
    """Share of a working set of `size` bytes that L2 still holds when it is touched again."""
    share = size / max(1, model.target.cache_bytes)
    return min(1.0, max(0.0, (LOST - share) / (LOST - KEPT)))


def group_work(view: View, found: Accesses, where: Where) -> Work:
    """The average task of a group."""
    footprint = sum(t.task for t in found.distinct.values())
    seen: set[int] = set()
    work = Work()
    for share, touches in zip(found.shares, found.touches, strict=True):
        work += _stage_work(view, share, touches, where, footprint, seen)
        seen |= {t.value for t in touches if t.place == "far"}
    return work


def task_count(group: Group, extents: tuple[int, ...]) -> int:
    return math.prod(-(-extents[a] // tile) for a, tile in group.parallel)


def _stage_work(
    view: View, shares: Shares, touches: list[Touch], where: Where, footprint: float, seen: set[int]
) -> Work:
    model = where.model
    tasks = task_count(shares.group, view.sub.extents)
    work, wait = Work(), 0.0
    for touch in touches:
        if touch.place == "block":
            moved = Work(wavefronts=touch.cycles, conflicts=touch.cycles - touch.ideal)
            moved += Work(path=0.0 if touch.store else touch.rounds * model.block_latency)
        elif touch.store:
            moved = Work(writes=touch.moved, far_writes=where.evicted * touch.phase / tasks)
        else:
            moved = _fetched(touch, tasks, where, footprint, again=touch.value in seen)
        if touch.place == "far":
            moved += Work(wavefronts=max(touch.requests, touch.moved / 128))
        wait = max(wait, moved.path)
        work += moved
    counted = instructions(view, shares)
    busy = shares.warps * shares.awake(shares.stage.order)
    folds = folds_of(view, shares)
    work += Work(wavefronts=folds.requests)
    issued = ACCESS * (sum(t.requests for t in touches) + folds.requests) + counted.total * busy
    chains = min(4.0, max(1.0, shares.overlap * max(1, shares.stage.width)))
    # A thread waits and computes in turn; the block's threads meanwhile share issue slots and the port to L2.
    thread = wait * model.clock + counted.total * DEPENDENT_CYCLES / chains
    cycles = max(thread, issued * WARP / model.issue, (work.reads + work.writes) / PORT_BYTES) + folds.cycles
    # Of a mix of instructions about two thirds are float32, which some architectures issue at half the rate.
    slots = issued * max(1.0, model.issue / model.arithmetic * 2 / 3)
    special = counted.special * busy
    return replace(work, instructions=slots, special=special, path=cycles / model.clock)


def _fetched(touch: Touch, tasks: int, where: Where, footprint: float, *, again: bool) -> Work:
    """A task's loads of one value from device memory: bytes from L2 and of them from DRAM, and how long it waits."""
    model = where.model
    room = L1_SHARE * where.l1
    near, lost = footprint * where.resident <= room, 1 - kept_in_cache(model, footprint * where.slots)
    crossing = touch.task if near else touch.moved
    if not touch.fresh:
        # All resident blocks keep in L1 what they share, so one of them moving on is all that lies between two touches.
        once = touch.phase * model.target.processors / tasks
        if footprint <= room and once < touch.task:
            crossing = once
        if near and again:
            crossing = 0.0
    far = lost * min(touch.task, crossing) if again else _first(touch, tasks, where, lost)
    if not touch.task:
        return Work()
    passed = min(1.0, crossing / touch.task)
    deep = min(passed, far / touch.task)
    wait = deep * model.latency + (passed - deep) * model.cache_latency + (1 - passed) * model.block_latency
    return Work(reads=crossing, far_reads=far, path=touch.rounds * wait)


def _first(touch: Touch, tasks: int, where: Where, lost: float) -> float:
    """DRAM bytes of a task that touches something first.

    The phase's distinct bytes are fetched once, where L2 keeps what several tasks share.
    """
    spread = touch.phase / tasks
    shared = 1 - kept_in_cache(where.model, touch.phase)
    wasted = max(0.0, touch.task - spread) * min(lost, shared)
    return where.misses.get(touch.value, 1.0) * spread + wasted


@dataclass(frozen=True)
class Folds:
    """Folds of a stage across threads, and its synchronisation: a block's cycles, and requests to shared memory."""

    cycles: float
    requests: float


def folds_of(view: View, shares: Shares) -> Folds:
    """Partners in a warp exchange by shuffles; then what the other warps have left is read from shared memory.

    Threads of a warp that would read the same share it and exchange again. A result that is only stored is made by the
    warps that store it.
    """
    cycles = requests = 0.0
    warps = shares.group.threads / WARP
    for root in (*shares.stage.values, *shares.stage.combine):
        value = view.sub.values[root]
        if root in shares.stage.combine:
            threads, _ = part_threads(shares, view.parts.get(root, 1))
            within = min(threads, max(1, WARP // shares.sharing))
            beyond, several = threads // within, 1
        else:
            within, beyond = shares.folded(value.reduce)
            several = shares.stage.width if shares.stage.vector in value.axes else 1
        if within * beyond == 1:
            continue
        folds = max(1.0, shares.runs(frozenset(value.axes) & frozenset(shares.stage.order)))
        helpers = min(within, beyond)
        exchanges = math.log2(within) + math.log2(helpers)
        cycles += folds * exchanges * FOLD_CYCLES
        if beyond > 1:
            read = beyond // helpers
            kept = any(p in ("register", "shuffle") for (v, _), p in view.places.items() if v == root)
            split = view.parts.get(root, 1) > 1 and root in shares.stage.values
            alone = split or not (kept or root in shares.stage.combine)
            readers = max(1.0, warps / beyond) if alone else warps
            moved = several * (warps + readers * read)
            cycles += folds * (2 * SYNC_CYCLES + max(moved, several * read * DEPENDENT_CYCLES))
            requests += folds * moved
    stored = [v for v in shares.stage.values if v in view.kept and view.sub.values[v].op != "input"]
    return Folds(cycles + (SYNC_CYCLES if stored else 0.0), requests)
