"""How the threads of a block meet memory: steps of a stage's loops, sectors and bank conflicts of a warp's accesses.

A warp's request for global memory moves whole sectors of 32 bytes; a request for shared memory takes one cycle per 128
bytes, more where different words of one bank are wanted (CUDA C++ programming guide, "Device memory accesses" and
"Shared memory"). Both follow exactly from lanes, width and the access map, so they are counted, lane by lane.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...graphs.subgraph import AxisVar, FloorDiv, Index, Int, Lookup, Mod, Slot, Subgraph, Sum
from ...search_space.plan import Group, Stage
from ...search_space.target import WARP

SECTOR = 32
BANKS = 32
WORD = 4
PACK_BYTES = 16
SCATTER = 2654435761
"""Knuth's multiplicative hash: stands for indices that data decides."""


@dataclass(frozen=True)
class Shares:
    """How the block's threads share the loops of one stage.

    before, after   values that are in registers before it runs, and after
    overlap         steps of a thread whose loads are in flight together
    """

    sub: Subgraph
    group: Group
    stage: Stage
    before: frozenset[int] = frozenset()
    after: frozenset[int] = frozenset()
    overlap: float = 1.0

    @cached_property
    def lanes(self) -> dict[int, int]:
        return dict(self.stage.lanes)

    @cached_property
    def tiles(self) -> dict[int, int]:
        """Positions along each axis that a whole task covers."""
        tiles = {a: max(1, n) for a, n in enumerate(self.sub.extents)}
        tiles.update({a: min(tile, tiles[a]) for a, tile in self.group.parallel})
        return tiles

    def unit(self, axis: int) -> int:
        """Positions that all threads together advance in one step."""
        return self.lanes.get(axis, 1) * (self.stage.width if axis == self.stage.vector else 1)

    def steps(self, axis: int) -> float:
        """Steps of a thread along an axis, on average over tasks (the last tile may be short)."""
        extent, tile, unit = max(1, self.sub.extents[axis]), self.tiles[axis], self.unit(axis)
        full, rest = divmod(extent, tile)
        total = full * -(-tile // unit) + -(-rest // unit)
        return total / (full + (rest > 0))

    def size(self, axis: int) -> float:
        """Positions of the average task along an axis."""
        return self.sub.extents[axis] / max(1, -(-self.sub.extents[axis] // self.tiles[axis]))

    def fill(self, axes: Iterable[int]) -> float:
        """Share of the threads' steps along `axes` that have something to do."""
        return min(1.0, math.prod(self.size(a) / (self.steps(a) * self.unit(a)) for a in axes if self.steps(a)))

    def awake(self, axes: Iterable[int]) -> float:
        """Share of the warps' steps along `axes` in which some thread has something to do."""
        share, stride = 1.0, self.sharing
        for axis, count in self.stage.lanes:
            stride //= count
            if axis in axes and self.steps(axis):
                near = min(count, max(1, WARP // stride)) * self.unit(axis) // count
                full = self.steps(axis) * self.unit(axis)
                share *= min(1.0, math.ceil(self.size(axis) / near) * near / full)
        return share

    def runs(self, axes: frozenset[int]) -> float:
        """How often a thread runs what depends on `axes`: it is hoisted out of the loops inside its innermost axis."""
        order = self.stage.order
        last = max((i for i, a in enumerate(order) if a in axes and self.steps(a) > 1), default=-1)
        return math.prod(self.steps(a) for a in order[: last + 1])

    @property
    def sharing(self) -> int:
        """Threads that have work."""
        return math.prod(n for _, n in self.stage.lanes)

    @cached_property
    def positions(self) -> list[dict[int, int]]:
        """Of each lane of a warp that has work: its first position along the axes that have lanes."""
        found = []
        for thread in range(min(WARP, self.sharing)):
            at, left = {}, thread
            for axis, count in reversed(self.stage.lanes):
                left, coordinate = divmod(left, count)
                at[axis] = coordinate * (self.stage.width if axis == self.stage.vector else 1)
            found.append(at)
        return found

    @property
    def warps(self) -> float:
        return max(1.0, self.sharing / WARP)

    def folded(self, axes: Iterable[int]) -> tuple[int, int]:
        """Threads that a fold over `axes` merges within a warp, and warps that it then merges."""
        within = beyond = stride = 1
        for axis, count in reversed(self.stage.lanes):
            if axis in axes:
                near = min(count, max(1, WARP // stride))
                within, beyond = within * near, beyond * (count // near)
            stride *= count
        return within, beyond

    def warps_along(self, axes: frozenset[int]) -> float:
        """Warps that are at different positions along `axes`."""
        positions = {tuple(at.get(a, 0) for a in sorted(axes)) for at in self.positions}
        return max(1.0, math.prod(n for a, n in self.stage.lanes if a in axes) / len(positions))


@dataclass(frozen=True)
class Layout:
    """Where an array's elements lie: strides of its axes in order of its value's axes, bytes of one element."""

    strides: tuple[int, ...]
    item: int

    def offset(self, sub: Subgraph, index: Sequence[Index], at: Mapping[int, int]) -> int:
        """Element offset of the read `index` at positions `at` (axes that are not named: 0)."""
        return sum(_position(sub, i, at) * s for i, s in zip(index, self.strides, strict=True))

    def offsets(self, sub: Subgraph, index: Sequence[Index], positions: Sequence[Mapping[int, int]]) -> list[int]:
        """The offsets at several positions that name the same axes."""
        if not positions or not all(_is_affine(i) for i in index):
            return [self.offset(sub, index, at) for at in positions]
        base = self.offset(sub, index, {})
        steps = {a: self.offset(sub, index, {a: 1}) - base for a in positions[0]}
        return [base + sum(steps[a] * p for a, p in at.items()) for at in positions]


def row_major(extents: Sequence[int], item: int) -> Layout:
    """Row-major, outermost first."""
    strides, step = [0] * len(extents), 1
    for i in range(len(extents) - 1, -1, -1):
        strides[i] = step
        step *= max(1, extents[i])
    return Layout(tuple(strides), item)


@dataclass(frozen=True)
class Request:
    """What a warp asks of memory for one step of a thread.

    count     requests (packs of at most 16 bytes)
    sectors   distinct 32-byte sectors, of all of them together
    cycles    shared memory cycles, of all of them together; ideal: without bank conflicts
    """

    count: int
    sectors: int
    cycles: int
    ideal: int


def request(shares: Shares, index: Sequence[Index], layout: Layout) -> Request:
    """One step of a warp that reads or writes `index`."""
    sub, vector, width = shares.sub, shares.stage.vector, shares.stage.width
    starts = layout.offsets(sub, index, shares.positions)
    if vector < 0 or width == 1:
        return _request([[s] for s in starts], 1, layout.item)
    here = {vector: 1}
    stride = layout.offset(sub, index, here) - layout.offset(sub, index, {})
    if stride == 0:
        return _request([[s] for s in starts], 1, layout.item)
    if stride != 1:
        moved = [[{**at, vector: at.get(vector, 0) + i} for at in shares.positions] for i in range(width)]
        columns = [layout.offsets(sub, index, positions) for positions in moved]
        return _request([list(lane) for lane in zip(*columns, strict=True)], 1, layout.item)
    pack = _pack(shares, index, layout)
    return _request([[s + i for i in range(0, width, pack)] for s in starts], pack, layout.item)


def _pack(shares: Shares, index: Sequence[Index], layout: Layout) -> int:
    """Elements of the widest access that alignment allows: every other axis must step by a multiple."""
    sub, stage = shares.sub, shares.stage
    pack = min(stage.width, max(1, PACK_BYTES // layout.item))
    base = layout.offset(sub, index, {})
    steps = [base]
    for axis in stage.order:
        steps.append(layout.offset(sub, index, {axis: stage.width if axis == stage.vector else 1}) - base)
    for axis, tile in shares.group.parallel:
        steps.append(layout.offset(sub, index, {axis: tile}) - base if tile < sub.extents[axis] else 0)
    while pack > 1 and any(s % pack for s in steps):
        pack //= 2
    return pack


def _request(accesses: list[list[int]], pack: int, item: int) -> Request:
    """`accesses`: per lane, the element offsets of its packs."""
    count = len(accesses[0])
    bytes_each = pack * item
    touched = {
        b // SECTOR for lane in accesses for start in lane for b in (start * item, start * item + bytes_each - 1)
    }
    cycles = sum(_cycles([lane[i] * item for lane in accesses], bytes_each) for i in range(count))
    return Request(count, len(touched), cycles, count * max(1, len(accesses) * bytes_each // (BANKS * WORD)))


def _cycles(starts: list[int], bytes_each: int) -> int:
    """Cycles of one request to shared memory: wide accesses go by halves or quarters of a warp."""
    lanes = WARP * WORD // max(WORD, bytes_each)
    cycles = 0
    for first in range(0, len(starts), lanes):
        words = {
            w for s in starts[first : first + lanes] for w in range(s // WORD, (s + max(1, bytes_each) - 1) // WORD + 1)
        }
        banks: dict[int, int] = {}
        for word in words:
            banks[word % BANKS] = banks.get(word % BANKS, 0) + 1
        cycles += max(banks.values(), default=1)
    return cycles


def _is_affine(index: Index) -> bool:
    match index:
        case AxisVar() | Int() | Slot():
            return True
        case Sum(terms):
            return all(_is_affine(t) for _, t in terms)
        case _:
            return False


def _position(sub: Subgraph, index: Index, at: Mapping[int, int]) -> int:
    match index:
        case AxisVar(axis):
            return at.get(axis, 0)
        case Int(value):
            return value
        case Slot(slot):
            return sub.slots[slot]
        case Sum(terms):
            return sum(c * _position(sub, t, at) for c, t in terms)
        case FloorDiv(term, divisor):
            return _position(sub, term, at) // divisor
        case Mod(term, divisor):
            return _position(sub, term, at) % divisor
        case Lookup(read, extent):
            key = 0
            for i in read.index:
                key = key * 31 + _position(sub, i, at)
            return key * SCATTER % max(1, sub.extents[extent])
