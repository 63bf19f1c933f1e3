"""Index expressions: what is folded keeps its value, and known ranges hold."""

from __future__ import annotations

import random

import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.kernels.loops import Argument, Expr, Literal, evaluate
from stitchtune.kernels.lower.integers import (
    add,
    ceiling,
    divide,
    maximum,
    minimum,
    modulo,
    mul,
    number,
    range_of,
    sub,
)

VALUES = (7, 0, -13, 1000)


def grow(rng: random.Random, depth: int) -> tuple[Expr, int]:
    """A random expression over arguments, built by the folding constructors, and its value."""
    if depth == 0:
        if rng.random() < 0.5:
            position = rng.randrange(len(VALUES))
            return Argument(position), VALUES[position]
        value = rng.choice((0, 1, -1, 2, 5, 64, -7))
        return number(value), value
    a, x = grow(rng, depth - 1)
    b, y = grow(rng, rng.randrange(depth))
    ranges = {Argument(k): (v - 3, v + 3) for k, v in enumerate(VALUES)}
    match rng.randrange(7):
        case 0:
            return add(a, b), x + y
        case 1:
            return sub(a, b), x - y
        case 2:
            return mul(a, b), x * y
        case 3:
            return minimum(a, b), min(x, y)
        case 4:
            return maximum(a, b), max(x, y)
        case 5:
            divisor = rng.choice((1, 2, 64, 198))
            return divide(a, number(divisor), range_of(a, ranges)), x // divisor
        case _:
            divisor = rng.choice((1, 2, 64, 198))
            return modulo(a, number(divisor), range_of(a, ranges)), x % divisor


@pytest.mark.parametrize("seed", range(200))
def test_folding_keeps_the_value(seed: int) -> None:
    expr, value = grow(random.Random(seed), 4)
    assert evaluate(expr, VALUES) == value
    reach = range_of(expr, {Argument(k): (v - 3, v + 3) for k, v in enumerate(VALUES)})
    assert reach is None or reach[0] <= value <= reach[1]


def test_division_takes_the_cheapest_form() -> None:
    x = Argument(0)
    ops = [getattr(divide(x, number(198), known), "op", None) for known in (None, (0, 2**40), (0, 2**20), (5, 100))]
    assert ops == ["floordiv", "quotient", "quotient_u32", None]
    assert divide(mul(x, number(8)), number(8), None) == x
    assert ceiling(number(17), 8) == Literal(3, DType.I64)
