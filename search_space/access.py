"""What evaluating a value reads, once the values that are not kept are inlined into it.

A *site* is a listed value and the loops around it. Walking from it through inlined operands gives every access
to a kept value or an input, with its index in terms of the site's own axes: the exact base of locality.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..graphs.index import Renaming
from ..graphs.subgraph import AxisVar, Index, Subgraph, all_reads, axes_of


@dataclass(frozen=True)
class Access:
    """One read that evaluating `root` performs: `reader` (root, or a value inlined into it) reads `value`.

    index    per axis of the value read, over the axes of root's domain
    guarded  under a predicate or inside a lookup: it may not happen for every point
    """

    root: int
    reader: int
    value: int
    index: tuple[Index, ...]
    guarded: bool

    def is_identity(self, sub: Subgraph, axis: int) -> bool:
        """True when the value read has `axis` and is read exactly at the root's position along it."""
        axes = sub.values[self.value].axes
        return axis in axes and self.index[axes.index(axis)] == AxisVar(axis)

    def is_identity_everywhere(self, sub: Subgraph) -> bool:
        return all(i == AxisVar(a) for i, a in zip(self.index, sub.values[self.value].axes, strict=True))

    @property
    def axes(self) -> frozenset[int]:
        """Axes of the root that the access depends on."""
        return frozenset().union(*(axes_of(i) for i in self.index))


def walk(sub: Subgraph, root: int, inlined: Callable[[int, int], bool]) -> Iterator[Access]:
    """Every access of `root`; `inlined(value, reader)` says which operands are evaluated in place.

    Accesses to inlined values are yielded too (before what they read), so that callers can see every edge.
    Equal (reader, index) evaluations are walked once.
    """
    seen: set[tuple[int, tuple[Index, ...]]] = set()
    identity: dict[int, Index] = {a: AxisVar(a) for a in sub.values[root].domain}
    pending: list[tuple[int, Mapping[int, Index], bool]] = [(root, identity, False)]
    while pending:
        reader, mapping, guarded = pending.pop()
        value = sub.values[reader]
        plain = {id(r) for r in value.reads if not r.where}
        rename = Renaming(mapping.__getitem__, lambda axis: axis)
        for read in all_reads(value):
            index = tuple(rename.index(i) for i in read.index)
            under = guarded or id(read) not in plain
            yield Access(root, reader, read.value, index, under)
            source = sub.values[read.value]
            if source.op in ("input", "const") or not inlined(read.value, reader):
                continue
            if (read.value, index) in seen:
                continue
            seen.add((read.value, index))
            pending.append((read.value, dict(zip(source.axes, index, strict=True)), under))
