"""A filled nest becomes statements: loops around straight code, elements of a strip unrolled inside."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ....graphs.dtypes import DType
from ...loops import Apply, Expr, For, If, Let, Literal, Stmt, Sync
from ..integers import add, minimum, number, sub
from .elements import Elements
from .loop import shared_loop
from .nest import Item, ThreadNest


def assemble(nest: ThreadNest, elements: Elements | None = None, depth: int = 0) -> tuple[Stmt, ...]:
    """The loops from `depth` on; `elements`: which elements of a strip are there, inside the strip loop."""
    before = _level(nest, nest.before[depth], elements)
    if depth == len(nest.order):
        return before
    loop = shared_loop(nest, nest.order[depth], lambda e: assemble(nest, e or elements, depth + 1))
    return (*before, *loop, *_level(nest, nest.after[depth], elements))


def nested(nest: ThreadNest) -> Callable[[Elements | None], tuple[Stmt, ...]]:
    """A nest as a piece of the one that it stands in."""
    return partial(assemble, nest)


def _level(nest: ThreadNest, items: list[tuple[bool, Item]], elements: Elements | None) -> tuple[Stmt, ...]:
    """Straight code: what is run for every element comes behind what is run once, between two syncs."""
    done: list[Stmt] = []
    each: list[Stmt] = []

    def flush() -> None:
        if each:
            assert elements is not None
            done.append(_unrolled(nest, elements, tuple(each)))
            each.clear()

    for by_element, item in items:
        if by_element:
            assert not callable(item)
            each.append(item)
            continue
        if isinstance(item, Sync):
            flush()
        done.extend(item(elements) if callable(item) else (item,))
    flush()
    return tuple(done)


def _unrolled(nest: ThreadNest, elements: Elements, body: tuple[Stmt, ...]) -> For:
    """`body` for the elements of the current strip."""
    element, strip = nest.element, nest.strip[nest.vector]
    spot: Expr = add(strip, element)
    valid: Expr = nest.live.get(nest.vector, Literal(True, DType.BOOL))
    if elements.within is not None:
        valid = Apply("lt", DType.BOOL, (spot, elements.within))
        if elements.clamp:
            spot = minimum(spot, sub(elements.within, number(1)))
    inner: tuple[Stmt, ...] = (Let(nest.spot, spot), *body)
    if nest.vector in nest.live:
        inner = (Let(nest.valid, valid), *inner)
    elif elements.within is not None:
        inner = (If(valid, inner),)
    return For(element, number(0), number(elements.count), inner, unroll=elements.count)
