"""One loop of a stage, shared by threads: for (i = coordinate * w; i < trip; i += n * w), w neighbours a step.

Where the trip is no multiple of w, the last elements are a copy of the body (the tail). A loop that encloses a fold
across threads is run equally often by all threads: steps outside the axis are clamped into it and marked as not live.
A stepped loop counts steps and is unrolled, so that step numbers are constants in the machine code.
"""

from __future__ import annotations

from collections.abc import Callable

from ....graphs.dtypes import DType
from ...loops import Apply, Expr, For, If, Let, Literal, Local, Stmt
from ..integers import add, divide, minimum, modulo, mul, number, range_of, sub
from .elements import Elements
from .nest import ThreadNest

Inner = Callable[[Elements | None], tuple[Stmt, ...]]
"""The body, given which elements of a strip are there (None where the loop has no strips)."""

_POSITIVE = (0, 2**62)
_TRUE = Literal(True, DType.BOOL)


def shared_loop(nest: ThreadNest, axis: int, inner: Inner) -> tuple[Stmt, ...]:
    """The loop over `axis` around `inner`."""
    if axis in nest.windows:
        exact = _exact(nest, axis, inner)
        if exact is not None:
            return exact
        inner = _within(nest, axis, inner)
    if axis not in nest.strip:
        return inner(None)
    loop = _Loop(nest, axis, inner)
    return loop.uniform() if axis in nest.uniform else loop.free()


def _exact(nest: ThreadNest, axis: int, inner: Inner) -> tuple[Stmt, ...] | None:
    """The loop over the axis's window alone, where each thread runs it whole, one position a step."""
    whole = nest.axes[axis].start == number(0) and nest.share(axis) == 1 and axis not in nest.stepped
    if axis not in nest.strip or not whole:
        return None
    first, end = nest.windows[axis]
    live = (Let(nest.live[axis], _TRUE),) if axis in nest.live else ()
    loop = For(nest.strip[axis], number(first), number(end), (*live, *inner(None)), unroll=nest.unroll.get(axis, 1))
    return (loop,) if loop.body[len(live) :] else ()


def _within(nest: ThreadNest, axis: int, inner: Inner) -> Inner:
    """`inner` where the position (all those of a strip) lies in the axis's window."""
    (first, end), start = nest.windows[axis], nest.axes[axis].start
    position = add(start, nest.strip[axis]) if axis in nest.strip else start
    own: tuple[Stmt, ...] = ()
    if axis not in nest.strip:
        alias = nest.position[axis]
        assert isinstance(alias, Local)
        own = (Let(alias, start),)
    reach = range_of(start, nest.ranges)
    tests: list[Expr] = []
    if first or reach is None or reach[0] < 0:
        tests.append(Apply("ge", DType.BOOL, (position, number(first))))
    if end < nest.extents[axis]:
        tests.append(Apply("lt", DType.BOOL, (position, number(end))))

    def guarded(elements: Elements | None) -> tuple[Stmt, ...]:
        body = inner(elements)
        if not body:
            return ()
        body = (*own, *body)
        for test in reversed(tests):
            body = (If(test, body),)
        return body

    return guarded


