"""How hard and how long to tune."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..graphs.rounding import Precision
from .budget import Rules
from .protocol import Pace

Effort = Literal["quick", "normal", "max"]


@dataclass(frozen=True)
class Intensity:
    """What an effort means: when a search ends, how many plans a round measures, proposals ranked for each."""

    rules: Rules
    batch: int
    pool: int
    pace: Pace
    final: Pace


EFFORTS: dict[Effort, Intensity] = {
    "quick": Intensity(Rules(12, 8), 4, 8, Pace(seconds=0.03, cold=0), Pace(seconds=0.08, rounds=8, cold=3)),
    "normal": Intensity(Rules(48, 20), 4, 16, Pace(seconds=0.05, cold=0), Pace(seconds=0.15, rounds=10, cold=5)),
    "max": Intensity(Rules(400, 100), 8, 40, Pace(seconds=0.1, cold=0), Pace(seconds=0.4, rounds=20, cold=9)),
}


@dataclass(frozen=True)
class Options:
    """How to tune.

    budget     seconds for everything; the first baselines are measured even when it is too small
    trials     plans measured per distinct subgraph at most; None: what the effort says
    retune     forget earlier measurements of the graph's keys; more: go on with searches that are finished
    synthetic  the inputs were made up
    present    the device is here; else plans are predicted, and nothing is run
    """

    cache: Path
    budget: float = 60.0
    trials: int | None = None
    jobs: int = 2
    seed: int = 0
    effort: Effort = "normal"
    precision: Precision = "strict"
    retune: bool = False
    more: bool = False
    synthetic: bool = True
    present: bool = True
