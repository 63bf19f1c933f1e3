"""The innermost loop: the elements of a strip, unrolled."""

from __future__ import annotations

from dataclasses import dataclass

from ...loops import Expr, For, Stmt


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


def is_element_loop(statement: Stmt) -> bool:
    """True for a loop over the elements of a strip, as assemble.py makes them."""
    return isinstance(statement, For) and statement.local.name.startswith("e")
