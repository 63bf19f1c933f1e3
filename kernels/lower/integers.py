"""Building index expressions: folded constants, known ranges, cheap division where the sign is known."""

from __future__ import annotations

from ...graphs.dtypes import DType
from ..loops import Apply, Expr, Literal

Range = tuple[int, int]
"""Least and greatest value, both included."""


def number(value: int) -> Literal:
    return Literal(value, DType.I64)


def apply(op: str, *operands: Expr) -> Expr:
    return Apply(op, DType.I64, operands)


def add(a: Expr, b: Expr) -> Expr:
    match a, b:
        case Literal(x), Literal(y):
            return number(int(x) + int(y))
        case Literal(0), _:
            return b
        case _, Literal(0):
            return a
        case Literal(), _:
            return add(b, a)
        case Apply("plus", _, (c, Literal(x))), Literal(y):
            return add(c, number(int(x) + int(y)))
        case Apply("plus", _, (c, Literal() as x)), _:
            return add(add(c, b), x)
        case _, Literal(y) if y < 0:
            return apply("minus", a, number(-int(y)))
    return apply("plus", a, b)


def sub(a: Expr, b: Expr) -> Expr:
    match a, b:
        case Literal(x), Literal(y):
            return number(int(x) - int(y))
        case _, Literal(y):
            return add(a, number(-int(y)))
    if a == b:
        return number(0)
    match a:
        case Apply("plus", _, (c, d)) if c == b:
            return d
    return apply("minus", a, b)


def mul(a: Expr, b: Expr) -> Expr:
    match a, b:
        case Literal(x), Literal(y):
            return number(int(x) * int(y))
        case (Literal(0), _) | (_, Literal(0)):
            return number(0)
        case Literal(1), _:
            return b
        case _, Literal(1):
            return a
        case Literal(), _:
            return mul(b, a)
        case Apply("times", _, (c, Literal(x))), Literal(y):
            return mul(c, number(int(x) * int(y)))
    return apply("times", a, b)


def minimum(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Literal) and isinstance(b, Literal):
        return number(min(int(a.value), int(b.value)))
    return a if a == b else apply("min", a, b)


def maximum(a: Expr, b: Expr) -> Expr:
    if isinstance(a, Literal) and isinstance(b, Literal):
        return number(max(int(a.value), int(b.value)))
    return a if a == b else apply("max", a, b)


def divide(a: Expr, b: Expr, known: Range | None) -> Expr:
    """Floor of a / b for b > 0; `known` is the range of `a` where there is one."""
    match a, b:
        case Literal(x), Literal(y):
            return number(int(x) // int(y))
        case _, Literal(1):
            return a
        case Apply("times", _, (c, Literal(x))), Literal(y) if x == y:
            return c
    if known is not None and isinstance(b, Literal) and known[0] // int(b.value) == known[1] // int(b.value):
        return number(known[0] // int(b.value))
    return apply(_division(b, known, "quotient", "floordiv"), a, b)


def modulo(a: Expr, b: Expr, known: Range | None) -> Expr:
    """a - b * floor(a / b) for b > 0."""
    match a, b:
        case Literal(x), Literal(y):
            return number(int(x) % int(y))
        case _, Literal(1):
            return number(0)
    if known is not None and isinstance(b, Literal) and known[0] // int(b.value) == known[1] // int(b.value):
        return sub(a, number(known[0] // int(b.value) * int(b.value)))
    return apply(_division(b, known, "rest", "remainder"), a, b)


def _division(b: Expr, known: Range | None, plain: str, floored: str) -> str:
    """The cheapest form: 32-bit division by a constant runs in lanes, 64-bit division does not."""
    if known is None or known[0] < 0:
        return floored
    small = isinstance(b, Literal) and known[1] < 2**32 and int(b.value) < 2**32
    return f"{plain}_u32" if small else plain


def ceiling(a: Expr, b: int) -> Expr:
    """Ceiling of a / b for a >= 0, b > 0."""
    return divide(add(a, number(b - 1)), number(b), (0, 2**62) if not isinstance(a, Literal) else None)


def range_of(expr: Expr, ranges: dict[Expr, Range]) -> Range | None:
    """The range of an index expression, None when nothing is known."""
    if expr in ranges:
        return ranges[expr]
    match expr:
        case Literal(x):
            return int(x), int(x)
        case Apply(op, _, (a, b)):
            p, q = range_of(a, ranges), range_of(b, ranges)
            if p is None or q is None:
                return None
            return combine_ranges(op, p, q)
    return None


def combine_ranges(op: str, p: Range, q: Range) -> Range | None:
    """The range of index arithmetic on two numbers of known ranges; None for what is no index arithmetic."""
    match op:
        case "plus":
            return p[0] + q[0], p[1] + q[1]
        case "minus":
            return p[0] - q[1], p[1] - q[0]
        case "times":
            corners = [x * y for x in p for y in q]
            return min(corners), max(corners)
        case "min":
            return min(p[0], q[0]), min(p[1], q[1])
        case "max":
            return max(p[0], q[0]), max(p[1], q[1])
        case "quotient" | "quotient_u32" | "floordiv" if q[0] > 0:
            corners = [x // y for x in p for y in q]
            return min(corners), max(corners)
        case "rest" | "rest_u32" | "remainder" if q[0] > 0:
            return 0, q[1] - 1
    return None
