"""Unification: a value that reads another through the identity shares its axes.

Only reads between computed values unify, and never so that one value would have an axis twice: x + transpose(x),
pairwise differences and a mean broadcast along the other axis keep a map that is no identity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .index import Renaming
from .subgraph import AxisVar, Value, all_reads


def unify(values: Mapping[int, Value], extents: Sequence[int]) -> dict[int, Value]:
    """The values over shared axes; each has axes of its own before. The order of the mapping is that of decisions.

    Reads of values with more axes come first, then those of earlier readers: where merges conflict, the larger value
    stays local.
    """
    classes = _Classes(values, len(extents))
    pairs: list[tuple[int, int, int]] = []
    for value in values.values():
        for read in all_reads(value):
            source = values[read.value]
            if source.op in ("input", "const"):
                continue
            for index, axis in zip(read.index, source.axes, strict=True):
                if isinstance(index, AxisVar) and extents[index.axis] == extents[axis]:
                    pairs.append((-len(source.axes), index.axis, axis))
    pairs.sort(key=lambda pair: pair[0])
    for _, ours, theirs in pairs:
        classes.merge(ours, theirs)
    renaming = Renaming(lambda a: AxisVar(classes.find(a)), classes.find)
    return {number: renaming.whole(value) for number, value in values.items()}


class _Classes:
    """Axes that are one, with the values that have each in their domain."""

    def __init__(self, values: Mapping[int, Value], count: int) -> None:
        self._parents = list(range(count))
        self._members: list[set[int]] = [set() for _ in range(count)]
        for number, value in values.items():
            for axis in value.domain:
                self._members[axis].add(number)

    def find(self, axis: int) -> int:
        while self._parents[axis] != axis:
            self._parents[axis] = self._parents[self._parents[axis]]
            axis = self._parents[axis]
        return axis

    def merge(self, a: int, b: int) -> None:
        """Makes both one axis, unless a value has both."""
        a, b = self.find(a), self.find(b)
        if a == b:
            return
        if len(self._members[a]) < len(self._members[b]):
            a, b = b, a
        if self._members[a].isdisjoint(self._members[b]):
            self._parents[b] = a
            self._members[a] |= self._members[b]
