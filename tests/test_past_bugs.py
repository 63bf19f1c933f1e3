"""Faults that the differential test found, one test each, named after the fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import AxisVar, Bound, Int, Mod, Read, Slot, Subgraph, Sum, Value
from stitchtune.graphs.tolerance import check_outputs
from stitchtune.kernels.build import BuiltPlan, build_plans
from stitchtune.kernels.compile import BuildFailure, find_compiler
from stitchtune.kernels.cuda.emulator.emulate import build_emulated
from stitchtune.kernels.lower import lower
from stitchtune.kernels.team import Team, build_runtime
from stitchtune.search_space import residency, transposing
from stitchtune.search_space.coupling import all_pairs
from stitchtune.search_space.devices import device_target
from stitchtune.search_space.draft import GroupDraft
from stitchtune.search_space.legality import check
from stitchtune.search_space.plan import Group, Kernel, Phase, Plan, Stage
from stitchtune.search_space.residency import Sites
from stitchtune.search_space.stitch import heuristic, unfused
from stitchtune.search_space.target import Target

from tests.differential.running import run_watched
from tests.kernels.hand import Builder, edges, layer_norm, layer_norm_plan, one_group, softmax
from tests.random_subgraphs import random_subgraph
from tests.search_space.samples import TARGET, outer_difference


def assert_right(sub: Subgraph, plan: Plan, folder: Path, precision: str = "strict") -> None:
    runtime = build_runtime(folder)
    assert not isinstance(runtime, BuildFailure)
    [built] = build_plans([(sub, plan)], TARGET, precision=precision, cache=folder)
    assert isinstance(built, BuiltPlan), built
    rng = np.random.default_rng(3)

    def drawn(value: Value, shape: tuple[int, ...]) -> NDArray[Any]:
        array = rng.standard_normal(shape) if value.dtype.is_float else rng.integers(0, 100, shape)
        return array.astype(value.dtype.numpy)

    inputs = [drawn(sub.values[v], sub.shape(v)) for v in sub.inputs]
    result = check_outputs(sub, inputs, run_watched(built, inputs, Team(runtime, 2)), precision)  # type: ignore[arg-type]
    assert result.ok, result.message


needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")


def test_a_row_value_that_waits_for_a_sum_was_read_inside_the_loop_that_sums() -> None:
    """The variance is an output, so it is listed beside its sum; the row that reads it comes later."""
    sub = replace(layer_norm(32, 64), outputs=(9, 14))
    plan = heuristic(sub, TARGET)
    assert check(sub, plan, TARGET) == ()
    assert lower(sub, plan, TARGET)
    group = plan.kernels[0].phases[0].groups[0]
    assert not any({9, 14} <= set(stage.values) for stage in group.stages)


def test_registers_of_a_row_value_were_thought_to_be_there_inside_the_loop() -> None:
    b = Builder()
    i, j = (b.input(8, 32), b.axes(8, 32))[1]
    total = b.op("sum", (i,), (0, (i, j)), reduce=(j,))
    half = b.op("neg", (i,), total)
    out = b.op("mul", (i, j), (0, (i, j)), half)
    plan = Plan(
        one_group([(i, 4)], Stage((total, half, out), (i, j), vector=j, width=16)),
        edges(v1_2="shuffle", v2_3="register"),
    )
    assert {r.code for r in check(b.subgraph(half, out), plan, TARGET)} == {"register-order"}


def test_places_that_were_fixed_for_groups_that_moved_stayed_fixed() -> None:
    sub = random_subgraph(138)
    assert check(sub, heuristic(sub, TARGET), TARGET) == ()


@needs_compiler
def test_fast_precision_rounded_what_waits_in_block_memory(tmp_path: Path) -> None:
    sub = layer_norm(8, 64, DType.BF16)
    [kernel] = lower(sub, layer_norm_plan(2), TARGET, "fast")
    assert {a.dtype for g in kernel.phases[0].groups for a in g.arrays} == {DType.F32}
    assert_right(sub, layer_norm_plan(2), tmp_path, "fast")


def test_a_sum_of_transposed_exponentials_was_taken_for_a_softmax() -> None:
    b = Builder()
    i, j = (b.input(16, 16), b.axes(16, 16))[1]
    top = b.op("max", (i,), (0, (i, j)), reduce=(j,))
    power = b.op("exp", (i, j), b.op("sub", (i, j), (0, (i, j)), top))
    turned = Read(power, (AxisVar(j), AxisVar(i)))
    assert list(all_pairs(b.subgraph(b.op("sum", (i,), turned, reduce=(j,))))) == []
    assert list(all_pairs(softmax(8, 8))) == [(1, 4)]


@pytest.mark.parametrize("target", [TARGET, device_target("cuda:h200")], ids=["cpu", "cuda"])
def test_what_lacks_an_empty_axis_that_was_shared_out_was_never_stored(target: Target) -> None:
    b = Builder()
    x, y = b.input(8), b.input(8, 0)
    k, i, j = b.axes(8, 8, 0)
    full, empty = b.op("neg", (k,), (x, (k,))), b.op("neg", (i, j), (y, (i, j)))
    sub = b.subgraph(full, empty)
    threads = 32 if target.kind == "cuda" else 1

    def plan(axis: int) -> Plan:
        group = Group(((axis, 1),), (Stage((full,), (k,)), Stage((empty,), (i, j))), threads=threads)
        return Plan((Kernel((Phase((group,)),)),))

    assert {r.code for r in check(sub, plan(j), target)} == {"parallel-axes"}
    assert check(sub, plan(k), target) == ()


def test_masked_load_at_the_address_of_another(tmp_path: Path) -> None:
    """g++ 12: the padded read of row 0 took its address from the read of every row beside it."""
    b = Builder(DType.I16)
    x = b.input(3, 31)
    i, j = b.axes(3, 31)
    right = Sum(((1, AxisVar(j)), (1, Int(1))))
    padded = Read(x, (Int(0), right), (Bound(right, b.values[x].axes[1]),), 2)
    copied = b.op("copy", (i, j), (x, (i, j)))
    added = b.op("add", (i, j), copied, padded)
    sub = b.subgraph(copied, added)
    stage = Stage((copied, added), (i, j), vector=j, width=32)
    plan = Plan(one_group([(i, 3), (j, 16)], stage), edges(v1_2="register"))
    assert not check(sub, plan, TARGET)
    assert_right(sub, plan, tmp_path)


def test_mean_of_a_rounded_share_is_no_mean_in_float64() -> None:
    """1/3 as a float32 times the sum is not the mean that Welford's pass computes, to float64's digits."""
    rounded = float(np.float32(1 / 3))
    for dtype, share, pairs in ((DType.F64, rounded, 0), (DType.F64, 1 / 3, 1), (DType.F32, rounded, 1)):
        b = Builder(dtype)
        x, factor = b.input(4, 3), b.const(share)
        i, j = b.axes(4, 3)
        total = b.op("sum", (i,), (x, (i, j)), reduce=(j,))
        centred = b.op("sub", (i, j), (x, (i, j)), b.op("mul", (i,), total, factor))
        squared = b.op("mul", (i, j), centred, centred)
        sub = b.subgraph(b.op("sum", (i,), squared, reduce=(j,)))
        assert len(list(all_pairs(sub))) == pairs


@needs_compiler
def test_the_emulator_took_more_parameters_than_a_kernel_may_have(tmp_path: Path) -> None:
    b = Builder()
    inputs = [b.input(4) for _ in range(520)]
    (i,) = b.axes(4)
    total = b.op("add", (i,), (inputs[0], (i,)), (inputs[1], (i,)))
    for x in inputs[2:]:
        total = b.op("add", (i,), total, (x, (i,)))
    sub, target = b.subgraph(total), device_target("cuda:h200")
    [made] = build_emulated([(sub, heuristic(sub, target))], target, precision="strict", cache=tmp_path)
    assert isinstance(made, BuildFailure)
    assert made.stage == "parameters"


def test_every_kernel_of_an_unfused_cuda_plan_looked_at_the_inputs_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """600 additions took 600 * 600 * 1200 steps."""
    b = Builder()
    inputs = [b.input(4) for _ in range(50)]
    (i,) = b.axes(4)
    total = b.op("neg", (i,), (inputs[0], (i,)))
    for x in inputs[1:]:
        total = b.op("add", (i,), total, (x, (i,)))
    asked: list[int] = []

    def counting(sub: Subgraph, group: GroupDraft, reads: Sites, value: int) -> None:
        asked.append(value)

    monkeypatch.setattr(residency, "loadable", counting)
    monkeypatch.setattr(transposing, "loadable", counting)
    unfused(b.subgraph(total), device_target("cuda:h200"))
    assert sorted(asked) == sorted([*inputs, *inputs])


def test_an_output_was_combined_only_by_a_group_without_tasks() -> None:
    """The sums over an empty axis are an output, and read by values along that axis."""
    sub, target = replace(outer_difference(5, 0), outputs=(4, 5)), device_target("cuda:h200")
    assert check(sub, heuristic(sub, target), target) == ()


@needs_compiler
def test_jammed_maxima_were_all_the_greatest_of_them(tmp_path: Path) -> None:
    """g++ 12 vectorized a loop that the plan does not: four rows' maxima became one beside the minima of columns."""
    b = Builder(DType.U16)
    x = b.input(7)
    i, j = b.axes(33, 31)
    copied = b.op("copy", (i, j), Read(x, (Mod(AxisVar(i), 7),)))
    sub = b.subgraph(b.op("min", (j,), copied, reduce=(i,)), b.op("max", (i,), copied, reduce=(j,)))
    stage = Stage(sub.outputs, (i, j), unroll=((i, 4),))
    plan = Plan(one_group([], stage), edges(v1_2="inline", v1_3="inline"))
    assert not check(sub, plan, TARGET)
    assert_right(sub, plan, tmp_path)


@needs_compiler
def test_outer_loop_over_masked_loads_stored_some_of_them_elsewhere(tmp_path: Path) -> None:
    """g++ 12 unrolled the inner loop of a padding without a vector axis, and vectorized the outer one."""
    b = Builder(DType.I8)
    x = b.input(32, 12)
    i, j = b.axes(32, 12)
    down, left = (Sum(((1, AxisVar(a)), (1, Slot(k)))) for k, a in enumerate((i, j)))
    where = tuple(Bound(at, axis) for at, axis in zip((down, left), b.values[x].axes, strict=True))
    sub = b.subgraph(b.op("copy", (i, j), Read(x, (down, left), where, 4)), slots=(1, -1))
    plan = Plan(one_group([(i, 5), (j, 12)], Stage(sub.outputs, (i, j))))
    assert not check(sub, plan, TARGET)
    assert_right(sub, plan, tmp_path)
