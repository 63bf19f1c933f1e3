"""Kernels of plans written by hand against the reference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.interpret import run_subgraph
from stitchtune.graphs.subgraph import AxisVar, Bound, Int, Lookup, Read, Slot, Subgraph, Sum, Value
from stitchtune.kernels.build import BuiltPlan, build_plans
from stitchtune.kernels.compile import find_compiler
from stitchtune.kernels.host import host_target
from stitchtune.kernels.loops import For, Let, evaluate, statements
from stitchtune.search_space.plan import Buffer, Group, Kernel, Phase, Plan, Reduction, Stage

from tests.kernels.calling import run_built
from tests.kernels.hand import (
    Builder,
    edges,
    layer_norm,
    layer_norm_plan,
    one_group,
    softmax,
    softmax_plan,
    split_sums_plan,
    sums,
)

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
TARGET = host_target()
Arrays = list[NDArray[Any]]


def build(sub: Subgraph, plan: Plan, cache: Path, precision: str = "strict") -> BuiltPlan:
    (built,) = build_plans([(sub, plan)], TARGET, precision=precision, cache=cache / "cache")
    assert isinstance(built, BuiltPlan), built
    return built


def check(sub: Subgraph, plan: Plan, cache: Path, inputs: Arrays | None = None, rtol: float = 2e-5) -> Arrays:
    rng = np.random.default_rng(0)
    if inputs is None:
        inputs = [rng.standard_normal(sub.shape(v)).astype(sub.values[v].dtype.numpy) for v in sub.inputs]
    built = build(sub, plan, cache)
    got = run_built(built, inputs)
    for mine, wanted in zip(got, run_subgraph(sub, inputs), strict=True):
        np.testing.assert_allclose(mine.astype(np.float64), wanted.astype(np.float64), rtol=rtol, atol=rtol)
    again = run_built(built, inputs, threads=3)
    for mine, other in zip(got, again, strict=True):
        assert mine.tobytes() == other.tobytes(), "the result depends on the number of threads"
    return got


@pytest.mark.parametrize(("rows", "columns", "tile"), [(32, 64, 4), (7, 13, 3), (5, 257, 5), (1, 1, 1)])
def test_layer_norm(rows: int, columns: int, tile: int, tmp_path: Path) -> None:
    check(layer_norm(rows, columns), layer_norm_plan(tile), tmp_path)


def test_constant_row_has_no_spread(tmp_path: Path) -> None:
    inputs = [np.full((2, 64), 3.0, np.float32), np.ones(64, np.float32)]
    (got,) = check(layer_norm(2, 64), layer_norm_plan(1), tmp_path, inputs)
    assert not got.any()


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F64])
def test_other_floats(dtype: DType, tmp_path: Path) -> None:
    check(layer_norm(6, 40, dtype), layer_norm_plan(2), tmp_path, rtol=1e-12 if dtype is DType.F64 else 2e-2)


@pytest.mark.parametrize("stream", [(), (5,)])
def test_softmax_of_masked_rows(stream: tuple[int, ...], tmp_path: Path) -> None:
    x = np.random.default_rng(1).standard_normal((4, 1031)).astype(np.float32)
    x[0], x[1, :1030], x[3] = -np.inf, -np.inf, 1000 + np.arange(1031) % 3
    (got,) = check(softmax(4, 1031), replace(softmax_plan(2), stream=stream), tmp_path, [x])
    assert np.isnan(got[0]).all()
    assert got[1, 1030] == 1
    assert got[3].sum() == pytest.approx(1, rel=1e-5)


@pytest.mark.parametrize(("rows", "columns", "tiles"), [(40, 60, (16, 32)), (300, 20, (8, 20)), (7, 5, (7, 5))])
def test_rows_and_columns_in_one_kernel(rows: int, columns: int, tiles: tuple[int, int], tmp_path: Path) -> None:
    check(sums(rows, columns), split_sums_plan(*tiles), tmp_path)


def test_column_sums_accumulate_in_arrays(tmp_path: Path) -> None:
    """Own axis inside the reduced one, both in registers (tile 16) and in block memory (2000 columns)."""
    for columns, parallel in ((48, [(3, 16)]), (2000, [])):
        plan = Plan(
            one_group(parallel, Stage((3,), (2, 3), vector=3, width=16), Stage((2,), (2, 3), vector=3, width=16)),
            edges(v1_2="inline", v1_3="inline"),
        )
        sub = sums(50, columns)
        if parallel:
            sub = replace(sub, outputs=(3,))
            plan = replace(plan, kernels=one_group(parallel, Stage((3,), (2, 3), vector=3, width=16)))
        check(sub, plan, tmp_path)


def test_dynamic_extents(tmp_path: Path) -> None:
    plan = replace(softmax_plan(8), dynamic=(0, 1, 2, 3), stream=(5,))
    sources = set()
    for rows, columns in ((20, 33), (3, 1500)):
        check(softmax(rows, columns), plan, tmp_path)
        sources.add(build(softmax(rows, columns), plan, tmp_path).source)
    assert len(sources) == 1


def test_transpose_through_block_memory(tmp_path: Path) -> None:
    b = Builder()
    x = b.input(50, 70)
    i, j = b.axes(50, 70)
    kept = b.op("exp", (i, j), (x, (i, j)))
    turned = b.op("neg", (j, i), (kept, (i, j)))
    plan = Plan(
        one_group([(i, 16), (j, 16)], Stage((kept,), (i, j), vector=j, width=16), Stage((turned,), (j, i), vector=i)),
        edges(v1_2="block"),
        buffers=(Buffer(kept, (i, j), 1),),
    )
    check(b.subgraph(turned), plan, tmp_path)


def test_reversed_reads(tmp_path: Path) -> None:
    """g++ 12 took a group that walks its input backwards for a function without effects, and left the call out."""
    b = Builder(DType.U16)
    x = b.input(33, 64)
    i, j = b.axes(64, 33)
    back = Read(x, (Sum(((-1, AxisVar(j)), (1, Int(32)))), AxisVar(i)))
    out = b.op("bitand", (i, j), back, (x, (j, i)))
    plan = Plan(one_group([(i, 8), (j, 8)], Stage((out,), (i, j), vector=j, width=16)))
    data = np.arange(33 * 64, dtype=np.uint16).reshape(33, 64)
    (got,) = run_built(build(b.subgraph(out), plan, tmp_path), [data])
    np.testing.assert_array_equal(got, (data[::-1] & data).T)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_arg_extremes(op: str, last: bool, tmp_path: Path) -> None:
    nan, inf = np.nan, np.inf
    x = np.array([[1, nan, 3, nan], [nan] * 4, [5, 5, 1, 5], [-inf] * 4, [inf] * 4], np.float32)
    wide = np.concatenate([x, np.repeat(x[:, -1:], 39, axis=1)], axis=1)
    b = Builder()
    i, j = (b.input(5, 43), b.axes(5, 43))[1]
    found = b.op(op, (i,), (0, (i, j)), reduce=(j,), dtype=DType.I64, select_last=last)
    sub = b.subgraph(found)
    lanes = Plan(one_group([(i, 2)], Stage((found,), (i, j), vector=j, width=8)))
    split = Plan(
        (
            Kernel(
                (
                    Phase((Group(((j, 8),), (Stage((found,), (j, i), vector=i, width=8),)),)),
                    Phase((Group((), (Stage((), (i,), combine=(found,)),)),)),
                )
            ),
        )
    )
    for plan in (lanes, split):
        (got,) = run_built(build(sub, plan, tmp_path), [wide])
        assert got.tolist() == run_subgraph(sub, [wide])[0].tolist()


def test_padding_concat_and_gather_never_read_outside(tmp_path: Path) -> None:
    b = Builder()
    x, table, ids = b.input(6, 10), b.input(9, 10), b.input(6, dtype=DType.I64)
    i, j = b.axes(6, 20)
    rows, columns = b.values[x].axes
    padded = Sum(((1, AxisVar(j)), (1, Int(-2))))
    late = Sum(((1, AxisVar(j)), (-1, Slot(0))))
    lookup = Lookup(Read(ids, (AxisVar(i),)), b.values[table].axes[0])
    pad = b.op("neg", (i, j), Read(x, (AxisVar(i), padded), (Bound(padded, columns),), 7.0))
    pieces = (
        Read(x, (AxisVar(i), AxisVar(j)), (Bound(AxisVar(j), columns),)),
        Read(table, (lookup, late), (Bound(late, b.values[table].axes[1]),)),
    )
    both = b.add(Value("piecewise", DType.F32, (i, j), reads=pieces))
    out = b.op("add", (i, j), pad, both)
    sub = b.subgraph(out, slots=(10,))
    plan = Plan(one_group([(i, 4)], Stage((out,), (i, j), vector=j, width=8)), edges(v3_5="inline", v4_5="inline"))
    rng = np.random.default_rng(0)
    data = [rng.standard_normal((6, 10)).astype(np.float32), rng.standard_normal((9, 10)).astype(np.float32)]
    check(sub, plan, tmp_path, [*data, np.array([0, 8, -9, -1, 3, 3])])
    wild = np.array([0, 2**62, -(2**62), 9, -10, -(2**63)])
    (got,) = run_built(build(sub, plan, tmp_path), [*data, wild])
    clamped = np.array([0, 8, 0, 8, 0, 0])
    np.testing.assert_array_equal(got[:, 10:], run_subgraph(sub, [*data, clamped])[0][:, 10:].astype(np.float32))
    assert rows == 0


def test_pieces_stored_straight_into_a_concat(tmp_path: Path) -> None:
    b = Builder()
    x = b.input(4, 12)
    i, j, k = b.axes(4, 12, 24)
    up = Sum(((1, AxisVar(k)), (-1, Slot(0))))
    left = b.op("exp", (i, j), (x, (i, j)))
    right = b.op("neg", (i, j), (x, (i, j)))
    reads = (
        Read(left, (AxisVar(i), AxisVar(k)), (Bound(AxisVar(k), j),)),
        Read(right, (AxisVar(i), up), (Bound(up, j),)),
    )
    joined = b.add(Value("piecewise", DType.F32, (i, k), reads=reads))
    sub = b.subgraph(joined, slots=(12,))
    both = Stage((left, right), (i, j), vector=j, width=4)
    for stages, second in ((((both, Stage((joined,), (i, k), vector=k)), "alias")), ((both, "mixed"), "inline")):
        if second == "alias":
            plan = Plan(one_group([(i, 2)], *stages), edges(v1_3="alias", v2_3="alias"))  # type: ignore[arg-type]
        else:
            late = Stage((joined,), (i, k), vector=k, width=4)
            only = Stage((left,), (i, j), vector=j, width=4)
            plan = Plan(one_group([(i, 2)], only, late), edges(v1_3="alias", v2_3="inline"))
        check(sub, plan, tmp_path)


@pytest.mark.parametrize("columns", [5, 77, 256])
def test_softmax_in_one_pass(columns: int, tmp_path: Path) -> None:
    x = np.random.default_rng(2).standard_normal((6, columns)).astype(np.float32) * 30
    x[1], x[2, 0], x[3, -1], x[4, 1] = -np.inf, np.inf, np.nan, -np.inf
    kernels = one_group([(2, 2)], Stage((1, 4), (2, 3), vector=3, width=8), Stage((5,), (2, 3), vector=3, width=8))
    places = edges(v1_2="block", v2_3="inline", v3_4="inline", v3_5="inline", v4_5="block")
    check(softmax(6, columns), Plan(kernels, places, (Reduction(4, coupled=1),)), tmp_path, [x])


def test_moments_in_one_pass(tmp_path: Path) -> None:
    kernels = one_group([(3, 2)], Stage((4, 8), (3, 4), vector=4, width=8), Stage((14,), (3, 4), vector=4, width=8))
    inline = dict.fromkeys("v5_6 v6_7 v6_13 v7_8 v9_10 v10_11 v11_12 v12_13 v13_14".split(), "inline")
    plan = Plan(kernels, edges(v4_5="block", v8_9="block", **inline), (Reduction(8, coupled=4),))
    x = np.random.default_rng(3).standard_normal((6, 77)).astype(np.float32)
    x[1] = 4096 + np.arange(77) / 1024
    x[2] = 5
    check(layer_norm(6, 77), plan, tmp_path, [x, np.ones(77, np.float32)], rtol=2e-4)


def test_long_sums_lose_no_digits(tmp_path: Path) -> None:
    b = Builder()
    i, j = (b.input(1, 3_000_019), b.axes(1, 3_000_019))[1]
    total = b.op("sum", (i,), (0, (i, j)), reduce=(j,))
    sub = b.subgraph(total)
    x = np.full((1, 3_000_019), 0.1, np.float32)
    for stage in (Stage((total,), (i, j)), Stage((total,), (i, j), vector=j, width=16)):
        (got,) = run_built(build(sub, Plan(one_group([(i, 1)], stage)), tmp_path), [x])
        assert got[0] == pytest.approx(x.astype(np.float64).sum(), rel=1e-6)
    x[0, 5] = np.inf
    (got,) = run_built(build(sub, Plan(one_group([(i, 1)], stage)), tmp_path), [x])
    assert got[0] == np.inf


def test_an_axis_the_value_lacks_is_stored_by_its_first_task(tmp_path: Path) -> None:
    """Row sums of a group that is parallel over columns as well: every task computes them, one stores them."""
    sub = sums(12, 40)
    both = Group(((2, 4), (3, 8)), (Stage((3,), (2, 3), vector=3, width=8),))
    rows = Group(((2, 4),), (Stage((2,), (2, 3), vector=3, width=8),))
    columns = Group((), (Stage((), (3,), combine=(3,), vector=3, width=8),))
    plan = Plan((Kernel((Phase((both, rows)), Phase((columns,)))),), edges(v1_2="inline", v1_3="inline"))
    check(sub, plan, tmp_path)


def test_zero_sizes(tmp_path: Path) -> None:
    for op, wanted in (("sum", 0.0), ("prod", 1.0), ("max", -np.inf), ("min", np.inf)):
        b = Builder()
        i, j = (b.input(3, 0), b.axes(3, 0))[1]
        out = b.op(op, (i,), (0, (i, j)), reduce=(j,))
        plan = Plan(one_group([(i, 2)], Stage((out,), (i, j), vector=j, width=8)))
        (got,) = run_built(build(b.subgraph(out), plan, tmp_path), [np.zeros((3, 0), np.float32)])
        assert (got == wanted).all()


def test_fast_precision_keeps_float32_between_edges(tmp_path: Path) -> None:
    sub = layer_norm(4, 40, DType.F16)
    rounds = {}
    for precision in ("strict", "fast"):
        built = build(sub, layer_norm_plan(2), tmp_path, precision)
        body = built.kernels[0].phases[0].groups[0].body
        rounds[precision] = sum(
            isinstance(s, Let) and getattr(s.value, "op", "") == "round_f16" for s in statements(body)
        )
    assert rounds["fast"] == 0 < rounds["strict"]
    assert evaluate(built.kernels[0].block_bytes) == built.block_bytes[0]


@pytest.mark.parametrize("factor", [2, 4, 8])
def test_unroll_and_jam(factor: int, tmp_path: Path) -> None:
    """Row sums (lanes of each row), column sums (one accumulator for all rows), and rows handed on in block memory."""
    plan = Plan(
        one_group([], Stage((2, 3), (2, 3), vector=3, width=8, unroll=((2, factor),))),
        edges(v1_2="inline", v1_3="inline"),
    )
    check(sums(19, 50), plan, tmp_path)
    (kernel,) = build(sums(19, 50), plan, tmp_path).kernels
    loops = [s for s in statements(kernel.phases[0].groups[0].body) if isinstance(s, For)]
    assert any(loop.step == factor and loop.local.name.startswith("u") for loop in loops)
    wide = layer_norm_plan(16)
    stages = tuple(replace(s, unroll=((3, factor),)) for s in wide.kernels[0].phases[0].groups[0].stages)
    check(layer_norm(33, 70), replace(wide, kernels=one_group([(3, 16)], *stages)), tmp_path)
