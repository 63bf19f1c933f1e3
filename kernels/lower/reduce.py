"""Reductions inside a stage: where accumulators start, grow and end.

Let `first` be the loop of the outermost reduced axis. The result exists after that loop. Axes of the reduction's own
outside it need nothing; own axes inside it make the accumulator an array over them. Reduced loops inside
the last own axis accumulate in a scalar, or in the lanes of the vector loop, first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...graphs.dtypes import DType
from ..loops import Assign, Declare, Expr, Fold, For, Let, Literal, Load, Local, Stmt, Store
from .algebra import Algebra
from .context import layout
from .errors import LoweringError
from .evaluate import Evaluator
from .integers import add, mul, number
from .nest import Location, Nest

NewArray = Callable[[DType, Expr], tuple[str, bool]]
"""Allocates a private array of a dtype and size; True when it is a register array that needs declaring."""

Components = tuple[Expr, ...]


def accumulate(
    ev: Evaluator[Nest],
    value: int,
    alg: Algebra,
    new: NewArray,
    sink: Callable[[Location, Components, dict[int, Expr]], None],
) -> None:
    """Accumulates `value` in the stage; `sink` receives where its components are final, and the own axes' local
    positions there (those of the stage, or of fresh loops over an array accumulator)."""
    nest, v = ev.nest, ev.ctx.value(value)
    order = nest.order
    depth = nest.depth(v.domain)
    first = min(order.index(a) for a in v.reduce)
    foreign = [a for a in order[first:depth] if a not in v.domain]
    if foreign:
        raise LoweringError(f"reduction {value} would accumulate once for each position of axes {foreign}")
    inside = [a for a in order[first:depth] if a in v.axes]
    start = nest.depth(tuple(inside)) if inside else first
    reduced = [a for a in order[start:depth] if a in v.reduce]

    operand = ev.operand(value)
    element = alg.lift(nest, operand, _linear(ev, v.reduce) if alg.indexed else None)
    where = Location(depth)
    for part in element:
        where = nest.join(where, nest.locate(part))
    if where.depth != depth:
        raise LoweringError(f"reduction {value} accumulates outside its loops")

    if not inside:
        final = _scalar(nest, alg, element, where, start)
        sink(Location(first, True), final, nest.local)
        return
    arrays = _array(nest, alg, inside, first, new)
    offset = arrays.offset(nest.local)
    if reduced:
        element = _scalar(nest, alg, element, where, start)
        where = Location(start, True)
    old = tuple(_name(nest, Load(n, offset, t), where) for n, t in zip(arrays.names, alg.dtypes, strict=True))
    for name, new_value in zip(arrays.names, alg.merge(old, element), strict=True):
        nest.put(where, Store(name, offset, new_value))
    _drain(nest, alg, arrays, first, sink)


def _linear(ev: Evaluator[Nest], axes: Sequence[int]) -> Expr:
    """Row-major position in a group of reduced axes."""
    total: Expr = number(0)
    for a in axes:
        total = add(mul(total, ev.ctx.extent(a)), ev.nest.position[a])
    return total


def _name(nest: Nest, expr: Expr, where: Location) -> Expr:
    """A name at `where` for something that is not the same everywhere (a load from an accumulator)."""
    local = nest.names.fresh("t", expr.dtype)
    nest.where[local.name] = where
    nest.put(where, Let(local, expr))
    return local


def _scalar(nest: Nest, alg: Algebra, element: Components, where: Location, start: int) -> Components:
    """Accumulates over the loops from `start` inwards; the components' names after that loop."""
    before, after = Location(start), Location(start, True)
    in_lanes = nest.lanes > 0 and where == Location(len(nest.order))
    if not in_lanes:
        variables = tuple(nest.mutable(x, before) for x in alg.identity)
        merged = alg.merge(variables, element)
        _assign(nest, where, variables, merged)
        return tuple(nest.result(variable, after) for variable in variables)
    names = tuple(nest.names.fresh("v").name for _ in alg.dtypes)
    fill: list[Stmt] = []
    for name, dtype, identity in zip(names, alg.dtypes, alg.identity, strict=True):
        nest.put(before, Declare(name, dtype, nest.lanes))
        fill.append(Store(name, nest.lane, identity))
    nest.put(before, For(nest.lane, number(0), number(nest.lanes), tuple(fill), simd=True))
    old = tuple(_name(nest, Load(n, nest.lane, t), where) for n, t in zip(names, alg.dtypes, strict=True))
    for name, value in zip(names, alg.merge(old, element), strict=True):
        nest.put(where, Store(name, nest.lane, value))
    return fold_lanes(nest, alg, names, after)