class _Loop:
    """
    share   elements of all threads in one step
    whole   elements in whole strips
    """

    def __init__(self, nest: ThreadNest, axis: int, inner: Inner) -> None:
        info, lane = nest.axes[axis], nest.lanes.get(axis)
        self.nest, self.axis, self.inner = nest, axis, inner
        self.trip, self.size = info.trip, info.size
        self.width = nest.width if axis == nest.vector else 1
        self.count = lane.count if lane else 1
        self.coordinate: Expr = lane.coordinate if lane else number(0)
        self.share = self.count * self.width
        self.strip: Local = nest.strip[axis]
        step = nest.step[axis]
        assert isinstance(step, Local)
        self.step = step
        self.stepped = axis in nest.stepped
        self.first = mul(self.coordinate, number(self.width))
        self.rest = self._rest(self.width)
        self.whole = sub(self.trip, self.rest)
        self.elements = Elements(self.width) if self.width > 1 else None
        self.unroll = nest.unroll.get(axis, 1)

    def _rest(self, share: int) -> Expr:
        """The trip modulo `share`."""
        if self.nest.divisors.of(self.trip) % share == 0:
            return number(0)
        return self._modulo(self.trip, share)

    @staticmethod
    def _modulo(a: Expr, b: int) -> Expr:
        return modulo(a, number(b), None if isinstance(a, Literal) else _POSITIVE)

    @staticmethod
    def _divide(a: Expr, b: int) -> Expr:
        return divide(a, number(b), None if isinstance(a, Literal) else _POSITIVE)

    def _steps(self) -> int:
        """How many steps a thread takes at most; the size is constant."""
        assert isinstance(self.size, Literal)
        return -(-int(self.size.value) // self.share)

    def _single(self, stop: Expr) -> bool:
        """True when positions below `stop` take each thread one step at most. A task's trip is 1 at least, its size at
        most."""
        if isinstance(stop, Literal):
            return int(stop.value) <= self.share
        return isinstance(self.size, Literal) and int(self.size.value) <= self.share

    def _below(self, limit: Expr, body: tuple[Stmt, ...], reach: int | None) -> tuple[Stmt, ...]:
        """`body` where the strip starts below `limit`; `reach`: where the last thread's strip ends, if known."""
        if reach is not None and isinstance(limit, Literal) and reach <= int(limit.value):
            return body
        return (If(Apply("lt", DType.BOOL, (self.strip, limit)), body),)

    # --- loops that threads run as often as they have work

    def free(self) -> tuple[Stmt, ...]:
        body = self.inner(self.elements)
        if not body:
            return ()
        loops = self._counted(body) if self.stepped else self._striding(body)
        return (*loops, *self._tail())

    def _striding(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        if self.whole == number(0):
            return ()
        if self._single(self.whole):
            inside = self._below(self.whole, body, self.share)
            return self._scope((Let(self.strip, self.first), *inside))
        return (For(self.strip, self.first, self.whole, body, step=self.share, unroll=self.unroll),)

    def _counted(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        steps = -(-int(self.whole.value) // self.share) if isinstance(self.whole, Literal) else self._steps()
        start = add(self.first, mul(self.step, number(self.share)))
        inside = self._below(self.whole, body, steps * self.share)
        if not isinstance(self.rest, Literal):
            masked = self.inner(Elements(self.width, self.trip))
            last = Apply("and", DType.BOOL, (self._equal(self.strip, self.whole), self._positive(self.rest)))
            inside = (*inside, If(last, masked))
        return self._unrolled(steps, (Let(self.strip, start), *inside))

    def _unrolled(self, steps: int, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        if steps == 0:
            return ()
        if steps == 1:
            return self._scope((Let(self.step, number(0)), *body))
        return (For(self.step, number(0), number(steps), body, unroll=steps),)

    def _scope(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        """`body` in a scope of its own, where a tail has the same names."""
        return body if self.rest == number(0) else (If(_TRUE, body),)

    @staticmethod
    def _equal(a: Expr, b: Expr) -> Expr:
        return Apply("eq", DType.BOOL, (a, b))

    @staticmethod
    def _positive(a: Expr) -> Expr:
        return Apply("gt", DType.BOOL, (a, number(0)))

    def _tail(self) -> tuple[Stmt, ...]:
        """The elements behind the last whole strip: those of the thread whose turn it is."""
        if self.rest == number(0) or (self.stepped and not isinstance(self.rest, Literal)):
            return ()
        strips = self._divide(self.trip, self.width)
        start: tuple[Stmt, ...] = (Let(self.strip, self.whole),)
        if self.stepped:
            start = (Let(self.step, self._divide(strips, self.count)), *start)
        if isinstance(self.rest, Literal):
            body = (*start, *self.inner(Elements(int(self.rest.value))))
            test = self._equal(self.coordinate, self._modulo(strips, self.count))
            return (If(test, body),) if self.count > 1 else self._scope(body)
        body = (*start, *self.inner(Elements(self.width, self.trip)))
        test = self._positive(self.rest)
        if self.count > 1:
            turn = self._equal(self.coordinate, self._modulo(strips, self.count))
            test = Apply("and", DType.BOOL, (test, turn))
        return (If(test, body),)

    # --- loops that all threads run equally often

    def uniform(self) -> tuple[Stmt, ...]:
        live = self.nest.live[self.axis]
        full = sub(self.trip, self._rest(self.share))
        if self.share == 1 or full == self.trip:
            marked: tuple[Stmt, ...] = (Let(live, _TRUE), *self.inner(self.elements))
            if self.stepped and not isinstance(self.trip, Literal):
                # The last tile has fewer steps than the others: the same number for all threads.
                marked = (If(Apply("lt", DType.BOOL, (self.strip, self.trip)), marked),)
            return self._all(self.trip, (), marked)
        raw = self.nest.names.fresh("i")
        inside = Let(live, Apply("lt", DType.BOOL, (raw, self.trip)))
        if self.rest == number(0):
            last = sub(self.trip, number(self.width))
            clamped = (inside, Let(self.strip, minimum(raw, last)))
            return self._all(self.trip, clamped, self.inner(self.elements), raw)
        masked = self.inner(Elements(self.width, self.trip, clamp=True))
        if self.stepped and not isinstance(self.trip, Literal):
            return self._all(self.trip, (inside, Let(self.strip, raw)), masked, raw)
        loops = self._all(full, (Let(live, _TRUE),), self.inner(self.elements))
        partial: tuple[Stmt, ...] = (Let(raw, add(full, self.first)), inside, Let(self.strip, raw), *masked)
        partial = (Let(self.step, self._divide(full, self.share)), *partial)
        if isinstance(full, Literal):
            return (*loops, *self._scope(partial))
        return (*loops, If(Apply("lt", DType.BOOL, (full, self.trip)), partial))

    def _all(
        self, stop: Expr, marks: tuple[Stmt, ...], body: tuple[Stmt, ...], strip: Local | None = None
    ) -> tuple[Stmt, ...]:
        """Steps below `stop`, in which `strip` (the nest's own by default) starts at the thread's own place."""
        strip = strip or self.strip
        if self.stepped:
            steps = -(-int(stop.value) // self.share) if isinstance(stop, Literal) else self._steps()
            start = add(self.first, mul(self.step, number(self.share)))
            return self._unrolled(steps, (Let(strip, start), *marks, *body))
        if stop == number(0):
            return ()
        if self._single(stop) and (stop == self.trip or isinstance(stop, Literal)):
            return self._scope((Let(strip, self.first), Let(self.step, number(0)), *marks, *body))
        base = strip if self.coordinate == number(0) else self.nest.names.fresh("i")
        inside: tuple[Stmt, ...] = (Let(self.step, self._divide(base, self.share)), *marks, *body)
        if base != strip:
            inside = (Let(strip, add(base, self.first)), *inside)
        return (For(base, number(0), stop, inside, step=self.share, unroll=self.unroll),)
