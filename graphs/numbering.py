"""Canonical order of values: the same however tensors are named, nodes are ordered and commuting operands are written.

Every value gets a hash refined upwards from its operands, downwards from its consumers and upwards again (after
Weisfeiler and Leman). Values are then ordered depth first from the outputs, in order of their hashes, so that a
producer stands near its consumer. Extents and slots only decide between values that are alike but for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from .index import Space
from .subgraph import AxisVar, FloorDiv, Index, Int, Lookup, Mod, Read, Slot, Sum, Value

COMMUTATIVE = frozenset("add mul minimum maximum and or xor bitand bitor bitxor eq ne".split())
"""Elementwise operators whose operands may stand in either order."""


@dataclass(frozen=True)
class Spelling:
    """Writes reads of one value as text: axes by their place in its domain, the values read and what is no structure
    by the given functions."""

    places: dict[int, str]
    value: Callable[[int], str]
    slot: Callable[[int], str]
    extent: Callable[[int], str]

    def index(self, index: Index) -> str:
        match index:
            case AxisVar(axis):
                return self.places[axis]
            case Int(number):
                return str(number)
            case Slot(slot):
                return self.slot(slot)
            case Sum(terms):
                return "(" + "+".join(sorted(f"{f}*{self.index(t)}" for f, t in terms)) + ")"
            case FloorDiv(term, divisor):
                return f"{self.index(term)}/{divisor}"
            case Mod(term, divisor):
                return f"{self.index(term)}%{divisor}"
            case Lookup(read, axis):
                return f"{{{self.read(read)}:{self.extent(axis)}}}"

    def read(self, read: Read) -> str:
        text = f"{self.value(read.value)}[{','.join(map(self.index, read.index))}]"
        for bound in read.where:
            text += f"?{self.index(bound.index)}<{self.extent(bound.axis)}"
        return f"{text}!{read.fill!r}" if read.where else text


def _places(value: Value) -> dict[int, str]:
    places = {axis: f"a{i}" for i, axis in enumerate(value.axes)}
    places.update((axis, f"r{i}") for i, axis in enumerate(value.reduce))
    return places


def _label(value: Value) -> str:
    attrs = ",".join(f"{k}={v!r}" for k, v in value.attrs)
    return f"{value.op} {value.dtype.value} {len(value.axes)} {len(value.reduce)} {attrs}"


def spelling_key(value: Value, space: Space) -> str:
    """A text that two values share exactly if they compute the same from the same values, in axes of their own."""
    extents = space.extents
    spelling = Spelling(
        _places(value), lambda v: f"v{v}", lambda s: f"s{space.slots[s].value}", lambda a: str(extents[a])
    )
    reads = [spelling.read(read) for read in value.reads]
    if value.op in COMMUTATIVE:
        reads.sort()
    position = spelling.index(value.position) if value.position is not None else ""
    return f"{_label(value)} {[extents[a] for a in value.domain]} {reads} {position}"


class _Sketch:
    """The reads of one value as texts with holes for the values read."""

    __slots__ = ("commutes", "consumers", "holes", "texts")

    def __init__(self, value: Value, slot: Callable[[int], str], extent: Callable[[int], str]) -> None:
        self.texts: list[str] = []
        self.holes: list[list[int]] = []
        self.consumers: list[tuple[int, str]] = []
        """Who reads this value, and as what."""
        self.commutes = value.op in COMMUTATIVE
        holes: list[int] = []

        def hole(number: int) -> str:
            holes.append(number)
            return "_"

        spelling = Spelling(_places(value), hole, slot, extent)
        for read in value.reads:
            holes = []
            self.texts.append(spelling.read(read))
            self.holes.append(holes)
        if value.position is not None:
            holes = []
            self.texts.append(spelling.index(value.position))
            self.holes.append(holes)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _refine(labels: Sequence[str], sketches: Sequence[_Sketch]) -> list[str]:
    """Hashes of values in topological order: up, down, up."""
    for number, sketch in enumerate(sketches):
        for role, (text, holes) in enumerate(zip(sketch.texts, sketch.holes, strict=True)):
            for place, source in enumerate(holes):
                sketches[source].consumers.append((number, f"{0 if sketch.commutes else role}.{place} {text}"))
    up = _upwards(labels, sketches)
    down = [""] * len(labels)
    for number in reversed(range(len(labels))):
        seen = sorted(f"{role} {down[reader]}" for reader, role in sketches[number].consumers)
        down[number] = _digest(f"{up[number]} {seen}")
    return _upwards(down, sketches)


def _upwards(labels: Sequence[str], sketches: Sequence[_Sketch]) -> list[str]:
    found: list[str] = []
    for label, sketch in zip(labels, sketches, strict=True):
        parts = [
            f"{text} {' '.join([found[h] for h in holes])}"
            for text, holes in zip(sketch.texts, sketch.holes, strict=True)
        ]
        if sketch.commutes:
            parts.sort()
        found.append(_digest(f"{label} {parts}"))
    return found


def canonical_order(values: Sequence[Value], outputs: Sequence[int], space: Space, unit: int) -> dict[int, Value]:
    """All values by number, in canonical order: inputs first, then constants. Commuting operands are sorted.

    `values` are in topological order and all reachable from `outputs`; each has axes of its own. `unit` is the axis
    whose extent of 1 is structure.
    """
    written = set(outputs)
    labels = [f"{_label(v)} {i in written}" for i, v in enumerate(values)]
    sketches = [_Sketch(v, lambda s: "s", lambda a: "1" if a == unit else "") for v in values]
    alike = _refine(labels, sketches)
    exact = alike if len(set(alike)) == len(alike) else _exactly(values, labels, space)
    rank = {v: i for i, v in enumerate(sorted(range(len(values)), key=lambda v: (alike[v], exact[v], v)))}
    arranged: dict[int, Value] = {}
    place: dict[int, int] = {}
    for root in sorted(outputs, key=rank.__getitem__):
        # Iterative, because chains are longer than Python's stack.
        stack = [root]
        while stack:
            number = stack[-1]
            if number in place:
                stack.pop()
                continue
            parts = list(zip(sketches[number].texts, sketches[number].holes, strict=True))
            if sketches[number].commutes:
                parts.sort(key=lambda part: (rank[part[1][0]], part[0]))
            waiting = [s for _, holes in parts for s in holes if s not in place]
            if waiting:
                stack += reversed(list(dict.fromkeys(waiting)))
                continue
            stack.pop()
            place[number] = len(place)
            arranged[number] = _commute(values[number], place, space, unit)
    kinds = {"input": 0, "const": 1}
    return dict(sorted(arranged.items(), key=lambda item: kinds.get(item[1].op, 2)))


def _exactly(values: Sequence[Value], labels: Sequence[str], space: Space) -> list[str]:
    """Hashes that tell extents and slots apart too."""
    sized = [f"{label} {[space.extents[a] for a in v.domain]}" for label, v in zip(labels, values, strict=True)]
    return _refine(
        sized, [_Sketch(v, lambda s: f"s{space.slots[s].value}", lambda a: str(space.extents[a])) for v in values]
    )


def _commute(value: Value, place: Mapping[int, int], space: Space, unit: int) -> Value:
    """`value` with commuting operands in order of their values' places, then of their indices, then of slots."""
    if value.op not in COMMUTATIVE:
        return value
    places = _places(value)
    alike = Spelling(places, lambda v: f"{place[v]:06d}", lambda s: "s", lambda a: "1" if a == unit else "")
    exact = replace(alike, slot=lambda s: f"s{space.slots[s].value}", extent=lambda a: str(space.extents[a]))
    return replace(value, reads=tuple(sorted(value.reads, key=lambda r: (alike.read(r), exact.read(r)))))
