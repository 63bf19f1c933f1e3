"""A fold across threads: every thread's accumulator merged with those of its partners, the result in all of them.

Partners in one warp exchange by a butterfly of shuffles (after it, each has the same bits: operands are put in order
of the lane where the merge is not symmetric). Partners in other warps leave their partials in a small array of the
block; each thread then reads and merges those in a fixed, balanced order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ....graphs.dtypes import DType
from ....search_space.target import WARP
from ...loops import THREAD, Apply, Expr, For, If, Load, Stmt, Store, Sync
from ..algebra import Algebra
from ..errors import LoweringError
from ..integers import add, mul, number
from .assemble import assemble
from .elements import Elements
from .lanes import Lane
from .memory import ThreadMemory
from .nest import Location, ThreadNest

Components = tuple[Expr, ...]

CHUNK = 8
"""Partials that a thread loads before it merges them: more would not fit the registers beside the rest."""
TURNS = 2
"""Buffers that folds take in turn, so that one sync a fold is enough: who writes one again has passed the sync of the
fold between, and with it everybody who read it."""


@dataclass
class Scratch:
    """The block memory of a group's folds: buffers 0 to TURNS - 1 of folds that run once, and others of folds in loops.

    unread  buffers that some thread may still be reading
    looped  how many folds of a stage run in loops
    """

    memory: ThreadMemory
    unread: set[int] = field(default_factory=set)
    looped: dict[int, int] = field(default_factory=dict)

    def once(self) -> tuple[int, bool]:
        """The buffer of a fold that runs once, and whether a sync is needed before it is written."""
        free = [b for b in range(TURNS) if b not in self.unread]
        buffer = free[0] if free else 0
        self.unread = {buffer}
        return buffer, not free

    def again(self) -> tuple[int, bool]:
        """The buffer of a fold in a loop, and whether a sync is needed before the loop."""
        number_ = self.looped[self.memory.stage] = self.looped.get(self.memory.stage, 0) + 1
        buffer = TURNS - 1 + number_
        early = buffer in self.unread
        self.unread = {buffer} if early else self.unread | {buffer}
        return buffer, early


@dataclass(frozen=True)
class Folded:
    """What threads have merged: its components, in `nest` at `where`.

    When only those that store it have it, `nest` is one of its own, which the other warps skip.
    """

    nest: ThreadNest
    where: Location
    components: Components


def fold(
    nest: ThreadNest,
    alg: Algebra,
    partial: Components,
    lanes: Sequence[Lane],
    where: Location,
    scratch: Scratch,
    stored: bool = False,
) -> Folded:
    """`partial` of all threads that differ along `lanes` only, merged; all statements stand at `where`. `stored`: the
    result is only stored, by one of these threads."""
    if any(lane.count & (lane.count - 1) or lane.stride & (lane.stride - 1) for lane in lanes):
        raise LoweringError("a fold across threads whose number is no power of two")
    near, far = masks(lanes)
    for mask in near:
        partial = _exchange(nest, alg, partial, mask, where)
    if not far:
        return Folded(nest, where, partial)
    threads = scratch.memory.threads
    read = _leave(nest, alg, partial, near, far, where, scratch)
    if stored:
        nest, where = _elect(nest, lanes, near, far, where, threads)
    return Folded(nest, where, _gather(nest, alg, read, near, far, where, threads))


def _elect(
    nest: ThreadNest, lanes: Sequence[Lane], near: Sequence[int], far: Sequence[int], where: Location, threads: int
) -> tuple[ThreadNest, Location]:
    """A nest for code that one thread of those along `lanes` does, and where in it: the elements of a strip are dealt
    out to the warps, so that none has to merge them all."""
    own = nest.child((), where._replace(element=False))
    own.settled = nest.settled | {lane.axis for lane in lanes}
    if near:
        own.elected = (*nest.elected, nest.bind(Apply("eq", DType.BOOL, (_bits(near, threads), number(0)))))
    warp = nest.bind(_bits(far, threads))

    def dealt(elements: Elements | None) -> tuple[Stmt, ...]:
        body = assemble(own, elements)
        if not where.element:
            return (If(Apply("eq", DType.BOOL, (warp, number(0))), body),)
        turn: Expr = nest.element
        if nest.width > 1 << len(far):
            turn = Apply("rest_u32", DType.I64, (turn, number(1 << len(far))))
        mine = Apply("eq", DType.BOOL, (warp, turn))
        return tuple(replace(s, body=(If(mine, s.body),)) if isinstance(s, For) else s for s in body)

    nest.put(where._replace(element=False), dealt)
    return own, Location(0, False, where.element)


def masks(lanes: Sequence[Lane]) -> tuple[list[int], list[int]]:
    """The bits of the thread's number in which partners differ: those of one warp, and those that tell warps apart."""
    found = sorted(lane.stride << k for lane in lanes for k in range(lane.count.bit_length() - 1))
    return [m for m in found if m < WARP], [m for m in found if m >= WARP]


