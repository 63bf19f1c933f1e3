"""What CUDA plans look like: thread mapping, what stays on chip, and how little memory they move."""

from __future__ import annotations

import math

import pytest
from stitchtune.benchmarks.suite import SUITE
from stitchtune.benchmarks.suite.subject import Subject, canonical
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.search_space.devices import DEVICES
from stitchtune.search_space.legality import check
from stitchtune.search_space.plan import Group, Plan, Stage
from stitchtune.search_space.space import build
from stitchtune.search_space.stitch import heuristic, unfused

from tests.search_space.samples import exponential, layer_norm_backward, moments, outer_difference, read, softmax, value
from tests.search_space.traffic_cuda import ratio

T4, A100, H200 = (DEVICES[f"cuda:{name}"] for name in ("t4", "a100", "h200"))


def phases(plan: Plan) -> list[Group]:
    """The first group of every phase."""
    return [phase.groups[0] for kernel in plan.kernels for phase in kernel.phases]


def lanes(stage: Stage) -> dict[int, int]:
    return dict(stage.lanes)


def tasks(sub: Subgraph, group: Group) -> int:
    return math.prod(-(-sub.extents[axis] // tile) for axis, tile in group.parallel)


def test_short_rows_share_a_block_and_stay_in_registers() -> None:
    sub = softmax(750_000, 32)
    [group] = phases(plan := heuristic(sub, H200))
    assert dict(group.parallel) == {0: 32}, "32 rows in a block of 256 threads"
    assert group.tasks_per_block > 1, "vertical packing: the grid is about one wave"
    assert all(lanes(s) == {0: 32, 1: 8} and s.width == 4 for s in group.stages)
    assert 0 in group.stages[0].values, "the rows are loaded once"
    assert {plan.place(0, 1), plan.place(0, 2)} == {"register"}
    assert plan.place(1, 2) == "register"
    assert plan.place(4, 5) == "register"


def test_a_warp_takes_a_row_and_reductions_end_in_shuffles() -> None:
    [group] = phases(plan := heuristic(softmax(4096, 768), H200))
    assert all(lanes(s)[1] == 32 for s in group.stages)
    assert plan.place(3, 5) == "register", "the exponentials are kept where they are made"


def test_a_block_takes_a_long_row_and_keeps_it_in_shared_memory() -> None:
    [group] = phases(plan := heuristic(softmax(256, 30522), H200))
    assert dict(group.parallel) == {0: 1}
    assert lanes(group.stages[0]) == {1: group.threads}
    assert plan.place(0, 2) == "block"


def test_a_row_too_long_for_the_chip_is_read_again() -> None:
    plan = heuristic(softmax(256, 30522), T4)
    assert not any(0 in s.values for g in phases(plan) for s in g.stages)


@pytest.mark.parametrize("shape", [(64, 30_000), (2, 1 << 21)])
def test_parts_of_split_rows_stay_on_chip_across_the_barrier(shape: tuple[int, int]) -> None:
    sub = softmax(*shape)
    plan = heuristic(sub, H200)
    groups = phases(plan)
    assert plan.barriers == 1
    assert len({g.parallel for g in groups}) == 1
    assert tasks(sub, groups[0]) <= H200.processors
    assert plan.place(0, 2) == "block"
    assert ratio(sub, plan) <= 1.05


def test_split_rows_that_fit_no_chip_are_read_in_every_phase() -> None:
    plan = heuristic(softmax(2, 1 << 21), T4)
    assert plan.barriers == 1
    assert ratio(softmax(2, 1 << 21), plan) <= 1.55
    assert not any(0 in s.values for g in phases(plan) for s in g.stages)


def test_columns_are_read_in_lines_and_folded_across_the_block() -> None:
    sub = layer_norm_backward(4096, 768)
    first, second = phases(heuristic(sub, H200))
    [columns] = [s for s in first.stages if 16 in s.values]
    assert columns.order == (1, 0), "own axis outside: one accumulator"
    assert columns.vector == 1
    assert lanes(columns) == {1: 32, 0: first.threads // 32}
    assert second.stages[0].combine == (16, 17)
    assert tasks(sub, second) > 1


def test_elementwise_threads_lie_along_memory_and_few_idle() -> None:
    [group] = phases(heuristic(exponential(4096, 768), H200))
    [stage] = group.stages
    assert stage.width == 4
    assert stage.lanes[-1][0] == 1
    assert math.prod(n for _, n in stage.lanes) == group.threads


@pytest.mark.parametrize("subject", SUITE, ids=lambda s: s.name)
@pytest.mark.parametrize("device", ["t4", "h200"])
def test_the_suite_moves_little_more_than_it_must(subject: Subject, device: str) -> None:
    target = DEVICES[f"cuda:{device}"]
    sub = canonical(subject.graph())
    plan = heuristic(sub, target)
    assert check(sub, plan, target) == ()
    limit = 1.05 if subject.fits(subject.sizes, target) != "no" else 1.55
    assert ratio(sub, plan) <= limit


@pytest.mark.parametrize("make", [softmax, layer_norm_backward, outer_difference, exponential])
@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (1031, 1031), (64, 30000), (750000, 32), (1, 4097), (0, 5), (5, 0)])
def test_heuristic_and_unfused_are_legal_at_irregular_shapes(make: object, shape: tuple[int, int]) -> None:
    assert callable(make)
    sub = make(*shape)
    for target in (T4, A100, H200):
        for plan in (heuristic(sub, target), unfused(sub, target)):
            assert check(sub, plan, target) == ()


def transpose(rows: int, columns: int) -> Subgraph:
    values = (
        value("input", (2, 3)),
        value("input", (4,)),
        value("add", (0, 1), read(0, 1, 0), read(1, 1)),
    )
    return Subgraph(values, (2,), (rows, columns, columns, rows, columns))


def test_a_transpose_goes_through_a_padded_tile() -> None:
    plan = heuristic(transpose(1024, 512), H200)
    [group] = phases(plan)
    load, add = group.stages
    assert dict(group.parallel) == {0: 32, 1: 32}
    assert load.values == (0,)
    assert load.vector == load.lanes[-1][0] == 0, "loaded along its own memory"
    assert add.vector == add.lanes[-1][0] == 1, "stored along the result's"
    assert plan.place(0, 2) == "block"
    [buffer] = plan.buffers
    assert buffer.pad % 2 == 1


def test_what_is_read_across_the_grain_is_laid_out_for_it() -> None:
    """Columns normalised, then stored as rows: the stages share no order of threads."""
    values = (
        value("input", (3, 4, 5)),
        value("sum", (0, 2), read(0, 0, 1, 2), reduce=(1,)),
        value("exp", (0, 1, 2), read(0, 0, 1, 2)),
        value("sum", (0, 2), read(2, 0, 1, 2), reduce=(1,)),
        value("mul", (0, 2), read(1, 0, 2), read(3, 0, 2)),
        value("mul", (0, 2, 1), read(2, 0, 1, 2), read(4, 0, 2)),
    )
    sub = Subgraph(values, (5,), (4, 128, 99, 4, 128, 99))
    plan = heuristic(sub, H200)
    assert check(sub, plan, H200) == ()
    [group] = phases(plan)
    assert dict(group.parallel)[2] >= 8, "whole sectors"
    kept = {e.value for e in plan.edges if e.place == "block" and len(sub.values[e.value].axes) == 3}
    assert kept <= {b.value for b in plan.buffers}


@pytest.mark.parametrize("device", ["t4", "h200"])
def test_split_pairs_take_one_pass_unless_told_otherwise(device: str) -> None:
    target = DEVICES[f"cuda:{device}"]
    for sub, second in ((softmax(2, 1 << 21), 4), (moments(4, 1 << 20), 6)):
        plan, apart = heuristic(sub, target), build(sub, {f"couple.{second}": False}, target)
        assert check(sub, plan, target) == check(sub, apart, target) == ()
        assert [r.value for r in plan.reductions] == [second]
        assert not apart.reductions
        assert plan.barriers == 1 <= apart.barriers
        assert ratio(sub, plan) <= ratio(sub, apart)
        assert ratio(sub, plan) <= 1.55


def test_a_pair_is_combined_for_everybody_where_its_readers_cannot() -> None:
    sub = softmax(2, 1 << 21)
    plan = build(sub, {"combine.1": "one", "combine.4": "one"}, T4)
    assert check(sub, plan, T4) == ()
    assert [s.combine for g in phases(plan) for s in g.stages if s.combine] == [(1, 4)]


def test_one_pass_may_compute_maximum_and_sum() -> None:
    rows = softmax(4096, 768)
    plan = build(rows, {"couple.4": True}, T4)
    assert check(rows, plan, T4) == ()
    assert [(r.value, r.coupled) for r in plan.reductions] == [(4, 1)]
    [group] = phases(plan)
    assert any({1, 4} <= set(s.values) for s in group.stages)
