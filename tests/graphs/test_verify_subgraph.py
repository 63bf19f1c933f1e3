"""Every rule of the subgraph verifier has a subgraph that breaks it, and random subgraphs break none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.errors import VerifyError
from stitchtune.graphs.subgraph import AxisVar, Bound, FloorDiv, Index, Int, Lookup, Read, Slot, Subgraph, Sum, Value
from stitchtune.graphs.verify_subgraph import verify_subgraph

from tests.random_subgraphs import random_subgraph

F32, I64, BOOL = DType.F32, DType.I64, DType.BOOL
A, B, C, D = (AxisVar(i) for i in range(4))

BASE = Subgraph(
    (
        Value("input", F32, (0, 1)),
        Value("input", I64, (4,)),
        Value("tanh", F32, (2, 3), reads=(Read(0, (C, D)),)),
        Value("max", F32, (2,), (3,), (Read(2, (C, D)),)),
        Value("sub", F32, (2, 3), reads=(Read(2, (C, D)), Read(3, (C,)))),
    ),
    (4,),
    (3, 5, 3, 5, 3),
    (1,),
)


def with_read(index: tuple[Index, ...], **more: Any) -> Subgraph:
    return with_value(2, replace(BASE.values[2], reads=(Read(0, index, **more),)))


def with_value(number: int, value: Value) -> Subgraph:
    return replace(BASE, values=(*BASE.values[:number], value, *BASE.values[number + 1 :]))


def summed(*terms: tuple[int, Index]) -> Index:
    return Sum(terms)


NEXT = summed((1, C), (1, Int(1)))
BROKEN = {
    "negative": replace(BASE, extents=(3, 5, 3, 5, -1)),
    "outputs .* are not distinct computed values": replace(BASE, outputs=(4, 4)),
    r"outputs \(0,\) are not": replace(BASE, outputs=(0,)),
    "do not all exist": with_value(2, replace(BASE.values[2], axes=(2, 9))),
    "hold one twice": with_value(3, replace(BASE.values[3], axes=(3,))),
    "only a reduction has a group": with_value(4, replace(BASE.values[4], axes=(2,), reduce=(3,))),
    "only iota has a position": with_value(2, replace(BASE.values[2], position=C)),
    "does not come before it": with_value(2, replace(BASE.values[2], reads=(Read(4, (C, D)),))),
    "no operator of the canonical form": with_value(2, replace(BASE.values[2], op="transpose")),
    "takes 1 operands, not 2": with_value(2, replace(BASE.values[2], reads=(Read(0, (C, D)), Read(0, (C, D))))),
    "operands of types": with_value(4, replace(BASE.values[4], reads=(Read(2, (C, D)), Read(1, (C,))))),
    "has no meaning on f32": with_value(2, replace(BASE.values[2], op="not")),
    "wrong type for its operands": with_value(2, replace(BASE.values[2], dtype=DType.F16)),
    "the condition is not bool": with_value(
        4, replace(BASE.values[4], op="where", reads=(Read(2, (C, D)), Read(2, (C, D)), Read(2, (C, D))))
    ),
    "attributes": with_value(2, replace(BASE.values[2], attrs=(("alpha", 1.0),))),
    "1 indices for value 0": with_read((C,)),
    "outside the reader's domain": with_read((A, D)),
    "slot 1 does not exist": with_read((Slot(1), D)),
    "positions 1 to 3 of a dimension of 3": with_read((NEXT, D)),
    "positions 0 to 4 of a dimension of 3": with_read((D, D)),
    "positions 3 to 3 of a dimension of 3": with_read((Int(3), D)),
    "a Sum with coefficient 0": with_read((summed((0, C), (1, Int(1))), D)),
    "a Sum of a single term": with_read((summed((1, C)), D)),
    "a Sum in a Sum": with_read((summed((1, summed((1, C), (1, Int(1)))), (1, Int(-1))), D)),
    "a Sum with a term twice": with_read((summed((1, C), (-1, C)), D)),
    "constants not folded": with_read((summed((1, C), (1, Int(1)), (1, Int(-1))), D)),
    "a divisor of 1": with_read((FloorDiv(C, 1), D)),
    "no integer": with_read((Lookup(Read(0, (C, D)), 0), D)),
    "bounds without a fill": with_read((NEXT, D), where=(Bound(NEXT, 0),)),
    "a fill without bounds": with_read((C, D), fill=0.0),
    "bound by axis 7": with_read((NEXT, D), where=(Bound(NEXT, 7),), fill=0.0),
    "of an input": Subgraph((Value("input", F32, (0,)), Value("neg", F32, (0,), reads=(Read(0, (A,)),))), (1,), (3,)),
    "inputs 0 and 1 share axis 0": with_value(1, replace(BASE.values[1], axes=(0,))),
    "unconnected by identity reads": with_value(4, replace(BASE.values[4], op="neg", reads=(Read(0, (Int(0), D)),))),
    "a const is a scalar": with_value(2, Value("const", F32, (2, 3), attrs=(("value", 1.0),))),
    "a read of a piecewise value has a fill": with_value(
        2, Value("piecewise", F32, (2, 3), reads=(Read(0, (C, D), (Bound(C, 0),), 0.0),))
    ),
    "only the last read of a piecewise": with_value(
        2, Value("piecewise", F32, (2, 3), reads=(Read(0, (C, D)), Read(0, (C, D))))
    ),
}


def test_the_base_is_valid() -> None:
    verify_subgraph(BASE)
    verify_subgraph(with_read((NEXT, D), where=(Bound(NEXT, 0),), fill=0.0))
    verify_subgraph(with_read((Lookup(Read(1, (C,)), 0), D)))
    verify_subgraph(with_read((Slot(0), D)))
    verify_subgraph(with_value(4, replace(BASE.values[4], op="neg", reads=(Read(0, (C, D)),))))
    verify_subgraph(replace(BASE, extents=(0, 5, 0, 5, 3)))


@pytest.mark.parametrize("message", BROKEN)
def test_each_rule(message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        verify_subgraph(BROKEN[message])


@pytest.mark.parametrize("seed", range(0, 300, 3))
def test_random_subgraphs_are_valid(seed: int) -> None:
    sub = random_subgraph(seed)
    verify_subgraph(sub)
    assert sub == random_subgraph(seed)
