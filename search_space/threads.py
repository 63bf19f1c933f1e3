"""Thread mapping for CUDA: threads of a block, tiles, and how the threads share the loops of every stage.

AStitch's adaptive mapping (ASPLOS 2022, section 4.3). Rows that lie along memory get a thread, a warp or part of one,
or a whole block each, by their length; several rows of a block are horizontal packing. Reductions over columns put
neighbouring threads on neighbouring columns and fold across the rest of the block. Elementwise loops put the threads
along memory. Too many small tasks are packed vertically, so that the grid is about one wave.
"""

from __future__ import annotations

import math

from .draft import Context, GroupDraft, StageDraft
from .knobs import Ask, Knob, default
from .mapping import largest_domain, split_axes
from .staging import moving, storage_order, touched

WARP = 32
WARP_ROW = 1024
"""Points of a row up to which a warp takes it; beyond, a block (AStitch splits or takes a block from there on)."""

THREAD_ROW_BYTES = 32
"""Bytes of a row up to which one thread takes it: a whole sector."""

ACCESS_BYTES = 16
"""Widest access of a thread."""

THREADS = (64, 128, 256, 512, 1024)
BESIDE = 4
"""Blocks of the grid that resident groups leave to those beside them."""


def map_kernel(context: Context, groups: list[GroupDraft], ask: Ask, chain: list[GroupDraft]) -> None:
    """Sets threads, tiles, tasks per block of the groups of one kernel, and width and lanes of their stages.

    The groups of `chain` get the tiles of its first one, which leave room for the kernel's other groups, so that their
    blocks may keep what they hold from phase to phase.
    """
    wish = max(_wanted_threads(context, g) for g in groups)
    threads = int(ask(Knob(f"threads.{groups[0].label}.{wish}", THREADS, wish)))
    for group in groups:
        group.threads = threads
        group.tiles = {}
        mapping = _Mapping(context, group, ask, BESIDE if chain and len(groups) > len(chain) else 0)
        if group in chain[1:]:
            mapping.follow(chain[0])
        else:
            mapping.run()


def share_threads(context: Context, group: GroupDraft) -> None:
    """Shares the threads of a mapped group again, after its tiles have changed."""
    _Mapping(context, group, default).share(group.row)


def _wanted_threads(context: Context, group: GroupDraft) -> int:
    points = math.prod(max(1, context.sub.extents[a]) for a in _serial(context, group))
    if points <= 4 * WARP_ROW:
        return 256
    return 512 if points <= 16 * WARP_ROW else 1024


def _serial(context: Context, group: GroupDraft) -> tuple[int, ...]:
    """Axes of the largest member that a task runs whole."""
    return tuple(a for a in largest_domain(context, group) if a not in group.parallel)


def ceil_power(number: int) -> int:
    """The least power of two that is not below `number`."""
    return 1 << max(0, number - 1).bit_length()