def _exchange(nest: ThreadNest, alg: Algebra, own: Components, mask: int, where: Location) -> Components:
    own = tuple(_named(nest, x, where) for x in own)
    other = tuple(nest.name(Apply("shuffle_xor", x.dtype, (x, number(mask))), where) for x in own)
    if len(alg.dtypes) == 1:
        return tuple(nest.name(x, where) for x in alg.merge(own, other))
    bit = nest.bind(Apply("rest_u32", DType.I64, (Apply("quotient_u32", DType.I64, (THREAD, number(mask))), number(2))))
    low = nest.bind(Apply("eq", DType.BOOL, (bit, number(0))))
    first = tuple(nest.name(Apply("select", x.dtype, (low, x, y)), where) for x, y in zip(own, other, strict=True))
    last = tuple(nest.name(Apply("select", x.dtype, (low, y, x)), where) for x, y in zip(own, other, strict=True))
    return tuple(nest.name(x, where) for x in alg.merge(first, last))


def _named(nest: ThreadNest, expr: Expr, where: Location) -> Expr:
    return nest.name(expr, where) if isinstance(expr, Load | Apply) else expr


def _bits(masks: Sequence[int], threads: int) -> Expr:
    """The number that the thread's bits at `masks` (ascending) spell."""
    total: Expr = number(0)
    k = 0
    while k < len(masks):
        run = 1
        while k + run < len(masks) and masks[k + run] == masks[k] << run:
            run += 1
        part: Expr = THREAD if masks[k] == 1 else Apply("quotient_u32", DType.I64, (THREAD, number(masks[k])))
        if masks[k] << run < threads:
            part = Apply("rest_u32", DType.I64, (part, number(1 << run)))
        total = add(total, mul(part, number(1 << k)))
        k += run
    return total


@dataclass(frozen=True)
class _Partials:
    """The partials that warps have left: of partner k at `base + k * step`, one array for each component."""

    names: tuple[str, ...]
    base: Expr
    step: int


def _leave(
    nest: ThreadNest,
    alg: Algebra,
    partial: Components,
    near: Sequence[int],
    far: Sequence[int],
    where: Location,
    scratch: Scratch,
) -> _Partials:
    """Stores each warp's partial at [element of the strip, partner, what is not folded] of a scratch array."""
    threads = scratch.memory.threads
    every = [1 << k for k in range(threads.bit_length() - 1)]
    kept = [m for m in every if m not in near and m not in far]
    groups, partners = 1 << len(kept), 1 << len(far)
    once = where._replace(element=False)
    base = nest.bind(_bits(kept, threads))
    mine = nest.bind(add(base, mul(nest.bind(_bits(far, threads)), number(groups))))
    size = groups * partners * (nest.width if where.element else 1)
    if where.element:
        shift = mul(nest.element, number(groups * partners))
        base, mine = add(base, shift), add(mine, shift)
    buffer, turn = _take(nest, where, scratch)
    if turn is not None:
        base, mine = add(base, mul(turn, number(size))), add(mine, mul(turn, number(size)))
        size *= TURNS
    names = tuple(scratch.memory.scratch(t, buffer, k, size) for k, t in enumerate(alg.dtypes))
    stores: tuple[Stmt, ...] = tuple(Store(n, mine, x) for n, x in zip(names, partial, strict=True))
    if near:
        stores = (If(nest.bind(Apply("eq", DType.BOOL, (_bits(near, threads), number(0)))), stores),)
    for store in stores:
        nest.put(where, store)
    nest.put(once, Sync("block"))
    return _Partials(names, base, groups)


def _gather(
    nest: ThreadNest,
    alg: Algebra,
    read: _Partials,
    near: Sequence[int],
    far: Sequence[int],
    where: Location,
    threads: int,
) -> Components:
    """All partners' partials merged. Threads of a warp that would do the same share them, then exchange."""
    sharing = near[: len(far)]
    own, base = 1 << (len(far) - len(sharing)), read.base
    if sharing:
        mine = nest.bind(mul(_bits(sharing, threads), number(read.step)))
        base = add(base, mine)
    total: Components = ()
    for start in range(0, own, CHUNK):
        parts: list[Components] = []
        for k in range(start, min(own, start + CHUNK)):
            offset = add(base, number((k << len(sharing)) * read.step))
            loads = (Load(n, offset, t) for n, t in zip(read.names, alg.dtypes, strict=True))
            parts.append(tuple(nest.name(x, where) for x in loads))
        merged = halve(nest, alg, parts, where)
        total = tuple(nest.name(x, where) for x in alg.merge(total, merged)) if start else merged
    for mask in sharing:
        total = _exchange(nest, alg, total, mask, where)
    return total


def halve(nest: ThreadNest, alg: Algebra, parts: Sequence[Components], where: Location) -> Components:
    """Accumulators (a power of two of them) merged in a balanced tree."""
    while len(parts) > 1:
        half = len(parts) // 2
        parts = [tuple(nest.name(x, where) for x in alg.merge(parts[k], parts[k + half])) for k in range(half)]
    return parts[0]


def _take(nest: ThreadNest, where: Location, scratch: Scratch) -> tuple[int, Expr | None]:
    """The buffer of a fold at `where`, and which half of it the current step of a loop takes; with the syncs that are
    needed before."""
    loops = nest.repeating(where)
    once = where._replace(element=False)
    if not loops and not nest.repeated:
        buffer, early = scratch.once()
        if early:
            nest.put(once, Sync("block"))
        return buffer, None
    buffer, early = scratch.again()
    if len(loops) > 1 or nest.repeated:
        nest.put(once, Sync("block"))
        return buffer, None
    if early:
        nest.put(Location(nest.order.index(loops[0])), Sync("block"))
    turn = Apply("rest_u32", DType.I64, (nest.step[loops[0]], number(TURNS)))
    return buffer, nest.name(turn, once)
