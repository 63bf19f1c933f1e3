"""The tuning of one distinct subgraph: baselines, rounds of proposals, and the confirmation of the winner.

Times are compared within a job only: a candidate is timed in turns with the incumbent and with an *anchor*, the first
plan that was right, and its time is its ratio to the anchor, round by round, times the anchor's. So a slow minute of
the machine does not decide, errors do not add up from one incumbent to the next, and an incumbent that was only lucky
loses its luck in the jobs that follow. Every attempt is in the database before the next one.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..graphs.subgraph import Subgraph
from ..kernels.build import BuiltPlan, build_plans
from ..kernels.compile import BuildFailure
from ..kernels.cuda.built import BuiltCuda
from ..results.records import Fact, PlanKey
from ..results.rows import Stored
from ..search_space.plan import Plan
from .budget import Arm
from .cost import limit
from .events import Doing, Standing
from .history import FINISHED, choices, subgraph_name
from .measure import Measurer
from .protocol import Job, Outcome, Pace, Subject, Timing
from .residual import Observation, Residual
from .strategy import Candidate, Search
from .workshop import Workshop

Tell = Callable[[Doing, str, str], None]
"""Told what the task is doing, with the status and message of the plan measured last."""

FINALISTS = 3
"""Plans of the search that are measured again at the end."""

FAR = 3.0
"""An anchor this many times slower than the incumbent wastes time; the incumbent takes its place."""

SIGNIFICANT = 2.0
"""Standard errors that a winner must be faster by."""

PREDICTED = 8
"""Plans predicted elsewhere that are measured before any new proposal."""

REFUSALS = frozenset({"spill", "stack", "occupancy", "shared-memory", "parameters"})
"""Stages at which a build says that a legal plan needs more than a device has: expected, and no fault."""


@dataclass(frozen=True)
class Timed:
    """A plan that was right, and its times on the anchor's scale, one per job; if disturbed they are in doubt."""

    candidate: Candidate
    samples: tuple[float, ...]
    disturbed: bool = False

    @property
    def seconds(self) -> float:
        return statistics.geometric_mean(self.samples)


