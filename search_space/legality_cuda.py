"""What a CUDA plan must keep beside the rules of every plan: threads, lanes, folds, loaded inputs, memory on chip."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ..graphs.subgraph import Subgraph
from .chip import axes_in, loads_itself
from .coupling import pairs
from .listing import Listing, Location, locations
from .loading import loaded_axes
from .plan import Buffer, Group, Kernel, Plan, Stage
from .refusal import Refusal
from .registers import MAX_HELD, busy, held
from .residency import sites
from .shared_memory import fold_bytes, tile_bytes
from .target import MOST_BLOCKS, MOST_THREADS, WARP, Target

MOST_WIDTH = 16


def check_form(sub: Subgraph, plan: Plan) -> Iterator[Refusal]:
    """Threads and lanes in range, folds that come out even, inputs that can be loaded once."""
    if plan.stream:
        yield Refusal("stream", "CUDA has no stores past the caches")
    for kernel in plan.kernels:
        counts = {g.threads for p in kernel.phases for g in p.groups}
        if len(counts) != 1:
            yield Refusal("threads", f"groups of one kernel have {sorted(counts)} threads")
        for phase in kernel.phases:
            if virtual_blocks(sub, *phase.groups) > MOST_BLOCKS:
                yield Refusal("grid", "a phase has more blocks of tasks than a grid can count")
    for at, group, stage in locations(plan):
        if group.threads % WARP or not WARP <= group.threads <= MOST_THREADS:
            yield Refusal("threads", f"{group.threads} threads are no whole warps, or more than {MOST_THREADS}")
            return
        yield from _lanes_form(sub, at, group, stage)
        for value in stage.values:
            if sub.values[value].is_input and loaded_axes(sub, plan, value) is None:
                yield Refusal("load", f"v{value}: nobody reads it loaded, or not all readers at their own positions")
                return


def _lanes_form(sub: Subgraph, at: Location, group: Group, stage: Stage) -> Iterator[Refusal]:
    name = f"stage {at}"
    axes = [a for a, _ in stage.lanes]
    if len(set(axes)) != len(axes) or not set(axes) <= set(stage.order):
        yield Refusal("lanes", f"{name} gives threads to axes that are none of its loops, or twice")
        return
    if any(not 1 <= n <= group.threads for _, n in stage.lanes) or busy(stage) > group.threads:
        yield Refusal("lanes", f"{name} needs {busy(stage)} threads of a block of {group.threads}")
        return
    if stage.width > MOST_WIDTH or stage.width & (stage.width - 1) or (stage.width > 1 and stage.vector < 0):
        yield Refusal("vector", f"width {stage.width} of {name}")
    shared = {a for a, n in stage.lanes if n > 1}
    folded = [v for v in stage.values if shared & set(sub.values[v].reduce)]
    if folded and (busy(stage) != group.threads or any(n & (n - 1) for _, n in stage.lanes)):
        yield Refusal("lanes", f"{name} folds v{folded[0]} across threads that are not all, or no powers of two")
    for value in stage.values:
        last = max((stage.order.index(a) for a in sub.values[value].axes if a in stage.order), default=-1)
        if any(a in stage.order and stage.order.index(a) < last for a in sub.values[value].reduce):
            yield Refusal("accumulators", f"{name} reduces v{value} outside a loop over its own axes")


def virtual_blocks(sub: Subgraph, *groups: Group) -> int:
    """Blocks that the tasks of some groups fill, `tasks_per_block` each."""
    total = 0
    for group in groups:
        tasks = math.prod(-(-sub.extents[a] // tile) for a, tile in group.parallel)
        total += -(-tasks // group.tasks_per_block)
    return total


def trips(sub: Subgraph, group: Group) -> dict[int, int]:
    """Positions along every axis that a task of the group covers, at least 1."""
    tiles = dict(group.parallel)
    return {a: max(1, min(tiles.get(a, extent), extent)) for a, extent in enumerate(sub.extents)}


def check_memory(sub: Subgraph, plan: Plan, target: Target, listing: Listing) -> Iterator[Refusal]:
    """Registers, shared memory and resident blocks."""
    kept, crossing = _between_stages(sub, plan, listing)
    for number, kernel in enumerate(plan.kernels):
        here = {v for v in crossing if listing.values[v].kernel == number}
        resident = sum(_bytes(sub, plan, listing.group(listing.values[v]), v) for v in here)
        most = 0
        for p, phase in enumerate(kernel.phases):
            for g, group in enumerate(phase.groups):
                key = (number, p, g)
                most = max(most, _group_bytes(sub, plan, listing, group, here))
                yield from _registers(
                    sub, plan, target, listing, group, {v for v in kept if listing.values[v].group_key == key}
                )
        if resident + most > target.block_bytes:
            yield Refusal(
                "block-memory", f"kernel {number} needs {resident + most} bytes a block; {target.block_bytes} at most"
            )
        if here:
            yield from _resident(sub, kernel, number, target)


def _resident(sub: Subgraph, kernel: Kernel, number: int, target: Target) -> Iterator[Refusal]:
    if any(g.tasks_per_block > 1 for p in kernel.phases for g in p.groups):
        yield Refusal(
            "resident", f"kernel {number}: blocks that keep their tasks from phase to phase take one at a time"
        )
    blocks = max(virtual_blocks(sub, *phase.groups) for phase in kernel.phases)
    if blocks > 1 and not kernel.team:
        yield Refusal("resident", f"kernel {number}: one block cannot keep the tasks of {blocks}")
    if blocks > target.processors:
        yield Refusal("resident", f"kernel {number}: {blocks} blocks keep tasks on {target.processors} multiprocessors")


def _bytes(sub: Subgraph, plan: Plan, group: Group, value: int) -> int:
    layout = next((b for b in plan.buffers if b.value == value), Buffer(value, axes_in(sub, plan, value)))
    return tile_bytes(sub, value, layout.order, trips(sub, group).__getitem__, layout.pad)


def _group_bytes(sub: Subgraph, plan: Plan, listing: Listing, group: Group, crossing: set[int]) -> int:
    stored = {e.value for e in plan.edges if e.place == "block"} - crossing
    total = 0
    for stage in group.stages:
        for value in (*stage.values, *stage.combine):
            partial = value in stage.values and value in listing.combines
            if value in stored and not partial:
                total += _bytes(sub, plan, group, value)
    coupled = frozenset(v for pair in pairs(plan).items() for v in pair)
    return total + fold_bytes(sub, group.threads, ((s, s.values) for s in group.stages), coupled)


def _registers(
    sub: Subgraph, plan: Plan, target: Target, listing: Listing, group: Group, kept: set[int]
) -> Iterator[Refusal]:
    """How much a thread holds of what later stages read from registers."""
    words = 0
    for value in sorted(kept):
        size = held(listing.stage(listing.values[value]), axes_in(sub, plan, value), trips(sub, group).__getitem__)
        if size > MAX_HELD:
            yield Refusal("registers", f"a thread would hold {size} elements of v{value}; {MAX_HELD} at most")
        words += size * max(1, sub.values[value].dtype.size // 4)
    if words * group.threads > target.registers:
        yield Refusal("registers", f"{words} words kept by each of {group.threads} threads are too many")


def _between_stages(sub: Subgraph, plan: Plan, listing: Listing) -> tuple[frozenset[int], frozenset[int]]:
    """Values that a later stage of their group reads from registers, and those that a later phase reads from block
    memory."""
    places = {(e.value, e.consumer): e.place for e in plan.edges}
    kept: set[int] = set()
    crossing: set[int] = set()
    for (value, consumer), accesses in sites(sub, listing.values, plan.edges).items():
        place = places.get((value, consumer))
        for access in accesses:
            home, at = listing.values.get(value), listing.values[access.root]
            if home is None or home == at or loads_itself(sub, plan, access):
                continue
            if place in ("register", "shuffle"):
                kept.add(value)
            elif place == "block" and home.group_key != at.group_key and not listing.is_partial(value):
                crossing.add(value)
    return frozenset(kept), frozenset(crossing)
