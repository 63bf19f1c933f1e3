"""The loop programs of plans written by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import AxisVar, Bound, Int, Read, Sum, Value
from stitchtune.kernels.host import host_target
from stitchtune.kernels.loops import Apply, Fold, For, Let, Load, LoopKernel, Store, Stream, evaluate, statements
from stitchtune.kernels.lower import LoweringError, lower
from stitchtune.search_space.plan import Buffer, Plan, Reduction, Stage

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

TARGET = host_target()


def ops(kernel: LoopKernel) -> list[tuple[str, bool]]:
    """Every operator that is evaluated, and whether that is inside a vector loop."""
    found: list[tuple[str, bool]] = []

    def visit(body: tuple[object, ...], simd: bool) -> None:
        for statement in body:
            if isinstance(statement, For):
                visit(statement.body, simd or statement.simd)
            elif isinstance(statement, Let) and isinstance(statement.value, Apply):
                found.append((statement.value.op, simd))

    for phase in kernel.phases:
        for group in phase.groups:
            visit(group.body, False)
    return found


def all_statements(kernel: LoopKernel) -> list[object]:
    return [s for phase in kernel.phases for group in phase.groups for s in statements(group.body)]


def test_row_values_are_evaluated_once_per_row() -> None:
    (kernel,) = lower(layer_norm(32, 64), layer_norm_plan(4), TARGET)
    found = ops(kernel)
    assert [simd for op, simd in found if op in ("sqrt", "recip")] == [False, False]
    assert found.count(("sub", True)) == 1, "the centred row is computed once and kept"


def test_equal_expressions_are_evaluated_once() -> None:
    sub = sums(8, 32)
    plan = Plan(one_group([(2, 8)], Stage((2, 3), (2, 3), vector=3, width=16)), edges(v1_2="inline", v1_3="inline"))
    (kernel,) = lower(sub, plan, TARGET)
    assert ops(kernel).count(("mul", True)) == 1


def test_lanes_and_accumulators() -> None:
    plan = replace(layer_norm_plan(4), reductions=(Reduction(4, accumulators=2),))
    (kernel,) = lower(layer_norm(32, 64), plan, TARGET)
    folds = [s.value.lanes for s in all_statements(kernel) if isinstance(s, Let) and isinstance(s.value, Fold)]
    assert folds == [32, 16]


def test_block_memory_is_shared_by_what_is_not_alive_together() -> None:
    b = Builder()
    i, j = (b.input(8, 64), b.axes(8, 64))[1]
    chain = [0]
    for _ in range(4):
        chain.append(b.op("exp", (i, j), (chain[-1], (i, j))))
    stages = [Stage((v,), (i, j), vector=j, width=16) for v in chain[1:]]
    plan = Plan(one_group([(i, 2)], *stages), edges(v1_2="block", v2_3="block", v3_4="block"))
    (kernel,) = lower(b.subgraph(chain[-1]), plan, TARGET)
    first, second, third = kernel.phases[0].groups[0].arrays
    assert first.start == third.start != second.start
    assert [first.alone, second.alone, third.alone] == [False, True, False]
    assert evaluate(kernel.block_bytes) == 2 * (2 * 64 * 4)


def test_buffer_order_and_padding() -> None:
    plan = replace(layer_norm_plan(4), buffers=(Buffer(6, (4, 3), 1),))
    (kernel,) = lower(layer_norm(32, 64), plan, TARGET)
    assert any(evaluate(a.elements) == 64 * 5 for a in kernel.phases[0].groups[0].arrays)


def test_same_program_from_different_plans_is_equal() -> None:
    first = lower(softmax(32, 48), softmax_plan(8), TARGET)
    second = lower(softmax(32, 48), replace(softmax_plan(8), reductions=(Reduction(1, 1),)), TARGET)
    other = lower(softmax(32, 48), softmax_plan(4), TARGET)
    assert first == second
    assert hash(first) == hash(second)
    assert first != other


def test_split_reductions_have_partial_results_and_two_phases() -> None:
    (kernel,) = lower(sums(40, 60), split_sums_plan(16, 32), TARGET)
    assert len(kernel.phases) == 2
    assert [evaluate(a.elements) for a in kernel.scratch] == [2 * 40, 3 * 60]
    assert [evaluate(g.tasks) for phase in kernel.phases for g in phase.groups] == [6, 3, 4]


def test_dynamic_extents_are_arguments() -> None:
    plan = replace(softmax_plan(8), dynamic=(0, 2))
    (kernel,) = lower(softmax(32, 48), plan, TARGET)
    (other,) = lower(softmax(36, 48), plan, TARGET)
    assert kernel == other
    assert kernel.arguments == 2
    assert evaluate(kernel.phases[0].groups[0].tasks, (36, 36)) == 5


def test_streamed_rows() -> None:
    (kernel,) = lower(softmax(32, 48), replace(softmax_plan(8), stream=(5,)), TARGET)
    assert sum(isinstance(s, Stream) for s in all_statements(kernel)) == 1
    assert not any(isinstance(s, Store) and s.array == "y0" for s in all_statements(kernel))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"edges": edges(v1_2="block")}, "no edge"),
        ({"edges": edges(v1_2="inline", v2_3="inline", v3_4="register", v3_5="block", v4_5="block")}, "inlined"),
        ({"edges": edges(v1_2="register", v2_3="inline", v3_4="register", v3_5="block", v4_5="block")}, "register"),
        (
            {"edges": edges(v1_2="global", v2_3="inline", v3_4="register", v3_5="global", v4_5="alias")},
            "no place to store",
        ),
        ({"kernels": one_group([(2, 8)], Stage((1,), (3,), vector=3, width=16))}, "no loop"),
        ({"kernels": one_group([(2, 8)], Stage((1,), (3, 2), vector=3, width=16))}, "innermost"),
        ({"kernels": one_group([(2, 8)], Stage((1, 3, 4, 5), (2, 3), vector=3, width=16))}, "own stage|block memory"),
        ({"kernels": one_group([(2, 8)], Stage((1,), (2, 3), vector=3, width=24))}, "power of two"),
        ({"kernels": ()}, "without kernels"),
    ],
)
def test_inconsistent_plans_are_refused(change: dict[str, object], why: str) -> None:
    plan = replace(softmax_plan(8), **change)  # type: ignore[arg-type]
    with pytest.raises(LoweringError, match=why):
        lower(softmax(32, 48), plan, TARGET)


def test_unknown_precision() -> None:
    with pytest.raises(ValueError, match="neither"):
        lower(softmax(8, 8), softmax_plan(8), TARGET, "loose")


def test_stages_are_cut_where_pieces_of_a_concat_begin() -> None:
    b = Builder()
    x = b.input(8, 32)
    i, j, k = b.axes(8, 3, 32)
    piece = b.axes(1)[0]
    reads = []
    for p in range(3):
        there = Sum(((1, AxisVar(j)), (1, Int(-p)))) if p else AxisVar(j)
        scaled = b.op("exp" if p else "tanh", (i, k), (x, (i, k)))
        reads.append(Read(scaled, (AxisVar(i), AxisVar(k)), (Bound(there, piece),)))
    joined = b.add(Value("piecewise", DType.F32, (i, j, k), reads=tuple(reads)))
    places = edges(v1_4="inline", v2_4="inline", v3_4="inline")
    plan = Plan(one_group([(i, 2)], Stage((joined,), (i, j, k), vector=k, width=8)), places)
    (kernel,) = lower(b.subgraph(joined), plan, TARGET)
    assert sorted(op for op, simd in ops(kernel) if simd) == ["exp", "exp", "tanh"]
    assert not any(isinstance(s, Let) and isinstance(s.value, Load) and s.value.mask for s in all_statements(kernel))
