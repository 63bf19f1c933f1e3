"""Every combination of answers gives a CUDA plan that is legal, or is refused with a reason."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from stitchtune.search_space import codec, size
from stitchtune.search_space.adapt import adapt
from stitchtune.search_space.devices import DEVICES
from stitchtune.search_space.knobs import Choice, Knob
from stitchtune.search_space.legality import check
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.space import Space, build
from stitchtune.search_space.stitch import heuristic, unfused

from tests.random_subgraphs import random_subgraph
from tests.search_space.samples import exponential, layer_norm_backward, outer_difference, softmax

TARGETS = [DEVICES[f"cuda:{name}"] for name in ("t4", "a100", "h200")]
RESOURCES = {"block-memory", "registers", "resident"}
"""Reasons for which a drawn plan may be refused: what a device has too little of."""


@pytest.mark.parametrize("seed", range(0, 240, 8))
def test_every_answer_gives_a_plan(seed: int) -> None:
    rng = random.Random(seed)
    sub = random_subgraph(seed, points=4000 if seed % 16 else 300_000)
    for target in TARGETS:
        for plan in (heuristic(sub, target), unfused(sub, target)):
            assert check(sub, plan, target) == ()
        proposal = Space(sub, target).suggest(lambda knob: rng.choice(knob.choices))
        assert {r.code for r in check(sub, proposal.plan, target)} <= RESOURCES
        assert build(sub, dict(proposal.assignment), target) == proposal.plan
        assert codec.from_json(Plan, codec.to_json(proposal.plan)) == proposal.plan


@pytest.mark.parametrize("make", [softmax, layer_norm_backward, outer_difference])
@pytest.mark.parametrize("shape", [(4096, 128), (64, 30000), (96, 200)])
def test_most_answers_are_legal_and_knobs_keep_their_choices(make: object, shape: tuple[int, int]) -> None:
    assert callable(make)
    sub, target, rng = make(*shape), TARGETS[-1], random.Random(0)
    seen: dict[str, tuple[Choice, ...]] = {}
    codes: Counter[str] = Counter()

    def ask(knob: Knob) -> Choice:
        assert knob.default in knob.choices
        assert seen.setdefault(knob.name, knob.choices) == knob.choices
        return rng.choice(knob.choices)

    for _ in range(40):
        refusals = check(sub, Space(sub, target).suggest(ask).plan, target)
        codes[refusals[0].code if refusals else "legal"] += 1
    assert codes["legal"] >= 36
    assert set(codes) <= RESOURCES | {"legal"}


@pytest.mark.parametrize("make", [softmax, layer_norm_backward])
def test_a_plan_fits_other_sizes_or_says_what_it_lacks(make: object) -> None:
    assert callable(make)
    target = TARGETS[-1]
    plan = heuristic(make(4096, 768), target)
    for shape in ((4096, 768), (8, 768), (4096, 16), (100_000, 1000), (4096, 20_000)):
        sub = make(*shape)
        assert {r.code for r in check(sub, adapt(plan, sub), target)} <= RESOURCES
    assert check(make(5000, 768), adapt(plan, make(5000, 768)), target) == ()


def test_a_small_space_is_counted() -> None:
    space = Space(exponential(48, 8), TARGETS[-1])
    exact = size.measure(space, lambda plan: plan, limit=2000)
    assert exact.exact
    assert exact.count > 20
