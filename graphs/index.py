"""Index algebra: integers as functions of axis positions, kept in a normal form by what is known of their ranges.

A `Space` owns the axes and slots of a subgraph under construction. Its operations build the index expressions of
subgraph.py: sums are flat and sorted, divisions and remainders vanish where ranges allow, and the digits of a number
put together again are the number. A slot is simplified by the range it may have in any subgraph of this structure,
never by its value, so that the structure does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .subgraph import AxisVar, Bound, FloorDiv, Index, Int, Lookup, Mod, Read, Slot, Sum, Value

Range = tuple[int, int]
"""Least and greatest value, both included."""

ZERO = Int(0)


@dataclass(frozen=True)
class SlotValue:
    """The value of a slot here, and the least and greatest it may have in a subgraph of this structure."""

    value: int
    low: int
    high: int


class Space:
    """Axes (numbers into `extents`) and slots (numbers into `slots`), growing as a subgraph is built."""

    def __init__(self) -> None:
        self.extents: list[int] = []
        self.slots: list[SlotValue] = []
        self._slot_numbers: dict[SlotValue, int] = {}

    def axis(self, extent: int) -> int:
        """A new axis."""
        self.extents.append(extent)
        return len(self.extents) - 1

    def slot(self, value: int, low: int, high: int) -> Index:
        """An argument of this value; equal ones are shared here and told apart when the subgraph is numbered."""
        key = SlotValue(value, min(low, value), max(high, value))
        if key not in self._slot_numbers:
            self._slot_numbers[key] = len(self.slots)
            self.slots.append(key)
        return Slot(self._slot_numbers[key])

    # --- ranges

    def range(self, index: Index) -> Range:
        """Bounds of `index` for every value that slots may have."""
        return self._range(index, False)

    def range_here(self, index: Index) -> Range:
        """Bounds of `index` for the values that slots have here."""
        return self._range(index, True)

    def _range(self, index: Index, here: bool) -> Range:
        match index:
            case AxisVar(axis) | Lookup(_, axis):
                return 0, max(self.extents[axis] - 1, 0)
            case Int(value):
                return value, value
            case Slot(number):
                slot = self.slots[number]
                return (slot.value, slot.value) if here else (slot.low, slot.high)
            case Sum(terms):
                low = high = 0
                for factor, term in terms:
                    a, b = self._range(term, here)
                    low += factor * (a if factor > 0 else b)
                    high += factor * (b if factor > 0 else a)
                return low, high
            case FloorDiv(term, divisor):
                a, b = self._range(term, here)
                return a // divisor, b // divisor
            case Mod(term, divisor):
                a, b = self._range(term, here)
                return (a % divisor, b % divisor) if a // divisor == b // divisor else (0, divisor - 1)

    # --- arithmetic

    def sum(self, *parts: tuple[int, Index]) -> Index:
        """The sum of `factor * index` over `parts`."""
        terms = dict[Index, int]()
        for factor, index in parts:
            _collect(index, factor, terms)
        constant = terms.pop(ZERO, 0)
        if any(isinstance(term, Mod) for term in terms):
            constant = self._join_digits(terms, constant)
        return _build(terms, constant)

    def shift(self, index: Index, by: int) -> Index:
        return self.sum((1, index), (1, Int(by)))

    def linear(self, digits: Iterable[tuple[Index, int]]) -> Index:
        """The row-major position of (index, size) digits, outer to inner."""
        stride, parts = 1, []
        for index, size in reversed(list(digits)):
            parts.append((stride, index))
            stride *= size
        return self.sum(*parts)

    def floordiv(self, index: Index, divisor: int) -> Index:
        """`index // divisor`, toward minus infinity; divisor >= 1."""
        if divisor == 1:
            return index
        whole, rest = dict[Index, int](), dict[Index, int]()
        _collect(index, 1, rest)
        constant = rest.pop(ZERO, 0)
        for term, factor in list(rest.items()):
            if factor % divisor == 0:
                whole[term] = rest.pop(term) // divisor
        quotient = self._floordiv_rest(rest, constant, divisor)
        return self.sum((1, quotient), *((factor, term) for term, factor in whole.items()))

    def _floordiv_rest(self, rest: dict[Index, int], constant: int, divisor: int) -> Index:
        low, high = self.range(_build(rest, constant))
        if low // divisor == high // divisor:
            return Int(low // divisor)
        if all(isinstance(term, Slot) for term in rest):
            return self._fold(_build(rest, constant), lambda v: v // divisor)
        for step in _steps(rest, divisor):
            coarse, fine = _split(rest, step)
            low, high = self.range(_build(fine, constant % step))
            if low >= 0 and high < step:
                return self.floordiv(_build(coarse, constant // step), divisor // step)
        term = _build(rest, constant)
        inner = [t for t, factor in rest.items() if factor == 1 and isinstance(t, FloorDiv)]
        if len(inner) == 1:
            # (a + x // m) // d is (m * a + x) // (m * d): one division, however many steps it was spelled in.
            scale = inner[0].divisor
            lifted = self.sum((scale, term), (-scale, inner[0]), (1, inner[0].term))
            return self.floordiv(lifted, scale * divisor)
        if isinstance(term, Mod) and term.divisor % divisor == 0:
            return self.mod(self.floordiv(term.term, divisor), term.divisor // divisor)
        return FloorDiv(term, divisor)

    def mod(self, index: Index, divisor: int) -> Index:
        """`index % divisor`, in 0..divisor-1; divisor >= 1."""
        if divisor == 1:
            return ZERO
        rest = dict[Index, int]()
        _collect(index, 1, rest)
        constant = rest.pop(ZERO, 0) % divisor
        rest = {term: factor for term, factor in rest.items() if factor % divisor}
        low, high = self.range(_build(rest, constant))
        if low // divisor == high // divisor:
            return _build(rest, constant - low // divisor * divisor)
        if all(isinstance(term, Slot) for term in rest):
            return self._fold(_build(rest, constant), lambda v: v % divisor, (0, divisor - 1))
        for step in _steps(rest, divisor):
            coarse, fine = _split(rest, step)
            low, high = self.range(_build(fine, constant % step))
            if low >= 0 and high < step:
                outer = self.mod(_build(coarse, constant // step), divisor // step)
                return self.sum((step, outer), (1, _build(fine, constant % step)))
        term = _build(rest, constant)
        if isinstance(term, Mod) and term.divisor % divisor == 0:
            return self.mod(term.term, divisor)
        return Mod(term, divisor)

    def digit(self, index: Index, stride: int, size: int, leading: bool) -> Index:
        """The digit of weight `stride` and base `size`; the leading one has no digit above it."""
        quotient = self.floordiv(index, stride)
        return quotient if leading else self.mod(quotient, size)

    def _fold(self, index: Index, function: Callable[[int], int], bounds: Range | None = None) -> Index:
        """A function of slots alone is a slot."""
        low, high = self.range(index)
        low, high = bounds or (function(low), function(high))
        return self.slot(function(self.range_here(index)[0]), low, high)

    def _join_digits(self, terms: dict[Index, int], constant: int) -> int:
        """Replaces f*(x % d) + f*d*(x // d) by f*x wherever both are there; gives the new constant."""
        found = True
        while found:
            found = False
            for term, factor in list(terms.items()):
                if not isinstance(term, Mod):
                    continue
                quotient = dict[Index, int]()
                _collect(self.floordiv(term.term, term.divisor), 1, quotient)
                offset = quotient.pop(ZERO, 0)
                scale = factor * term.divisor
                if not quotient or any(terms.get(t) != f * scale for t, f in quotient.items()):
                    continue
                for other in (term, *quotient):
                    del terms[other]
                _collect(term.term, factor, terms)
                constant += terms.pop(ZERO, 0) - offset * scale
                found = True
                break
        return constant

    def settle(self, index: Index) -> Index:
        """`index` with the slots and constants of every sum folded into one slot of factor 1: what a slot was a
        multiple of is no structure. Reads inside lookups are left as they are."""
        match index:
            case Sum(terms):
                fixed = [(f, t) for f, t in terms if isinstance(t, Slot | Int)]
                moving = [(f, self.settle(t)) for f, t in terms if not isinstance(t, Slot | Int)]
                if any(isinstance(t, Slot) for _, t in fixed):
                    return self.sum(*moving, (1, self._fold(self.sum(*fixed), lambda v: v)))
                return self.sum(*moving, *fixed)
            case FloorDiv(term, divisor):
                return FloorDiv(self.settle(term), divisor)
            case Mod(term, divisor):
                return Mod(self.settle(term), divisor)
            case _:
                return index

    def rebuild(self, index: Index, atom: Callable[[Index], Index]) -> Index:
        """`index` with every axis, slot, number and lookup replaced by what `atom` gives, in normal form again."""
        match index:
            case Sum(terms):
                return self.sum(*((factor, self.rebuild(term, atom)) for factor, term in terms))
            case FloorDiv(term, divisor):
                return self.floordiv(self.rebuild(term, atom), divisor)
            case Mod(term, divisor):
                return self.mod(self.rebuild(term, atom), divisor)
            case _:
                return atom(index)

    def rebuild_read(self, read: Read, atom: Callable[[Index], Index]) -> Read:
        """`read` with its indices and bounds rebuilt, and those of lookups in them as far as `atom` does so."""
        where = tuple(Bound(self.settle(self.rebuild(b.index, atom)), b.axis) for b in read.where)
        return Read(read.value, tuple(self.settle(self.rebuild(i, atom)) for i in read.index), where, read.fill)


# --- the flat form of sums: factor by term; the constant stands under ZERO


def _collect(index: Index, factor: int, terms: dict[Index, int]) -> None:
    if factor == 0:
        return
    if isinstance(index, Sum):
        for f, term in index.terms:
            _collect(term, f * factor, terms)
    elif isinstance(index, Int):
        terms[ZERO] = terms.get(ZERO, 0) + factor * index.value
    else:
        total = terms.get(index, 0) + factor
        if total:
            terms[index] = total
        else:
            del terms[index]


def _build(terms: Mapping[Index, int], constant: int) -> Index:
    parts = [(factor, term) for term, factor in terms.items() if factor]
    if len(parts) > 1:
        parts.sort(key=lambda part: (-part[0], order_key(part[1])))
    if constant:
        parts.append((1, Int(constant)))
    if not parts:
        return ZERO
    if len(parts) == 1 and parts[0][0] == 1:
        return parts[0][1]
    return Sum(tuple(parts))


def _steps(rest: Mapping[Index, int], divisor: int) -> list[int]:
    return sorted({math.gcd(factor, divisor) for factor in rest.values()} - {1}, reverse=True)


def _split(rest: Mapping[Index, int], step: int) -> tuple[dict[Index, int], dict[Index, int]]:
    """What `step` divides, divided by it; and the remaining terms."""
    coarse = {t: f // step for t, f in rest.items() if f % step == 0}
    return coarse, {t: f for t, f in rest.items() if f % step}


def order_key(index: Index) -> tuple[Any, ...]:
    """A total order of index expressions: axes first, constants last."""
    match index:
        case AxisVar(axis):
            return 0, axis
        case Lookup(read, extent):
            return 1, read_key(read), extent
        case FloorDiv(term, divisor):
            return 2, divisor, order_key(term)
        case Mod(term, divisor):
            return 3, divisor, order_key(term)
        case Sum(terms):
            return 4, tuple((factor, order_key(term)) for factor, term in terms)
        case Slot(slot):
            return 5, slot
        case Int(value):
            return 6, value


def read_key(read: Read) -> tuple[Any, ...]:
    """A total order of reads: by value, then by indices and bounds."""
    where = tuple((order_key(b.index), b.axis) for b in read.where)
    return read.value, tuple(order_key(i) for i in read.index), where, repr(read.fill)


# --- renaming


@dataclass(frozen=True)
class Renaming:
    """What axes, values and slots of an index become. Axes may become any index; those that stand for an extent only
    (of values, lookups and bounds) are renamed by `extent`."""

    axis: Callable[[int], Index]
    extent: Callable[[int], int]
    value: Callable[[int], int] = lambda value: value
    slot: Callable[[int], Index] = Slot

    def index(self, index: Index, known: dict[Index, Index] | None = None) -> Index:
        """`index` renamed, its sums sorted again; nothing else is simplified. Sums in `known` become what they did."""
        match index:
            case AxisVar(axis):
                return self.axis(axis)
            case Int():
                return index
            case Slot(slot):
                return self.slot(slot)
            case Sum(terms):
                if known is not None and index in known:
                    return known[index]
                renamed = dict[Index, int]()
                for factor, term in terms:
                    _collect(self.index(term, known), factor, renamed)
                constant = renamed.pop(ZERO, 0)
                result = _build(renamed, constant)
                if known is not None:
                    known[index] = result
                return result
            case FloorDiv(term, divisor):
                return FloorDiv(self.index(term, known), divisor)
            case Mod(term, divisor):
                return Mod(self.index(term, known), divisor)
            case Lookup(read, extent):
                return Lookup(self.read(read), self.extent(extent))

    def read(self, read: Read) -> Read:
        """`read` renamed; equal sums in it stay equal, even where equal slots get different names."""
        known = dict[Index, Index]()
        index = tuple(self.index(i, known) for i in read.index)
        where = tuple(Bound(self.index(b.index, known), self.extent(b.axis)) for b in read.where)
        return Read(self.value(read.value), index, where, read.fill)

    def whole(self, value: Value) -> Value:
        """`value` renamed, its axes by `extent`."""
        return Value(
            value.op,
            value.dtype,
            tuple(map(self.extent, value.axes)),
            tuple(map(self.extent, value.reduce)),
            tuple(map(self.read, value.reads)),
            value.attrs,
            None if value.position is None else self.index(value.position),
        )