class Task:
    """One distinct subgraph. `keys` are those of its occurrences that differ in slots only; the first is measured."""

    def __init__(self, sub: Subgraph, keys: Sequence[PlanKey], occurrences: int, label: str, shop: Workshop) -> None:
        self.sub = sub
        self.key = keys[0]
        self.keys = tuple(keys)
        self.occurrences = occurrences
        self.label = label
        self.search = Search(
            sub, subgraph_name(self.key), shop.target, shop.model, seed=shop.seed, precision=shop.precision
        )
        self.observations: list[tuple[Observation, float]] = []
        self.stop = ""
        self.won = False
        self.winner: Plan | None = None
        self.trials = 0
        self._shop = shop
        self._limit = limit(sub, shop.model)
        self._timed: dict[str, Timed] = {}
        self._built: dict[str, BuiltPlan | BuiltCuda] = {}
        self._baselines: dict[str, str] = {}
        self._anchor = ""
        self._failures: Counter[str] = Counter()
        self._gains: list[float] = []
        self._stale = 0
        self._rounds: list[float] = []
        self._measuring: list[float] = []
        self._best = math.inf
        self._bench: tuple[Measurer, Subject] | None = None
        self._foreseen: list[Stored] = []

    # --- what others ask

    @property
    def started(self) -> bool:
        """True once the baselines were tried."""
        return bool(self._baselines)

    @property
    def confirming(self) -> float:
        """Seconds that the confirmation of this task is expected to take; 0 when nothing tells."""
        finalists = min(len(self._timed), FINALISTS + 2)
        return finalists * statistics.fmean(self._measuring) if self._measuring else 0.0

    def arm(self) -> Arm:
        """How the budget sees this task."""
        seconds = statistics.fmean(self._rounds) if self._rounds else 0.0
        best = self._best if self.started else math.inf
        return Arm(self.occurrences, best, self._limit, tuple(self._gains[-6:]), self.trials, self._stale, seconds)

    def standing(self) -> Standing:
        """How far this task is."""
        return Standing(
            self.key,
            self.label,
            self.occurrences,
            self.trials,
            self._seconds_of("unfused"),
            self._seconds_of("heuristic"),
            None if math.isinf(self._best) else self._best,
            self._limit,
            tuple(sorted(self._failures.items())),
            self.stop,
        )

    def _seconds_of(self, kind: str) -> float | None:
        timed = self._timed.get(self._baselines.get(kind, ""))
        return timed.seconds if timed else None

    # --- earlier runs

    def resume(self, rows: Sequence[Stored], foreseen: Sequence[Stored] = ()) -> None:
        """Replays what the database knows of this key, as if it had been measured now.

        foreseen  predicted plans, the best first: the first of them are measured before others are proposed
        """
        self._foreseen = list(foreseen)
        for row in rows:
            one = row.measurement
            if one.plan is None or one.origin or one.status == "predicted":
                continue
            seconds = one.seconds if one.status in ("ok", "cut-off") else None
            candidate = self.search.replay(one.plan, choices(one), seconds)
            if candidate is None:
                continue
            if candidate.program not in self._timed or seconds is not None:
                self.trials += candidate.program not in self._timed
                if one.kind in ("unfused", "heuristic"):
                    candidate = replace(candidate, kind=one.kind)
                    self._baselines[one.kind] = candidate.program
                self._learn(candidate, seconds, one.status)
        self._stale = 0  # patience is for this run's plans

    # --- measuring

    def open(self, measurer: Measurer, subject: Subject) -> None:
        """Says where plans are measured, and on which inputs; before the first of what follows."""
        measurer.load(subject)
        self._bench = measurer, subject

    def baseline(self, tell: Tell) -> None:
        """Trial 0, the unfused plan, and trial 1, the heuristic one."""
        self._try_all(self.search.baselines(), tell)
        # What is equal to the unfused plan, or failed, still counts as tried.
        self._baselines.setdefault("unfused", "")
        if self._baselines.get("heuristic") is None:
            self._baselines["heuristic"] = self._baselines["unfused"]

    def round(self, residual: Residual, count: int, pool: int, tell: Tell) -> None:
        """Proposes, builds and tries at most `count` plans."""
        begin = time.monotonic()
        before = self._best
        tell("compiling", "", "")
        proposed = self._from_elsewhere(count) or self.search.propose(count, residual, pool)
        for candidate, message in self.search.unlowered:
            self._record(candidate, Outcome("compile-failed", message))
        self.search.unlowered.clear()
        if not proposed:
            self.stop = "exhausted"
            return
        self._try_all(proposed, tell)
        self._gains.append(0.0 if math.isinf(before) else 1 - self._best / before)
        self._rounds.append(time.monotonic() - begin)

    def _from_elsewhere(self, count: int) -> list[Candidate]:
        """The next of the plans that another run predicted."""
        found: list[Candidate] = []
        while self._foreseen and len(found) < count:
            one = self._foreseen.pop(0).measurement
            candidate = self.search.recall(one.plan, choices(one)) if one.plan is not None else None
            if candidate is not None:
                found.append(candidate)
        return found

    def _try_all(self, candidates: Sequence[Candidate], tell: Tell) -> None:
        """Builds all, with nothing else running, then measures one after the other against anchor and incumbent."""
        assert self._bench is not None, "open comes first"
        measurer, _ = self._bench
        tell("compiling", "", "")
        lacking = [c for c in self._rivals() if c.program not in self._built]
        failed = self._build([*candidates, *lacking])
        for candidate in candidates:
            if candidate.kind != "search":
                self._baselines[candidate.kind] = candidate.program
            if candidate.program in failed:
                self._finish(candidate, failed[candidate.program], None, tell)
                continue
            tell("measuring", "", "")
            rivals = [c for c in self._rivals() if c.program in self._built]
            built = [self._built[c.program] for c in rivals]
            begin = time.monotonic()
            reply = measurer.measure(self._built[candidate.program], built, self._pace(self._shop.pace))
            if reply.candidates[0].status == "ok":
                self._measuring.append(time.monotonic() - begin)
            anchor = self._compare(rivals, reply.rivals)
            self._finish(candidate, reply.candidates[0], anchor, tell)
        for program in self._built.keys() - self._worth_keeping():
            del self._built[program]

    def _compare(self, rivals: Sequence[Candidate], timings: Sequence[Timing | None]) -> tuple[Timing, float] | None:
        """The anchor's timing and scale; books what the job says about the incumbent."""
        if not rivals or timings[0] is None or rivals[0].program != self._anchor:
            return None
        anchor, scale = timings[0], self._timed[self._anchor].seconds
        for rival, timing in zip(rivals[1:], timings[1:], strict=True):
            if timing is not None and len(timing.rounds) > 1:
                known = self._timed[rival.program]
                again = ratio_of(timing, anchor)[0] * scale
                self._timed[rival.program] = replace(known, samples=(*known.samples, again))
        return anchor, scale

    def _rivals(self) -> list[Candidate]:
        """The anchor, then the incumbent where it is another plan."""
        ranked = self._ranked()
        if not ranked:
            return []
        incumbent = ranked[0]
        anchor = self._timed.get(self._anchor)
        if anchor is None or anchor.seconds > FAR * incumbent.seconds:
            self._anchor, anchor = incumbent.candidate.program, incumbent
            self._timed[self._anchor] = replace(incumbent, samples=(incumbent.seconds,))
        return list(dict.fromkeys((anchor.candidate, incumbent.candidate)))

    def _build(self, candidates: Sequence[Candidate]) -> dict[str, Outcome]:
        """Builds what it can into `_built`; how the others failed, by program."""
        shop = self._shop
        items = [(self.sub, c.plan) for c in candidates]
        made = build_plans(items, shop.target, precision=shop.precision, cache=shop.cache, jobs=shop.jobs)
        failed: dict[str, Outcome] = {}
        for candidate, one in zip(candidates, made, strict=True):
            if isinstance(one, BuildFailure):
                failed[candidate.program] = unbuilt(one)
            else:
                self._built[candidate.program] = one
        return failed

    def _finish(self, candidate: Candidate, outcome: Outcome, against: tuple[Timing, float] | None, tell: Tell) -> None:
        """Books one attempt: in the database, in the study, among the residual's lessons."""
        self.trials += 1
        ratio = None
        seconds = statistics.median(outcome.timing.rounds) if outcome.timing else None
        if outcome.timing is not None and against is not None:
            ratio = ratio_of(outcome.timing, against[0])[0]
            seconds = ratio * against[1]
        self._record(candidate, outcome, ratio)
        self._learn(candidate, seconds, outcome.status, outcome.timing is not None and outcome.timing.disturbed)
        self.search.tell(candidate, seconds)
        tell("measured", outcome.status, outcome.message)

    def _learn(self, candidate: Candidate, seconds: float | None, status: str, disturbed: bool = False) -> None:
        """Keeps the time of a plan; a new best one becomes the incumbent."""
        if seconds is None:
            self._failures[status] += 1
            self._stale += 1
            return
        self.observations.append((self.search.observe(candidate, seconds), candidate.cost.seconds))
        if status != "ok":
            self._stale += 1
            return
        self._stale = 0 if seconds < 0.99 * self._best else self._stale + 1
        self._timed[candidate.program] = Timed(candidate, (seconds,), disturbed)
        if candidate.kind == "heuristic":
            self._anchor = candidate.program
        self._best = self._ranked()[0].seconds

    def _worth_keeping(self) -> set[str]:
        return {t.candidate.program for t in self._ranked()[:FINALISTS]} | {*self._baselines.values(), self._anchor}

    def _ranked(self) -> list[Timed]:
        return sorted(self._timed.values(), key=lambda t: (t.disturbed, t.seconds))  # the doubtful behind all others

    def _pace(self, pace: Pace) -> Pace:
        """Large data takes longer to compare, and that is not hanging."""
        size = sum(self.sub.bytes(v) for v in (*self.sub.inputs, *self.sub.outputs))
        return replace(pace, silence=pace.silence + size / 2e7)

    # --- the end

    def confirm(self, others: Sequence[tuple[PlanKey, Subject]] = ()) -> None:
        """Measures the best plans again, in turns with the baselines, and makes the winner what lookups find.

        The simplest plan that nothing beats beyond the noise wins. `others` are the same subgraph at other slots, with
        their inputs: the winner is checked and timed there too.
        """
        assert self._bench is not None, "open comes first"
        measurer, _ = self._bench
        finalists = {t.candidate.program: t.candidate for t in self._ranked()[:FINALISTS]}
        for program in self._baselines.values():
            if program in self._timed:
                finalists.setdefault(program, self._timed[program].candidate)
        if not finalists:
            return
        self._build([c for p, c in finalists.items() if p not in self._built])
        ready = [c for p, c in finalists.items() if p in self._built]
        pace = self._pace(self._shop.final)
        reply = measurer.run(Job(tuple(self._built[c.program] for c in ready), (), pace))
        right = [(c, o) for c, o in zip(ready, reply.candidates, strict=True) if o.status == "ok" and o.timing]
        winner = self._winner(right)
        for candidate, outcome in zip(ready, reply.candidates, strict=True):
            facts = ((FINISHED, self.stop),) if candidate is winner else ()
            row = self._record(candidate, outcome, None, facts)
            if outcome.status == "ok" and outcome.timing:
                self._timed[candidate.program] = Timed(candidate, (outcome.timing.seconds,), outcome.timing.disturbed)
            else:
                self._timed.pop(candidate.program, None)
            if candidate is winner:
                self.winner = candidate.plan
                self._best = self._timed[candidate.program].seconds
                self._shop.db.choose(self.key, row)
        if winner is not None:
            self._confirm_elsewhere(measurer, winner, others)

    def _winner(self, right: Sequence[tuple[Candidate, Outcome]]) -> Candidate | None:
        """The fastest, unless a baseline is as fast within the noise."""
        timings = [(c, o.timing) for c, o in right if o.timing is not None]
        if not timings:
            return None
        best, fastest = min(timings, key=lambda pair: statistics.median(pair[1].rounds))
        chosen = best
        for kind in ("heuristic", "unfused"):
            for candidate, timing in timings:
                if candidate.program == self._baselines.get(kind) and not _faster(fastest, timing):
                    chosen = candidate
        unfused = next((t for c, t in timings if c.program == self._baselines.get("unfused")), None)
        self.won = (
            unfused is not None and chosen.program != self._baselines.get("unfused") and _faster(fastest, unfused)
        )
        return chosen

    def _confirm_elsewhere(
        self, measurer: Measurer, winner: Candidate, others: Sequence[tuple[PlanKey, Subject]]
    ) -> None:
        for key, subject in others:
            measurer.load(subject)
            sub = self.sub.resized(key.extents, key.slots)
            built = replace(self._built[winner.program], sub=sub)
            [outcome] = measurer.measure(built, (), self._pace(self._shop.pace)).candidates
            row = self._record(winner, outcome, None, ((FINISHED, self.stop),), key)
            if outcome.status == "ok":
                self._shop.db.choose(key, row)

    def _record(
        self,
        candidate: Candidate,
        outcome: Outcome,
        ratio: float | None = None,
        facts: tuple[tuple[str, str], ...] = (),
        key: PlanKey | None = None,
    ) -> int:
        """Writes one attempt to the database; the number of its row."""
        extra: tuple[tuple[str, Fact], ...] = facts if ratio is None else (("ratio", ratio), *facts)
        return self._shop.book(key or self.key, candidate, outcome, self.trials, extra)


def unbuilt(failure: BuildFailure) -> Outcome:
    """The outcome of a plan that was not built."""
    if failure.stage in REFUSALS:
        return Outcome("illegal", f"{failure.stage}: {failure.message}")
    return Outcome("compile-failed", failure.message)


def ratio_of(timing: Timing, rival: Timing) -> tuple[float, float]:
    """Median of the rounds' ratios and its standard error (from the median absolute deviation)."""
    ratios = [a / b for a, b in zip(timing.rounds, rival.rounds, strict=False)]
    median = statistics.median(ratios)
    deviation = statistics.median(abs(r - median) for r in ratios)
    return median, 1.4826 * 1.2533 * deviation / math.sqrt(len(ratios))


def _faster(timing: Timing, rival: Timing) -> bool:
    """True when `timing` beats `rival` beyond the noise."""
    median, error = ratio_of(timing, rival)
    return median + SIGNIFICANT * error < 1
