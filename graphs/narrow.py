"""Narrowing: values lose the axes that nobody needs them to have, and keep the others in one order.

1. A value that does not depend on one of its axes is computed without it: an exporter may broadcast before or after.
   The axes that are left stand in the order in which the value reads its operands, where that is one order, however
   an exporter transposed in between.
2. A value that is read only at fixed positions along an axis is computed at those alone, once for each: the gates of an
   LSTM cell, sliced from one sum, become values of their own that their readers keep in registers.

Outputs keep their axes. A copy that remains of a selected piece of a concat is read through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from .index import Renaming, Space
from .numbering import spelling_key
from .subgraph import (
    AxisVar,
    Bound,
    FloorDiv,
    Index,
    Int,
    Lookup,
    Mod,
    Read,
    Slot,
    Sum,
    Value,
    all_reads,
    axes_of,
    axes_of_read,
)

MOST_VERSIONS = 8
"""Positions up to which a value is computed once for each instead of as a whole."""

_LEAVES = ("input", "const")


def narrow(values: Sequence[Value], outputs: Sequence[int], space: Space) -> tuple[list[Value], dict[int, int]]:
    """What `outputs` need of `values` (in topological order, each with axes of its own), narrowed; and the new numbers
    of outputs and inputs. Equal values are one, but a position (iota) is computed anew for each read of it, so that it
    ties no axes together."""
    lean = _arrange(values, frozenset(outputs), space)
    same = {number: _source(lean, number, space) for number in outputs}
    found, moved = _Selection(lean, frozenset(same.values()), space).result()
    return found, {**moved, **{number: moved[source] for number, source in same.items()}}


def _source(values: Sequence[Value], number: int, space: Space) -> int:
    """The computed value that an output is a copy of, in the same order; itself if it is none."""
    value = values[number]
    if value.op != "copy" or value.reads[0].where:
        return number
    read = value.reads[0]
    source = values[read.value]
    same = read.index == tuple(map(AxisVar, value.axes)) and source.op not in _LEAVES
    extents = space.extents
    return read.value if same and [extents[a] for a in value.axes] == [extents[a] for a in source.axes] else number


# --- 1. which axes, in which order


def _arrange(values: Sequence[Value], outputs: frozenset[int], space: Space) -> list[Value]:
    kept: dict[int, tuple[int, ...]] = {}
    found: list[Value] = []

    def atom(index: Index) -> Index:
        return Lookup(thin(index.read), index.extent) if isinstance(index, Lookup) else index

    def thin(read: Read) -> Read:
        read = space.rebuild_read(read, atom)
        places = kept.get(read.value)
        return read if places is None else Read(read.value, tuple(read.index[k] for k in places), read.where, read.fill)

    for number, value in enumerate(values):
        if kept:
            value = _with_reads(value, thin, atom, space)
        order = _order(value)
        if value.op in ("sum", "prod", "max", "min"):
            value = replace(value, reduce=tuple(sorted(value.reduce, key=order.__getitem__)))
        if number not in outputs and value.op not in _LEAVES:
            places = [k for k, axis in enumerate(value.axes) if axis in order]
            places.sort(key=lambda k: order[value.axes[k]])
            if places != list(range(len(value.axes))):
                kept[number] = tuple(places)
                value = replace(value, axes=tuple(value.axes[k] for k in places))
        found.append(value)
    return found


def _order(value: Value) -> dict[int, int]:
    """A rank for every axis that a value depends on: by its reads that have all of them, if those agree."""
    reads = [list(dict.fromkeys(a for i in read.index for a in _sequence(i))) for read in value.reads]
    used = frozenset[int]().union(*map(axes_of_read, value.reads))
    if value.position is not None:
        used |= axes_of(value.position)
    own = [axis for axis in (*value.axes, *value.reduce) if axis in used]
    whole = {tuple(axes) for axes in reads if len(axes) == len(own)}
    # A reduced axis without a read that names it, of a sum over equal values, comes last.
    ranked = [*(whole.pop() if len(whole) == 1 else own), *value.reduce]
    return {axis: rank for rank, axis in reversed(list(enumerate(ranked)))}


def _sequence(index: Index) -> Iterator[int]:
    """The axes that an index mentions, as they come."""
    match index:
        case AxisVar(axis):
            yield axis
        case Sum(terms):
            for _, term in terms:
                yield from _sequence(term)
        case FloorDiv(term, _) | Mod(term, _):
            yield from _sequence(term)
        case Lookup(read, _):
            for inner in read.index:
                yield from _sequence(inner)
        case _:
            pass


def _with_reads(value: Value, read: Callable[[Read], Read], atom: Callable[[Index], Index], space: Space) -> Value:
    position = None if value.position is None else space.settle(space.rebuild(value.position, atom))
    reads = tuple(map(read, value.reads))
    return Value(value.op, value.dtype, value.axes, value.reduce, reads, value.attrs, position)


# --- 2. fixed positions

_Key = tuple[Index, ...]
"""The fixed indices of a version, one for each selected axis."""


class _Selection:
    """Versions of values at fixed positions: found from readers to operands, then written out in order."""

    def __init__(self, values: Sequence[Value], outputs: frozenset[int], space: Space) -> None:
        self._values = values
        self._outputs = outputs
        self._space = space
        self._places: dict[int, tuple[int, ...]] = {}
        """Selected places in the axes of each value."""
        self._versions: dict[int, dict[_Key, Value]] = {}
        self._found: list[Value] = []
        self._spelled: dict[str, int] = {}
        self._written: dict[tuple[int, _Key], int | Value] = {}
        """What became of each version: a new value's number, or a copy or position that its readers compose."""
        sites: dict[int, list[Read]] = {}
        for number in reversed(range(len(values))):
            if number in outputs or number in sites:
                self._select(number, sites.get(number, []))
                for version in self._versions[number].values():
                    for read in all_reads(version):
                        sites.setdefault(read.value, []).append(read)

    def result(self) -> tuple[list[Value], dict[int, int]]:
        moved: dict[int, int] = {}
        for number in sorted(self._versions):
            for key, version in self._versions[number].items():
                value = _with_reads(version, self._resolve, self._atom, self._space)
                through = value.op == "iota" or (value.op == "copy" and not value.reads[0].where)
                if through and number not in self._outputs:
                    self._written[number, key] = value
                else:
                    moved[number] = self._written[number, key] = self._add(value)
        return self._found, moved

    # --- from readers to operands

    def _select(self, number: int, sites: Sequence[Read]) -> None:
        value = self._values[number]
        places: tuple[int, ...] = ()
        if number not in self._outputs and value.op not in _LEAVES:
            ranks = range(len(value.axes))
            places = tuple(k for k in ranks if all(isinstance(site.index[k], Int | Slot) for site in sites))
        keys = dict.fromkeys(tuple(site.index[k] for k in places) for site in sites)
        if len(keys) > MOST_VERSIONS or not places:
            places, keys = (), {(): None}
        self._places[number] = places
        self._versions[number] = {key: self._version(value, places, key, len(keys) > 1) for key in keys}

    def _version(self, value: Value, places: tuple[int, ...], key: _Key, several: bool) -> Value:
        """`value` at the positions `key`; with `several` versions, over axes of its own."""
        if not places:
            return value
        at: dict[int, Index] = {value.axes[k]: index for k, index in zip(places, key, strict=True)}
        own = {a: self._space.axis(self._space.extents[a]) for a in value.domain if a not in at} if several else {}
        at.update((a, AxisVar(new)) for a, new in own.items())

        def atom(index: Index) -> Index:
            match index:
                case AxisVar(axis):
                    return at.get(axis, index)
                case Lookup(read, extent):
                    return Lookup(self._space.rebuild_read(read, atom), extent)
                case _:
                    return index

        value = replace(
            _with_reads(value, lambda read: self._space.rebuild_read(read, atom), atom, self._space),
            axes=tuple(own.get(a, a) for k, a in enumerate(value.axes) if k not in places),
            reduce=tuple(own.get(a, a) for a in value.reduce),
        )
        return self._pick(value) if value.op == "piecewise" else value

    def _pick(self, value: Value) -> Value:
        """A piecewise value without the pieces that fixed positions rule out, and without bounds that they fulfil."""
        reads: list[Read] = []
        for read in value.reads:
            fates = [self._fate(bound) for bound in read.where]
            if False in fates:
                continue
            where = tuple(b for b, fate in zip(read.where, fates, strict=True) if fate is None)
            reads.append(replace(read, where=where))
            if not where:
                break
        if not reads:
            return value
        if not reads[0].where:
            return replace(value, op="copy", reads=tuple(reads))
        return replace(value, reads=tuple(reads))

    def _fate(self, bound: Bound) -> bool | None:
        """Whether a bound holds for the slots as they are; None if that depends on positions."""
        low, high = self._space.range_here(bound.index)
        extent = self._space.extents[bound.axis]
        if low >= 0 and high < extent:
            return True
        return False if high < 0 or low >= extent else None

    # --- written out in order

    def _add(self, value: Value) -> int:
        key = spelling_key(value, self._space) if value.op not in ("input", "iota") else ""
        if key and key in self._spelled:
            return self._spelled[key]
        self._found.append(value)
        if key:
            self._spelled[key] = len(self._found) - 1
        return len(self._found) - 1

    def _atom(self, index: Index) -> Index:
        return Lookup(self._resolve(index.read), index.extent) if isinstance(index, Lookup) else index

    def _resolve(self, read: Read) -> Read:
        """A read of an old value as one of its version."""
        read = self._space.rebuild_read(read, self._atom)
        places = self._places[read.value]
        target = self._written[read.value, tuple(read.index[k] for k in places)]
        index = tuple(i for k, i in enumerate(read.index) if k not in places)
        if isinstance(target, int):
            return Read(target, index, read.where, read.fill)
        if target.op == "iota":
            return replace(read, value=self._add(self._position(target)), index=index)
        at = dict(zip(target.axes, index, strict=True))

        def atom(index: Index) -> Index:
            match index:
                case AxisVar(axis):
                    return at[axis]
                case Lookup(inner, extent):
                    return Lookup(self._space.rebuild_read(inner, atom), extent)
                case _:
                    return index

        inner = self._space.rebuild_read(target.reads[0], atom)
        return replace(inner, where=read.where, fill=read.fill)

    def _position(self, value: Value) -> Value:
        """A position over axes of its own."""
        own = {a: self._space.axis(self._space.extents[a]) for a in value.axes}
        return Renaming(lambda a: AxisVar(own[a]), lambda a: own.get(a, a)).whole(value)
