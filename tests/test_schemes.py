"""Every scheme, every place of a value and every mapping by a kernel that runs, shown in its loop program.

Each example is a subgraph with a plan for it: legal, right on one thread and on two. The tests then look at what the
plan became.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import AxisVar, Bound, Int, Read, Slot, Subgraph, Sum, Value
from stitchtune.graphs.tolerance import check_outputs
from stitchtune.kernels.build import BuiltPlan, build_plans
from stitchtune.kernels.compile import BuildFailure, find_compiler
from stitchtune.kernels.loops import (
    Apply,
    Argument,
    Array,
    Declare,
    Expr,
    Fold,
    For,
    GroupProgram,
    Let,
    Load,
    LoopKernel,
    Stmt,
    Store,
    Stream,
    evaluate,
    statements,
)
from stitchtune.kernels.lower import lower
from stitchtune.kernels.team import Team, build_runtime
from stitchtune.search_space.legality import check
from stitchtune.search_space.plan import Buffer, Group, Kernel, Phase, Plan, Reduction, Stage

from tests.differential.marks import arguments_of
from tests.differential.running import run_watched
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
from tests.random_values import random_array
from tests.search_space.samples import TARGET

Example = tuple[Subgraph, Plan]


# --- examples


def chain() -> Example:
    """y = 2 exp(x) + x^2, everything in one loop nest: %1 exp, %2 square, %4 twice, %5 sum."""
    b = Builder()
    x = b.input(40, 48)
    i, j = b.axes(40, 48)
    power = b.op("exp", (i, j), (x, (i, j)))
    squared = b.op("mul", (i, j), (x, (i, j)), (x, (i, j)))
    twice = b.op("mul", (i, j), power, b.const(2.0))
    out = b.op("add", (i, j), twice, squared)
    kernels = one_group([(i, 8)], Stage((power, out), (i, j), vector=j, width=16))
    return b.subgraph(power, out), Plan(kernels, edges(v1_4="register", v2_5="inline", v4_5="inline"))


def two_sums() -> Example:
    """Row and column sums in two groups of one phase."""
    rows = Group(((2, 8),), (Stage((2,), (2, 3), vector=3, width=16),))
    columns = Group(((3, 16),), (Stage((3,), (2, 3), vector=3, width=16),))
    return sums(40, 64), Plan((Kernel((Phase((rows, columns)),)),), edges(v1_2="inline", v1_3="inline"))


def handed_back() -> Example:
    """Softmax whose last row-wise step follows the sum inside one nest: %4 sums, %5 = 1 / %4 in the same stage."""
    b = Builder()
    x = b.input(24, 80)
    i, j = b.axes(24, 80)
    power = b.op("exp", (i, j), (x, (i, j)))
    total = b.op("sum", (i,), power, reduce=(j,))
    inverse = b.op("recip", (i,), total)
    out = b.op("mul", (i, j), power, inverse)
    kernels = one_group(
        [(i, 4)],
        Stage((power, total, inverse), (i, j), vector=j, width=16),
        Stage((out,), (i, j), vector=j, width=16),
    )
    places = edges(v1_2="register", v1_4="block", v2_3="shuffle", v3_4="block")
    return b.subgraph(out), Plan(kernels, places)


def through_kernels() -> Example:
    """Softmax in three kernels."""
    sub = softmax(20, 50)
    stages = (
        Stage((1,), (2, 3), vector=3, width=16),
        Stage((3, 4), (2, 3), vector=3, width=16),
        Stage((5,), (2, 3), vector=3, width=16),
    )
    kernels = tuple(one_group([(2, 4)], s)[0] for s in stages)
    return sub, Plan(kernels, edges(v1_2="global", v2_3="inline", v3_4="register", v3_5="global", v4_5="global"))


def pieces_in_place() -> Example:
    """exp(x) and -x beside each other: each is stored in its part of the concat, which has no loops."""
    b = Builder()
    x = b.input(6, 12)
    i, j, k = b.axes(6, 12, 24)
    up = Sum(((1, AxisVar(k)), (-1, Slot(0))))
    left = b.op("exp", (i, j), (x, (i, j)))
    right = b.op("neg", (i, j), (x, (i, j)))
    reads = (
        Read(left, (AxisVar(i), AxisVar(k)), (Bound(AxisVar(k), j),)),
        Read(right, (AxisVar(i), up), (Bound(up, j),)),
    )
    whole = b.add(Value("piecewise", b.dtype, (i, k), reads=reads))
    stages = (Stage((left, right), (i, j), vector=j, width=4), Stage((whole,), (i, k), vector=k, width=8))
    return b.subgraph(whole, slots=(12,)), Plan(one_group([(i, 2)], *stages), edges(v1_3="alias", v2_3="alias"))


def column_lanes() -> Example:
    """Column sums with one lane per column: the vector loop runs along the parallel axis."""
    plan = Plan(one_group([(3, 16)], Stage((3,), (2, 3), vector=3, width=16)), edges(v1_3="inline"))
    return replace(sums(50, 64), outputs=(3,)), plan


def single(
    stage: Stage, parallel: Sequence[tuple[int, int]] = ((2, 4),), shape: tuple[int, int] = (20, 200)
) -> Example:
    """Row sums of squares: %2."""
    return replace(sums(*shape), outputs=(2,)), Plan(one_group(parallel, stage), edges(v1_2="inline"))


def streamed() -> Example:
    return softmax(40, 1500), replace(softmax_plan(8), stream=(5,))


def padded() -> Example:
    """The centred row of a layer norm, stored by columns with one element of padding."""
    return layer_norm(32, 64), replace(layer_norm_plan(4), buffers=(Buffer(6, (4, 3), 1),))


def one_pass_softmax() -> Example:
    kernels = one_group([(2, 2)], Stage((1, 4), (2, 3), vector=3, width=8), Stage((5,), (2, 3), vector=3, width=8))
    places = edges(v1_2="block", v2_3="inline", v3_5="inline", v4_5="block", v3_4="inline")
    return softmax(6, 77), Plan(kernels, places, (Reduction(4, coupled=1),))


def one_pass_moments() -> Example:
    kernels = one_group([(3, 2)], Stage((4, 8), (3, 4), vector=4, width=8), Stage((14,), (3, 4), vector=4, width=8))
    inline = dict.fromkeys("v5_6 v6_7 v6_13 v7_8 v9_10 v10_11 v11_12 v12_13 v13_14".split(), "inline")
    plan = Plan(kernels, edges(v4_5="block", v8_9="block", **inline), (Reduction(8, coupled=4),))
    return layer_norm(6, 77), plan


def shifted() -> Example:
    """ArgMax over rows and over columns of neighbours' maxima: a mask in a vector loop that g++ unrolls completely."""
    b = Builder(DType.U16)
    x = b.input(32)
    i, j = b.axes(32, 32)
    late = Sum(((1, AxisVar(j)), (1, Int(1))))
    after = Read(x, (late,), (Bound(late, b.values[x].axes[0]),), 4)
    larger = b.op("maximum", (i, j), (x, (j,)), after)
    columns = b.op("argmax", (j,), larger, reduce=(i,), dtype=DType.I64)
    rows = b.op("argmax", (i,), larger, reduce=(j,), dtype=DType.I64)
    kernels = one_group([], Stage((columns, rows), (i, j), vector=j, width=8))
    return b.subgraph(columns, rows), Plan(kernels, edges(v1_2="inline", v1_3="inline"))


