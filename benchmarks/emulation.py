"""A subject of the suite on the CUDA emulator: whether its plan is right, and what it moves, with the reasons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graphs.partition import Component
from ..graphs.subgraph import Subgraph
from ..graphs.tolerance import compare, expect
from ..kernels.compile import BuildFailure
from ..kernels.cuda.built import BuiltCuda
from ..kernels.cuda.emulator import emulate
from ..kernels.cuda.emulator import findings as counts
from ..kernels.lower import LoweringError
from ..search_space.describe import schemes
from ..search_space.plan import Plan
from ..search_space.stitch import heuristic
from ..search_space.target import Target
from .suite.subject import Fit, Sizes, Subject, component, inputs

FITS, ELSEWHERE = 1.05, 1.55
"""The most that a plan should move, over the least possible: where a row stays on chip, and where it cannot."""

SECTOR = 32
"""Bytes that device memory moves at least."""

NOTABLE = 0.005
"""Share of the least bytes from which a buffer's excess is told."""


@dataclass(frozen=True)
class Traffic:
    """What a subject's plan moves on a target; bytes and counts of one run.

    fits         what lets every input be read once
    least        C: each input once, each output once
    moved        U: bytes of the distinct sectors that are read, plus those written, summed over phases
    blocks       B: the same, distinct within one block only, summed over blocks
    useful       bytes that warps ask for, over the sectors of each request: how coalesced they are
    touched      bytes that are touched at all, over `moved`
    requests     accesses of warps to device memory
    wavefronts   of block memory, beyond the least possible: bank conflicts
    problem      what is wrong with the results or the run; "" when nothing is
    again        buffers that are read more than once, or of whose sectors only a part is used, and why
    """

    name: str
    dtype: str
    sizes: Sizes
    cut: str
    fits: Fit
    least: int
    moved: int
    blocks: int
    useful: float
    touched: float
    requests: int
    wavefronts: int
    kernels: int
    phases: int
    scheme: str
    problem: str
    again: tuple[str, ...]

    @property
    def ratio(self) -> float:
        return self.moved / self.least

    @property
    def limit(self) -> float:
        return ELSEWHERE if self.fits == "no" else FITS

    @property
    def least_useful(self) -> float:
        """The share of useful bytes that there should be: less where rows end within a sector."""
        return 0.95 if self.sizes[-1] * _size(self.dtype) % SECTOR == 0 else 0.90

    @property
    def is_exception(self) -> bool:
        return self.ratio > self.limit or self.useful < self.least_useful or bool(self.problem)


def measure(subject: Subject, sizes: Sizes, target: Target, cache: Path) -> Traffic:
    """The heuristic plan of a subject at `sizes`, run once by the emulator. What goes wrong is told in the result."""
    graph = subject.graph(sizes)
    part = component(graph)
    sub = part.subgraph
    plan = heuristic(sub, target)
    built = _built(sub, plan, target, cache)
    counted: tuple[counts.Counters, ...] = ()
    fits = subject.fits(sizes, target)
    if isinstance(built, BuildFailure):
        problem = built.message
    else:
        given = inputs(subject, graph)
        outputs = [np.zeros(sub.shape(v), sub.values[v].dtype.numpy) for v in sub.outputs]
        ran = emulate.run(built, given, outputs, count=True)
        counted = ran.counters
        problem = _problem(built, given, outputs, ran)
    total = sum((p.total for c in counted for p in c.phases), counts.Traffic())
    return Traffic(
        name=subject.name,
        dtype=subject.dtype.value,
        sizes=sizes,
        cut=subject.cut if sizes == subject.small else "",
        fits=fits,
        least=sub.bytes_min,
        moved=total.sectors * SECTOR,
        blocks=total.block_sectors * SECTOR,
        useful=total.request_bytes / max(1, total.request_sectors * SECTOR),
        touched=total.bytes / max(1, total.sectors * SECTOR),
        requests=total.requests,
        wavefronts=sum(p.conflicts for c in counted for p in c.phases),
        kernels=len(plan.kernels),
        phases=sum(len(k.phases) for k in plan.kernels),
        scheme=_scheme(plan),
        problem=problem,
        again=tuple(_again(part, built, counted, fits)) if isinstance(built, BuiltCuda) else (),
    )


