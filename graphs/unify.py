"""Unification: a value that reads another through the identity shares its axes.

Never so that one value would have an axis twice: x + transpose(x), pairwise differences and a mean broadcast along the
other axis keep a map that is no identity. Reads between computed values come first; then readers of one input at the
same position share axes too, where nothing speaks against it, so that one pass over the input can serve them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

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
    for ours, theirs in _through_inputs(values, extents):
        classes.merge(ours, theirs)
    renaming = Renaming(lambda a: AxisVar(classes.find(a)), classes.find)
    return {number: renaming.whole(value) for number, value in values.items()}


def _through_inputs(values: Mapping[int, Value], extents: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Axes along which two values read an input at their own position, inputs with more axes first."""
    readers: dict[int, list[tuple[int, ...]]] = {}
    for value in values.values():
        for read in all_reads(value):
            if values[read.value].is_input and read.is_plain:
                readers.setdefault(read.value, []).append(tuple(i.axis for i in read.index if isinstance(i, AxisVar)))
    for _, positions in sorted(readers.items(), key=lambda item: -len(item[1][0])):
        first = positions[0]
        for other in positions[1:]:
            for ours, theirs in zip(other, first, strict=True):
                if extents[ours] == extents[theirs]:
                    yield ours, theirs


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
