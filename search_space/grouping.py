"""Groups and phases: which dominants share an iteration space, and where a grid barrier must stand.

Dominants are visited producers first, those with the longest chain of dependents before others. One joins the group of
its producers when every parallel axis of the group is read through the identity (AStitch's passive locality check); it
may join with a *split* reduction, whose partial results the next phase combines; otherwise it opens a group, in the
first phase in which all its producers are complete.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from .coupling import pair_kind
from .draft import Context, GroupDraft
from .knobs import Ask, Knob
from .staging import storage_order

SPLIT_WORK = 1 << 16
"""Iteration points from which a reduction with too few rows is split over tasks."""

LINE = 32
"""Neighbours that a CUDA block takes at least along the axis that lies in memory: four sectors of four bytes each."""

PARALLEL_WORK = 1 << 13
"""Iteration points below which one task does it all sooner than several can be brought together."""

LONG_TASK = 4096
"""Points of a task from which a CUDA block is slow beside a barrier, so that few tasks are split (AStitch: 1024)."""

FEW_PARTIALS = 32
"""Partial elements of a CUDA block that are nothing beside what it reads."""

COMBINE_ELEMENTS = 4096
"""Partial elements that a task may combine for itself; beyond, one group combines for everybody."""


def place(context: Context, ask: Ask) -> list[list[GroupDraft]]:
    """Phases of groups that hold every required value, each at least in one group."""
    placement = _Placement(context, ask)
    for anchor in _schedule(context):
        placement.add(anchor)
    return placement.finish()


def _schedule(context: Context) -> list[int]:
    """Anchors in list-scheduling order: ready ones by the length of the chain that waits for them, then by number.

    So a reduction that feeds others seeds the group, and one that is only an output joins where it fits.
    """
    needs = {a: {d.value for d in context.dependencies(a)} for a in context.anchors}
    height = dict.fromkeys(context.anchors, 0)
    for anchor in reversed(context.anchors):
        for source in needs[anchor]:
            height[source] = max(height[source], height[anchor] + 1)
    return sorted(context.anchors, key=lambda a: (-height[a], a))


class _Placement:
    def __init__(self, context: Context, ask: Ask) -> None:
        self.context = context
        self.ask = ask
        self.groups: list[GroupDraft] = []
        self.home: dict[int, GroupDraft] = {}
        self.elected: dict[int, int] = {}
        """Partial reductions that one group combines for everybody: value -> phase of that group."""
        self.partner: dict[int, int] = {}
        """Split reductions that one pass computes, each to the other."""

    def add(self, anchor: int) -> None:
        if self._couple(anchor):
            return
        dependencies = self.context.dependencies(anchor)
        earliest = 0
        for access in dependencies:
            earliest = max(earliest, self._ready(access.value, remote=False))
        hosts = [g for g in self.groups if g.phase >= earliest and self._fits(anchor, g)]
        # A group that holds producers of this phase comes first, then one that shares reads.
        for group in hosts:
            if group.phase == earliest and self._joins(anchor, group):
                self._join(anchor, group)
                return
        phase = max((self._ready(a.value, remote=True) for a in dependencies), default=0)
        for group in hosts:
            if group.phase == phase and self._shares(anchor, group) and self._joins(anchor, group):
                self._join(anchor, group)
                return
        parallel = self._parallel(anchor)
        while not self._readable(anchor, parallel, phase):
            phase += 1
        group = GroupDraft(label=str(anchor), phase=phase, parallel=parallel)
        self.groups.append(group)
        self._join(anchor, group)

    def _couple(self, anchor: int) -> bool:
        """Splits a reduction over tasks beside the one that it reads, in one pass, where that is possible and wanted.

        It saves a grid barrier, and reading again what the tasks cannot keep.
        """
        sub = self.context.sub
        if not self.context.is_cuda or not self.context.is_reduction(anchor):
            return False
        for first, home in self.home.items():
            if first not in home.partial or first in self.partner or not pair_kind(sub, first, anchor):
                continue
            if not self.ask(Knob(f"couple.{anchor}", (False, True), True)):
                continue
            self.partner |= {first: anchor, anchor: first}
            home.members.append(anchor)
            home.partial.add(anchor)
            self.home[anchor] = home
            home.joined[anchor] = first
            if first in self.elected:
                self.elected[anchor] = self.elected[first]
            for group in self.groups:
                if first in group.combine:
                    self._combine(group, anchor)
            return True
        return False

    def _combine(self, group: GroupDraft, value: int) -> None:
        """Has `group` combine the partial results of `value`, and of the other one of its pair."""
        both = sorted({value, self.partner.get(value, value)})
        group.combine.extend(v for v in both if v not in group.combine)
        if len(both) > 1:
            group.joined[both[1]] = both[0]

    def _ready(self, value: int, *, remote: bool) -> int:
        """The first phase that can read `value`: its own (same group) or, `remote`, the one after."""
        group = self.home[value]
        if value in self.elected:
            return self.elected[value] + 1
        if value in group.partial:
            return group.phase + 1
        return group.phase + (1 if remote else 0)

    def _fits(self, anchor: int, group: GroupDraft) -> bool:
        """True when the group's tasks tile the anchor's iteration space."""
        value = self.context.sub.values[anchor]
        if not set(group.parallel) <= set(value.domain):
            return False
        if not set(group.parallel) & set(value.reduce):
            return self._uses_most_of(anchor, group)
        return self._may_split(anchor, group)

    def _uses_most_of(self, anchor: int, group: GroupDraft) -> bool:
        """False for a group that would leave nearly all of a large anchor's space to one task."""
        tasks = self._tasks(anchor, group.parallel)
        own = self._tasks(anchor, self.context.sub.values[anchor].axes)
        return tasks >= own or self._enough(anchor, tasks)

    def _may_split(self, anchor: int, group: GroupDraft) -> bool:
        """A split reduction in somebody else's group pays when it shares what that group reads."""
        value = self.context.sub.values[anchor]
        serial = self.context.extent(a for a in value.axes if a not in group.parallel)
        if serial * value.dtype.size * 2 > self.context.target.block_bytes or not self._shares(anchor, group):
            return False
        # On CUDA a few numbers of each block cost less than reading their rows again in a phase of its own.
        worth = self.context.domain_work(anchor) >= PARALLEL_WORK or (self.context.is_cuda and serial <= FEW_PARTIALS)
        return bool(self.ask(Knob(f"split.{anchor}", (True, False), worth)))

    def _joins(self, anchor: int, group: GroupDraft) -> bool:
        """True when everything the anchor reads is in reach inside `group`."""
        for access in self.context.dependencies(anchor):
            home = self.home[access.value]
            value = self.context.sub.values[access.value]
            if access.value in self.elected:
                if self.elected[access.value] >= group.phase:
                    return False
            elif access.value in home.partial:
                if home.phase >= group.phase or not self._combinable(anchor, group.parallel, access.value):
                    return False
            elif home is group:
                shared = [p for p in group.parallel if p in value.axes]
                if not all(access.is_identity(self.context.sub, p) for p in shared):
                    return False
            elif home.phase >= group.phase:
                return False
        return True

    def _readable(self, anchor: int, parallel: tuple[int, ...], phase: int) -> bool:
        """True when a new group in `phase` can read everything; elects a combining group where one is needed."""
        for access in self.context.dependencies(anchor):
            home = self.home[access.value]
            if access.value not in home.partial or access.value in self.elected:
                if self._ready(access.value, remote=True) > phase:
                    return False
            elif not self._combinable(anchor, parallel, access.value):
                self._elect(access.value)
                return False
        return True

    def _combinable(self, anchor: int, parallel: Iterable[int], partial: int) -> bool:
        """True when tasks over `parallel` can combine the partial results of `partial` that `anchor` reads."""
        sub = self.context.sub
        value = sub.values[partial]
        axes = tuple(parallel)
        for access in self.context.dependencies(anchor):
            if access.value == partial and not all(access.is_identity(sub, p) for p in axes if p in value.axes):
                return False
        serial = self.context.extent(a for a in value.axes if a not in axes)
        parts = min(self.context.extent(value.reduce), self._parts(partial))
        every = serial * parts <= COMBINE_ELEMENTS
        return self.ask(Knob(f"combine.{partial}", ("every", "one"), "every" if every else "one")) == "every"

    def _elect(self, value: int) -> None:
        home = self.home[value]
        axes = self.context.sub.values[value].axes
        for group in self.groups:
            if group.phase == home.phase + 1 and group.parallel == axes and not group.members:
                break
        else:
            group = GroupDraft(label=f"{value}c", phase=home.phase + 1, parallel=axes)
            self.groups.append(group)
        self._combine(group, value)
        self.elected |= dict.fromkeys((value, self.partner.get(value, value)), group.phase)

    def _shares(self, anchor: int, group: GroupDraft) -> bool:
        """True when the anchor reads a tensor or a value that the group reads too, or one that the group makes."""
        mine = self._reads(anchor)
        return any(m in mine or not mine.isdisjoint(self._reads(m)) for m in group.members)

    def _reads(self, anchor: int) -> frozenset[int]:
        sub = self.context.sub
        return frozenset(a.value for a in self.context.accesses(anchor) if sub.values[a.value].axes)

    def _join(self, anchor: int, group: GroupDraft) -> None:
        value = self.context.sub.values[anchor]
        group.members.append(anchor)
        self.home[anchor] = group
        if set(group.parallel) & set(value.reduce):
            group.partial.add(anchor)
        for access in self.context.dependencies(anchor):
            partial = access.value in self.home[access.value].partial
            if partial and access.value not in self.elected:
                self._combine(group, access.value)

    def _parts(self, partial: int) -> int:
        """About how many parts a split reduction has."""
        processors = self.context.target.processors
        if not self.context.is_cuda:
            return 4 * processors
        shared = [a for a in self.context.sub.values[partial].axes if a in self.home[partial].parallel]
        return -(-processors // max(1, self._tasks(partial, shared)))

    def _needed(self, anchor: int) -> int:
        """Tasks that keep every processor busy, with some left over for balance; one, where there is little to do.

        On CUDA three quarters of the multiprocessors at work are better than a grid barrier.
        """
        processors = self.context.target.processors
        enough = max(1, 3 * processors // 4) if self.context.is_cuda else 2 * processors
        return enough if self.context.domain_work(anchor) >= PARALLEL_WORK else 1

    def _tasks(self, anchor: int, axes: Iterable[int]) -> int:
        """Tasks that `axes` give; on CUDA a block takes a line of neighbours along the axis that lies in memory."""
        context = self.context
        if not context.is_cuda:
            return context.extent(axes)
        line = storage_order(context, GroupDraft("", 0, ()), anchor)[-1:]
        wide = context.sub.values[anchor].reduce != () and line
        return math.prod(-(-context.sub.extents[a] // (LINE if wide and a in line else 1)) for a in axes)

    def _enough(self, anchor: int, tasks: int) -> bool:
        """True when more tasks would not pay for the barrier that brings their results together."""
        short = self.context.is_cuda and self.context.domain_work(anchor) // max(1, tasks) <= LONG_TASK
        return short or tasks >= self._needed(anchor)

    def _parallel(self, anchor: int) -> tuple[int, ...]:
        """The parallel axes of a new group, seeded by `anchor`.

        joint   own axes, less those that would keep later related dominants out (while enough tasks remain)
        own     all own axes
        split   own axes and the reduced ones: a row split over tasks
        rows    the reduced axes alone: every task makes partial results for all own axes
        """
        value = self.context.sub.values[anchor]
        joint = self._joint(anchor)
        choices = ["joint", "own"]
        default = "joint"
        if value.reduce:
            choices.append("split")
            if value.axes:
                choices.append("rows")
            few = not self._enough(anchor, self._tasks(anchor, joint))
            if few and self.context.domain_work(anchor) >= SPLIT_WORK:
                default = "rows" if self._columns_fit(anchor) else "split"
        kind = self.ask(Knob(f"axes.{anchor}", tuple(choices), default))
        match kind:
            case "joint":
                return joint
            case "own":
                return value.axes
            case "split":
                return value.axes + value.reduce
            case _:
                return value.reduce

    def _columns_fit(self, anchor: int) -> bool:
        value = self.context.sub.values[anchor]
        if self.context.is_cuda:
            return False  # tiles of columns and of rows: as few parts as fill the device
        return 1 < self.context.sub.elements(anchor) <= COMBINE_ELEMENTS and bool(value.axes)

    def _joint(self, anchor: int) -> tuple[int, ...]:
        sub = self.context.sub
        parallel = sub.values[anchor].axes
        related = set(self._reads(anchor)) | {anchor}
        for other in self.context.anchors:
            if other in self.home or other == anchor:
                continue
            reads = self._reads(other)
            if related.isdisjoint(reads):
                continue
            if sub.domain_size(other) * 8 <= sub.domain_size(anchor) and other not in related:
                continue
            fewer = tuple(p for p in parallel if p in sub.values[other].axes)
            tasks = self._tasks(anchor, fewer)
            if fewer == parallel or (self._enough(anchor, tasks) and self._enough(other, tasks)):
                parallel = fewer
                related |= reads | {other}
        return parallel

    def finish(self) -> list[list[GroupDraft]]:
        """Adds the groups that combine what nobody else combines, and sorts groups into phases."""
        combined = {v for g in self.groups for v in g.combine}
        for group in list(self.groups):
            for value in sorted(group.partial - combined):
                if value not in self.elected:
                    self._elect(value)
        phases = sorted({g.phase for g in self.groups})
        return [[g for g in self.groups if g.phase == p] for p in phases]
