"""Whether a plan may run for a subgraph on a target, with reasons: one judge for search, database and runtime.

A legal plan lowers, compiles and gives the right result; anything else is a bug of ours. `check` assumes nothing
about where the plan came from: numbers out of range are refused before they are used.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..graphs.subgraph import Subgraph
from . import legality_cuda
from .chip import axes_in
from .coupling import check_pairs
from .dominants import is_reduction, live, required
from .listing import Listing, Location, locate, locations, partial_parts
from .locality import check_edges
from .plan import Group, Plan, Stage
from .refusal import Refusal
from .target import Target

MAX_STAGES = 4096
MAX_WIDTH = 256
MAX_UNROLL = 64
MAX_ACCUMULATORS = 16
MAX_SCRATCH = 1 << 32
"""Bytes of global partial results a plan may ask for."""


def check(sub: Subgraph, plan: Plan, target: Target) -> tuple[Refusal, ...]:
    """Every reason why `plan` is not legal for `sub` on `target`; empty when it is legal.

    Codes are listed in docs/plans.md. Problems of form hide problems of locality, which need a well-formed plan.
    """
    cuda = target.kind == "cuda"
    form = tuple(_form(sub, plan, target))
    if cuda and not form:
        form = tuple(legality_cuda.check_form(sub, plan))
    if form:
        return form
    listing = locate(sub, plan)
    found = list(_listing(sub, plan, listing))
    found.extend(check_pairs(sub, plan, listing, cuda=cuda))
    if found:
        return tuple(found)
    found.extend(check_edges(sub, plan, listing, cuda=cuda))
    if cuda and not found:
        found.extend(legality_cuda.check_memory(sub, plan, target, listing))
    found.extend(_memory(sub, plan, target, listing))
    return tuple(found)


def _form(sub: Subgraph, plan: Plan, target: Target) -> Iterator[Refusal]:
    """Numbers in range, loops that cover what they should."""
    count = sum(1 for _ in locations(plan))
    if count > MAX_STAGES:
        yield Refusal("too-large", f"{count} stages; {MAX_STAGES} at most")
        return
    axes = range(len(sub.extents))
    computed = frozenset(sub.computed)
    sources = computed | frozenset(sub.inputs) if target.kind == "cuda" else computed
    for kernel in plan.kernels:
        if not kernel.phases or any(not p.groups or any(not g.stages for g in p.groups) for p in kernel.phases):
            yield Refusal("empty", "a kernel without phases, a phase without groups or a group without stages")
    seen: set[int] = set()
    for at, group, stage in locations(plan):
        yield from _group_form(sub, group, target)
        for value in (*stage.values, *stage.combine):
            if value not in (sources if value in stage.values else computed):
                yield Refusal("not-computed", f"stage {at} lists v{value}, which is not a computed value")
                return
        for value in stage.values:
            if value in seen:
                yield Refusal("listed-twice", f"v{value} is computed in two stages")
            seen.add(value)
        if len(set(stage.order)) != len(stage.order) or any(a not in axes for a in stage.order):
            yield Refusal("loop-order", f"stage {at} has an unknown or repeated axis in its loop order")
            return
        yield from _stage_form(sub, plan, at, stage, target)
        yield from _lanes(sub, plan, at, stage)
    for edge in plan.edges:
        if edge.value not in sources or edge.consumer not in computed:
            yield Refusal("not-computed", f"edge v{edge.value} -> v{edge.consumer} names a value that is not computed")
    for reduction in plan.reductions:
        known = reduction.value in computed and is_reduction(sub, reduction.value)
        if not known or not 1 <= reduction.accumulators <= MAX_ACCUMULATORS:
            yield Refusal("reduction-form", f"v{reduction.value}: not a reduction, or accumulators out of range")
        if reduction.coupled != -1 and (reduction.coupled not in computed or not is_reduction(sub, reduction.coupled)):
            yield Refusal("reduction-form", f"v{reduction.value} is coupled to something that is not a reduction")
    for buffer in plan.buffers:
        if buffer.value not in sources or not 0 <= buffer.pad <= 64:
            yield Refusal("buffer-form", f"buffer of v{buffer.value}: unknown value or padding out of range")
        elif sorted(buffer.order) != sorted(axes_in(sub, plan, buffer.value)):
            yield Refusal("buffer-form", f"buffer of v{buffer.value} orders other axes than the value has")
    if any(v not in sub.outputs for v in plan.stream):
        yield Refusal("stream", "a value that is no output is to be stored past the caches")
    if any(a not in axes for a in plan.dynamic):
        yield Refusal("dynamic", "an unknown axis is to be an argument")


def _group_form(sub: Subgraph, group: Group, target: Target) -> Iterator[Refusal]:
    names = [a for a, _ in group.parallel]
    if len(set(names)) != len(names) or any(not 0 <= a < len(sub.extents) for a in names):
        yield Refusal("parallel-axes", "an unknown or repeated parallel axis")
        return
    for axis, tile in group.parallel:
        if not 1 <= tile <= max(1, sub.extents[axis]):
            yield Refusal("tile", f"tile {tile} of axis a{axis}, whose extent is {sub.extents[axis]}")
    if not 1 <= group.tasks_per_block <= 1 << 16:
        yield Refusal("tasks-per-block", f"{group.tasks_per_block} tasks per block")
    if target.kind == "cpu" and (group.threads != 1 or any(stage.lanes for stage in group.stages)):
        yield Refusal("threads", "a block is one thread on the CPU")
    elif not 1 <= group.threads <= 1024:
        yield Refusal("threads", f"{group.threads} threads per block")


def _stage_form(sub: Subgraph, plan: Plan, at: Location, stage: Stage, target: Target) -> Iterator[Refusal]:
    order = set(stage.order)
    needed: set[int] = set()
    for value in stage.values:
        needed |= set(axes_in(sub, plan, value)) | set(sub.values[value].reduce)
    for value in stage.combine:
        needed |= set(sub.values[value].axes)
    if not stage.values and not stage.combine:
        yield Refusal("empty", f"stage {at} computes nothing")
    if needed != order:
        yield Refusal("loop-order", f"stage {at} loops over {sorted(order)}, its values over {sorted(needed)}")
        return
    if target.kind == "cuda":
        if stage.vector != -1 and stage.vector not in stage.order:
            yield Refusal("vector", f"the vector axis of stage {at} is none of its loops")
    elif stage.vector != -1 and (not stage.order or stage.order[-1] != stage.vector):
        yield Refusal("vector", f"the vector axis of stage {at} is not its innermost loop")
    if not 1 <= stage.width <= MAX_WIDTH:
        yield Refusal("vector", f"vector width {stage.width} of stage {at}")
    for axis, factor in stage.unroll:
        own = axis in order and (axis != stage.vector or target.kind == "cuda")
        if not own or not 1 <= factor <= MAX_UNROLL:
            yield Refusal("unroll", f"axis a{axis} by {factor} in stage {at}")
    for value in stage.values:
        domain = set(sub.values[value].domain)
        if sub.values[value].reduce or is_reduction(sub, value):
            depth = max((stage.order.index(a) + 1 for a in domain), default=0)
            if not set(stage.order[:depth]) <= domain:
                yield Refusal("foreign-loop", f"reduction v{value} would run once for every step of a loop it lacks")


def _lanes(sub: Subgraph, plan: Plan, at: Location, stage: Stage) -> Iterator[Refusal]:
    """Lanes are folded in halves, so there must be a power of two of them."""
    reduced = [v for v in stage.values if stage.vector in sub.values[v].reduce]
    lanes = stage.width * max((plan.reduction(v).accumulators for v in reduced), default=1)
    if reduced and lanes & (lanes - 1):
        yield Refusal("lanes", f"stage {at} reduces in {lanes} lanes, which is no power of two")


def _listing(sub: Subgraph, plan: Plan, listing: Listing) -> Iterator[Refusal]:
    """Everything that must be computed is, and partial results are combined after a barrier."""
    for value in required(sub):
        if value not in listing.values:
            yield Refusal("missing", f"v{value} is computed by no stage")
    alive = live(sub)
    for value in listing.values:
        if value not in alive and not sub.values[value].is_input:
            yield Refusal("dead-value", f"v{value} is computed but nothing needs it")
    for value, places in listing.combines.items():
        if value not in listing.values or not listing.is_partial(value):
            yield Refusal("combine", f"v{value} has no partial results to combine")
            continue
        for at in places:
            if not listing.values[value].before(at):
                yield Refusal("combine", f"v{value} is combined before a barrier has made its parts visible")
        keys = [at.group_key for at in places]
        if len(set(keys)) != len(keys):
            yield Refusal("combine", f"v{value} is combined twice in one group")
    for value in listing.values:
        if listing.is_partial(value) and value not in listing.combines:
            yield Refusal("combine", f"the partial results of v{value} are never combined")
    yield from _idle(sub, plan)


def _idle(sub: Subgraph, plan: Plan) -> Iterator[Refusal]:
    """A group that shares out an empty axis has no tasks, so nobody would store what lacks that axis."""
    stored = {*sub.outputs, *(e.value for e in plan.edges if e.place in ("global", "alias"))}
    for _, group, stage in locations(plan):
        empty = {a for a, _ in group.parallel if not sub.extents[a]}
        made = [(v, empty - set(sub.values[v].domain)) for v in stage.values if v in stored]
        made += [(v, empty - set(sub.values[v].axes)) for v in stage.combine if v in stored]
        for value, lacking in made:
            if lacking and sub.elements(value):
                yield Refusal("parallel-axes", f"no task stores v{value}, which lacks the empty axis a{min(lacking)}")


def _memory(sub: Subgraph, plan: Plan, target: Target, listing: Listing) -> Iterator[Refusal]:
    if target.kind == "cpu":
        yield from _block_memory(sub, plan, target, listing)
    scratch = sum(partial_parts(sub, listing, v) * sub.elements(v) * 8 for v in listing.combines)
    if scratch > MAX_SCRATCH:
        yield Refusal("scratch", f"{scratch} bytes of partial results; {MAX_SCRATCH} at most")


def _block_memory(sub: Subgraph, plan: Plan, target: Target, listing: Listing) -> Iterator[Refusal]:
    stored = {e.value for e in plan.edges if e.place == "block"}
    used: dict[tuple[int, int, int], int] = {}
    for at, group, stage in locations(plan):
        tiles = dict(group.parallel)
        for value in (*stage.values, *stage.combine):
            partial = value in listing.combines and value in stage.values
            if value not in stored or partial:
                continue
            size = sub.values[value].dtype.size
            for axis in sub.values[value].axes:
                size *= max(1, min(tiles.get(axis, sub.extents[axis]), sub.extents[axis]))
            used[at.group_key] = used.get(at.group_key, 0) + size
    for key, size in used.items():
        if size > target.block_bytes:
            yield Refusal("block-memory", f"group {key} needs {size} bytes per task; {target.block_bytes} at most")
