"""How a CUDA kernel's blocks fit a multiprocessor: registers, shared memory, spills, before or after it is compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...kernels.cuda.build import WANTED_THREADS
from ...kernels.cuda.built import Report
from ...kernels.cuda.occupancy import MOST_REGISTERS, resident_blocks
from ...search_space.plan import Group, Kernel
from ..view import View
from .instructions import own_axes, registers
from .lanes import WORD, Shares
from .touch import Accesses


@dataclass(frozen=True)
class Fit:
    """How a kernel's blocks fit a multiprocessor.

    resident         blocks at a time
    l1               bytes of L1 that their shared memory leaves
    stored, loaded   bytes that a thread spills to local memory and takes back in a task
    """

    resident: int
    l1: float
    stored: float
    loaded: float


def fit_kernel(seen: View, kernel: Kernel, phases: Sequence[Sequence[Accesses]], report: Report | None) -> Fit:
    """How `kernel` fits, whose phases' groups touch what `phases` says; the report's registers where there is one."""
    target = seen.model.target
    threads = max(g.threads for p in kernel.phases for g in p.groups)
    shared = shared_bytes(seen, phases)
    if report is not None:
        needed, stored, loaded = report.registers, report.spill_store_bytes, report.spill_load_bytes
    else:
        found = [registers(seen, s) for phase in phases for group in phase for s in group.shares]
        kept = math.ceil(max(r.kept for r in found))
        wanted = math.ceil(max(r.kept + r.spare for r in found))
        # The build caps registers so that about WANTED_THREADS are resident, as far as what is kept allows.
        room = max(target.registers // max(threads, WANTED_THREADS), kept)
        needed = next(
            n for n in range(min(wanted, room, MOST_REGISTERS), 0, -1) if resident_blocks(target, threads, n, 0)
        )
        stored = WORD * max(0, kept - needed)
        loaded = 2 * stored
    resident = max(1, resident_blocks(target, threads, needed, int(shared)))
    return Fit(resident, max(0.0, target.l1_bytes - resident * shared), stored, loaded)


def shared_bytes(seen: View, phases: Sequence[Sequence[Accesses]]) -> float:
    """Shared memory of a block, before it is compiled: values kept there, and the scratch of folds.

    Inputs that a later phase reads too are kept throughout; other slots are used again.
    """
    blocked = {e.value for e in seen.plan.edges if e.place == "block"}
    kept, most = {}, 0.0
    for phase in phases:
        for found in phase:
            group = found.group
            values = {v for s in group.stages for v in (*s.values, *s.combine)} & blocked
            sizes = {v: _tile_bytes(seen, group, v) for v in values}
            kept.update({v: size for v, size in sizes.items() if seen.sub.values[v].is_input})
            scratch = max((_fold_bytes(seen, s) for s in found.shares), default=0.0)
            most = max(most, sum(size for v, size in sizes.items() if v not in kept) + scratch)
    return min(sum(kept.values()) + most, seen.model.target.block_bytes)


def _fold_bytes(seen: View, shares: Shares) -> float:
    """Scratch of a stage's folds across warps: what each thread has left after those within its warp."""
    most = 0.0
    for root in shares.stage.values:
        value = seen.sub.values[root]
        within, beyond = shares.folded(value.reduce)
        if beyond > 1:
            several = shares.stage.width if shares.stage.vector in value.axes else 1
            pair = value.op in ("argmax", "argmin") or root in seen.beside
            size = max(WORD, value.dtype.size) * (2 if pair else 1)
            most = max(most, shares.group.threads / within * several * size)
    return most


def _tile_bytes(seen: View, group: Group, value: int) -> float:
    tiles = dict(group.parallel)
    positions = (min(seen.sub.extents[a], tiles.get(a, seen.sub.extents[a])) for a in own_axes(seen, value))
    return max(4, seen.sub.values[value].dtype.size) * math.prod(positions)