def _assign(nest: Nest, where: Location, variables: Sequence[Local], merged: Components) -> None:
    if len(variables) == 1:
        nest.put(where, Assign(variables[0], merged[0]))
        return
    # all components are read before one is written
    fresh = [_name(nest, expr, where) for expr in merged]
    for variable, expr in zip(variables, fresh, strict=True):
        nest.put(where, Assign(variable, expr))


def fold_lanes(nest: Nest, alg: Algebra, names: Sequence[str], where: Location) -> Components:
    """Lane 0..n-1 of register arrays as one accumulator, in a balanced tree."""
    if alg.fold is not None:
        return (nest.result(Fold(alg.fold, names[0], nest.lanes, alg.dtypes[0]), where),)
    half = nest.lanes // 2
    while half:
        lane = nest.names.fresh("l")
        body: list[Stmt] = []
        sides: list[Components] = []
        for shift in (0, half):
            side: list[Expr] = []
            for name, dtype in zip(names, alg.dtypes, strict=True):
                local = nest.names.fresh("t", dtype)
                body.append(Let(local, Load(name, add(lane, number(shift)), dtype)))
                side.append(local)
            sides.append(tuple(side))
        body += [Store(n, lane, x) for n, x in zip(names, alg.merge(sides[0], sides[1]), strict=True)]
        nest.put(where, For(lane, number(0), number(half), tuple(body), simd=half > 1))
        half //= 2
    return tuple(nest.result(Load(n, number(0), t), where) for n, t in zip(names, alg.dtypes, strict=True))


class _Arrays:
    """Accumulator arrays over the own axes `inside`."""

    def __init__(self, names: tuple[str, ...], inside: Sequence[int], sizes: Sequence[Expr]) -> None:
        self.names = names
        self.inside = tuple(inside)
        self.shape = layout(sizes, range(len(sizes)))

    def offset(self, local: dict[int, Expr]) -> Expr:
        return self.shape.offset([local[a] for a in self.inside])


def _array(nest: Nest, alg: Algebra, inside: Sequence[int], first: int, new: NewArray) -> _Arrays:
    sizes = [nest.axes[a].size for a in inside]
    total: Expr = number(1)
    for size in sizes:
        total = mul(total, size)
    names = []
    for dtype in alg.dtypes:
        name, declare = new(dtype, total)
        if declare:
            assert isinstance(total, Literal)
            nest.put(Location(first), Declare(name, dtype, int(total.value)))
        names.append(name)
    arrays = _Arrays(tuple(names), inside, sizes)
    loops, local = _loops(nest, inside, Location(first))
    fill = tuple(Store(n, arrays.offset(local), x) for n, x in zip(names, alg.identity, strict=True))
    nest.put(Location(first), wrap(loops, fill))
    return arrays


def _loops(nest: Nest, inside: Sequence[int], where: Location) -> tuple[list[Span], dict[int, Expr]]:
    """Fresh loops over own axes, and the local positions they give (the stage's for the others)."""
    loops = [(nest.names.fresh("i"), *nest.span(a)) for a in inside]
    local = dict(nest.local)
    for a, (variable, _, _) in zip(inside, loops, strict=True):
        local[a] = variable
        nest.where[variable.name] = where
    return loops, local


Span = tuple[Local, Expr, Expr]
"""A loop: its variable, its first position, and the first after."""


def wrap(loops: Sequence[Span], body: tuple[Stmt, ...]) -> Stmt:
    """`body` in a chain of loops, the innermost one in lanes."""
    for k, (variable, first, end) in enumerate(reversed(loops)):
        body = (For(variable, first, end, body, simd=k == 0),)
    return body[0]


def _drain(
    nest: Nest,
    alg: Algebra,
    arrays: _Arrays,
    first: int,
    sink: Callable[[Location, Components, dict[int, Expr]], None],
) -> None:
    """Loops over an array accumulator after the reduction; the sink's statements become their body."""
    where = Location(first, True)
    loops, local = _loops(nest, arrays.inside, where)
    mark = len(nest.after[first])
    offset = arrays.offset(local)
    components = tuple(_name(nest, Load(n, offset, t), where) for n, t in zip(arrays.names, alg.dtypes, strict=True))
    sink(where, components, local)
    body = tuple(nest.after[first][mark:])
    del nest.after[first][mark:]
    nest.put(where, wrap(loops, body))
