"""Stitching: every combination of answers gives a legal plan, and the heuristic's plans are those one would draw."""

from __future__ import annotations

import random

import pytest
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.search_space import codec, size
from stitchtune.search_space.adapt import adapt
from stitchtune.search_space.knobs import Choice, Knob
from stitchtune.search_space.legality import check
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.space import Space, build
from stitchtune.search_space.stitch import heuristic, unfused

from tests.random_subgraphs import random_subgraph
from tests.search_space.samples import TARGET, exponential, layer_norm_backward, outer_difference, softmax


def groups(plan: Plan) -> list[tuple[int, ...]]:
    """The parallel axes of every group in order."""
    return [tuple(a for a, _ in g.parallel) for k in plan.kernels for p in k.phases for g in p.groups]


def test_softmax_is_one_phase_over_rows_with_its_exponentials_kept() -> None:
    plan = heuristic(softmax(12288, 128), TARGET)
    assert groups(plan) == [(0,)]
    assert plan.barriers == 0
    assert plan.place(2, 3) == "inline"
    assert plan.place(3, 4) == "register"
    assert plan.place(3, 5) == "block"


def test_few_long_rows_are_split_over_tasks() -> None:
    plan = heuristic(softmax(2, 1 << 21), TARGET)
    assert plan.barriers == 2
    assert groups(plan)[0] == (1,), "the reduced axis is parallel"
    assert plan.kernels[0].phases[1].groups[0].stages[0].combine == (1,)


def test_column_reductions_ride_along_with_the_rows() -> None:
    sub = layer_norm_backward(4096, 768)
    plan = heuristic(sub, TARGET)
    first, second = plan.kernels[0].phases
    assert [g.parallel[0][0] for g in first.groups] == [0]
    assert {16, 17} <= set(first.groups[0].stages[0].values), "partial column sums in the pass that sums rows"
    assert second.groups[0].stages[0].combine == (16, 17)


def test_a_mean_along_the_other_axis_needs_a_barrier() -> None:
    assert heuristic(outer_difference(512, 512), TARGET).barriers >= 1


@pytest.mark.parametrize("make", [softmax, layer_norm_backward, outer_difference])
@pytest.mark.parametrize("shape", [(1, 1), (7, 13), (1031, 1031), (64, 30000), (750000, 32), (1, 4097), (0, 5), (5, 0)])
def test_heuristic_and_unfused_are_legal_at_irregular_shapes(make: object, shape: tuple[int, int]) -> None:
    assert callable(make)
    sub = make(*shape)
    for plan in (heuristic(sub, TARGET), unfused(sub, TARGET)):
        assert check(sub, plan, TARGET) == ()


def test_unfused_is_one_kernel_per_computed_value() -> None:
    sub = layer_norm_backward(64, 64)
    plan = unfused(sub, TARGET)
    assert len(plan.kernels) == len(sub.computed)
    assert {e.place for e in plan.edges} == {"global"}


@pytest.mark.parametrize("seed", range(300))
def test_every_answer_gives_a_legal_plan(seed: int) -> None:
    sub = random_subgraph(seed)
    rng = random.Random(seed)
    for plan in (heuristic(sub, TARGET), unfused(sub, TARGET)):
        assert check(sub, plan, TARGET) == ()
    for _ in range(3):
        proposal = Space(sub, TARGET).suggest(lambda knob: rng.choice(knob.choices))
        assert check(sub, proposal.plan, TARGET) == ()
        assert build(sub, dict(proposal.assignment), TARGET) == proposal.plan
        assert codec.from_json(Plan, codec.to_json(proposal.plan)) == proposal.plan


@pytest.mark.parametrize("sub", [softmax(4096, 128), layer_norm_backward(256, 384), outer_difference(96, 200)])
def test_a_knob_always_comes_with_the_same_choices(sub: Subgraph) -> None:
    rng = random.Random(0)
    seen: dict[str, tuple[Choice, ...]] = {}

    def ask(knob: Knob) -> Choice:
        assert knob.default in knob.choices
        assert seen.setdefault(knob.name, knob.choices) == knob.choices
        return rng.choice(knob.choices)

    for _ in range(200):
        Space(sub, TARGET).suggest(ask)


def test_a_plan_fits_other_sizes_after_adapting() -> None:
    plan = heuristic(layer_norm_backward(4096, 768), TARGET)
    for shape in ((8, 768), (4096, 16), (100000, 1000)):
        sub = layer_norm_backward(*shape)
        assert check(sub, adapt(plan, sub), TARGET) == ()


def test_a_small_space_is_counted_and_the_estimate_is_near() -> None:
    space = Space(exponential(300, 64), TARGET)
    exact = size.measure(space, lambda plan: plan, limit=5000)
    assert exact.exact
    guess = size.estimate(space, lambda plan: plan, samples=200)
    assert guess.low / 3 < exact.count < guess.high * 3