def _built(sub: Subgraph, plan: Plan, target: Target, cache: Path) -> BuiltCuda | BuildFailure:
    try:
        [built] = emulate.build_emulated([(sub, plan)], target, cache=cache)
    except LoweringError as error:
        return BuildFailure("lowering", f"does not lower: {error}")
    return built


def _size(dtype: str) -> int:
    return int(np.dtype({"f32": "f4", "f16": "f2"}[dtype]).itemsize)


def _scheme(plan: Plan) -> str:
    used = [name for name, count in schemes(plan).items() if count]
    return "+".join(used) or "local"


def _problem(
    built: BuiltCuda, given: Sequence[NDArray[Any]], outputs: list[NDArray[Any]], ran: emulate.Emulation
) -> str:
    if ran.findings:
        first = ran.findings[0]
        return f"{len(ran.findings)} findings, the first: {first.kind} in {first.kernel}, {first.where}"
    result = compare(expect(built.sub, given), outputs)
    return "" if result.ok else f"wrong: {result.message}"


def _again(part: Component, built: BuiltCuda, counters: Sequence[counts.Counters], fits: Fit) -> Iterator[str]:
    """What is moved beyond the least, buffer by buffer, and why; nothing of buffers that hardly matter."""
    sub = built.sub
    names = (*part.inputs, *part.outputs, *(a.name for a in built.scratch))
    sizes = (*(sub.bytes(v) for v in (*sub.inputs, *sub.outputs)), *built.scratch_bytes)
    kept = {e.value for e in built.plan.edges if sub.values[e.value].is_input}
    last = len(sub.inputs) + len(sub.outputs)
    for position, (name, size) in enumerate(zip(names, sizes, strict=True)):
        touches = [b for c in counters for p in c.phases for b in p.buffers if b.position == position]
        reads = [b.reads.sectors * SECTOR for b in touches if b.reads.sectors]
        writes = [b.writes.sectors * SECTOR for b in touches if b.writes.sectors]
        extra = sum(reads) + sum(writes) - (size if position < last else 0)
        if extra <= NOTABLE * sub.bytes_min:
            continue
        what = f"{name}: {sum(reads):,} bytes read in {len(reads)} phases, {sum(writes):,} written, of {size:,}"
        if position >= last:
            why = "passed through memory between phases"
        elif position >= len(sub.inputs):
            why = "read back by a later phase" if reads else "written more than once"
        elif len(reads) < 2:
            why = "sectors that are only used in part"
        elif fits == "no":
            why = "its rows do not fit on chip"
            if len(reads) > 2:
                why += ", and reductions of split rows share no pass"
        else:
            why = "kept, but not for every phase" if sub.inputs[position] in kept else "no stage keeps it across phases"
        yield f"{what} ({why})"
    total = sum(
        b.reads.request_sectors + b.writes.request_sectors for c in counters for p in c.phases for b in p.buffers
    )
    for position, (name, array) in enumerate(zip(names, (*built.kernels[0].buffers, *built.scratch), strict=True)):
        touches = [b for c in counters for p in c.phases for b in p.buffers if b.position == position]
        asked = sum((t for b in touches for t in (b.reads, b.writes)), counts.Traffic())
        if asked.request_sectors * SECTOR - asked.request_bytes <= NOTABLE * total * SECTOR:
            continue
        alone = asked.request_bytes == asked.requests * array.dtype.size
        why = "one element for a whole warp" if alone else "requests that begin or end within a sector"
        moved = asked.request_sectors * SECTOR
        yield f"{name}: warps use {asked.request_bytes:,} of {moved:,} bytes of sectors ({why})"
