"""The mutable draft that the stitching passes fill in before it is frozen into a Plan."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from ..graphs.primitives import REDUCTIONS
from ..graphs.subgraph import Subgraph
from .access import Access, walk
from .dominants import required
from .target import Target


@dataclass
class StageDraft:
    """One loop nest: its members in order, what it combines, its loops.

    inputs   what it loads for several readers, along which axes (CUDA); width and lanes as in `Stage`
    """

    members: list[int]
    order: tuple[int, ...]
    vector: int
    combine: list[int] = field(default_factory=list)
    inputs: dict[int, tuple[int, ...]] = field(default_factory=dict)
    width: int = 1
    lanes: tuple[tuple[int, int], ...] = ()


@dataclass
class GroupDraft:
    """One independent iteration space in a phase.

    label    names the group in knobs and in `Context.kept`: the dominant that opened it; with a "c" when it was opened
             to combine that dominant's partial results
    partial  members whose reduction runs over a parallel axis: every task leaves a partial result
    combine  reductions of earlier phases that this group's tasks combine before they use them
    coupled  reductions that run beside another one in one pass: the second to the first (CUDA)
    joined   such pairs that are split over tasks and leave common partial results, which are made or combined here
    row      threads that share one row (CUDA)
    narrow   how many times narrower than possible accesses are (CUDA)
    layouts  order of axes and padding of values in block memory, where they are not kept as they are (CUDA)
    """

    label: str
    phase: int
    parallel: tuple[int, ...]
    members: list[int] = field(default_factory=list)
    partial: set[int] = field(default_factory=set)
    combine: list[int] = field(default_factory=list)
    stages: list[StageDraft] = field(default_factory=list)
    tiles: dict[int, int] = field(default_factory=dict)
    coupled: dict[int, int] = field(default_factory=dict)
    joined: dict[int, int] = field(default_factory=dict)
    threads: int = 1
    row: int = 1
    narrow: int = 1
    layouts: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    tasks_per_block: int = 1

    def trip(self, sub: Subgraph, axis: int) -> int:
        """Positions along an axis that a task covers, at least 1."""
        return max(1, min(self.tiles.get(axis, sub.extents[axis]), sub.extents[axis]))

    def tasks(self, sub: Subgraph) -> int:
        return math.prod(-(-sub.extents[a] // self.tiles[a]) for a in self.parallel)

    def stage_of(self, value: int) -> int:
        """The stage that lists `value`; -1 when none does."""
        return next((i for i, s in enumerate(self.stages) if value in s.members), -1)

    def combine_stage_of(self, value: int) -> int:
        return next((i for i, s in enumerate(self.stages) if value in s.combine), -1)


@dataclass
class Context:
    """The subgraph and target of one stitching, with what the passes ask again and again.

    recompute    whether small anchors may be computed again by large sites (is_transparent)
    kept         elementwise values listed by decision, although nothing requires it: value -> label of their group
    extra        values that every other site reads and none recomputes, since no place would serve them all otherwise
    inline_edges, global_edges   (value, reader) pairs whose place was fixed so that it holds at every site
    """

    sub: Subgraph
    target: Target
    recompute: bool = True
    kept: dict[int, str] = field(default_factory=dict)
    extra: frozenset[int] = frozenset()
    inline_edges: set[tuple[int, int]] = field(default_factory=set)
    global_edges: set[tuple[int, int]] = field(default_factory=set)
    _walks: dict[tuple[int, frozenset[int]], tuple[Access, ...]] = field(default_factory=dict)

    def again(self) -> Context:
        """A fresh context with what was fixed so far; new anchors move groups: what hangs on those starts anew."""
        moved = self.extra != self._extra_before
        return Context(
            self.sub,
            self.target,
            kept={} if moved else self.kept,
            extra=self.extra,
            inline_edges=self.inline_edges,
            global_edges=set() if moved else self.global_edges,
        )

    def __post_init__(self) -> None:
        self._extra_before = self.extra

    @property
    def is_cuda(self) -> bool:
        return self.target.kind == "cuda"

    @cached_property
    def anchors(self) -> tuple[int, ...]:
        return tuple(sorted({*required(self.sub), *self.extra}))

    @cached_property
    def anchor_set(self) -> frozenset[int]:
        return frozenset(self.anchors)

    def is_reduction(self, value: int) -> bool:
        return self.sub.values[value].op in REDUCTIONS

    def extent(self, axes: Iterable[int]) -> int:
        total = 1
        for axis in axes:
            total *= self.sub.extents[axis]
        return total

    def domain_work(self, value: int) -> int:
        """Iteration points of a value, at least 1."""
        return max(1, self.sub.domain_size(value))

    def accesses(self, root: int, listed: Iterable[int] = ()) -> tuple[Access, ...]:
        """All accesses of a site at `root`, with everything inlined but anchors and `listed`.

        A small elementwise anchor that no reduction feeds is read through (recomputed) by a site eight times its size,
        so that nobody waits for it at a barrier.
        """
        kept = frozenset(listed)
        key = (root, kept)
        if key not in self._walks:

            def inlined(value: int, reader: int) -> bool:
                if (value, reader) in self.inline_edges:
                    return True
                return value not in kept and (value not in self.anchor_set or self.is_transparent(value, root))

            self._walks[key] = tuple(walk(self.sub, root, inlined))
        return self._walks[key]

    def fix_inline(self, value: int, reader: int) -> None:
        """From now on `reader` recomputes `value` at every site."""
        self.inline_edges.add((value, reader))
        self._walks.clear()

    def is_inline(self, access: Access, listed: Iterable[int]) -> bool:
        """True when the site of `access` evaluates the value in place instead of reading a kept one."""
        if (access.value, access.reader) in self.inline_edges:
            return True
        if access.value in self.anchor_set:
            return self.is_transparent(access.value, access.root)
        return access.value not in listed

    def is_transparent(self, value: int, root: int) -> bool:
        """True when `root` recomputes the anchor `value` instead of reading it."""
        return (
            self.recompute
            and value not in self.extra
            and value in self._cheap_anchors
            and self.sub.domain_size(value) * 8 <= self.sub.domain_size(root)
        )

    @cached_property
    def _cheap_anchors(self) -> frozenset[int]:
        found: set[int] = set()
        for value in self.anchors:
            if self.is_reduction(value):
                continue
            reads = walk(self.sub, value, lambda v, _: v not in self.anchor_set or v in found)
            if all(a.value not in self.anchor_set or a.value in found for a in reads):
                found.add(value)
        return frozenset(found)

    def dependencies(self, root: int) -> tuple[Access, ...]:
        """Accesses of `root` to anchors that it does not recompute."""
        return tuple(a for a in self.accesses(root) if a.value in self.anchor_set and not self.is_inline(a, ()))
