"""Random legal plans of a subgraph: from heuristic, unfused and searched ones by changes that no knob makes."""

from __future__ import annotations

import random
from collections.abc import Sequence

from stitchtune.graphs.subgraph import Subgraph
from stitchtune.search_space.coupling import all_pairs
from stitchtune.search_space.knobs import Choice, Knob
from stitchtune.search_space.legality import check
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.space import Space
from stitchtune.search_space.stitch import heuristic, unfused
from stitchtune.search_space.target import Target

from tests.differential.mutations import MUTATIONS, Mutation, alias, coupled, merge_kernels

ATTEMPTS = 6


class Illegal(AssertionError):
    """A plan that the search space made is not legal."""


def base(sub: Subgraph, kind: str, rng: random.Random, target: Target) -> Plan:
    """A plan of the search space itself, "near" the heuristic's or anywhere. Raises Illegal."""

    def ask(knob: Knob) -> Choice:
        return knob.default if kind == "near" and rng.random() < 0.8 else rng.choice(knob.choices)

    match kind:
        case "heuristic":
            plan = heuristic(sub, target)
        case "unfused":
            plan = unfused(sub, target)
        case _:
            plan = Space(sub, target).suggest(ask).plan
    refused = check(sub, plan, target)
    if refused:
        raise Illegal(f"the {kind} plan is refused: {refused[0]}")
    return plan


def draw(
    sub: Subgraph, turn: int, target: Target, mutations: Sequence[Mutation] = MUTATIONS
) -> tuple[Plan, tuple[str, ...]]:
    """A legal plan and how it came about. Neighbouring turns take turns at bases and changes."""
    rng = random.Random(turn)
    lead = mutations[turn % len(mutations)]
    if turn % 23 == 0:
        return base(sub, "heuristic", rng, target), ("heuristic",)
    # The values that a change needs are listed by the unfused plan for sure.
    kinds = ("unfused",) if lead in (alias, merge_kernels) else (*["searched"] * 4, *["heuristic"] * 3, "unfused")
    kind = rng.choice(kinds)
    plan = base(sub, kind, rng, target)
    path = [kind]
    changes = [lead, *rng.sample(mutations, rng.randint(1, 4))]
    if any(all_pairs(sub)) and rng.random() < 0.5:
        changes.insert(0, coupled)
    for mutation in changes:
        changed = legal(sub, plan, mutation, rng, target)
        if changed is not None:
            plan = changed
            path.append(mutation.__name__)
    return plan, tuple(path)


def legal(sub: Subgraph, plan: Plan, mutation: Mutation, rng: random.Random, target: Target) -> Plan | None:
    """A change of the plan that is legal; None when none was found."""
    for _ in range(ATTEMPTS):
        changed = mutation(sub, plan, rng)
        if changed != plan and not check(sub, changed, target):
            return changed
    return None
