"""What the tuning loop tells: events while it runs, and the result at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..results.records import PlanKey
from ..search_space.plan import Plan
from .residual import Quality

Doing = Literal["device", "inputs", "found", "compiling", "measuring", "measured", "confirming", "finished", "stopped"]
"""device, inputs: before the search; found: nothing to do for this subgraph; measured: a trial ended."""


@dataclass(frozen=True)
class Standing:
    """How far the tuning of one distinct subgraph has come. Times are seconds of one run, None while unknown.

    occurrences  how often the graph holds it
    trials       plans measured for it, in this run and before; failures: their number by status
    limit        what the device's bandwidth allows at best
    predicted    the times are the cost model's: nothing was run
    stop         why its search ended: "found" (finished by an earlier run), "limit", "trials", "patience", "exhausted"
                 (no new plan to propose), "budget", "interrupted", "no inputs"; "" while it goes on
    """

    key: PlanKey
    label: str
    occurrences: int
    trials: int
    unfused: float | None
    heuristic: float | None
    best: float | None
    limit: float
    failures: tuple[tuple[str, int], ...] = ()
    stop: str = ""
    predicted: bool = False

    @property
    def speedup(self) -> float | None:
        """Unfused over best; None for times that nobody measured."""
        return self.unfused / self.best if self.unfused and self.best and not self.predicted else None


@dataclass(frozen=True)
class Event:
    """Something happened; `standing` is that of subgraph `index` of `total` where it is about one (else index -1).

    left     seconds of the budget that are left
    status   of the plan measured last
    """

    doing: Doing
    index: int
    total: int
    left: float
    standing: Standing | None = None
    status: str = ""
    message: str = ""


@dataclass(frozen=True)
class Part:
    """What tuning one distinct subgraph came to. `plan` is what lookups will use, None where nothing was right."""

    standing: Standing
    plan: Plan | None
    won: bool
    """The plan beats the unfused one beyond the noise."""


@dataclass(frozen=True)
class TuneResult:
    """What a tuning run came to.

    measured   this run's plans: 0 when everything had been found before, and where plans are predicted
    predicted  this run's plans where the device is not here; note: what to know of them, "" when measured
    """

    run: str
    parts: tuple[Part, ...]
    measured: int
    seconds: float
    interrupted: bool
    synthetic: bool
    quality: Quality
    """How well the corrected cost model ranked the plans of this graph, each predicted from the others."""
    predicted: int = 0
    note: str = ""
