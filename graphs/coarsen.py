"""Coarsening: two axes that are next to each other wherever either occurs become one.

Refinement divides dimensions for the sake of reshapes, and exported tensors have dimensions of their own; what nobody
tells apart in the end is one axis. So a bias over [8, 128, 768] iterates over two axes, 1024 and 768. An axis merges
with the next only if every value has both side by side, every index has both as neighbours or as one number, and
whatever is read by them, or reads them, merges alike: the greatest such set is found by striking out pairs that do not
fit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .index import Space
from .subgraph import AxisVar, Bound, FloorDiv, Index, Int, Lookup, Mod, Read, Slot, Sum, Value, all_reads

Pair = tuple[int, int]
"""An axis and the one next to it on the inside."""


def coarsen(values: Mapping[int, Value], space: Space) -> dict[int, Value]:
    """`values` over fewer axes; extents of merged axes (the outer one's number is kept) are set in `space`."""
    pairs = _Pairs(values, space)
    for value in values.values():
        for read in all_reads(value):
            pairs.visit_read(read, values[read.value])
        if value.position is not None:
            pairs.visit(value.position)
    inner_of = pairs.alive()
    if not inner_of:
        return dict(values)
    merge = _Merge(inner_of, values, space)
    found = {number: merge.value(value) for number, value in values.items()}
    for outer, chain in merge.chains.items():
        for axis in chain[1:]:
            space.extents[outer] *= space.extents[axis]
    return found


def _joined(first: Index, second: Index, size: int, space: Space) -> Index | None:
    """Two digits, the second of base `size`, as one number, where that is as simple as they are."""
    match first, second:
        case ((Int() | Slot()), (Int() | Slot())):
            return space.settle(space.sum((size, first), (1, second)))
        case _, Mod(whole, base) if base == size:
            above = space.floordiv(whole, size)
            if first == above:
                return whole
            if isinstance(first, Mod) and first.term == above:
                return space.mod(whole, first.divisor * size)
    return None


class _Pairs:
    """Candidates, linked where one merges exactly if the other does, and struck out where one cannot."""

    def __init__(self, values: Mapping[int, Value], space: Space) -> None:
        self._space = space
        self._extents = space.extents
        inner: dict[int, int] = {}
        outer: dict[int, int] = {}
        for value in values.values():
            for axes in (value.axes, value.reduce):
                for a, b in zip((-1, *axes), (*axes, -1), strict=True):
                    # -1 stands for the end of a list; an axis with two different neighbours merges with neither.
                    inner[a] = b if inner.get(a, b) == b else -1
                    outer[b] = a if outer.get(b, a) == a else -1
        self.inner_of = {a: b for a, b in inner.items() if a >= 0 and b >= 0 and outer[b] == a}
        self._outer_of = {b: a for a, b in self.inner_of.items()}
        self._links: dict[int, list[int]] = {}
        self._struck: set[int] = set()

    def alive(self) -> dict[int, int]:
        """The inner axis of each pair that merges, by the outer one."""
        waiting = list(self._struck)
        while waiting:
            for other in self._links.get(waiting.pop(), ()):
                if other not in self._struck:
                    self._struck.add(other)
                    waiting.append(other)
        return {a: b for a, b in self.inner_of.items() if a not in self._struck}

    def visit_read(self, read: Read, source: Value) -> None:
        for bound in read.where:
            self.visit(bound.index)
            self._strike(bound.axis)
        axes: set[int] = set()
        digits: set[int] = set()
        for k, (a, b) in enumerate(zip(source.axes, source.axes[1:], strict=False)):
            if self.inner_of.get(a) != b:
                continue
            first, second = read.index[k], read.index[k + 1]
            if isinstance(first, AxisVar) and isinstance(second, AxisVar) and self._linked(first.axis, second.axis, a):
                axes.add(k)
            elif _joined(first, second, self._extents[b], self._space) is not None:
                digits.update((k, k + 1))
            else:
                self._struck.add(a)
        for k, index in enumerate(read.index):
            if isinstance(index, AxisVar) and k not in digits:
                # As the outer one of a pair of the reader's it must stand before its neighbour, and the reverse.
                self._require(k in axes, index.axis)
                self._require(k - 1 in axes, self._outer_of.get(index.axis, -1))
            else:
                self.visit(index.term if k in digits and isinstance(index, FloorDiv | Mod) else index)

    def visit(self, index: Index) -> None:
        """An index that is no plain axis: axes merge in it as parts of one number only."""
        match index:
            case AxisVar(axis):
                self._strike(axis)
            case Sum(terms):
                factors = {t.axis: f for f, t in terms if isinstance(t, AxisVar)}
                for axis, factor in factors.items():
                    inner, outer = self.inner_of.get(axis, -1), self._outer_of.get(axis, -1)
                    if inner >= 0:
                        self._require(factors.get(inner, 0) * self._extents[inner] == factor, axis)
                    if outer >= 0:
                        self._require(factors.get(outer, 0) == factor * self._extents[axis], outer)
                for _, term in terms:
                    if not isinstance(term, AxisVar):
                        self.visit(term)
            case FloorDiv(term, _) | Mod(term, _):
                self.visit(term)
            case Lookup(_, extent):
                self._strike(extent)
            case _:
                pass

    def _linked(self, x: int, y: int, a: int) -> bool:
        """Whether the reader's pair (x, y) reads the pair that starts with a; then both share their fate."""
        if self.inner_of.get(x) != y or self._extents[y] != self._extents[self.inner_of[a]]:
            return False
        self._links.setdefault(x, []).append(a)
        self._links.setdefault(a, []).append(x)
        return True

    def _require(self, holds: bool, outer: int) -> None:
        if not holds:
            self._struck.add(outer)

    def _strike(self, axis: int) -> None:
        self._struck.add(axis)
        self._struck.add(self._outer_of.get(axis, -1))


class _Merge:
    """Rewrites values over the merged axes."""

    def __init__(self, inner_of: Mapping[int, int], values: Mapping[int, Value], space: Space) -> None:
        self._inner_of = inner_of
        self._gone = set(inner_of.values())
        self._values = values
        self._space = space
        self.chains = {a: tuple(self._chain(a)) for a in inner_of if a not in self._gone}
        """Merged axes, outer to inner, by the outermost."""

    def value(self, value: Value) -> Value:
        return Value(
            value.op,
            value.dtype,
            tuple(a for a in value.axes if a not in self._gone),
            tuple(a for a in value.reduce if a not in self._gone),
            tuple(map(self._read, value.reads)),
            value.attrs,
            None if value.position is None else self._index(value.position),
        )

    def _chain(self, axis: int) -> Iterator[int]:
        yield axis
        while axis in self._inner_of:
            axis = self._inner_of[axis]
            yield axis

    def _read(self, read: Read) -> Read:
        index: list[Index] = []
        for axis, own in zip(self._values[read.value].axes, read.index, strict=True):
            if axis not in self._gone:
                index.append(own)
            elif not isinstance(own, AxisVar) or not isinstance(index[-1], AxisVar):
                joined = _joined(index[-1], own, self._space.extents[axis], self._space)
                assert joined is not None, (read, axis)
                index[-1] = joined
        where = tuple(Bound(self._index(b.index), b.axis) for b in read.where)
        return Read(read.value, tuple(map(self._index, index)), where, read.fill)

    def _index(self, index: Index) -> Index:
        match index:
            case Sum(terms):
                factors = {t.axis: f for f, t in terms if isinstance(t, AxisVar)}
                parts: list[tuple[int, Index]] = []
                for factor, term in terms:
                    if not isinstance(term, AxisVar):
                        parts.append((factor, self._index(term)))
                    elif term.axis not in self._gone:
                        parts.append((factors[self.chains.get(term.axis, (term.axis,))[-1]], term))
                return self._space.sum(*parts)
            case FloorDiv(term, divisor):
                return FloorDiv(self._index(term), divisor)
            case Mod(term, divisor):
                return Mod(self._index(term), divisor)
            case Lookup(read, extent):
                return Lookup(self._read(read), extent)
            case _:
                return index
