"""The reference of canonical subgraphs on access maps written by hand."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.errors import InputError, VerifyError
from stitchtune.graphs.interpret import run_subgraph
from stitchtune.graphs.interpret.access import Access, load
from stitchtune.graphs.subgraph import (
    AxisVar,
    Bound,
    FloorDiv,
    Index,
    Int,
    Lookup,
    Mod,
    Read,
    Slot,
    Subgraph,
    Sum,
    Value,
)
from stitchtune.graphs.verify_subgraph import verify_subgraph

F32, I64 = DType.F32, DType.I64
X = Value("input", F32, (0, 1))


def at(axis: int, plus: int = 0, factor: int = 1) -> Index:
    if not plus:
        return AxisVar(axis) if factor == 1 else Sum(((factor, AxisVar(axis)),))
    return Sum(((factor, AxisVar(axis)), (1, Int(plus))))


def read(value: int, *index: Index, **more: Any) -> Read:
    return Read(value, index, **more)


def over(op: str, axes: tuple[int, ...], *reads: Read, dtype: DType = F32) -> Value:
    return Value(op, dtype, axes, reads=reads)


def run(values: list[Value], extents: tuple[int, ...], *inputs: Any, slots: tuple[int, ...] = ()) -> Any:
    """The last value of a subgraph."""
    sub = Subgraph(tuple(values), (len(values) - 1,), extents, slots)
    verify_subgraph(sub)
    (result,) = run_subgraph(sub, list(inputs))
    return result


M = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    ("index", "shape", "want"),
    [
        ((at(2), at(3)), (3, 4), M),
        ((at(3), at(2)), (4, 3), M.T),
        ((at(2, 2, -1), at(3, 1, 2)), (3, 2), M[::-1, 1::2]),
        ((Int(1), at(3)), (5, 4), np.broadcast_to(M[1], (5, 4))),
        ((Slot(0), at(2)), (4, 2), np.broadcast_to(M[2][:, None], (4, 2))),
        ((at(2), at(2)), (3, 2), np.broadcast_to(M[[0, 1, 2], [0, 1, 2]][:, None], (3, 2))),
        ((FloorDiv(at(2), 4), Mod(at(2), 4)), (12, 1), M.reshape(12, 1)),
        ((FloorDiv(Sum(((2, AxisVar(2)), (1, AxisVar(3)))), 4), Mod(Sum(((2, at(2)), (1, at(3)))), 4)), (6, 2), M),
    ],
)
def test_index_maps(index: tuple[Index, ...], shape: tuple[int, ...], want: Any) -> None:
    got = run([X, over("copy", (2, 3), Read(0, index))], (3, 4, *shape), M, slots=(2,))
    np.testing.assert_array_equal(got, want.reshape(shape))


def test_gather_counts_negative_indices_from_the_end() -> None:
    values = [X, Value("input", I64, (2, 3)), over("copy", (4, 5, 6), read(0, Lookup(read(1, at(4), at(5)), 0), at(6)))]
    rows = np.array([[0, -1], [2, -3]])
    np.testing.assert_array_equal(run(values, (3, 4, 2, 2, 2, 2, 4), M, rows), M[rows])
    with pytest.raises(InputError, match="gather index out of range: 3 for a dimension of 3"):
        run(values, (3, 4, 2, 2, 2, 2, 4), M, rows + 3)


def test_padding_and_concat() -> None:
    shifted = at(2, -1)
    padded = over("copy", (2, 3), read(0, shifted, at(3), where=(Bound(shifted, 0),), fill=0.1))
    want = np.pad(M, ((1, 2), (0, 0)), constant_values=np.float32(0.1))
    np.testing.assert_array_equal(run([X, padded], (3, 4, 6, 4), M), want)
    after = at(2, -3)
    both = over(
        "piecewise",
        (2, 3),
        read(0, at(2), at(3), where=(Bound(at(2), 0),)),
        read(0, after, at(3), where=(Bound(after, 0),)),
    )
    np.testing.assert_array_equal(run([X, both], (3, 4, 6, 4), M), np.concatenate([M, M]))


def test_reductions_over_an_ordered_group() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    copied = over("copy", (2, 3), read(0, at(2), at(3)))
    for group in ((2, 3), (3, 2)):
        best = Value("argmax", I64, (), group, (read(1, at(2), at(3)),), (("select_last", False),))
        want = (x if group == (2, 3) else x.T).argmax()
        assert run([X, copied, best], (3, 4, 3, 4), x) == want


def test_a_sum_counts_axes_that_its_operand_lacks() -> None:
    one = Value("const", F32, (), attrs=(("value", 1.0),))
    total = Value("sum", F32, (0,), (1,), (Read(0, ()),))
    np.testing.assert_array_equal(run([one, total], (2, 70000)), [70000, 70000])


def test_iota_and_types() -> None:
    line = Value("iota", DType.U8, (0, 1), position=Sum(((100, AxisVar(0)), (1, AxisVar(1)))))
    got = run([line], (4, 2))
    assert got.dtype == np.uint8
    assert got.tolist() == [[0, 1], [100, 101], [200, 201], [44, 45]]


def test_empty_axes_read_nothing() -> None:
    total = Value("max", F32, (2,), (3,), (read(0, at(3), at(2)),))
    assert run([X, total], (0, 4, 4, 0), np.zeros((0, 4), np.float32)).tolist() == [-np.inf] * 4


def test_inputs_are_checked() -> None:
    values = [X, over("copy", (2, 3), read(0, at(2), at(3)))]
    for wrong in (M.astype(np.float64), M.T):
        with pytest.raises(InputError, match=r"input value 0 is .*, not f32\[3, 4\]"):
            run(values, (3, 4, 3, 4), wrong)
    with pytest.raises(InputError, match="takes 1 inputs, not 0"):
        run(values, (3, 4, 3, 4))


def test_a_computed_index_out_of_range_is_our_bug() -> None:
    access = Access((np.array([4]),), None, (1,), gathers=False)
    with pytest.raises(VerifyError, match="position 4 of a dimension of 3"):
        load(np.arange(3.0), access)


def layer_norm(rows: int, columns: int) -> Subgraph:
    scale = 1 / columns
    whole, row = (at(2), at(3)), (at(2),)
    values = (
        X,
        Value("const", F32, (), attrs=(("value", scale),)),
        Value("const", F32, (), attrs=(("value", 1e-5),)),
        over("copy", (2, 3), read(0, *whole)),
        Value("sum", F32, (2,), (3,), (read(3, *whole),)),
        over("mul", (2,), read(4, *row), read(1)),
        over("sub", (2, 3), read(3, *whole), read(5, *row)),
        over("mul", (2, 3), read(6, *whole), read(6, *whole)),
        Value("sum", F32, (2,), (3,), (read(7, *whole),)),
        over("mul", (2,), read(8, *row), read(1)),
        over("add", (2,), read(9, *row), read(2)),
        over("sqrt", (2,), read(10, *row)),
        over("div", (2, 3), read(6, *whole), read(11, *row)),
    )
    return Subgraph(values, (12,), (rows, columns, rows, columns))


def test_a_large_layer_norm_is_right_and_fast() -> None:
    sub = layer_norm(4096, 768)
    verify_subgraph(sub)
    x = np.random.default_rng(0).normal(5, 1, (4096, 768)).astype(np.float32)
    start = time.perf_counter()
    (got,) = run_subgraph(sub, [x])
    assert time.perf_counter() - start < 2
    d = x - x.mean(1, keepdims=True, dtype=np.float64)
    np.testing.assert_allclose(got, d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5), rtol=1e-5, atol=1e-6)
