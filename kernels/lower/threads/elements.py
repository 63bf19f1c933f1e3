"""The innermost loop: the elements of a strip, unrolled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ....graphs.dtypes import DType
from ...loops import Apply, Expr, For, If, Let, Literal, Local, Stmt
from ..integers import add, minimum, number, sub

if TYPE_CHECKING:
    from .nest import ThreadNest


@dataclass(frozen=True)
class Elements:
    """Which elements of a strip are there.

    count   the first so many
    within  only those below this local position, which is not known when compiling (None: all of `count`)
    clamp   those outside are run too, at the last position, without effect: loops that all threads run equally often
    """

    count: int
    within: Expr | None = None
    clamp: bool = False


def instance(nest: ThreadNest, elements: Elements, body: tuple[Stmt, ...]) -> For:
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


def is_element_loop(statement: Stmt) -> bool:
    """True for a loop that `instance` made."""
    return isinstance(statement, For) and is_element(statement.local)


def is_element(local: Local) -> bool:
    return local.name.startswith("e")
