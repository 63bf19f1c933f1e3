"""Reductions inside a stage: accumulators of each thread, then a fold across the threads that share reduced axes.

Let `first` be the loop of the outermost reduced axis. The result exists after that loop, in every thread. Own axes
outside it need nothing; own axes inside it make the accumulator an array over the thread's positions along them: a
register array where their loops have few constant steps, else block memory with one copy for each thread that shares
the other axes. The elements of a strip always have accumulators of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...loops import Assign, Declare, Expr, For, Let, Literal, Load, Stmt, Store, Sync
from ..algebra import Algebra
from ..context import Layout, layout
from ..errors import LoweringError
from ..integers import add, mul, number
from .assemble import nested
from .fold import Components, Scratch, fold, halve, masks
from .lanes import Lane
from .nest import Location, ThreadNest

REGISTERS = 64
"""Most accumulators or kept elements of one value that a thread holds in registers."""

Sink = Callable[[ThreadNest, Location, Components], None]
"""Receives a finished accumulator: the nest and location where its components are, in every thread."""


@dataclass(frozen=True)
class Accumulation:
    """One reduction of a stage. `stored`: its result is only stored, nobody reads it in a register."""

    value: int
    own: tuple[int, ...]
    reduced: tuple[int, ...]
    algebra: Algebra
    stored: bool = False


def inside(order: Sequence[int], own: Sequence[int], reduced: Sequence[int]) -> tuple[int, ...]:
    """The own axes whose loops lie inside the outermost reduced one."""
    first = min(order.index(a) for a in reduced)
    return tuple(a for a in order[first:] if a in own)


def accumulate(
    nest: ThreadNest, item: Accumulation, element: Components, place: Location, scratch: Scratch, sink: Sink
) -> None:
    """Accumulates `element`, which is at `place`."""
    order = nest.order
    domain = (*item.own, *item.reduced)
    depth = nest.depth(domain)
    first = min(order.index(a) for a in item.reduced)
    foreign = [a for a in order[first:depth] if a not in domain]
    if foreign or (place.element and nest.vector not in domain):
        axes = foreign or [nest.vector]
        raise LoweringError(f"reduction {item.value} would accumulate once for each position of axes {axes}")
    where = nest.join(place, nest.home(domain))
    if where.depth != depth or where.after:
        raise LoweringError(f"reduction {item.value} accumulates outside its loops")
    lanes = [nest.lanes[a] for a in item.reduced if a in nest.lanes]
    within = inside(order, item.own, item.reduced)
    if within:
        _columns(nest, item, element, where, first, within, lanes, scratch, sink)
        return
    after = Location(first, True, nest.by_element(item.own))
    conditions = nest.guarding(where, first)
    partial = _rows(nest, item.algebra, element, where, first, after, conditions)
    found = fold(nest, item.algebra, partial, lanes, after, scratch, item.stored)
    sink(found.nest, found.where, found.components)


def _rows(
    nest: ThreadNest,
    alg: Algebra,
    element: Components,
    where: Location,
    first: int,
    after: Location,
    conditions: Sequence[Expr],
) -> Components:
    """Accumulates in variables, or in arrays over the elements of a strip; gives one accumulator (for each element)."""
    start = Location(first)
    if not where.element:
        variables = tuple(nest.name(x, start, mutable=True) for x in alg.identity)
        merged = alg.merge(variables, element)
        if len(variables) == 1:
            nest.guarded(where, conditions, Assign(variables[0], merged[0]))
        else:
            fresh = [nest.names.fresh("t", x.dtype) for x in merged]
            lets = (Let(n, x) for n, x in zip(fresh, merged, strict=True))
            nest.guarded(where, conditions, *lets, *(Assign(v, n) for v, n in zip(variables, fresh, strict=True)))
        return tuple(nest.name(v, after) for v in variables)
    names = _declare(nest, alg, nest.width, start)
    _merge_into(nest, alg, names, nest.element, element, where, conditions)
    if after.element:
        return tuple(nest.name(Load(n, nest.element, t), after) for n, t in zip(names, alg.dtypes, strict=True))
    parts = [
        tuple(nest.name(Load(n, number(k), t), after) for n, t in zip(names, alg.dtypes, strict=True))
        for k in range(nest.width)
    ]
    return halve(nest, alg, parts, after)


def _declare(nest: ThreadNest, alg: Algebra, size: int, where: Location) -> tuple[str, ...]:
    """Register arrays that hold the identity."""
    names = tuple(nest.names.fresh("w").name for _ in alg.dtypes)
    lane = nest.names.fresh("l")
    for name, dtype in zip(names, alg.dtypes, strict=True):
        nest.put(where, Declare(name, dtype, size))
    fill = tuple(Store(n, lane, x) for n, x in zip(names, alg.identity, strict=True))
    nest.put(where, For(lane, number(0), number(size), fill, unroll=size))
    return names


def _merge_into(
    nest: ThreadNest,
    alg: Algebra,
    names: Sequence[str],
    offset: Expr,
    element: Components,
    where: Location,
    conditions: Sequence[Expr],
) -> None:
    """Adds an element to the accumulator at `offset` of arrays."""
    lets: list[Stmt] = []
    old = []
    for name, dtype in zip(names, alg.dtypes, strict=True):
        local = nest.names.fresh("t", dtype)
        lets.append(Let(local, Load(name, offset, dtype)))
        old.append(local)
    stores = (Store(n, offset, x) for n, x in zip(names, alg.merge(tuple(old), element), strict=True))
    nest.guarded(where, conditions, *lets, *stores)


def _columns(
    nest: ThreadNest,
    item: Accumulation,
    element: Components,
    where: Location,
    first: int,
    within: tuple[int, ...],
    lanes: Sequence[Lane],
    scratch: Scratch,
    sink: Sink,
) -> None:
    """Accumulates in arrays over own axes."""
    alg, start = item.algebra, Location(first)
    outer_strip = nest.by_element(item.own) and nest.vector not in within
    conditions = nest.guarding(where, first)
    # reduced loops inside the last own one accumulate in variables first
    last = nest.depth(within)
    inner = tuple(a for a in nest.order[last:] if a in item.reduced)
    if inner:
        after = Location(last, True, nest.by_element(item.own))
        element = _rows(nest, alg, element, where, last, after, nest.guarding(where, last))
        where, conditions = after, nest.guarding(after, first)
    if all(a in nest.stepped or nest.local[a] == number(0) for a in within):
        index, total = nest.register_index([a for a in within if nest.local[a] != number(0)])
        if outer_strip:
            index, total = add(mul(index, number(nest.width)), nest.element), total * nest.width
        names = _declare(nest, alg, total, start)
        _merge_into(nest, alg, names, index, element, where, conditions)
        drain = nest.child(within, Location(first, True, outer_strip), uniform=bool(lanes))
        own = Location(len(within), False, nest.by_element(item.own))
        at, _ = drain.register_index([a for a in within if drain.local[a] != number(0)])
        if outer_strip:
            at = add(mul(at, number(nest.width)), drain.element)
        partial = tuple(drain.name(Load(n, at, t), own) for n, t in zip(names, alg.dtypes, strict=True))
        found = fold(drain, alg, partial, lanes, own, scratch, item.stored)
        sink(found.nest, found.where, found.components)
        nest.put(Location(first, True), nested(drain))
        return
    _in_block_memory(nest, item, element, where, conditions, first, within, scratch, sink)


def _in_block_memory(
    nest: ThreadNest,
    item: Accumulation,
    element: Components,
    where: Location,
    conditions: Sequence[Expr],
    first: int,
    within: tuple[int, ...],
    scratch: Scratch,
    sink: Sink,
) -> None:
    """Array accumulators in block memory: element [copy, positions], a copy for each thread along other axes."""
    if nest.by_element(item.own) and nest.vector not in within:
        raise LoweringError(f"reduction {item.value} keeps strips outside its accumulators in block memory")
    alg, memory = item.algebra, scratch.memory
    sizes = [nest.axes[a].size for a in within]
    shape = layout(sizes, range(len(sizes)))
    others = [lane for a, lane in nest.lanes.items() if a not in within]
    kept, kept_count = _row_major([lane for lane in others if lane.axis not in item.reduced])
    mine, parts = _row_major([lane for lane in others if lane.axis in item.reduced])
    base, copies = mul(kept, number(parts)), kept_count * parts
    copy = nest.bind(add(base, mine))
    names = [memory.own(t, _known(item.value, shape) * copies) for t in alg.dtypes]

    def offset(at: ThreadNest, number_: Expr) -> Expr:
        return add(mul(number_, shape.elements), shape.offset([at.local[a] for a in within]))

    fill = nest.child(within, Location(first))
    own = Location(len(within), False, fill.by_element(within))
    for name, identity in zip(names, alg.identity, strict=True):
        fill.put(own, Store(name, offset(fill, copy), identity))
    nest.put(Location(first), nested(fill))
    _merge_into(nest, alg, names, offset(nest, copy), element, where, conditions)
    after = Location(first, True)
    drain = nest.child(within, after)
    if parts == 1:
        at = offset(drain, copy)
        partial = tuple(drain.name(Load(n, at, t), own) for n, t in zip(names, alg.dtypes, strict=True))
        sink(drain, own, partial)
        nest.put(after, nested(drain))
        return
    wait = Sync("block" if masks([lane for lane in others if lane.axis in item.reduced])[1] else "warp")
    nest.put(after, wait)
    total: Components = ()
    for part in range(parts):
        at = offset(drain, add(base, number(part)))
        loaded = tuple(drain.name(Load(n, at, t), own) for n, t in zip(names, alg.dtypes, strict=True))
        total = tuple(drain.name(x, own) for x in alg.merge(total, loaded)) if part else loaded
    sink(drain, own, total)
    nest.put(after, nested(drain))
    if first:
        nest.put(after, wait)  # the next round starts by overwriting what others read here


def _known(value: int, shape: Layout) -> int:
    if not isinstance(shape.elements, Literal):
        raise LoweringError(f"the accumulators of reduction {value} have no constant size")
    return int(shape.elements.value)


def _row_major(lanes: Sequence[Lane]) -> tuple[Expr, int]:
    """The thread's number among those that differ along `lanes` only, and how many those are."""
    total: Expr = number(0)
    count = 1
    for lane in lanes:
        total, count = add(mul(total, number(lane.count)), lane.coordinate), count * lane.count
    return total, count