ROWS = Stage((2,), (2, 3), vector=3, width=16)
EXAMPLES: dict[str, Example] = {
    "chain": chain(),
    "two sums": two_sums(),
    "softmax": (softmax(40, 48), softmax_plan(8)),
    "split sums": (sums(40, 60), split_sums_plan(16, 32)),
    "handed back": handed_back(),
    "through kernels": through_kernels(),
    "pieces in place": pieces_in_place(),
    "column lanes": column_lanes(),
    "row": single(ROWS, [(2, 1)]),
    "rows by seven": single(ROWS, [(2, 7)]),
    "rows by eight": single(replace(ROWS, width=8)),
    "rows packed": single(ROWS),
    "rows in scalars": single(replace(ROWS, vector=-1, width=1)),
    "streamed": streamed(),
    "shifted": shifted(),
    "padded": padded(),
    "one-pass softmax": one_pass_softmax(),
    "one-pass moments": one_pass_moments(),
}


def _variants() -> Iterator[tuple[str, Example]]:
    sub, plan = EXAMPLES["rows packed"]
    kernel = plan.kernels[0]
    group = kernel.phases[0].groups[0]
    vertical = Kernel((Phase((replace(group, tasks_per_block=3),)),))
    yield "blocks of tasks", (sub, replace(plan, kernels=(vertical,)))
    yield "serial", (sub, replace(plan, kernels=(replace(kernel, team=False),)))
    yield "accumulators", (sub, replace(plan, reductions=(Reduction(2, accumulators=4),)))
    sub, plan = EXAMPLES["column lanes"]
    unrolled = Stage((3,), (2, 3), vector=3, width=16, unroll=((2, 4),))
    yield "unrolled", (sub, replace(plan, kernels=one_group([(3, 16)], unrolled)))
    yield "dynamic", (softmax(40, 48), replace(softmax_plan(8), dynamic=(0, 1, 2, 3)))
    yield "dynamic, other size", (softmax(21, 130), replace(softmax_plan(8), dynamic=(0, 1, 2, 3)))
    sub, plan = EXAMPLES["split sums"]
    first, second = plan.kernels[0].phases
    yield "split over kernels", (sub, replace(plan, kernels=(Kernel((first,)), Kernel((second,)))))


