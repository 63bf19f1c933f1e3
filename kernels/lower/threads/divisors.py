"""What index expressions are surely multiples of, and how they depend on the element of a strip."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ...loops import Apply, Expr, For, Let, Literal, Local, Stmt, locals_of
from ..integers import add, mul, number, sub

_REST = ("rest", "rest_u32", "remainder")


@dataclass
class Divisors:
    """Facts about named integers: the expression that a let stands for, what a loop variable is a multiple of."""

    lets: dict[str, Expr] = field(default_factory=dict)
    loops: dict[str, int] = field(default_factory=dict)

    def learn(self, statements: Iterable[Stmt]) -> None:
        """Notes the lets and loop variables of straight code (a loop's body is the caller's business)."""
        for statement in statements:
            match statement:
                case Let(local, value, False):
                    self.lets[local.name] = value
                case For(local, start, _, _, step):
                    self.loops[local.name] = math.gcd(self.of(start), step)
                case _:
                    pass

    def of(self, expr: Expr) -> int:
        """The greatest number found that divides `expr` whatever its locals are; 0 for zero itself."""
        match expr:
            case Literal(value):
                return abs(int(value))
            case Local(name) if name in self.loops:
                return self.loops[name]
            case Local(name) if name in self.lets:
                return self.of(self.lets[name])
            case Apply("times", _, (a, b)):
                return self.of(a) * self.of(b)
            case Apply("minus", _, (a, Apply(op, _, (b, Literal(size))))) if op in _REST and a == b:
                return max(math.gcd(self.of(a), int(size)), int(size))
            case Apply("hidden", _, (inner,)):
                return self.of(inner)
            case Apply("plus" | "minus" | "min" | "max", _, (a, b)) | Apply("select", _, (_, a, b)):
                return math.gcd(self.of(a), self.of(b))
            case _:
                return 1


def coefficient(expr: Expr, variable: Local, lets: Mapping[str, Expr]) -> int | None:
    """How much `expr` grows when `variable` grows by one; None when that is not the same everywhere. `lets`: the names
    that may depend on the variable."""
    match expr:
        case Local(name):
            if name == variable.name:
                return 1
            return coefficient(lets[name], variable, lets) if name in lets else 0
        case Apply("plus" | "minus" as op, _, (a, b)):
            left, right = coefficient(a, variable, lets), coefficient(b, variable, lets)
            if left is None or right is None:
                return None
            return left + right if op == "plus" else left - right
        case Apply("times", _, (a, Literal(factor))):
            inner = coefficient(a, variable, lets)
            return None if inner is None else inner * int(factor)
        case _:
            return None if depends(expr, variable, lets) else 0


def depends(expr: Expr, variable: Local, lets: Mapping[str, Expr]) -> bool:
    """Whether `expr` mentions `variable`, through lets too."""
    pending, seen = [expr], set[str]()
    while pending:
        for local in locals_of(pending.pop()):
            if local.name == variable.name:
                return True
            if local.name in lets and local.name not in seen:
                seen.add(local.name)
                pending.append(lets[local.name])
    return False


def at_zero(expr: Expr, variable: Local, lets: Mapping[str, Expr]) -> Expr:
    """An affine `expr` where `variable` is 0, without the names in `lets`."""
    match expr:
        case Local(name):
            if name == variable.name:
                return number(0)
            return at_zero(lets[name], variable, lets) if name in lets else expr
        case Apply("plus", _, (a, b)):
            return add(at_zero(a, variable, lets), at_zero(b, variable, lets))
        case Apply("minus", _, (a, b)):
            return sub(at_zero(a, variable, lets), at_zero(b, variable, lets))
        case Apply("times", _, (a, b)):
            return mul(at_zero(a, variable, lets), at_zero(b, variable, lets))
        case Apply(op, dtype, operands):
            return Apply(op, dtype, tuple(at_zero(o, variable, lets) for o in operands))
        case _:
            return expr
