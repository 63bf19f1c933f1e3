"""Which schemes, mappings, reuse levels and accesses a CUDA plan uses: read off the plan, confirmed by its programs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.loops import (
    Apply,
    Array,
    Declare,
    For,
    GroupProgram,
    LoadPack,
    LoopKernel,
    StorePack,
    Sync,
    statements,
)
from stitchtune.search_space.listing import Listing, Location, locate, locations, partial_parts
from stitchtune.search_space.plan import Group, Plan, Stage

from tests.differential.marks import Mark, expressions, schemes

WARP = 32
PACKS = (2, 4, 8, 16)

REUSE = (
    "recompute",
    "register",
    "register across stages",
    "shuffle",
    "shuffle within a stage",
    "block",
    "block across phases",
    "global",
    "alias",
)
MAPPINGS = (
    "thread per row",
    "part of a warp per row",
    "warp per row",
    "block per row",
    "column",
    "packed",
    "split",
    "vertical",
    "unrolling",
    "dynamic extents",
    "one block",
    "several kernels",
    "tile that does not divide",
    "padded buffer",
    "softmax in one pass",
    "moments in one pass",
    "softmax in one pass, split",
    "moments in one pass, split",
)
EVERY_CUDA_MARK: tuple[Mark, ...] = (
    *(("scheme", s) for s in ("independent", "local", "regional", "global")),
    *(("mapping", m) for m in MAPPINGS),
    *(("reuse level", r) for r in REUSE),
    *(("dtype", d.value) for d in DType),
    *(("vector width", f"{w}") for w in (1, 2, 4, 8)),
    *(("pack of bytes", f"{n}") for n in PACKS),
    ("length", "prime"),
    ("length", "right tail"),
    ("base", "misaligned"),
    ("index", "64 bits"),
    ("phase", "two or more"),
)


def cuda_marks(sub: Subgraph, plan: Plan, kernels: Sequence[LoopKernel]) -> set[Mark]:
    """Everything of EVERY_CUDA_MARK that the plan and its programs show, but for the base of its buffers."""
    found = {("scheme", s) for s in schemes(plan, kernels)}
    found |= {("reuse level", r) for r in _reuse(sub, plan, kernels)}
    found |= {("dtype", sub.values[v].dtype.value) for v in sub.computed}
    listing = locate(sub, plan)
    for at, group, stage in locations(plan):
        program = kernels[at.kernel].phases[at.phase].groups[at.group]
        found |= {("mapping", m) for m in _mappings(sub, listing, at, group, stage, program)}
        found |= set(_lengths(sub, group, stage, program))
    found |= {("mapping", m) for m in _of_kernels(plan, kernels)}
    for program in programs(kernels):
        found |= set(_packs(program, kernels))
    if any(k.index_bits == 64 for k in kernels):
        found.add(("index", "64 bits"))
    if any(len(k.phases) > 1 for k in kernels):
        found.add(("phase", "two or more"))
    return found


def programs(kernels: Sequence[LoopKernel]) -> Iterator[GroupProgram]:
    for kernel in kernels:
        for phase in kernel.phases:
            yield from phase.groups


def _reuse(sub: Subgraph, plan: Plan, kernels: Sequence[LoopKernel]) -> Iterator[str]:
    listing = locate(sub, plan)
    inlined: dict[int, set[int]] = {}
    for edge in plan.edges:
        if edge.place == "inline":
            inlined.setdefault(edge.value, set()).add(edge.consumer)
    if any(len(readers) > 1 for readers in inlined.values()):
        yield "recompute"
    for edge in plan.edges:
        home = listing.values.get(edge.value)
        if home is None:
            continue
        kernel = kernels[home.kernel]
        program = kernel.phases[home.phase].groups[home.group]
        readers = list(_evaluated(edge.consumer, listing, inlined))
        if edge.place == "register" and _folded(sub, listing.stage(home), edge.value) and _shuffles(program):
            yield "shuffle"
        match edge.place:
            case "register" if any(home != r for r in readers):
                if any(isinstance(s, Declare) for s in statements(program.body)):
                    yield "register across stages"
            case "register":
                yield "register"
            case "shuffle" if _shuffles(program):
                yield "shuffle"
                yield "shuffle within a stage"
            case "block" if kernel.resident and any(home.phase != r.phase for r in readers):
                yield "block across phases"
            case "block" if any(a.space == "block" for a in program.arrays):
                yield "block"
            case "global" if kernel.scratch or edge.value in sub.outputs:
                yield "global"
            case "alias":
                yield "alias"


def _folded(sub: Subgraph, stage: Stage, value: int) -> bool:
    """A reduction across threads, after which all of them hold the result."""
    return any(axis in sub.values[value].reduce and n > 1 for axis, n in stage.lanes)


def _evaluated(value: int, listing: Listing, inlined: Mapping[int, set[int]]) -> Iterator[Location]:
    """The stages that evaluate a value: its own, or those of the values that it is inlined into."""
    if value in listing.values:
        yield listing.values[value]
    else:
        for consumer in inlined.get(value, ()):
            yield from _evaluated(consumer, listing, inlined)


def _mappings(
    sub: Subgraph, listing: Listing, at: Location, group: Group, stage: Stage, program: GroupProgram
) -> Iterator[str]:
    lanes = dict(stage.lanes)
    for value in stage.values:
        reduced = sub.values[value].reduce
        if reduced:
            across = math.prod(lanes.get(a, 1) for a in reduced)
            fastest = stage.lanes[-1][0] if stage.lanes else -1
            if across == 1 and lanes:
                yield "thread per row"
            elif across > 1 and fastest not in reduced and fastest in sub.values[value].axes:
                yield "column"
            elif across == group.threads > WARP and any(isinstance(s, Sync) for s in statements(program.body)):
                yield "block per row"
            elif across == WARP and _shuffles(program):
                yield "warp per row"
            elif 1 < across < WARP and _shuffles(program):
                yield "part of a warp per row"
            if listing.is_partial(value) and partial_parts(sub, listing, value) > 1:
                yield "split"
        coupled = listing.plan.reduction(value).coupled
        if coupled >= 0:
            name = "softmax" if sub.values[coupled].op == "max" else "moments"
            yield f"{name} in one pass"
            if listing.is_partial(value) and partial_parts(sub, listing, value) > 1:
                yield f"{name} in one pass, split"
    every = {a for v in stage.values for a in sub.values[v].reduce}
    for axis, tile in group.parallel:
        rows = axis not in every and axis in stage.order
        if rows and tile > 1 and axis != stage.vector and every & set(stage.order):
            yield "packed"
        if sub.extents[axis] % tile:
            yield "tile that does not divide"
    if any(f > 1 for _, f in stage.unroll) and any(
        isinstance(s, For) and s.unroll > 1 for s in statements(program.body)
    ):
        yield "unrolling"


def _of_kernels(plan: Plan, kernels: Sequence[LoopKernel]) -> Iterator[str]:
    if len(kernels) > 1:
        yield "several kernels"
    if plan.dynamic:
        yield "dynamic extents"
    if any(not k.team for k in kernels):
        yield "one block"
    if any(p.tasks_per_block > 1 for p in programs(kernels)):
        yield "vertical"
    if any(b.pad for b in plan.buffers):
        yield "padded buffer"


def _lengths(sub: Subgraph, group: Group, stage: Stage, program: GroupProgram) -> Iterator[Mark]:
    """Widths, and what of a row is no multiple of them."""
    tiles = dict(group.parallel)
    packed = any(isinstance(s, LoadPack | StorePack) for s in statements(program.body))
    yield "vector width", str(stage.width if stage.vector >= 0 and packed else 1)
    if stage.vector >= 0 and stage.width > 1 and packed:
        length = tiles.get(stage.vector, sub.extents[stage.vector])
        if length % stage.width or sub.extents[stage.vector] % length % stage.width:
            yield "length", "right tail"
    if any(n > 1 and _prime(sub.extents[a]) for a, n in stage.lanes):
        yield "length", "prime"


def _prime(number: int) -> bool:
    """A prime from 7 on: no width and no number of lanes divides it."""
    return number >= 7 and all(number % d for d in range(2, math.isqrt(number) + 1))


def _packs(program: GroupProgram, kernels: Sequence[LoopKernel]) -> Iterator[Mark]:
    """Bytes of the accesses that packs fall into."""
    arrays: dict[str, Array] = {a.name: a for k in kernels for a in (*k.buffers, *k.scratch)}
    arrays |= {a.name: a for a in program.arrays}
    for statement in statements(program.body):
        if isinstance(statement, LoadPack | StorePack):
            size = arrays[statement.array].dtype.size
            most = min(16, size * math.gcd(statement.align, statement.width))
            yield "pack of bytes", str(1 << (most.bit_length() - 1))


def _shuffles(program: GroupProgram) -> bool:
    return any(isinstance(e, Apply) and e.op == "shuffle_xor" for e in expressions(program))