EXAMPLES.update(_variants())


@pytest.mark.parametrize("name", EXAMPLES)
def test_example_is_legal(name: str) -> None:
    assert check(*EXAMPLES[name], TARGET) == ()


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
def test_every_example_runs_and_is_right(tmp_path: Path) -> None:
    runtime = build_runtime(tmp_path)
    assert not isinstance(runtime, BuildFailure)
    team = Team(runtime, 2)
    rng = np.random.default_rng(5)
    made = build_plans(list(EXAMPLES.values()), TARGET, cache=tmp_path, per_unit=len(EXAMPLES) // 2 + 1)
    for name, built in zip(EXAMPLES, made, strict=True):
        assert isinstance(built, BuiltPlan), f"{name}: {built}"
        sub = built.sub
        inputs = [random_array(rng, sub.values[v].dtype, sub.shape(v)) for v in sub.inputs]
        result = check_outputs(sub, inputs, run_watched(built, inputs, team))
        assert result.ok, f"{name}: {result.message}"


# --- what programs show


def kernels(name: str) -> tuple[LoopKernel, ...]:
    return lower(*EXAMPLES[name], TARGET)


def kernel(name: str) -> LoopKernel:
    [only] = kernels(name)
    return only


def group(name: str) -> GroupProgram:
    [only] = [g for p in kernel(name).phases for g in p.groups]
    return only


def arrays(program: GroupProgram | LoopKernel, kind: type) -> list[str]:
    """Arrays that statements of a kind (Store), or loads, name: in order, with repeats."""
    if isinstance(program, LoopKernel):
        return [a for p in program.phases for g in p.groups for a in arrays(g, kind)]
    if kind is Load:
        return [e.array for e in expressions(program.body) if isinstance(e, Load)]
    return [s.array for s in statements(program.body) if isinstance(s, kind)]


def expressions(body: Sequence[Stmt]) -> Iterator[Expr]:
    """Every expression of a body and its parts."""

    def parts(expr: Expr) -> Iterator[Expr]:
        yield expr
        for part in (*getattr(expr, "operands", ()), getattr(expr, "offset", None), getattr(expr, "mask", None)):
            if part is not None:
                yield from parts(part)

    for statement in statements(body):
        for name in ("value", "offset", "start", "stop", "condition", "count"):
            part = getattr(statement, name, None)
            if part is not None and not isinstance(part, str):
                yield from parts(part)


def evaluations(program: GroupProgram, op: str) -> int:
    """How many statements evaluate an operator."""
    return sum(isinstance(s, Let) and isinstance(s.value, Apply) and s.value.op == op for s in statements(program.body))


def loops(program: GroupProgram) -> list[For]:
    return [s for s in statements(program.body) if isinstance(s, For)]


def block_arrays(program: GroupProgram) -> list[Array]:
    return [a for a in program.arrays if a.space == "block"]


# --- schemes


def test_independent_groups_share_a_phase_and_no_memory() -> None:
    phase = kernel("two sums").phases[0]
    rows, columns = phase.groups
    assert len(kernel("two sums").phases) == 1
    assert [evaluate(g.tasks) for g in phase.groups] == [5, 4]
    assert set(arrays(rows, Store)).isdisjoint(arrays(columns, Store))


def test_local_values_touch_no_memory() -> None:
    program = group("chain")
    assert not program.arrays
    assert not kernel("chain").scratch
    assert set(arrays(program, Store)) == {"y0", "y1"}
    assert set(arrays(program, Load)) == {"x0"}


def test_regional_values_pass_through_block_memory() -> None:
    program = group("softmax")
    kept = {a.name for a in block_arrays(program)}
    assert len(kept) == 3, "maximum, exponentials and sum"
    assert kept <= set(arrays(program, Store))
    assert kept <= set(arrays(program, Load))
    assert len(kernel("softmax").phases) == 1
    assert not kernel("softmax").scratch


def test_global_values_pass_through_scratch_and_a_barrier() -> None:
    first, second = kernel("split sums").phases
    scratch = {a.name for a in kernel("split sums").scratch}
    assert {n for g in first.groups for n in arrays(g, Store)} >= scratch
    assert {n for g in second.groups for n in arrays(g, Load)} >= scratch


def test_global_values_pass_through_scratch_between_kernels() -> None:
    one, two, three = kernels("through kernels")
    assert all(len(k.phases) == 1 for k in (one, two, three))
    scratch = {a.name for a in one.scratch}
    assert len(scratch) == 3
    assert set(arrays(one, Store)) | set(arrays(two, Store)) >= scratch
    assert set(arrays(two, Load)) | set(arrays(three, Load)) >= scratch


# --- places


def test_inline_values_are_evaluated_where_they_are_read() -> None:
    rows, columns = kernel("two sums").phases[0].groups
    assert (evaluations(rows, "mul"), evaluations(columns, "mul")) == (1, 1), "once in each group that reads it"
    assert not kernel("two sums").scratch


def test_register_values_are_evaluated_once_and_not_loaded_back() -> None:
    program = group("chain")
    assert evaluations(program, "exp") == 1
    assert "y0" not in arrays(program, Load)


def test_shuffled_values_go_from_the_lanes_to_the_row() -> None:
    program = group("handed back")
    folds = [s for s in statements(program.body) if isinstance(s, Let) and isinstance(s.value, Fold)]
    assert len(folds) == 1
    stored = arrays(program, Store)
    sizes = {a.name: evaluate(a.elements) for a in block_arrays(program)}
    assert sorted(sizes.values()) == [4, 4 * 80], "the inverse and the exponentials are kept, the sum is not"
    assert set(stored) >= set(sizes)


def test_block_values_are_as_large_as_the_task() -> None:
    sizes = sorted(evaluate(a.elements) for a in block_arrays(group("softmax")))
    assert sizes == [8, 8, 8 * 48]


def test_global_values_are_whole() -> None:
    assert sorted(evaluate(a.elements) for a in kernels("through kernels")[0].scratch) == [20, 20, 20 * 50]


def test_aliased_values_are_stored_in_their_consumer() -> None:
    program = group("pieces in place")
    assert arrays(program, Store) == ["y0", "y0"], "each piece is stored once, and the concat copies nothing"
    assert "y0" not in arrays(program, Load)
    assert not block_arrays(program)


# --- mappings


def test_horizontal_packing_gives_a_task_several_rows() -> None:
    assert evaluate(group("rows packed").tasks) == 5
    assert evaluate(group("row").tasks) == 20
    tile = [loop for loop in loops(group("rows packed")) if evaluate_or_none(loop.stop) == 4]
    assert tile, "a loop over the four rows of the task"


def evaluate_or_none(expr: Expr) -> int | None:
    try:
        return evaluate(expr)
    except TypeError:
        return None


def test_a_tile_that_does_not_divide_ends_early() -> None:
    assert evaluate(group("rows by seven").tasks) == 3
    assert any(isinstance(e, Apply) and e.op == "min" for e in expressions(group("rows by seven").body))
    assert not any(isinstance(e, Apply) and e.op == "min" for e in expressions(group("rows packed").body))


def test_vertical_packing_gives_a_block_several_tasks() -> None:
    assert group("blocks of tasks").tasks_per_block == 3
    assert group("rows packed").tasks_per_block == 1


def test_split_rows_leave_one_partial_result_a_part() -> None:
    rows, columns = kernel("split sums").scratch
    assert evaluate(rows.elements) == 2 * 40, "two parts of 32 columns"
    assert evaluate(columns.elements) == 3 * 60, "three parts of 16 rows"
    assert evaluate(kernel("split sums").phases[0].groups[0].tasks) == 6


def test_a_lane_per_row_needs_no_fold() -> None:
    program = group("column lanes")
    assert not any(isinstance(e, Fold) for e in expressions(program.body))
    assert any(loop.simd and evaluate_or_none(loop.stop) == 16 for loop in loops(program)), (
        "lanes along the parallel axis"
    )


def test_lanes_across_the_row_are_folded() -> None:
    program = group("rows packed")
    [lanes] = [s for s in statements(program.body) if isinstance(s, Declare)]
    assert lanes.size == 16
    assert [e.lanes for e in expressions(program.body) if isinstance(e, Fold)] == [16]


@pytest.mark.parametrize(("name", "lanes", "size"), [("rows packed", 16, 64), ("rows by eight", 8, 32)])
def test_vector_width(name: str, lanes: int, size: int) -> None:
    program = group(name)
    assert program.vector_bytes == size
    assert any(loop.step == lanes for loop in loops(program)), "strips of as many elements as there are lanes"


def test_no_vector_axis_gives_no_lanes() -> None:
    assert not any(loop.simd for loop in loops(group("rows in scalars")))


def test_accumulators_multiply_the_lanes() -> None:
    assert [e.lanes for e in expressions(group("accumulators").body) if isinstance(e, Fold)] == [64]


def test_unrolling() -> None:
    plain, unrolled = (loops(group(name)) for name in ("column lanes", "unrolled"))
    assert not any(loop.unroll > 1 or loop.step == 4 for loop in plain)
    assert any(loop.unroll == 4 or loop.step == 4 for loop in unrolled)


def test_streaming_stores_go_past_the_caches() -> None:
    program = group("streamed")
    assert [s.array for s in statements(program.body) if isinstance(s, Stream)] == ["y0"]
    assert "y0" not in arrays(program, Store)


def test_serial_kernels_run_on_the_caller_alone() -> None:
    assert not kernel("serial").team
    assert kernel("rows packed").team


def test_dynamic_extents_are_read_from_arguments() -> None:
    (one,), (two,) = kernels("dynamic"), kernels("dynamic, other size")
    assert one == two, "one program for both sizes"
    assert one.arguments == 4
    used = {a for loop in loops(one.phases[0].groups[0]) for a in arguments_of(loop.stop)}
    assert used <= {Argument(k) for k in range(4)}
    assert Argument(3) in used, "the loop over the columns runs to an argument"


def test_buffers_have_the_order_and_the_padding_of_the_plan() -> None:
    assert 64 * (4 + 1) in {evaluate(a.elements) for a in block_arrays(group("padded"))}
    assert 64 * 4 in {evaluate(a.elements) for a in block_arrays(kernel_of_layer_norm())}


def kernel_of_layer_norm() -> GroupProgram:
    [made] = lower(layer_norm(32, 64), layer_norm_plan(4), TARGET)
    return made.phases[0].groups[0]


def test_barriers_become_kernel_boundaries() -> None:
    one, two = kernels("split over kernels")
    assert [len(k.phases) for k in (one, two)] == [1, 1]
    assert one.scratch == two.scratch == kernel("split sums").scratch


def test_coupled_reductions_take_one_pass() -> None:
    for name in ("one-pass softmax", "one-pass moments"):
        assert strips(name, 8) == 1, "one pass in strips for both reductions"
    assert strips("softmax", 16) == 2, "two passes where they are apart"


def strips(name: str, lanes: int) -> int:
    return sum(loop.step == lanes for loop in loops(group(name)))


def test_every_output_and_scratch_array_is_used() -> None:
    for name in EXAMPLES:
        made = kernels(name)
        stored = {a for k in made for kind in (Store, Stream) for a in arrays(k, kind)}
        written = [a.name for a in (*made[0].buffers, *made[0].scratch) if a.space != "input"]
        assert set(written) <= stored, name


def test_limits_of_masks_are_hidden_from_the_compiler() -> None:
    """g++ 12 read whole vectors outside an array where a mask was constant; the arrays above end at a fence."""
    program = group("shifted")
    tests = [e for e in expressions(program.body) if isinstance(e, Apply) and e.op in ("lt", "ge")]
    masked = [e for e in expressions(program.body) if isinstance(e, Load) and e.mask is not None]
    assert tests
    assert masked
    assert all(isinstance(t.operands[1], Apply) and t.operands[1].op == "hidden" for t in tests)
