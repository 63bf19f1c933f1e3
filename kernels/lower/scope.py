"""What evaluation asks of the loops it writes into, whoever owns these."""

from __future__ import annotations

from typing import Protocol

from ..loops import Expr
from .integers import Range


class Scope(Protocol):
    """One stage's loops.

    local     the position along each axis inside the task
    position  the position along each axis
    ranges    what is known of index expressions
    """

    local: dict[int, Expr]
    position: dict[int, Expr]
    ranges: dict[Expr, Range]

    def bind(self, expr: Expr) -> Expr:
        """A name for `expr` where everything it mentions exists; equal expressions share it."""
