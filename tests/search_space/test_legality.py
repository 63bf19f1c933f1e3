"""Legality: each way of breaking a plan is refused with its code, and nothing from outside can crash the check."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stitchtune.search_space.legality import check
from stitchtune.search_space.plan import Edge, Group, Kernel, Phase, Plan, Reduction, Stage
from stitchtune.search_space.stitch import heuristic

from tests.search_space.samples import TARGET, layer_norm_backward, outer_difference, softmax

SOFTMAX = softmax(64, 128)
PLAN = heuristic(SOFTMAX, TARGET)


def with_group(plan: Plan, **changes: object) -> Plan:
    """The plan with fields of its first group replaced."""
    kernel = plan.kernels[0]
    phase = kernel.phases[0]
    group = replace(phase.groups[0], **changes)  # type: ignore[arg-type]
    first = Phase((group, *phase.groups[1:]))
    return replace(plan, kernels=(replace(kernel, phases=(first, *kernel.phases[1:])), *plan.kernels[1:]))


def with_place(plan: Plan, value: int, consumer: int, place: str) -> Plan:
    changed = [replace(e, place=place) if (e.value, e.consumer) == (value, consumer) else e for e in plan.edges]
    return replace(plan, edges=tuple(changed))


def codes(plan: Plan, sub: object = SOFTMAX) -> set[str]:
    return {refusal.code for refusal in check(sub, plan, TARGET)}  # type: ignore[arg-type]


STAGES = PLAN.kernels[0].phases[0].groups[0].stages


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        (replace(PLAN, kernels=()), "missing"),
        (replace(PLAN, kernels=(Kernel(()),)), "empty"),
        (with_group(PLAN, parallel=((0, 0),)), "tile"),
        (with_group(PLAN, parallel=((0, 65),)), "tile"),
        (with_group(PLAN, parallel=((99, 1),)), "parallel-axes"),
        (with_group(PLAN, threads=32), "threads"),
        (with_group(PLAN, tasks_per_block=0), "tasks-per-block"),
        (with_group(PLAN, stages=STAGES[:-1]), "missing"),
        (with_group(PLAN, stages=(*STAGES, STAGES[0])), "listed-twice"),
        (with_group(PLAN, stages=(replace(STAGES[0], order=(0,)), *STAGES[1:])), "loop-order"),
        (with_group(PLAN, stages=(replace(STAGES[0], vector=0), *STAGES[1:])), "vector"),
        (with_group(PLAN, stages=(replace(STAGES[0], values=(0,)), *STAGES[1:])), "not-computed"),
        (with_group(PLAN, stages=(replace(STAGES[0], values=(1 << 40,)), *STAGES[1:])), "not-computed"),
        (with_group(PLAN, stages=(replace(STAGES[0], unroll=((0, 1 << 30),)), *STAGES[1:])), "unroll"),
        (with_group(PLAN, stages=tuple(reversed(STAGES))), "block-stage"),
        (replace(PLAN, edges=PLAN.edges[:-1]), "edge"),
        (replace(PLAN, edges=(*PLAN.edges, Edge(1, 5, "block"))), "edge"),
        (with_place(PLAN, 1, 2, "inline"), "inline-reduction"),
        (with_place(PLAN, 1, 2, "register"), "register-stage"),
        (with_place(PLAN, 3, 4, "shuffle"), "shuffle"),
        (replace(PLAN, reductions=(Reduction(3),)), "reduction-form"),
        (replace(PLAN, reductions=(Reduction(1, accumulators=1000),)), "reduction-form"),
        (replace(PLAN, stream=(4,)), "stream"),
        (replace(PLAN, dynamic=(-1,)), "dynamic"),
    ],
)
def test_a_broken_plan_is_refused_with_its_code(plan: Plan, code: str) -> None:
    assert check(SOFTMAX, PLAN, TARGET) == ()
    assert code in codes(plan)


def test_a_split_reduction_must_be_combined_after_a_barrier() -> None:
    sub = layer_norm_backward(4096, 768)
    plan = heuristic(sub, TARGET)
    kernel = plan.kernels[0]
    without = replace(plan, kernels=(replace(kernel, phases=kernel.phases[:1]),))
    assert "combine" in codes(without, sub)
    early = replace(plan, kernels=(replace(kernel, phases=kernel.phases[::-1]),))
    assert "combine" in codes(early, sub)


def test_another_tasks_part_is_out_of_reach() -> None:
    """Row tiles cannot read a block-kept column sum, nor one stored in the same phase."""
    sub = outer_difference(64, 64)
    rows = ((0, 8),)
    stages = tuple(Stage((v,), (0, 1), vector=1, width=16) for v in (1, 2, 3, 4, 5))
    edges = (
        Edge(1, 2, "block"),
        Edge(1, 3, "block"),
        Edge(2, 3, "block"),
        Edge(3, 4, "block"),
        Edge(3, 5, "block"),
        Edge(4, 5, "block"),
    )
    plan = Plan((Kernel((Phase((Group(rows, stages),)),)),), edges)
    assert "combine" in codes(plan, sub)
    columns = with_group(plan, parallel=((1, 8),))
    assert "combine" in codes(columns, sub), "the row sum over columns is split now"


def test_block_memory_is_bounded() -> None:
    sub = softmax(4096, 4096)
    wide = with_group(heuristic(softmax(4096, 4096), TARGET), parallel=((0, 4096),))
    assert "block-memory" in codes(wide, sub)
