"""Thread mapping for CUDA: threads of a block, tiles, tasks per block; lanes.py shares the loops.

AStitch's adaptive mapping (ASPLOS 2022, section 4.3). Rows that lie along memory get a thread, a warp or part of one,
or a whole block each, by their length; several rows of a block are horizontal packing. Reductions over columns put
neighbouring threads on neighbouring columns and fold across the rest of the block. Elementwise loops put the threads
along memory. Too many small tasks are packed vertically, so that the grid is about one wave.
"""

from __future__ import annotations

import math

from .draft import Context, GroupDraft
from .knobs import Ask, Knob, default
from .lanes import best_run, ceil_power, folded_axes, sequence, share, widths
from .mapping import largest_domain, split_axes
from .registers import allowance
from .shared_memory import fold_bytes
from .target import WARP
from .transposing import LEAST, TILE, crossing_axes

WARP_ROW = 1024
"""Points of a row up to which a warp takes it; beyond, a block (AStitch splits or takes a block from there on)."""

THREAD_ROW_BYTES = 32
"""Bytes of a row up to which one thread takes it: a whole sector."""

THREADS = (64, 128, 256, 512, 1024)
BUSY_THREADS = 1024
"""Threads that should be at work on a multiprocessor, so that enough accesses are in flight."""

MANY_WAVES = 4
"""Waves of blocks from which blocks take several tasks: a last wave that is not full costs little then either way."""

BESIDE = 4
"""Blocks of the grid that resident groups leave to those beside them."""

PARTIAL_SHARE = 22
"""Partial results of columns may be this part of the least traffic; fewer tasks otherwise."""


def map_kernel(context: Context, groups: list[GroupDraft], ask: Ask, chain: list[GroupDraft]) -> None:
    """Sets threads, tiles, tasks per block of the groups of one kernel, and width and lanes of their stages.

    The groups of `chain` get the tiles of its first one, which leave room for the kernel's other groups, so that their
    blocks may keep what they hold from phase to phase.
    """
    narrow = int(ask(Knob("vector.share", (1, 2, 4), 1)))
    for group in groups:
        group.narrow = narrow
    beside = BESIDE if chain and len(groups) > len(chain) else 0
    largest = max(groups, key=lambda g: context.extent(largest_domain(context, g)))
    wish = _wanted_threads(context, largest, beside)
    threads = int(ask(Knob(f"threads.{groups[0].label}", THREADS, wish)))
    while threads > WARP and not all(_folds_fit(context, g, threads) for g in groups):
        threads //= 2
    for group in groups:
        mapping = _Mapping(context, group, threads, ask, beside)
        if group in chain[1:]:
            mapping.follow(chain[0])
        else:
            mapping.run()


def _folds_fit(context: Context, group: GroupDraft, threads: int) -> bool:
    """True when the scratch of folds leaves half of the block memory to values."""
    _Mapping(context, group, threads, default, 0).run()
    group.tasks_per_block = 1
    stages = ((s, s.members) for s in group.stages)
    return 2 * fold_bytes(context.sub, threads, stages) <= context.target.block_bytes


def share_threads(context: Context, group: GroupDraft) -> None:
    """Shares the threads of a mapped group again, after its tiles have changed."""
    share(context, group, widths(context, group), _serial(context, group))


