"""One stage's loops, shared by the threads of a block, while they are being filled.

Loops form a chain with code before and after each inner loop. The vector axis is two loops: a strip loop at its place
in the order, and an innermost, unrolled loop over the `width` neighbouring elements of a strip. So a location has
three parts: how many loops enclose it, whether it stands after the inner loop, and whether it is run for every
element of the strip. An expression goes to the outermost location where all it mentions exists; equal ones share
a name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ....graphs.dtypes import DType
from ...loops import Apply, Argument, Expr, If, Let, Literal, Local, Stmt, locals_of
from ..errors import LoweringError
from ..integers import Range, add, mul, number, range_of
from ..names import Names
from ..nest import Axis
from ..windows import Window
from .divisors import Divisors, at_zero, coefficient
from .elements import Elements
from .lanes import Lane


class Location(NamedTuple):
    depth: int
    after: bool = False
    element: bool = False


Item = Stmt | Callable[[Elements | None], tuple[Stmt, ...]]
"""A statement, or code that depends on which elements of a strip are there."""


@dataclass
class ThreadNest:
    """The loops `order` (outer to inner) of one stage.

    lanes    threads along an axis, where there is more than one
    vector   the axis of strips of `width` elements (-1: none)
    stepped  axes along which register arrays are indexed: their loops count steps and are unrolled
    windows  the positions along some axes that these loops are for, and the extents of these axes
    uniform  axes whose loops enclose a fold across threads: all threads run them equally often
    guards   what must hold for the thread's work to count, from the loops around a nested nest
    """

    order: tuple[int, ...]
    axes: dict[int, Axis]
    names: Names
    ranges: dict[Expr, Range]
    lanes: dict[int, Lane]
    vector: int = -1
    width: int = 1
    stepped: frozenset[int] = frozenset()
    uniform: frozenset[int] = frozenset()
    unroll: dict[int, int] = field(default_factory=dict)
    windows: dict[int, Window] = field(default_factory=dict)
    extents: dict[int, int] = field(default_factory=dict)
    divisors: Divisors = field(default_factory=Divisors)
    guards: tuple[Local, ...] = ()
    element_guards: tuple[Local, ...] = ()
    outer: frozenset[int] = frozenset()
    """Axes whose positions come from the loops around a nested nest."""
    settled: frozenset[int] = frozenset()
    elected: tuple[Expr, ...] = ()
    """Axes along which the code around has picked the thread that stores already, but for these tests."""
    repeated: bool = False
    """The whole nest stands in a loop that may take several steps."""

    def __post_init__(self) -> None:
        self.before: list[list[tuple[bool, Item]]] = [[] for _ in range(len(self.order) + 1)]
        self.after: list[list[tuple[bool, Item]]] = [[] for _ in range(len(self.order) + 1)]
        self.where: dict[str, Location] = {}
        self.known: dict[Expr, Local] = {}
        self.inside: dict[str, Expr] = {}
        """Integers that differ between the elements of a strip, by name."""
        self.local: dict[int, Expr] = {}
        self.position: dict[int, Expr] = {}
        self.step: dict[int, Expr] = {}
        """The number of a thread's step along a stepped axis."""
        self.strip: dict[int, Local] = {}
        self.live: dict[int, Local] = {}
        self.element = self.names.fresh("e")
        self.spot = self.names.fresh("p")
        """The local position of the element along the vector axis."""
        self.valid = self.names.fresh("v", DType.BOOL)
        """Whether the element is inside the axis."""
        for depth, axis in enumerate(self.order):
            self._enter(axis, Location(depth + 1))

    def _enter(self, axis: int, where: Location) -> None:
        info = self.axes[axis]
        strips = axis == self.vector and self.width > 1
        if info.trip == number(1) and axis not in self.lanes and not strips:
            self.local[axis] = self.step[axis] = number(0)
        else:
            strip = self.strip[axis] = self.names.fresh("i")
            self.where[strip.name] = where
            step = self.step[axis] = self.names.fresh("s")
            self.where[step.name] = where
            self.local[axis] = strip
            reach = range_of(info.size, self.ranges)
            if reach is not None:
                self.ranges[strip] = (0, max(0, reach[1] - 1))
            if strips:
                self.local[axis] = self.spot
                self.where[self.spot.name] = self.where[self.element.name] = where._replace(element=True)
                self.ranges[self.element] = (0, self.width - 1)
                self.divisors.loops[strip.name] = self.width
                self.divisors.lets[self.spot.name] = self.inside[self.spot.name] = add(strip, self.element)
                if reach is not None:
                    self.ranges[self.spot] = (0, max(0, reach[1] - 1))
            if axis in self.uniform:
                live = self.live[axis] = self.names.fresh("v", DType.BOOL)
                self.where[live.name] = where
                if strips:
                    self.where[self.valid.name] = where._replace(element=True)
        self.position[axis] = add(info.start, self.local[axis])
        if axis in self.windows:
            if axis not in self.strip:
                position = self.position[axis] = self.names.fresh("i")
                self.where[position.name] = where
            self.ranges[self.position[axis]] = (self.windows[axis][0], self.windows[axis][1] - 1)

    def child(
        self, order: tuple[int, ...], where: Location, uniform: bool = False, extra: dict[int, Axis] | None = None
    ) -> ThreadNest:
        """A nest of its own loops `order`, to stand at `where` of this one; it sees the positions there."""
        nested = replace(
            self,
            order=(),
            outer=self.outer | frozenset(a for a in self.order if a not in order),
            axes={**self.axes, **(extra or {})},
            uniform=self.uniform | frozenset(order if uniform else ()),
            repeated=self.repeated or bool(self.repeating(where)),
            guards=self.guarding(where._replace(element=False)),
            element_guards=self.guarding(where._replace(element=True)),
        )
        nested.element, nested.spot, nested.valid = self.element, self.spot, self.valid
        nested.local, nested.position, nested.step = dict(self.local), dict(self.position), dict(self.step)
        nested.strip, nested.live, nested.inside = dict(self.strip), dict(self.live), dict(self.inside)
        nested.where = {n: Location(0, False, at.element) for n, at in self.where.items()}
        if self.vector in order:
            nested.element = self.names.fresh("e")
            nested.spot = self.names.fresh("p")
            nested.valid = self.names.fresh("v", DType.BOOL)
        nested.order = order
        nested.before = [[] for _ in range(len(order) + 1)]
        nested.after = [[] for _ in range(len(order) + 1)]
        for depth, axis in enumerate(order):
            nested._enter(axis, Location(depth + 1))
        return nested

    # --- locations

    def depth(self, axes: Sequence[int]) -> int:
        """The least depth at which all `axes` have a position."""
        try:
            return max((self.order.index(a) + 1 for a in axes if a not in self.outer), default=0)
        except ValueError:
            raise LoweringError(f"an axis of {sorted(axes)} is no loop of {self.order}") from None

    def home(self, axes: Sequence[int]) -> Location:
        """Where a value of these axes is computed."""
        return Location(self.depth(axes), False, self.by_element(axes))

    def by_element(self, axes: Sequence[int]) -> bool:
        """True when a value of these axes differs between the elements of a strip."""
        return self.width > 1 and self.vector in axes

    def locate(self, expr: Expr) -> Location:
        """The outermost location where everything that `expr` mentions exists."""
        found = Location(0)
        for local in locals_of(expr):
            found = self.join(found, self.where.get(local.name, Location(0)))
        return found

    @staticmethod
    def join(a: Location, b: Location) -> Location:
        element = a.element or b.element
        if not a.after and not b.after:
            return Location(max(a.depth, b.depth), False, element)
        late, other = (a, b) if a.after else (b, a)
        if other.after and other.depth != late.depth:
            raise LoweringError("a value needs results of two loops that do not nest")
        if other.depth > late.depth:
            raise LoweringError("a value needs a result of its own stage inside the loop that computes it")
        return Location(late.depth, True, element)

    def guarding(self, where: Location, start: int = 0) -> tuple[Local, ...]:
        """What must hold for an effect at `where` to count, of the loops from number `start` inwards."""
        found: list[Local] = []
        if not start:
            found += self.element_guards if where.element else self.guards
        for axis in self.order[start : where.depth]:
            if axis in self.live:
                found.append(self.valid if axis == self.vector and where.element else self.live[axis])
        return tuple(dict.fromkeys(found))

    def repeating(self, where: Location) -> tuple[int, ...]:
        """The axes whose loops may run code at `where` more than once, or never."""
        return tuple(a for a in self.order[: where.depth] if self._steps(a) != 1)

    def _steps(self, axis: int) -> int:
        """How many steps a thread takes along an axis; 0: not known."""
        size = self.axes[axis].size
        return -(-int(size.value) // self.share(axis)) if isinstance(size, Literal) else 0

    def clamps(self, axis: int) -> bool:
        """True when the last step of a uniform loop may find threads without work."""
        return self.divisors.of(self.axes[axis].trip) % self.share(axis) != 0

    def share(self, axis: int) -> int:
        """Elements along an axis that all threads take in one step."""
        threads = self.lanes[axis].count if axis in self.lanes else 1
        return threads * self.width if axis == self.vector else threads

    # --- filling

    def put(self, where: Location, item: Item) -> None:
        (self.after if where.after else self.before)[where.depth].append((where.element, item))

    def guarded(self, where: Location, conditions: Sequence[Expr], *statements: Stmt) -> None:
        """Statements at `where` that only run when all conditions hold."""
        body = statements
        for condition in reversed(conditions):
            body = (If(condition, body),)
        for statement in body:
            self.put(where, statement)

    def bind(self, expr: Expr) -> Expr:
        """A name for `expr` at its location; equal expressions share it."""
        if isinstance(expr, Literal | Local | Argument):
            return expr
        if expr not in self.known:
            made = self._of_strip(expr)
            local = self.name(made, self.locate(made))
            if made.dtype is DType.I64:
                self.divisors.learn((Let(local, made),))
                if self.where[local.name].element:
                    self.inside[local.name] = made
            reach = range_of(expr, self.ranges) if expr.dtype is DType.I64 else None
            if reach is not None:
                self.ranges[local] = reach
            self.known[expr] = local
        return self.known[expr]

    def _of_strip(self, expr: Expr) -> Expr:
        """A test of a position that has one outcome for a whole strip, in terms of the strip alone."""
        match expr:
            case Apply("lt" | "ge" as op, kind, (index, limit)) if index.dtype is DType.I64 and self.width > 1:
                of, lets = self.divisors, self.inside
                if of.of(limit) % self.width or coefficient(index, self.element, lets) != 1:
                    return expr
                first = at_zero(index, self.element, lets)
                return expr if of.of(first) % self.width else Apply(op, kind, (first, limit))
        return expr

    def name(self, expr: Expr, where: Location, mutable: bool = False) -> Local:
        """A new name for `expr` at `where`."""
        local = self.names.fresh("a" if mutable else "t", expr.dtype)
        self.where[local.name] = where
        self.put(where, Let(local, expr, mutable))
        return local

    def first_of(self, axes: Sequence[int]) -> list[Expr]:
        """Tests that pick one thread among those that hold the same element of a value with these axes."""
        zero = number(0)
        lacking = [lane for a, lane in self.lanes.items() if a not in axes and a not in self.settled]
        return [*self.elected, *(self.bind(Apply("eq", DType.BOOL, (lane.coordinate, zero))) for lane in lacking)]

    def register_index(self, axes: Sequence[int]) -> tuple[Expr, int]:
        """Where a thread keeps its element of a value of these axes, and how many elements it has.

        Raises LoweringError when an axis is not stepped or its size is not constant.
        """
        index: Expr = number(0)
        total = 1
        for axis in axes:
            size = self.axes[axis].size
            if axis not in self.stepped or not isinstance(size, Literal):
                raise LoweringError(f"axis {axis} has no constant steps")
            steps = self._steps(axis)
            index, total = add(mul(index, number(steps)), self.step[axis]), total * steps
            if self.by_element((axis,)):
                index, total = add(mul(index, number(self.width)), self.element), total * self.width
        return index, total
