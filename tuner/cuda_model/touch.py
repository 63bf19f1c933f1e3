"""Which memory a CUDA task touches: sectors, requests of warps, cycles of shared memory, all counted from the plan.

The CUDA emulator counts the same from the kernel's own accesses; a test compares them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ...graphs.subgraph import AxisVar, Index, Subgraph, axes_of
from ...search_space.plan import Group
from ...search_space.target import WARP
from ..view import View, unit_axis
from .instructions import own_axes, shares_of, weighed
from .lanes import SECTOR, Layout, Shares, request, row_major

FEW_PARTS, PARTS_UNROLLED = 8, 8
"""Partial results that one thread combines, beyond which others share them, and how many it loads at a time
(kernels/lower/threads/combine.py)."""


@dataclass(frozen=True)
class Touch:
    """One access of a task to memory.

    task     bytes of distinct sectors
    moved    bytes of sectors that requests move, those of other warps for the same not counted again
    phase    distinct bytes of all tasks
    rounds   how often a thread waits for it
    place    "far" (device memory), "block" (shared memory)
    fresh    written by this plan: read past L1
    partial  of the partial results of a split reduction, not of the value itself
    requests, cycles   of warps, and of shared memory; ideal: cycles without bank conflicts
    """

    value: int
    index: tuple[Index, ...]
    place: str
    store: bool
    task: float
    moved: float
    phase: float
    rounds: float
    requests: float
    cycles: float
    ideal: float
    fresh: bool
    partial: bool = False

    @property
    def part(self) -> tuple[int, tuple[Index, ...], bool]:
        """Which part of which array it is."""
        return self.value, self.index, self.partial


@dataclass(frozen=True)
class Accesses:
    """A group with the touches of its stages."""

    group: Group
    shares: list[Shares]
    touches: list[list[Touch]]

    @property
    def distinct(self) -> dict[tuple[int, tuple[Index, ...], bool], Touch]:
        """One touch of each part of device memory."""
        return {t.part: t for stage in self.touches for t in stage if t.place == "far"}


def accesses(view: View, group: Group) -> Accesses:
    shares = shares_of(view, group)
    return Accesses(group, shares, [list(_touches(view, s)) for s in shares])


def _touches(view: View, shares: Shares) -> Iterator[Touch]:
    sub, stage = view.sub, shares.stage
    done: set[tuple[int, tuple[Index, ...], str]] = set()
    for root in stage.values:
        if sub.values[root].op == "input":
            index = tuple(AxisVar(a) for a in own_axes(view, root))
            yield _touch(view, shares, root, index, "far", store=False)
            if any(e.value == root and e.place == "block" for e in view.plan.edges):
                yield _touch(view, shares, root, index, "block", store=True)
            continue
        for access, share, executed in weighed(view, shares, root):
            source = sub.values[access.value]
            place = view.places.get((access.value, access.reader), "far")
            if source.op == "const" or place in ("inline", "register", "shuffle", "alias"):
                continue
            level = "block" if place == "block" else "far"
            if (access.value, access.index, level) not in done:
                # Values of one stage share its loops, and what they load.
                done.add((access.value, access.index, level))
                touch = _touch(view, shares, access.value, access.index, level, store=False)
                yield _scaled(touch, share, executed)
        yield from _stores(view, shares, root)
    for root in stage.combine:
        index = tuple(AxisVar(a) for a in sub.values[root].axes)
        parts = view.parts.get(root, 1)
        yield _combined(shares, _touch(view, shares, root, index, "far", store=False), parts)
        yield from _stores(view, shares, root)


def _scaled(touch: Touch, share: float, executed: float) -> Touch:
    """A touch that happens at a share of the points only; `executed`: at how many of them warps ask."""
    if share == executed == 1.0:
        return touch
    return replace(
        touch,
        task=touch.task * share,
        moved=touch.moved * share,
        phase=touch.phase * share,
        requests=touch.requests * executed,
        cycles=touch.cycles * executed,
        ideal=touch.ideal * executed,
    )


def part_threads(shares: Shares, parts: int) -> tuple[int, int]:
    """Threads that share the partial results of one element, and all that take part: of a warp while those suffice."""
    busy = shares.sharing
    if parts < FEW_PARTS or busy & (busy - 1):
        return 1, busy
    whole = WARP if busy < WARP and parts <= FEW_PARTS * WARP // busy else shares.group.threads
    share = min(whole // busy, 1 << (parts.bit_length() - 1))
    return (share, whole) if share > 1 else (1, busy)


def _combined(shares: Shares, one: Touch, parts: int) -> Touch:
    """Reading the partial results of one element, `parts` of them."""
    share, whole = part_threads(shares, parts)
    steps = math.ceil(parts / share)
    return replace(
        one,
        task=one.task * parts,
        moved=one.moved * parts,
        phase=one.phase * parts,
        rounds=one.rounds * math.ceil(steps / PARTS_UNROLLED),
        requests=one.requests / shares.warps * max(1.0, whole / WARP) * steps,
        partial=parts > 1,
    )


def _stores(view: View, shares: Shares, root: int) -> Iterator[Touch]:
    """What a stage leaves of a value in memory."""
    index = tuple(AxisVar(a) for a in view.sub.values[root].axes)
    if view.parts.get(root, 1) > 1 and root not in shares.stage.combine:
        yield replace(_touch(view, shares, root, index, "far", store=True), partial=True)
        return
    places = {p for (v, _), p in view.places.items() if v == root}
    if "block" in places:
        yield _touch(view, shares, root, index, "block", store=True)
    reads = [view.places.get((r.value, root)) for r in view.sub.values[root].reads]
    if reads and all(place == "alias" for place in reads):
        return
    if root in view.sub.outputs or "global" in places or "alias" in places:
        yield _touch(view, shares, root, index, "far", store=True)


def _touch(
    view: View,
    shares: Shares,
    value: int,
    index: tuple[Index, ...],
    place: str,
    *,
    store: bool,
) -> Touch:
    sub, stage = view.sub, shares.stage
    axes = frozenset().union(*(axes_of(i) for i in index)) & frozenset(stage.order)
    item = sub.values[value].dtype.size
    layout = _block_layout(view, shares, value) if place == "block" else row_major(sub.shape(value), item)
    asked = request(shares, index, layout)
    runs = shares.runs(axes)
    # Warps that differ along other axes only ask for the same: of stores, one is made; of loads, L1 answers the rest.
    differing = shares.warps_along(axes)
    count = runs * (differing if store else shares.warps) * shares.awake(axes)
    everywhere = frozenset().union(*(axes_of(i) for i in index))
    task = _distinct(sub, value, index, {a: shares.size(a) for a in everywhere})
    phase = _distinct(sub, value, index, {a: float(sub.extents[a]) for a in everywhere})
    moved = runs * differing * asked.sectors * SECTOR * shares.fill(axes)
    return Touch(
        value=value,
        index=index,
        place=place,
        store=store,
        task=task,
        moved=max(moved, task),
        phase=phase,
        rounds=math.ceil(runs / shares.overlap),
        requests=count * asked.count,
        cycles=count * asked.cycles,
        ideal=count * asked.ideal,
        fresh=not sub.values[value].is_input,
    )


def _block_layout(view: View, shares: Shares, value: int) -> Layout:
    """The task's tile of a value in shared memory."""
    axes = own_axes(view, value)
    buffer = next((b for b in view.plan.buffers if b.value == value), None)
    order = buffer.order if buffer and set(buffer.order) == set(axes) else axes
    extents = [shares.tiles[a] for a in order]
    if buffer and extents:
        extents[-1] += buffer.pad
    strides = dict(zip(order, row_major(extents, 1).strides, strict=True))
    return Layout(tuple(strides[a] for a in axes), view.sub.values[value].dtype.size)


def _distinct(sub: Subgraph, value: int, index: tuple[Index, ...], sizes: Mapping[int, float]) -> float:
    """Bytes of the distinct sectors that a read covers over `sizes` positions along its axes."""
    item = sub.values[value].dtype.size
    elements = min(math.prod(sizes.values()), max(1, sub.elements(value)))
    run, step = 1.0, item
    for position, axis in zip(reversed(index), reversed(sub.values[value].axes), strict=True):
        found = unit_axis(position)
        if found < 0:
            break
        run *= sizes[found]
        step *= max(1, sub.extents[axis])
        if sizes[found] < sub.extents[axis]:
            break
    length = run * item
    if run >= elements:
        return math.ceil(elements * item / SECTOR) * SECTOR
    # A run that starts anywhere in a sector touches one more, less what its alignment rules out.
    return elements / run * (length + SECTOR - math.gcd(step, math.ceil(length), SECTOR))