def _wanted_threads(context: Context, group: GroupDraft, beside: int) -> int:
    """The fewest threads, from 256 on, that keep the multiprocessors busy, as far as more bring more to work.

    Fewer where that gives more blocks and there are not enough for all multiprocessors.
    """
    work = context.extent(largest_domain(context, group))
    processors = context.target.processors

    def tasks_of(threads: int) -> int:
        _Mapping(context, group, threads, default, beside).run()
        return group.tasks(context.sub)

    best, busy, blocks = 256, 0, 0
    for threads in (256, 512, 1024):
        tasks = tasks_of(threads)
        active = int(min(tasks / processors, _resident_blocks(context, group)) * threads)
        if threads > 256 and (2 * active < 3 * busy or work // max(1, tasks) < 4 * threads):
            break
        best, busy, blocks = threads, active, tasks
        if busy >= BUSY_THREADS:
            break
    while best > 64 and best <= 256 and blocks < processors and (tasks := tasks_of(best // 2)) > blocks:
        best, blocks = best // 2, tasks
    group.tasks_per_block = 1
    return best


def _resident_blocks(context: Context, group: GroupDraft) -> int:
    """Blocks of a multiprocessor as far as shared memory allows, should it hold what several stages read."""
    target = context.target
    points = math.prod(group.trip(context.sub, a) for a in largest_domain(context, group))
    size = 4 * points
    in_registers = points // group.threads <= allowance(target, group.threads)
    if len(group.stages) < 2 or in_registers or size > target.block_bytes:
        return target.resident_blocks
    return max(1, target.shared_bytes // size)


def _serial(context: Context, group: GroupDraft) -> tuple[int, ...]:
    """Axes of the largest member that a task runs whole."""
    return tuple(a for a in largest_domain(context, group) if a not in group.parallel)


class _Mapping:
    def __init__(self, context: Context, group: GroupDraft, threads: int, ask: Ask, beside: int) -> None:
        self.context = context
        self.sub = context.sub
        self.group = group
        self.ask = ask
        self.processors = max(1, context.target.processors - beside)
        self.widths = widths(context, group)
        self.serial = _serial(context, group)
        self.split = split_axes(context, group)
        self.may_shrink = not self.split and not beside
        self.inner = self._inner_first()
        self.lines = frozenset(crossing_axes(context, group, -1))
        group.threads = threads
        group.tiles = {}
        group.row = self._row_lanes()

    def run(self) -> None:
        self._tiles()
        for axis in self.inner:
            self._ask_tile(axis)
        share(self.context, self.group, self.widths, self.serial)
        tasks = self.group.tasks(self.sub)
        wave = self.context.target.processors * max(1, self.context.target.resident_threads // self.group.threads)
        even = min(1 << 16, -(-tasks // wave))
        if even >= MANY_WAVES:
            self.group.tasks_per_block = int(self.ask(Knob(f"tasks.{self.group.label}.{even}", (1, even), even)))

    def follow(self, first: GroupDraft) -> None:
        """The tiles of another group over the same axes."""
        self.group.tiles = dict(first.tiles)
        share(self.context, self.group, self.widths, self.serial)

    def _inner_first(self) -> list[int]:
        """Parallel axes from the one that lies in memory outward."""
        order: list[int] = []
        for stage in sorted(self.group.stages, key=lambda s: -self.context.extent(s.order)):
            axes = sequence(self.context, self.group, stage)
            order.extend(a for a in axes if a in self.group.parallel and a not in order)
        order.extend(a for a in reversed(self.group.parallel) if a not in order)
        return order

    def _row_lanes(self) -> int:
        """Threads that share one row: 1, up to a warp, or the block; rows are what the group runs whole."""
        points = math.prod(max(1, self.sub.extents[a]) for a in self.serial)
        along = [s for s in self.group.stages if s.members and s.vector in self.serial]
        if points == 1 or not along:
            return 1
        size = max(self.sub.values[m].dtype.size for s in along for m in s.members)
        kind = "block"
        if points * size <= THREAD_ROW_BYTES:
            kind = "thread"
        elif points <= WARP_ROW:
            kind = "warp"
        answer = self.ask(Knob(f"row.{self.group.label}", ("thread", "warp", "block"), kind))
        if answer == "thread":
            return 1
        width = max((self.widths[s.vector] for s in along), default=1)
        most = WARP if answer == "warp" else self.group.threads
        return min(most, ceil_power(-(-points // width)))

    def _tiles(self) -> None:
        """Default tiles of all parallel axes."""
        folded = folded_axes(self.context, self.group)
        folding = [s for s in self.group.stages if any(self.sub.values[m].reduce for m in s.members)]
        along = {s.vector for s in folding or self.group.stages if s.members}
        own = [a for a in self.inner if a not in self.split]
        if not along.isdisjoint(self.serial):
            self._fill(own, self.group.threads // self.group.row)
        elif (folded and not along & folded) or self._combines_mostly():
            self._columns(own)
        elif folded:
            self._fill(own, 1)
        else:
            self._flat(own)
        self._parts()

    def _combines_mostly(self) -> bool:
        """True where combining partial results is most of the work: threads share the parts of a line of columns."""
        here = max((self.context.extent(self.sub.values[v].axes) for v in self.group.combine), default=0)
        return here >= max((self.context.domain_work(m) for m in self.group.members), default=0) and here > 0

    def _extent(self, axis: int) -> int:
        return max(1, self.sub.extents[axis])

    def _tasks(self) -> int:
        return math.prod(-(-self._extent(a) // t) for a, t in self.group.tiles.items())

    def _fill(self, axes: list[int], budget: int) -> None:
        """Tiles from the inside out, `budget` positions in all; whole sectors of what lies along an axis."""
        for axis in axes:
            tile = max(1, budget, LEAST if axis in self.lines else 1)
            self.group.tiles[axis] = min(self._extent(axis), tile)
            budget //= self.group.tiles[axis]

    def _columns(self, axes: list[int]) -> None:
        """A line of columns for each block, a shorter one where that leaves multiprocessors without work."""
        self._fill(axes, 1)
        axis = next((a for a in axes if a in self.widths), None)
        if axis is None:
            return
        line, width = WARP * self.widths[axis], self.widths[axis]
        self.group.tiles[axis] = min(self._extent(axis), line)
        while self._tasks() < self.processors and self.may_shrink and self.group.tiles[axis] > max(LEAST, width):
            self.group.tiles[axis] //= 2

    def _flat(self, axes: list[int]) -> None:
        """Nothing is reduced: one step for every thread, more where there are tasks enough."""
        threads = self.group.threads
        if not axes:
            return
        first, *outer = axes
        crossing = [a for a in crossing_axes(self.context, self.group, first) if self._extent(a) >= LEAST]
        if crossing and self._extent(first) >= LEAST:
            self._fill(axes, 1)
            for axis in (first, crossing[0]):
                self.group.tiles[axis] = min(self._extent(axis), TILE)
            return
        width = self.widths.get(first, 1)
        steps = -(-self._extent(first) // width)
        if steps >= 4 * threads or not outer:
            run = min(threads, steps)
            self.group.tiles[first] = min(self._extent(first), run * width)
        else:
            run = best_run(threads, steps)
            self.group.tiles[first] = self._extent(first)
        self._fill(outer, threads // run)
        # Positions that a broadcast operand serves, and more accesses in flight, where many tasks remain.
        for axis in outer:
            while self._tasks() >= 16 * self.processors and self.group.tiles[axis] < min(4, self._extent(axis)):
                self.group.tiles[axis] = min(2 * self.group.tiles[axis], self._extent(axis))

    def _parts(self) -> None:
        """Tiles of split axes: whole rows where rows are the tasks, else as many parts as fill the device."""
        own = {a for s in self.group.stages for m in s.members for a in self.sub.values[m].axes}
        wanted = max(1, self.processors // max(1, self._tasks()))
        for axis in self.group.parallel:
            if axis not in self.split:
                continue
            extent = self._extent(axis)
            if axis in own:
                self.group.tiles[axis] = self._rows_of_parts(axis, extent)
                continue
            tile = -(-extent // min(wanted, extent))
            if axis in self.widths:
                unit = 8 * self.widths[axis]
                tile = min(extent, -(-tile // unit) * unit)
            self.group.tiles[axis] = tile
            wanted = max(1, wanted // -(-extent // tile))

    def _rows_of_parts(self, axis: int, extent: int) -> int:
        """Rows of a task whose columns are summed too: few enough parts that writing and reading them is little."""
        natural = max(1, self.group.threads // self.group.row)
        bytes_of_part = sum(self._part_bytes(m) for m in self.group.partial if axis in self.sub.values[m].reduce)
        parts = max(self.sub.bytes_min // (PARTIAL_SHARE * max(1, 2 * bytes_of_part)), self.processors // 4, 1)
        tile = -(-extent // parts)
        return min(extent, -(-tile // natural) * natural)

    def _part_bytes(self, member: int) -> int:
        value = self.sub.values[member]
        return self.context.extent(value.axes) * max(4, value.dtype.size)

    def _ask_tile(self, axis: int) -> None:
        group, wanted, extent = self.group, self.group.tiles[axis], self._extent(axis)
        sizes = (wanted // 4, wanted // 2, wanted, wanted * 2)
        choices = tuple(sorted({t for t in sizes if 1 <= t <= extent}))
        space = "_".join(map(str, group.parallel))
        name = f"tile.{group.label}.{space}.{axis}.{wanted}"
        group.tiles[axis] = int(self.ask(Knob(name, choices, wanted)))
