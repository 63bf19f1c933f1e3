"""What the tasks of one tuning run share, and how their attempts become rows of the database."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from ..graphs.rounding import Precision
from ..results.database import Database
from ..results.records import Fact, Measurement, PlanKey
from ..search_space.target import DeviceModel, Target
from .protocol import Outcome, Pace
from .strategy import Candidate


@dataclass(frozen=True)
class Workshop:
    """What the tasks of a run share. `compiles` False: the cost model alone ranks plans, nothing is built."""

    db: Database
    model: DeviceModel
    target: Target
    cache: Path
    precision: Precision
    jobs: int
    seed: int
    run: str
    started: float
    synthetic: bool
    pace: Pace
    final: Pace
    compiles: bool = True

    def book(
        self,
        key: PlanKey,
        candidate: Candidate,
        outcome: Outcome,
        trial: int,
        facts: tuple[tuple[str, Fact], ...] = (),
    ) -> int:
        """Writes one attempt to the database; the number of its row."""
        timing = outcome.timing
        if outcome.excluded:
            facts = (("excluded", outcome.excluded), *facts)
        if timing is not None:
            facts = (*facts, *timing.facts)
        return self.db.record(
            Measurement(
                key=key,
                plan=candidate.plan,
                status=outcome.status,
                kind=candidate.kind,
                seconds=timing.seconds if timing else None,
                spread=timing.spread if timing else None,
                cold=timing.cold if timing else None,
                cold_spread=timing.cold_spread if timing else None,
                samples=timing.samples if timing else 0,
                traffic=int(sum(p.far_bytes for p in candidate.cost.phases)),
                predicted=candidate.predicted,
                assignment=candidate.assignment,
                trial=trial,
                seed=self.seed,
                run=self.run,
                elapsed=time.monotonic() - self.started,
                synthetic=self.synthetic,
                facts=facts,
                message=outcome.message,
                created=time.time(),
            )
        )
