"""What stays on chip in a CUDA kernel: in registers between stages, in shared memory, and across the grid barrier.

A value that a later stage reads stays in the registers of the threads that made it where they are the ones that read
it; else it goes through shared memory. An input that several stages read is loaded once, by the first of them; when the
parts of split rows fit the multiprocessors, each block keeps its part of the inputs from phase to phase.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..graphs.subgraph import AxisVar, Subgraph
from .access import Access, walk
from .draft import Context, GroupDraft, StageDraft
from .knobs import Ask, Knob
from .loading import identity_axes
from .plan import Edge
from .registers import MAX_HELD, allowance, held, same_threads
from .shared_memory import group_bytes

Sites = dict[tuple[int, int], list[Access]]
"""Accesses by the value read and the reader that evaluates them; the site's root says where."""


def sites(sub: Subgraph, roots: Iterable[int], edges: Iterable[Edge]) -> Sites:
    """Every access of the listed values `roots` to what is not evaluated in place."""
    inline = {(e.value, e.consumer) for e in edges if e.place == "inline"}
    found: Sites = {}
    for root in roots:
        for access in walk(sub, root, lambda value, reader: (value, reader) in inline):
            if sub.values[access.value].op != "const" and (access.value, access.reader) not in inline:
                found.setdefault((access.value, access.reader), []).append(access)
    return found


