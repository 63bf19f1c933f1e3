"""What the tasks of a group read and write, from plan and subgraph alone.

Bytes are charged to the place they come from: *far* memory (first touch: DRAM, or whichever cache holds the whole
working set), the shared *cache* (touched before, but too long ago for the block's own memory), or *block* memory
(L2 of one core, shared memory of a GPU block). Registers and L1 hits cost nothing but their instructions.
Locality is judged by footprints: data touched again is found where everything touched in between fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..graphs.subgraph import AxisVar, Subgraph
from ..search_space.access import Access, walk
from ..search_space.plan import Group, Stage
from .instructions import instructions
from .view import View, unit_axis

LINE = 64
"""Bytes that memory moves at least (a cache line; two sectors of a GPU)."""

SETS = 64
"""Sets of a first-level cache; strides of a multiple of that many lines use one of them."""

SCATTERED = 4.0
"""What a line costs that no prefetcher sees coming, in lines of a stream (measured on transposes)."""

CROWDED = 8
"""Lines this far apart (a multiple of it, to be exact) crowd few sets of a cache."""

NEAR = 0.75
"""Share of a cache that a footprint may take and still be found there."""


@dataclass(frozen=True)
class Work:
    """The average task of a group: bytes by where they come from, processor seconds by kind."""

    far: float = 0.0
    cache: float = 0.0
    block: float = 0.0
    stream: float = 0.0
    """Bytes written past the caches."""
    operations: float = 0.0
    overhead: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.far + other.far,
            self.cache + other.cache,
            self.block + other.block,
            self.stream + other.stream,
            self.operations + other.operations,
            self.overhead + other.overhead,
        )


def task_count(sub: Subgraph, group: Group) -> int:
    """Tasks of a group: tiles of its parallel axes."""
    return math.prod(math.ceil(sub.extents[a] / tile) for a, tile in group.parallel)


def group_work(view: View, group: Group) -> list[Work]:
    """The average task of `group`, stage by stage; nothing when it has no tasks."""
    if not task_count(view.sub, group):
        return []
    sizes = _sizes(view.sub, group)
    touches = [list(_touches(view, stage, sizes)) for stage in group.stages]
    footprints: dict[tuple[int, frozenset[int]], float] = {}
    for touch in (t for stage in touches for t in stage):
        footprints[touch.value, touch.axes] = max(touch.bytes, footprints.get((touch.value, touch.axes), 0.0))
    footprint = sum(footprints.values())
    seen: set[tuple[int, frozenset[int]]] = set()
    works = []
    for stage, stage_touches in zip(group.stages, touches, strict=True):
        operations, overhead = instructions(view, stage, sizes, dict(group.parallel))
        work = Work(operations=operations, overhead=overhead)
        for touch in stage_touches:
            work += _traffic(view, group, touch, sizes, footprint, (touch.value, touch.axes) in seen)
            seen.add((touch.value, touch.axes))
        works.append(work)
    return works


def _sizes(sub: Subgraph, group: Group) -> dict[int, float]:
    """Average iterations of each axis within one task (the last tile of an axis may be short)."""
    sizes = {axis: float(extent) for axis, extent in enumerate(sub.extents)}
    for axis, tile in group.parallel:
        sizes[axis] = sub.extents[axis] / max(1, math.ceil(sub.extents[axis] / tile))
    return sizes


@dataclass(frozen=True)
class _Touch:
    """One access of a task to memory.

    axes     of the task's loops that the address depends on
    bytes    distinct bytes per task
    again    bytes read again within the task, from how far apart (the footprint in between)
    lines    bytes of whole lines moved, when lines are gone before their neighbours are wanted; from how far apart
    crowded  the lines share few sets of a cache
    place    "far": first touched outside the task; "block": block memory; "write"; "stream"
    """

    value: int
    axes: frozenset[int]
    bytes: float
    again: float
    again_distance: float
    lines: float
    lines_distance: float
    crowded: bool
    place: str


def _touches(view: View, stage: Stage, sizes: Mapping[int, float]) -> Iterator[_Touch]:
    for root in (*stage.values, *stage.combine):
        if root in stage.values:
            for access in walk(view.sub, root, view.inlined):
                source = view.sub.values[access.value]
                place = view.places.get((access.value, access.reader), "far")
                if source.op == "const" or place in ("inline", "register", "shuffle", "alias"):
                    continue
                yield _touch(view, stage, sizes, access, "block" if place == "block" else "far")
        axes = view.sub.values[root].axes
        written = Access(root, root, root, tuple(AxisVar(a) for a in axes), False)
        combined = root in stage.combine
        if (parts := view.parts.get(root, 1)) > 1:
            touch = _touch(view, stage, sizes, written, "far" if combined else "write")
            share = parts if combined else 1
            yield _scaled(touch, share)
        if root in view.kept and (combined or parts == 1):
            near = root not in view.sub.outputs and not any(
                p == "global" for (v, _), p in view.places.items() if v == root
            )
            stream = "stream" if root in view.plan.stream else "write"
            yield _touch(view, stage, sizes, written, "block" if near else stream)


def _scaled(touch: _Touch, factor: float) -> _Touch:
    return _Touch(
        touch.value,
        touch.axes,
        touch.bytes * factor,
        touch.again * factor,
        touch.again_distance * factor,
        touch.lines * factor,
        touch.lines_distance,
        touch.crowded,
        touch.place,
    )


def _touch(view: View, stage: Stage, sizes: Mapping[int, float], access: Access, place: str) -> _Touch:
    sub = view.sub
    item = sub.values[access.value].dtype.size
    axes = access.axes & frozenset(stage.order)
    order = [a for a in stage.order if sizes[a] > 1]
    used = [a for a in order if a in axes]
    elements = min(math.prod(sizes[a] for a in used), sub.elements(access.value))
    # read again: loops outside the innermost one it depends on, that it does not depend on
    outer = [a for a in order[: order.index(used[-1])] if a not in axes] if used else []
    repeats = math.prod(sizes[a] for a in outer)
    inner = math.prod(sizes[a] for a in used if outer and order.index(a) > order.index(outer[0]))
    # whole lines: the contiguous axis is not the innermost of those it depends on
    unit, run = _run(sub, access, sizes)
    lines, lines_distance = 0.0, 0.0
    if used and run * item < LINE:
        lines, lines_distance = elements * LINE / max(1.0, run), elements * LINE / max(1.0, run)
    if used and unit in used and unit != used[-1]:
        span = math.prod(sizes[a] for a in used[used.index(unit) + 1 :]) * LINE
        if span >= lines_distance:
            lines, lines_distance = elements * LINE, span
    crowding = _crowding(sub, access, used[-1]) if lines_distance else 1.0
    return _Touch(
        access.value,
        axes,
        elements * item,
        (repeats - 1) * elements * item,
        inner * item,
        lines,
        lines_distance * crowding,
        crowding >= CROWDED,
        place,
    )


def _traffic(view: View, group: Group, touch: _Touch, sizes: Mapping[int, float], footprint: float, seen: bool) -> Work:
    """Where the bytes of a touch come from, given the task's whole footprint."""
    target = view.model.target
    first, cache, block = touch.bytes, 0.0, 0.0
    if touch.lines_distance > NEAR * target.l1_bytes:
        if touch.lines_distance > NEAR * 2 * target.block_bytes:
            first = max(first, SCATTERED * touch.lines)
        else:
            block += touch.lines * (2.0 if touch.crowded else 0.5)
    if touch.again and touch.again_distance > NEAR * target.l1_bytes / 2:
        if touch.again_distance > NEAR * 2 * target.block_bytes:
            cache += touch.again
        else:
            block += touch.again
    if touch.place == "stream":
        return Work(stream=first, cache=cache, block=block)
    if touch.place == "block" or (seen and footprint <= NEAR * 2 * target.block_bytes):
        return Work(cache=cache, block=block + first)
    if seen:
        return Work(cache=cache + first, block=block)
    shared = [(a, t) for a, t in group.parallel if a not in touch.axes]
    if not shared or touch.place == "write":
        return Work(far=first, cache=cache, block=block)
    # tasks that differ only along axes it does not depend on touch the same bytes
    outermost = group.parallel.index(shared[0])
    between = math.prod(math.ceil(view.sub.extents[a] / t) for a, t in group.parallel[outermost + 1 :])
    tasks = task_count(view.sub, group)
    distinct = tasks / math.prod(math.ceil(view.sub.extents[a] / t) for a, t in shared)
    fresh = min(1.0, distinct * min(target.processors, tasks / distinct) / tasks) if tasks else 1.0
    near = footprint * between <= NEAR * 2 * target.block_bytes
    rest = first * (1 - fresh)
    return Work(far=first * fresh, cache=cache + (0.0 if near else rest), block=block + (rest if near else 0.0))


def _run(sub: Subgraph, access: Access, sizes: Mapping[int, float]) -> tuple[int, float]:
    """The axis that walks contiguous memory (-1: none), and the elements in one contiguous run of a task."""
    run, unit = 1.0, -1
    for index, axis in zip(reversed(access.index), reversed(sub.values[access.value].axes), strict=True):
        found = unit_axis(index)
        unit = found if run == 1.0 and unit < 0 else unit
        run *= sizes[found] if found >= 0 else 1.0
        if found < 0 or sizes[found] < sub.extents[axis]:
            break
    return unit, run


def _crowding(sub: Subgraph, access: Access, axis: int) -> float:
    """How many times less a cache holds of lines that `axis` steps through: a power of two uses few of its sets."""
    stride = sub.values[access.value].dtype.size
    for index, own in zip(reversed(access.index), reversed(sub.values[access.value].axes), strict=True):
        if unit_axis(index) == axis:
            shared = math.gcd(max(1, stride // LINE), SETS)
            # Lines fetched ahead crowd the few sets further: measured, 32 lines of a 4 KiB stride fit into 1 MiB.
            return float(shared * 4 if shared >= CROWDED else shared)
        stride *= sub.extents[own]
    return 1.0
