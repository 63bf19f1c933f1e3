"""Who is searched next, and when a search has done enough.

Subgraphs are the arms of a bandit. An arm's next round is worth the seconds it may take off one run of the graph:
occurrences x best time x the share that a round is expected to win, per second that the round costs. That share starts
at the distance to the bandwidth limit and halves with every round that wins nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

NEAR_LIMIT = 1.05
"""A plan this close to the bandwidth limit is not worth improving."""


@dataclass(frozen=True)
class Arm:
    """How far the search of one subgraph has come.

    best      seconds of the fastest right plan so far; infinite before one was measured
    limit     seconds that no plan can beat by much
    won       share of the time that the latest rounds took off, newest last
    trials    plans measured, failed ones included
    stale     measured plans since the last improvement
    seconds   mean seconds that one round cost; 0 before the first
    """

    occurrences: int
    best: float
    limit: float
    won: tuple[float, ...] = ()
    trials: int = 0
    stale: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Rules:
    """When a search ends: measured plans in all, measured plans without improvement."""

    trials: int
    patience: int


def stop_reason(arm: Arm, rules: Rules) -> str | None:
    """Why the search of `arm` is finished: "limit", "trials", "patience"; None while it is not."""
    if arm.best <= arm.limit * NEAR_LIMIT:
        return "limit"
    if arm.trials >= rules.trials:
        return "trials"
    return "patience" if arm.stale >= rules.patience else None


def expected_gain(arm: Arm) -> float:
    """Seconds of one graph run that a second spent on `arm` is expected to save."""
    if math.isinf(arm.best):
        return math.inf
    room = max(0.0, 1 - arm.limit / arm.best)
    share = room
    for won in arm.won:
        share = min(room, max(won, share / 2))
    return arm.occurrences * arm.best * share / max(arm.seconds, 1e-3)


def choose(arms: Sequence[Arm | None]) -> int | None:
    """The arm whose next round promises most (None stands for a finished one); None when all are finished."""
    open_arms = [(expected_gain(arm), -i) for i, arm in enumerate(arms) if arm is not None]
    return -max(open_arms)[1] if open_arms else None