class _Mapping:
    def __init__(self, context: Context, group: GroupDraft, ask: Ask, beside: int = 0) -> None:
        self.context = context
        self.sub = context.sub
        self.group = group
        self.ask = ask
        self.processors = max(1, context.target.processors - beside)
        self.folded = {a for s in group.stages for m in s.members for a in self.sub.values[m].reduce}
        self.widths = self._widths()
        self.serial = _serial(context, group)

    def run(self) -> None:
        row = self.group.row = self._row_lanes()
        self._tiles(row)
        self.share(row)
        tasks = self.group.tasks(self.sub)
        wave = self.context.target.processors * max(1, self.context.target.resident_threads // self.group.threads)
        even = min(1 << 16, -(-tasks // wave))
        if even > 1:
            self.group.tasks_per_block = int(self.ask(Knob(f"tasks.{self.group.label}.{even}", (1, even), even)))

    def follow(self, first: GroupDraft) -> None:
        """The tiles of another group over the same axes."""
        self.group.row = self._row_lanes()
        self.group.tiles = dict(first.tiles)
        self.share(self.group.row)

    def share(self, row: int) -> None:
        """Width and lanes of every stage, from the tiles."""
        for stage in self.group.stages:
            self._share(stage, row)

    def _widths(self) -> dict[int, int]:
        """Neighbouring elements that a thread takes along each vector axis: 16 bytes of the widest common type."""
        widths: dict[int, int] = {}
        for stage in self.group.stages:
            if stage.vector >= 0:
                width = self._width(stage)
                widths[stage.vector] = min(width, widths.get(stage.vector, width))
        return widths

    def _width(self, stage: StageDraft) -> int:
        axis = stage.vector
        tensors = [t for m in stage.members for t in touched(self.context, self.group, m)]
        along = [(indices, size) for indices, _, size, _ in tensors if indices and axis in moving(indices[-1])]
        if not along:
            return 1
        width = max(1, ACCESS_BYTES // max(size for _, size in along))
        extent = max(1, self.sub.extents[axis])
        width = min(width, ceil_power(extent))
        several = any(len(indices) > 1 for indices, _ in along)
        while several and extent % width:
            width //= 2
        return width

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
        answer = self.ask(Knob(f"row.{self.group.label}.{kind}", ("thread", "warp", "block"), kind))
        if answer == "thread":
            return 1
        width = max((self.widths[s.vector] for s in along), default=1)
        most = WARP if answer == "warp" else self.group.threads
        return min(most, ceil_power(-(-points // width)))

    def _tiles(self, row: int) -> None:
        group, sub = self.group, self.sub
        split = split_axes(self.context, group)
        columns = bool(self.folded) and not any(s.vector in self.folded for s in group.stages)
        inner = self._inner_first()
        budget = max(1, group.threads // row)
        if not self.serial:
            budget *= max(self.widths.values(), default=1)
        elif columns:
            budget = 1
        for axis in inner:
            extent = max(1, sub.extents[axis])
            if axis in split:
                continue
            tile = budget
            if columns and axis in self.widths:
                tile = WARP * self.widths[axis]
            group.tiles[axis] = tile if tile < extent else extent
            budget = max(1, budget // group.tiles[axis])
        tasks = math.prod(-(-max(1, sub.extents[a]) // t) for a, t in group.tiles.items() if a not in split)
        self._parts(split, tasks)
        for axis in inner:
            extent = max(1, sub.extents[axis])
            wanted = min(group.tiles[axis], extent)
            choices = tuple(sorted({t for t in (wanted // 4, wanted // 2, wanted, wanted * 2) if 1 <= t <= extent}))
            space = "_".join(map(str, group.parallel))
            knob = Knob(f"tile.{group.label}.{space}.{axis}.{wanted}.{group.threads}", choices, wanted)
            group.tiles[axis] = int(self.ask(knob))

    def _parts(self, split: frozenset[int], tasks: int) -> None:
        """Cuts the reduced axes that are split, outer ones first, until every multiprocessor has a part."""
        wanted = max(1, self.processors // max(1, tasks))
        for axis in self.group.parallel:
            if axis not in split:
                continue
            extent = max(1, self.sub.extents[axis])
            parts = min(wanted, extent)
            tile = -(-extent // parts)
            if axis in self.widths:
                unit = 8 * self.widths[axis]
                tile = min(extent, -(-tile // unit) * unit)
            self.group.tiles[axis] = tile
            wanted = max(1, wanted // -(-extent // tile))

    def _inner_first(self) -> list[int]:
        order: list[int] = []
        for stage in sorted(self.group.stages, key=lambda s: -self.context.extent(s.order)):
            order.extend(a for a in self._sequence(stage) if a in self.group.parallel and a not in order)
        order.extend(a for a in reversed(self.group.parallel) if a not in order)
        return order

    def _sequence(self, stage: StageDraft) -> list[int]:
        """The axes of a stage from the one whose neighbours are neighbours in memory outward."""
        if stage.members:
            stored = storage_order(self.context, self.group, stage.members[0])
            rest = [a for a in reversed(stored) if a in stage.order]
            rest.extend(a for a in reversed(stage.order) if a not in rest)
        else:
            rest = list(reversed(stage.order))
        return [stage.vector, *(a for a in rest if a != stage.vector)] if stage.vector >= 0 else rest

    def _share(self, stage: StageDraft, row: int) -> None:
        """Gives the block's threads to the axes of one stage."""
        group, sub = self.group, self.sub
        sequence = self._sequence(stage)
        stage.width = self.widths.get(stage.vector, 1)
        steps = {a: -(-group.trip(sub, a) // (stage.width if a == stage.vector else 1)) for a in sequence}
        folds = {a for m in stage.members for a in sub.values[m].reduce}
        lanes = dict.fromkeys(sequence, 1)
        if not self.folded:
            self._pack(sequence, steps, lanes)
        else:
            self._powers(sequence, steps, lanes, folds, row)
        stage.lanes = tuple((a, lanes[a]) for a in reversed(sequence) if lanes[a] > 1)

    def _pack(self, sequence: list[int], steps: dict[int, int], lanes: dict[int, int]) -> None:
        """Nothing is folded: any number of threads along an axis, as few idle as possible."""
        left = self.group.threads
        for number, axis in enumerate(sequence):
            outer = math.prod(steps[a] for a in sequence[number + 1 :])
            lanes[axis] = max(
                range(1, min(left, steps[axis]) + 1), key=lambda n: self._busy(n, steps[axis], outer, left)
            )
            left //= lanes[axis]

    @staticmethod
    def _busy(lanes: int, steps: int, outer: int, left: int) -> tuple[float, int]:
        """Share of busy threads when an axis of `steps` gets `lanes` and outer ones get the rest; then more lanes."""
        if steps > lanes and lanes < min(steps, 8):
            return (0.0, lanes)
        others = min(outer, left // lanes)
        return (round(lanes * others / left * steps / (-(-steps // lanes) * lanes), 2), lanes)

    def _powers(
        self, sequence: list[int], steps: dict[int, int], lanes: dict[int, int], folds: set[int], row: int
    ) -> None:
        """Something is folded in the group: powers of two, alike in all stages, the whole block where one folds."""
        left, shared = self.group.threads, row
        columns = bool(folds) and sequence[0] not in folds
        for number, axis in enumerate(sequence):
            most = left
            if axis in self.serial and not columns:
                most = min(left, shared)
            elif columns:
                most = min(left, WARP) if number == 0 else left if axis in folds else 1
            lanes[axis] = min(most, ceil_power(steps[axis]))
            left //= lanes[axis]
            if axis in self.serial and not columns:
                shared //= lanes[axis]
        for axis in sequence:
            more = min(left, ceil_power(-(-steps[axis] // lanes[axis])))
            lanes[axis] *= more
            left //= more
        if folds and left > 1:
            spare = next((a for a in reversed(sequence) if a not in folds), sequence[-1])
            lanes[spare] *= left
