"""One stage's loops while they are being filled: a chain of loops with code before and after each inner loop.

Every name has a location: the depth (how many loops enclose it) and whether it stands after the inner loop
(`after`). An expression goes to the outermost location where all it mentions exists, which is what keeps
row-wise values out of the element loop; equal expressions get one name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from ...graphs.dtypes import DType
from ..loops import Apply, Argument, Expr, For, If, Let, Literal, Local, Stmt, locals_of
from .errors import LoweringError
from .integers import Range, add, maximum, minimum, modulo, number, range_of
from .integers import sub as minus
from .jam import jam
from .names import Names


class Location(NamedTuple):
    depth: int
    after: bool = False


@dataclass(frozen=True)
class Axis:
    """An axis inside a task: `trip` iterations (at most `size`); positions are `start + local`."""

    start: Expr
    trip: Expr
    size: Expr


@dataclass
class Nest:
    """The loops `order` (outer to inner) of one stage.

    lanes   elements of a strip when the innermost loop carries a reduction in lanes, else 0
    simd    the innermost loop runs in lanes
    windows the positions along some axes that these loops are for: first, and first after
    chunk   the innermost loop is cut into pieces of so many iterations (0: it is not), each followed by `chunk_after`
    """

    order: tuple[int, ...]
    axes: dict[int, Axis]
    names: Names
    ranges: dict[Expr, Range]
    simd: bool = False
    lanes: int = 0
    chunk: int = 0
    unroll: dict[int, int] = field(default_factory=dict)
    windows: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.before: list[list[Stmt]] = [[] for _ in range(len(self.order) + 1)]
        self.after: list[list[Stmt]] = [[] for _ in range(len(self.order) + 1)]
        self.where: dict[str, Location] = {}
        self.known: dict[Expr, Local] = {}
        self.local: dict[int, Expr] = {}
        self.position: dict[int, Expr] = {}
        for depth, axis in enumerate(self.order):
            info = self.axes[axis]
            if info.trip == number(1) and not (self.simd and depth == len(self.order) - 1):
                self.local[axis] = number(0)
            else:
                variable = self.names.fresh("i")
                self.local[axis] = variable
                self.where[variable.name] = Location(depth + 1)
                if isinstance(info.trip, Literal):
                    self.ranges[variable] = (0, max(0, int(info.trip.value) - 1))
                elif (reach := range_of(info.trip, self.ranges)) is not None:
                    self.ranges[variable] = (0, max(0, reach[1] - 1))
            self.position[axis] = add(info.start, self.local[axis])
            if axis in self.windows:
                first, end = self.windows[axis]
                if isinstance(self.local[axis], Literal):
                    position = self.names.fresh("i")
                    self.where[position.name] = Location(depth + 1)
                    self.position[axis] = position
                self.ranges[self.position[axis]] = (first, end - 1)
        self.lane = self.names.fresh("l")
        self.where[self.lane.name] = Location(len(self.order))
        self.chunk_start: Expr = number(0)
        self.chunk_trip: Expr = number(0)
        self.chunk_after: list[Stmt] = []
        if self.chunk:
            trip = self.axes[self.order[-1]].trip
            if isinstance(trip, Literal) and int(trip.value) <= self.chunk:
                self.chunk_trip = trip
            else:
                self.chunk_start = self.names.fresh("c")
                self.chunk_trip = self.names.fresh("m")

    def depth(self, axes: tuple[int, ...] | frozenset[int]) -> int:
        """The least depth at which all `axes` have a position."""
        try:
            return max((self.order.index(a) + 1 for a in axes), default=0)
        except ValueError:
            raise LoweringError(f"an axis of {sorted(axes)} is no loop of {self.order}") from None

    def locate(self, expr: Expr) -> Location:
        """The outermost location where everything that `expr` mentions exists."""
        found = Location(0)
        for local in locals_of(expr):
            found = self.join(found, self.where.get(local.name, Location(0)))
        return found

    @staticmethod
    def join(a: Location, b: Location) -> Location:
        if not a.after and not b.after:
            return max(a, b)
        late, other = (a, b) if a.after else (b, a)
        if other.after and other.depth != late.depth:
            raise LoweringError("a value needs results of two loops that do not nest")
        if other.depth > late.depth:
            raise LoweringError("a value needs a result of its own stage inside the loop that computes it")
        return late

    def put(self, where: Location, statement: Stmt) -> None:
        (self.after if where.after else self.before)[where.depth].append(statement)

    def bind(self, expr: Expr) -> Expr:
        """A name for `expr` at its location; equal expressions share it."""
        if isinstance(expr, Literal | Local | Argument):
            return expr
        if expr not in self.known:
            local = self.names.fresh("t", expr.dtype)
            where = self.locate(expr)
            self.where[local.name] = where
            self.put(where, Let(local, expr))
            reach = range_of(expr, self.ranges) if expr.dtype is DType.I64 else None
            if reach is not None:
                self.ranges[local] = reach
            self.known[expr] = local
        return self.known[expr]

    def result(self, expr: Expr, where: Location, prefix: str = "r") -> Local:
        """A name for `expr` at `where`, which it does not mention (a finished reduction)."""
        local = self.names.fresh(prefix, expr.dtype)
        self.where[local.name] = where
        self.put(where, Let(local, expr))
        return local

    def mutable(self, initial: Expr, where: Location) -> Local:
        local = self.names.fresh("a", initial.dtype)
        self.where[local.name] = where
        self.put(where, Let(local, initial, mutable=True))
        return local

    def assemble(self, depth: int = 0) -> tuple[Stmt, ...]:
        """The finished loops."""
        if depth == len(self.order):
            return tuple(self.before[depth])
        axis = self.order[depth]
        body = self.assemble(depth + 1)
        return (*self.before[depth], *self._loop(axis, depth, body), *self.after[depth])

    def _loop(self, axis: int, depth: int, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        local, trip = self.local[axis], self.axes[axis].trip
        if not body:
            return ()
        if isinstance(local, Literal):
            return self._within(axis, body)
        assert isinstance(local, Local)
        unroll = self.unroll.get(axis, 1)
        if axis in self.windows:
            first, end = self._reach(axis)
            if depth < len(self.order) - 1:
                return (For(local, first, end, body),)
            return self._innermost(local, first, minus(end, first), body)
        if depth < len(self.order) - 1:
            loop = For(local, number(0), trip, body)
            return jam(loop, unroll, self.names) if unroll > 1 else (loop,)
        if not self.chunk:
            return self._innermost(local, number(0), trip, body)
        start, count = self.chunk_start, self.chunk_trip
        if not isinstance(start, Local):
            return (*self._innermost(local, number(0), trip, body), *self.chunk_after)
        assert isinstance(count, Local)
        pieces = (
            Let(count, minimum(number(self.chunk), minus(trip, start))),
            *self._innermost(local, start, count, body),
            *self.chunk_after,
        )
        return (For(start, number(0), trip, pieces, step=self.chunk),)

    def _within(self, axis: int, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """`body` at the only position of an axis, where that lies in its window."""
        if axis not in self.windows:
            return body
        first, end = self.windows[axis]
        position = self.position[axis]
        assert isinstance(position, Local)
        start = self.axes[axis].start
        known = range_of(start, self.ranges)
        inside = (Let(position, start), *body)
        if known is not None and first <= known[0] and known[1] < end:
            return inside
        if known is not None and (known[1] < first or end <= known[0]):
            return ()
        tests = (Apply("ge", DType.BOOL, (start, number(first))), Apply("lt", DType.BOOL, (start, number(end))))
        return (If(Apply("and", DType.BOOL, tests), inside),)

    def span(self, axis: int) -> tuple[Expr, Expr]:
        """The local positions of an axis that this nest is for: first, and first after."""
        return self._reach(axis) if axis in self.windows else (number(0), self.axes[axis].trip)

    def _reach(self, axis: int) -> tuple[Expr, Expr]:
        """The local positions of an axis's window inside the tile."""
        info = self.axes[axis]

        def local(position: int) -> Expr:
            return maximum(minimum(minus(number(position), info.start), info.trip), number(0))

        first, end = self.windows[axis]
        return local(first), local(end)

    def _innermost(self, local: Local, start: Expr, trip: Expr, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """`trip` iterations of the innermost loop from `start` on: whole strips of lanes, then the rest."""
        if not self.lanes:
            unroll = self.unroll.get(self.order[-1], 1)
            return (For(local, start, add(start, trip), body, simd=self.simd, unroll=unroll),)
        strip = self.names.fresh("s")
        rest = modulo(trip, number(self.lanes), (0, 2**62) if not isinstance(trip, Literal) else None)
        whole = add(start, minus(trip, rest))
        loops: list[Stmt] = []
        inner = (Let(local, add(strip, self.lane)), *body)
        if minus(trip, rest) != number(0):
            lanes = For(self.lane, number(0), number(self.lanes), inner, simd=True)
            loops.append(For(strip, start, whole, (lanes,), step=self.lanes))
        if rest != number(0):
            last = (Let(local, add(whole, self.lane)), *body)
            loops.append(For(self.lane, number(0), rest, last, simd=True))
        return tuple(loops)