class Keeper:
    """Decides places of one group after its threads are mapped."""

    def __init__(self, context: Context, group: GroupDraft, reads: Sites, ask: Ask) -> None:
        self.context = context
        self.sub = context.sub
        self.group = group
        self.reads = reads
        self.ask = ask
        self.left = allowance(context.target, group.threads)

    def registers(self, edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
        """Turns block edges into register edges where the same threads read what they made and have room."""
        here = {v for s in self.group.stages for v in s.members} - self.group.partial
        open_ = {e.value for e in edges if e.place == "block" and e.value in here}
        held_here: set[int] = set()
        for value in sorted(open_, key=lambda v: (self._held(v), v)):
            consumers = [e.consumer for e in edges if e.value == value and e.place == "block"]
            if not all(self._same(value, c) for c in consumers):
                continue
            size = self._held(value)
            room = size <= min(self.left, MAX_HELD)
            if self.ask(Knob(f"hold.{value}", ("register", "block"), "register")) == "register" and room:
                self.left -= size
                held_here.add(value)
        return tuple(
            Edge(e.value, e.consumer, "register") if e.value in held_here and e.place == "block" else e for e in edges
        )

    def _held(self, value: int) -> int:
        """Four-byte elements of a listed value that a thread holds."""
        home = self.group.stages[self.group.stage_of(value)]
        return self._size(home, self.sub.values[value].axes, value)

    def _size(self, stage: StageDraft, axes: tuple[int, ...], value: int) -> int:
        words = -(-self.sub.values[value].dtype.size // 4)
        return words * held(stage, axes, lambda a: self.group.trip(self.sub, a))

    def _same(self, value: int, consumer: int) -> bool:
        home = self.group.stages[self.group.stage_of(value)]
        axes = self.sub.values[value].axes
        for access in self.reads.get((value, consumer), ()):
            at = self.group.stage_of(access.root)
            if at < 0 or not access.is_identity_everywhere(self.sub):
                return False
            if not same_threads(home, self.group.stages[at], axes):
                return False
        return True

    def inputs(self, edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
        """Loads inputs that several stages read once, into registers or shared memory where there is room.

        An input is loaded by one group at most; others read it from device memory.
        """
        for value in inputs_read(self.sub, self.group, self.reads):
            if not is_loaded(edges, value):
                edges = self._input(edges, value)
        return tuple(sorted(edges, key=lambda e: (e.value, e.consumer)))

    def _input(self, edges: tuple[Edge, ...], value: int) -> tuple[Edge, ...]:
        readers = loadable(self.sub, self.group, self.reads, value)
        if readers is None:
            return edges
        axes, by_consumer = readers
        stages = sorted({s for found in by_consumer.values() for s in found})
        if len(stages) < 2 or not axes:
            return edges
        first = self.group.stages[stages[0]]
        if not set(axes) <= set(first.order):
            return edges
        size = self._size(first, axes, value)
        same = all(same_threads(first, self.group.stages[s], axes) for s in stages)
        fits = same and size <= min(self.left, MAX_HELD)
        best = "register" if fits else "block"
        answer = self.ask(Knob(f"load.{value}.{self.group.label}", ("global", "register", "block"), best))
        if answer == "register" and fits:
            self.left -= size
            first.inputs[value] = axes
            return (*edges, *(Edge(value, c, "register") for c in by_consumer))
        if answer == "global":
            return edges
        return self._through_block(edges, value, axes, by_consumer, stages[0])

    def _through_block(
        self, edges: tuple[Edge, ...], value: int, axes: tuple[int, ...], by_consumer: dict[int, set[int]], first: int
    ) -> tuple[Edge, ...]:
        wanted = (*edges, *load(self.group, value, axes, by_consumer, first))
        if sum(group_bytes(self.sub, self.group, wanted).values()) <= self.context.target.block_bytes:
            return wanted
        unload(self.group, value)
        return edges


def load(
    group: GroupDraft, value: int, axes: tuple[int, ...], by_consumer: dict[int, set[int]], first: int
) -> Iterator[Edge]:
    """Loads an input into shared memory in stage `first`, whose own readers take it from a register; or in a stage
    before it, where some reader is evaluated both there and later.

    `by_consumer`: the stages of each reader; -1 for those of a later phase.
    """
    stage = group.stages[first]
    if any(first in found and len(found) > 1 for found in by_consumer.values()) or not set(axes) <= set(stage.order):
        before = group.stages[first - 1] if first else None
        if before is None or before.members or before.combine or set(before.order) != set(axes):
            order = tuple(a for a in stage.order if a in axes)
            vector = stage.vector if stage.vector in axes else -1
            lanes = tuple((a, n) for a, n in stage.lanes if a in axes)
            before = StageDraft([], order, vector, width=stage.width if vector >= 0 else 1, lanes=lanes)
            group.stages.insert(first, before)
        stage = before
    stage.inputs[value] = axes
    for consumer, found in by_consumer.items():
        inside = found == {first} and stage is group.stages[first]
        yield Edge(value, consumer, "register" if inside else "block")


def is_loaded(edges: Iterable[Edge], value: int) -> bool:
    return any(e.value == value for e in edges)


def unload(group: GroupDraft, value: int) -> None:
    for stage in group.stages:
        stage.inputs.pop(value, None)
    group.stages[:] = [s for s in group.stages if s.members or s.combine or s.inputs]


def inputs_read(sub: Subgraph, group: GroupDraft, reads: Sites) -> list[int]:
    """The inputs that are read in the group: few, where many kernels share out hundreds."""
    found = {source for (source, _), accesses in reads.items() if any(group.stage_of(a.root) >= 0 for a in accesses)}
    return [v for v in sub.inputs if v in found]


def loadable(
    sub: Subgraph, group: GroupDraft, reads: Sites, value: int
) -> tuple[tuple[int, ...], dict[int, set[int]]] | None:
    """The axes along which the group could load an input for its readers, and the stages of each such consumer.

    Consumers that read it otherwise, or that other groups evaluate too, are left out and load it for themselves; so is
    what a consumer reads elsewhere than at its own position.
    """
    by_axes: dict[tuple[int, ...], dict[int, set[int]]] = {}
    for (source, consumer), accesses in reads.items():
        axes = identity_axes(sub, value, consumer) if source == value else None
        if axes is None or any(group.stage_of(a.root) < 0 for a in accesses):
            continue
        stages = {group.stage_of(a.root) for a in accesses if reads_plainly(a, axes)}
        if stages:
            by_axes.setdefault(axes, {})[consumer] = stages
    if not by_axes:
        return None
    best = max(by_axes, key=lambda axes: (len(set().union(*by_axes[axes].values())), axes))
    return best, by_axes[best]


def reads_plainly(access: Access, axes: Sequence[int]) -> bool:
    """True when a site reads the input at its own position along `axes`, at every point."""
    return not access.guarded and access.index == tuple(AxisVar(a) for a in axes)
