"""Index algebra: the normal form gives the numbers that the plain formula gives."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from stitchtune.graphs.index import ZERO, Renaming, Space
from stitchtune.graphs.subgraph import AxisVar, FloorDiv, Index, Int, Mod, Slot, Sum


def value_of(index: Index, space: Space, at: Mapping[int, int]) -> int:
    match index:
        case AxisVar(axis):
            return at[axis]
        case Int(number):
            return number
        case Slot(slot):
            return space.slots[slot].value
        case Sum(terms):
            return sum(factor * value_of(term, space, at) for factor, term in terms)
        case FloorDiv(term, divisor):
            return value_of(term, space, at) // divisor
        case Mod(term, divisor):
            return value_of(term, space, at) % divisor
    raise AssertionError(index)


def axes(space: Space, *extents: int) -> list[AxisVar]:
    return [AxisVar(space.axis(extent)) for extent in extents]


def test_digits_of_a_position_are_its_axes() -> None:
    space = Space()
    a, b, c = axes(space, 3, 4, 5)
    position = space.linear([(a, 3), (b, 4), (c, 5)])
    assert space.digit(position, 20, 3, True) == a
    assert space.digit(position, 5, 4, False) == b
    assert space.digit(position, 1, 5, False) == c
    assert space.floordiv(position, 5) == space.linear([(a, 3), (b, 4)])
    assert space.mod(position, 20) == space.linear([(b, 4), (c, 5)])


@pytest.mark.parametrize(("size", "other"), [((197, 99), (99, 197)), ((4, 6), (3, 8)), ((5, 7, 2), (2, 5, 7))])
def test_digits_that_do_not_align_join_to_the_position_again(size: tuple[int, ...], other: tuple[int, ...]) -> None:
    space = Space()
    position = space.linear(zip(axes(space, *size), size, strict=True))
    stride, digits = 1, list[tuple[Index, int]]()
    for k, n in reversed(list(enumerate(other))):
        digits.insert(0, (space.digit(position, stride, n, k == 0), n))
        stride *= n
    assert any(isinstance(d, FloorDiv | Mod | Sum) for d, _ in digits)
    assert space.linear(digits) == position


def test_sums_are_flat_sorted_and_without_trivial_terms() -> None:
    space = Space()
    a, b = axes(space, 3, 4)
    inner = space.sum((4, a), (1, b), (1, Int(2)))
    assert inner == Sum(((4, a), (1, b), (1, Int(2))))
    assert space.sum((2, inner), (-2, b), (1, Int(-4))) == Sum(((8, a),))
    assert space.sum((1, a), (-1, a)) == ZERO
    assert space.sum((1, b)) == b


def test_the_structure_does_not_depend_on_a_slots_value() -> None:
    forms = []
    for start in (0, 64, 128):
        space = Space()
        (a,) = axes(space, 64)
        k = space.slot(start // 64, 0, 2)
        index = space.settle(space.sum((64, k), (1, a)))
        assert space.floordiv(space.sum((64, k), (1, a)), 64) == k
        assert space.mod(space.sum((64, k), (1, a)), 64) == a
        assert value_of(index, space, {a.axis: 5}) == start + 5
        forms.append(Renaming(AxisVar, lambda axis: axis, slot=lambda _: Slot(0)).index(index))
    assert len(set(forms)) == 1


def test_functions_of_slots_alone_are_slots() -> None:
    space = Space()
    k = space.slot(7, 0, 11)
    assert [space.slots[i.slot] for i in (space.floordiv(k, 4), space.mod(k, 4)) if isinstance(i, Slot)] == [
        space.slots[1],
        space.slots[2],
    ]
    assert (space.slots[1].value, space.slots[1].high, space.slots[2].value, space.slots[2].high) == (1, 2, 3, 3)


Plain = Callable[[Mapping[int, int]], int]
"""What an index stands for, as a function of positions by axis."""


def grow(rng: np.random.Generator, space: Space, leaves: Sequence[Index], depth: int) -> tuple[Index, Plain]:
    """A simplified index and the plain function that it stands for."""
    kind = int(rng.integers(0, 4)) if depth else 0
    if kind == 0:
        leaf = leaves[int(rng.integers(len(leaves)))]
        return leaf, lambda at: value_of(leaf, space, at)
    first, plain = grow(rng, space, leaves, depth - 1)
    n = int(rng.choice([2, 3, 4, 6, 8, 12]))
    if kind == 1:
        return space.floordiv(first, n), lambda at: plain(at) // n
    if kind == 2:
        return space.mod(first, n), lambda at: plain(at) % n
    second, other = grow(rng, space, leaves, depth - 1)
    f, g, c = (int(v) for v in rng.integers(-6, 13, 3))
    return space.sum((f, first), (g, second), (1, Int(c))), lambda at: f * plain(at) + g * other(at) + c


def test_random_expressions_keep_their_value_and_range() -> None:
    rng = np.random.default_rng(0)
    for _ in range(400):
        space = Space()
        extents = [int(n) for n in rng.choice([1, 2, 3, 4, 6, 8, 12], 3)]
        names = axes(space, *extents)
        slot = space.slot(int(rng.integers(0, 9)), 0, 8)
        index, plain = grow(rng, space, [*names, slot], 4)
        settled = space.settle(index)
        again = space.rebuild(index, lambda atom: atom)
        low, high = space.range(index)
        for point in itertools.islice(itertools.product(*map(range, extents)), 60):
            at = {name.axis: p for name, p in zip(names, point, strict=True)}
            expected = plain(at)
            assert [value_of(i, space, at) for i in (index, settled, again)] == [expected] * 3
            assert low <= expected <= high
