"""How many different programs the search space of a subgraph holds: counted, or estimated with an interval.

Plans are proposals that are legal; two plans that lower to one loop program are one. A space of few leaves is walked
through. A larger one is sampled. From below it is bounded by Chao's estimator of the number of species (Chao 1984),
from above by Knuth's estimator of the size of a search tree (Knuth 1975), in which a knob's branches count only as far
as they give different programs with all other answers kept; both at 95 %.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .graphs.subgraph import Subgraph
from .kernels.loops import LoopKernel
from .kernels.lower import lower
from .search_space.knobs import Choice, Knob, replay
from .search_space.legality import check
from .search_space.space import Proposal, Space
from .search_space.target import Target

SAMPLES = 400
"""Proposals looked at before a space is estimated instead of counted, and again to estimate it."""
LEAVES = 12
"""Leaves whose knobs are varied one by one."""


@dataclass(frozen=True)
class SpaceSize:
    """Between `low` and `high` different programs; `exact` when they were counted.

    proposals  how many were built for this figure
    refused    how many of those were not legal, by code of their first reason
    """

    low: int
    high: int
    exact: bool
    proposals: int
    refused: tuple[tuple[str, int], ...] = ()


class Tally:
    """The programs seen so far."""

    def __init__(self, sub: Subgraph, target: Target, precision: str) -> None:
        self.sub, self.target, self.precision = sub, target, precision
        self.seen: Counter[tuple[LoopKernel, ...]] = Counter()
        self.refused: Counter[str] = Counter()
        self.proposals = 0

    def add(self, proposal: Proposal) -> bool:
        """Counts one proposal; False when it is not legal."""
        program = self.program(proposal)
        if program is not None:
            self.seen[program] += 1
        return program is not None

    def program(self, proposal: Proposal) -> tuple[LoopKernel, ...] | None:
        """What a proposal lowers to; None when it is not legal."""
        self.proposals += 1
        reasons = check(self.sub, proposal.plan, self.target)
        if reasons:
            self.refused[reasons[0].code] += 1
            return None
        return lower(self.sub, proposal.plan, self.target, self.precision)

    def size(self, low: int, high: int, exact: bool) -> SpaceSize:
        return SpaceSize(low, high, exact, self.proposals, tuple(self.refused.most_common()))


def measure_space(sub: Subgraph, target: Target, precision: str = "strict", seconds: float = 2.0) -> SpaceSize:
    """The size of the space of `sub`, after at most SAMPLES proposals in each way and about `seconds`."""
    space, until = Space(sub, target), time.monotonic() + seconds
    counted = _count(space, Tally(sub, target, precision), until - seconds / 2)
    return counted or _estimate(space, Tally(sub, target, precision), until)


def _count(space: Space, tally: Tally, until: float) -> SpaceSize | None:
    """Walks through every leaf of the tree of answers; None when that would take too long."""
    answers: list[int] | None = []
    while answers is not None:
        if tally.proposals >= SAMPLES or time.monotonic() > until:
            return None
        walk = _Walk(answers)
        tally.add(space.suggest(walk))
        answers = walk.next()
    return tally.size(len(tally.seen), len(tally.seen), True)


class _Walk:
    """Answers knobs by the given positions, then by the first choice, and finds the next leaf in depth-first order."""

    def __init__(self, given: Sequence[int]) -> None:
        self._given = given
        self._asked: list[tuple[int, int]] = []

    def __call__(self, knob: Knob) -> Choice:
        depth = len(self._asked)
        position = self._given[depth] if depth < len(self._given) else 0
        self._asked.append((position, len(knob.choices)))
        return knob.choices[position]

    def next(self) -> list[int] | None:
        """The positions of the next leaf; None after the last."""
        for depth in reversed(range(len(self._asked))):
            position, choices = self._asked[depth]
            if position + 1 < choices:
                return [p for p, _ in self._asked[:depth]] + [position + 1]
        return None


def _estimate(space: Space, tally: Tally, until: float) -> SpaceSize:
    rng = random.Random(0)
    started = time.monotonic()
    proposals: list[Proposal] = []
    while len(proposals) < SAMPLES and (time.monotonic() < (started + until) / 2 or len(proposals) < 20):
        proposal = space.suggest(lambda knob: rng.choice(knob.choices))
        if tally.add(proposal):
            proposals.append(proposal)
        elif tally.proposals > 20 * SAMPLES:
            break
    seen = dict(tally.seen)
    sizes: list[float] = []
    for proposal in proposals[:LEAVES]:
        if sizes[2:] and time.monotonic() > until:
            break
        sizes.append(_distinct_leaves(space, tally, proposal))
    return tally.size(_chao(seen), max(_upper_mean(sizes), len(tally.seen)), False)


def _distinct_leaves(space: Space, tally: Tally, proposal: Proposal) -> float:
    """Knuth's estimate from one leaf: the product, over its knobs, of the programs that the knob alone gives."""
    answers, product = dict(proposal.assignment), 1
    for knob in proposal.knobs:
        programs = set()
        for choice in knob.choices:
            variant = space.suggest(replay({**answers, knob.name: choice}))
            program = tally.program(variant)
            if program is not None:
                programs.add(program)
        product *= max(1, len(programs))
    return float(product)


def _chao(seen: Mapping[tuple[LoopKernel, ...], int]) -> int:
    """Lower end of the 95 % interval of Chao's estimator, from what was seen once and twice."""
    once = sum(1 for n in seen.values() if n == 1)
    twice = sum(1 for n in seen.values() if n == 2)
    unseen = once * (once - 1) / (2 * (twice + 1))
    if unseen <= 0:
        return len(seen)
    q = once / max(twice, 1)
    variance = max(twice, 1) * (q**4 / 4 + q**3 + q**2 / 2)
    spread = math.exp(1.96 * math.sqrt(math.log(1 + variance / unseen**2)))
    return len(seen) + math.floor(unseen / spread)


def _upper_mean(values: Sequence[float]) -> int:
    """Upper end of the 95 % interval of the mean."""
    mean = math.fsum(values) / len(values)
    variance = math.fsum((v - mean) ** 2 for v in values) / max(1, len(values) - 1)
    return math.ceil(mean + 1.96 * math.sqrt(variance / len(values)))
