"""The canonical form of a memory-intensive subgraph: values over axes, connected by access maps.

Movement operators are gone: every read carries a map from the reader's axes to the axes of the value
read. Values are numbered in topological order; inputs are values too (`op == "input"`). An axis is
a number into `extents`; a computed value and its reader share an axis only where the read is
the identity along it, so "same axis" *is* the locality proof; readers of one input at the same position share axes
too. Inputs have axes of their own, which no index mentions: they only carry the extents of the stored array. Axes of no
value at all carry extents for bounds and lookups; one of them, of extent 1, bounds an index to a single position.

The digest covers everything here except `extents` and `slots`, which stand beside it in a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .dtypes import DType

# --- index expressions: an integer as a function of positions along the reader's axes


@dataclass(frozen=True)
class AxisVar:
    """The position along axis `axis` of the reading value (its own or a reduced one)."""

    axis: int


@dataclass(frozen=True)
class Int:
    """A constant that is part of the structure."""

    value: int


@dataclass(frozen=True)
class Slot:
    """A constant that is not part of the structure (a slice start): `Subgraph.slots[slot]`."""

    slot: int


@dataclass(frozen=True)
class Sum:
    """Sum of `coefficient * term`; at least two terms or one coefficient that is not 1; no nested Sum, no zero."""

    terms: tuple[tuple[int, Index], ...]


@dataclass(frozen=True)
class FloorDiv:
    """`term // divisor`, rounded toward minus infinity; divisor >= 2."""

    term: Index
    divisor: int


@dataclass(frozen=True)
class Mod:
    """`term % divisor` in 0..divisor-1; divisor >= 2."""

    term: Index
    divisor: int


@dataclass(frozen=True)
class Lookup:
    """The integer that `read` gives, negative ones counted from `extent` (a gather)."""

    read: Read
    extent: int
    """The axis (number) whose extent negative indices count from."""


Index = AxisVar | Int | Slot | Sum | FloorDiv | Mod | Lookup


@dataclass(frozen=True)
class Bound:
    """`0 <= index < extent of axis number 'axis'`: where a read is valid."""

    index: Index
    axis: int


Scalar = int | float | bool
"""Python scalars; floats may be NaN or infinite."""


@dataclass(frozen=True)
class Read:
    """How a value is read: one index per axis of the value read.

    Where a bound in `where` fails, nothing is loaded and the read gives `fill` (padding); in a `piecewise` value
    `fill` is None and the next read is tried.
    """

    value: int
    index: tuple[Index, ...]
    where: tuple[Bound, ...] = ()
    fill: Scalar | None = None

    @property
    def is_plain(self) -> bool:
        """True when every index is an axis position and there is no predicate."""
        return not self.where and all(isinstance(i, AxisVar) for i in self.index)


@dataclass(frozen=True)
class Value:
    """One value of a subgraph.

    op      "input", "const" (scalar, attr `value`), "iota" (its `position` cast to dtype), "piecewise" (the first
            read whose bounds hold: concat), or an elementwise or reduce primitive of primitives.py.
    axes    own axes, outer to inner. For an input or an output this is the storage order (row-major).
    reduce  the ordered group of reduced axes (reduce primitives only), disjoint from `axes`.
    reads   operands in order. Their indices range over `axes + reduce`.
    """

    op: str
    dtype: DType
    axes: tuple[int, ...]
    reduce: tuple[int, ...] = ()
    reads: tuple[Read, ...] = ()
    attrs: tuple[tuple[str, Scalar | str], ...] = ()
    position: Index | None = None

    @property
    def is_input(self) -> bool:
        return self.op == "input"

    @property
    def domain(self) -> tuple[int, ...]:
        """Every axis the value iterates over: its own, then the reduced ones."""
        return self.axes + self.reduce

    def attr(self, name: str, default: Scalar | str | None = None) -> Scalar | str | None:
        return dict(self.attrs).get(name, default)


@dataclass(frozen=True)
class Subgraph:
    """A memory-intensive subgraph in canonical form.

    values   in topological order: each read names an earlier value.
    outputs  value numbers written to memory for somebody outside, in canonical order, no repeats, never inputs.
    extents  size of each axis.
    slots    the values of `Slot`s.
    """

    values: tuple[Value, ...]
    outputs: tuple[int, ...]
    extents: tuple[int, ...]
    slots: tuple[int, ...] = ()

    @property
    def inputs(self) -> tuple[int, ...]:
        """Numbers of the input values, ascending: the order of a kernel's input buffers."""
        return tuple(i for i, v in enumerate(self.values) if v.is_input)

    @property
    def computed(self) -> tuple[int, ...]:
        """Numbers of everything that is computed: no inputs, no scalar constants."""
        return tuple(i for i, v in enumerate(self.values) if v.op not in ("input", "const"))

    def shape(self, value: int) -> tuple[int, ...]:
        return tuple(self.extents[a] for a in self.values[value].axes)

    def elements(self, value: int) -> int:
        total = 1
        for axis in self.values[value].axes:
            total *= self.extents[axis]
        return total

    def domain_size(self, value: int) -> int:
        """Iteration points of a value: elements times reduced extents."""
        total = 1
        for axis in self.values[value].domain:
            total *= self.extents[axis]
        return total

    def bytes(self, value: int) -> int:
        return self.elements(value) * self.values[value].dtype.size

    @property
    def bytes_min(self) -> int:
        """The least possible traffic in bytes: each input once, each output once, whatever the plan."""
        return sum(self.bytes(v) for v in (*self.inputs, *self.outputs))

    def consumers(self) -> dict[int, tuple[int, ...]]:
        """For each value, the values that read it (also through a Lookup), ascending."""
        found: dict[int, list[int]] = {i: [] for i in range(len(self.values))}
        for i, value in enumerate(self.values):
            for source in dict.fromkeys(read.value for read in all_reads(value)):
                found[source].append(i)
        return {k: tuple(v) for k, v in found.items()}

    def resized(self, extents: tuple[int, ...], slots: tuple[int, ...] | None = None) -> Subgraph:
        """The same structure at other sizes."""
        return replace(self, extents=extents, slots=self.slots if slots is None else slots)


def all_reads(value: Value) -> Iterator[Read]:
    """The reads of a value, those inside lookups, bounds and positions included (outer ones first)."""
    for read in value.reads:
        yield from _reads_of(read)
    if value.position is not None:
        yield from _lookups(value.position)


def _reads_of(read: Read) -> Iterator[Read]:
    yield read
    for index in read.index:
        yield from _lookups(index)
    for bound in read.where:
        yield from _lookups(bound.index)


def _lookups(index: Index) -> Iterator[Read]:
    match index:
        case Sum(terms):
            for _, term in terms:
                yield from _lookups(term)
        case FloorDiv(term, _) | Mod(term, _):
            yield from _lookups(term)
        case Lookup(read, _):
            yield from _reads_of(read)
        case _:
            pass


def axes_of(index: Index) -> frozenset[int]:
    """The axes that an index mentions, those of lookups included."""
    match index:
        case AxisVar(axis):
            return frozenset({axis})
        case Sum(terms):
            return frozenset().union(*(axes_of(t) for _, t in terms))
        case FloorDiv(term, _) | Mod(term, _):
            return axes_of(term)
        case Lookup(read, _):
            return axes_of_read(read)
        case _:
            return frozenset()


def axes_of_read(read: Read) -> frozenset[int]:
    """The axes that a read's indices and bounds mention."""
    parts = [axes_of(i) for i in read.index] + [axes_of(b.index) for b in read.where]
    return frozenset().union(*parts)
