"""How large the space of a subgraph is: counted exactly where it is small, else estimated with an interval.

What counts is distinct loop programs of legal plans, never a product of knob sizes. The estimate is Knuth's
(Estimating the efficiency of backtrack programs, 1975): a random descent of the decision tree weighs its leaf by the
product of the choices met, divided by the number of leaves that give the same program. That number is taken as the
product, over the knobs, of the choices that leave the program as it is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from .knobs import Choice, Knob
from .plan import Plan
from .space import Proposal, Space, build

Identify = Callable[[Plan], Hashable]
"""Gives what makes two plans the same: their loop program (or the plan itself); None for an illegal plan."""


@dataclass(frozen=True)
class Size:
    """Distinct programs: the count, or an estimate and its 90 % bootstrap interval."""

    count: float
    low: float
    high: float
    exact: bool


def measure(space: Space, identify: Identify, *, limit: int = 2000, samples: int = 32, seed: int = 0) -> Size:
    """Counts the space when it has at most `limit` leaves, else estimates it from `samples` random descents."""
    seen: set[Hashable] = set()
    for leaves, proposal in enumerate(every_leaf(space)):
        if leaves >= limit:
            return estimate(space, identify, samples=samples, seed=seed)
        seen.add(identify(proposal.plan))
    seen.discard(None)
    return Size(len(seen), len(seen), len(seen), exact=True)


def every_leaf(space: Space) -> Iterator[Proposal]:
    """Every leaf of the decision tree once, depth first; many leaves may give one plan."""
    prefix: list[int] = []
    while True:
        widths: list[int] = []

        def ask(knob: Knob, widths: list[int] = widths) -> Choice:
            position = len(widths)
            if position == len(prefix):
                prefix.append(0)
            widths.append(len(knob.choices))
            return knob.choices[prefix[position]]

        yield space.suggest(ask)
        while prefix and prefix[-1] == widths[len(prefix) - 1] - 1:
            prefix.pop()
        if not prefix:
            return
        prefix[-1] += 1


def estimate(space: Space, identify: Identify, *, samples: int, seed: int = 0) -> Size:
    """Knuth's estimate over `samples` descents; the same for the same seed."""
    rng = random.Random(seed)
    weights = [_weight(space, identify, rng) for _ in range(samples)]
    means = sorted(sum(rng.choices(weights, k=samples)) / samples for _ in range(400))
    return Size(sum(weights) / samples, means[20], means[379], exact=False)


def _weight(space: Space, identify: Identify, rng: random.Random) -> float:
    weight = 1.0

    def ask(knob: Knob) -> Choice:
        nonlocal weight
        weight *= len(knob.choices)
        return rng.choice(knob.choices)

    proposal = space.suggest(ask)
    program = identify(proposal.plan)
    if program is None:
        return 0.0
    answers = dict(proposal.assignment)
    for knob in proposal.knobs:
        same = 1
        for choice in knob.choices:
            if choice == answers[knob.name]:
                continue
            other = build(space.sub, {**answers, knob.name: choice}, space.target)
            same += other == proposal.plan or identify(other) == program
        weight /= same
    return weight
