"""The tuning of one subgraph for a device that is not here: plans are compiled and ranked by the cost model.

Trial 0 is the unfused plan and trial 1 the heuristic one, as where plans are measured. What the model ranks first among
many proposals is compiled; the compiler's registers, stack and shared memory then rank it again. Nothing is run:
every row has the status `predicted` and no time, so that it counts as no speed-up anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..kernels.build import build_plans
from ..kernels.compile import BuildFailure
from ..kernels.cuda.built import BuiltCuda
from ..kernels.cuda.nvrtc import MISSING, find_nvrtc
from ..results.records import Fact, PlanKey
from ..results.rows import Stored
from ..search_space.devices import uncompilable
from ..search_space.target import Target
from .cost import predict
from .events import Standing
from .history import FINISHED, choices
from .protocol import Outcome, Subject
from .strategy import Candidate
from .task import Task, Tell, Timed, unbuilt


class PredictedTask(Task):
    """A task without a device."""

    def resume(self, rows: Sequence[Stored], foreseen: Sequence[Stored] = ()) -> None:
        """Earlier predictions of this key, as if they were made now: `rows` of the same compiler and generator."""
        for row in rows:
            one = row.measurement
            if one.plan is None or one.status != "predicted" or one.predicted is None:
                continue
            candidate = self.search.recall(one.plan, choices(one))
            if candidate is None:
                continue
            self.trials += 1
            if one.kind in ("unfused", "heuristic"):
                candidate = replace(candidate, kind=one.kind)
                self._baselines[one.kind] = candidate.program
            self._keep(replace(candidate, predicted=one.predicted))
        self._stale = 0

    def standing(self) -> Standing:
        return replace(super().standing(), predicted=True)

    def _try_all(self, candidates: Sequence[Candidate], tell: Tell) -> None:
        """Builds all and ranks them again by what the compiler reports."""
        tell("compiling", "", "")
        shop = self._shop
        built: Sequence[object] = [None] * len(candidates)
        if shop.compiles:
            items = [(self.sub, c.plan) for c in candidates]
            built = build_plans(items, shop.target, precision=shop.precision, cache=shop.cache, jobs=shop.jobs)
        for candidate, one in zip(candidates, built, strict=True):
            if candidate.kind != "search":
                self._baselines[candidate.kind] = candidate.program
            self.trials += 1
            if isinstance(one, BuildFailure):
                outcome = unbuilt(one)
                self._record(candidate, outcome)
                self._failures[outcome.status] += 1
                self._stale += 1
                self.search.tell(candidate, None)
                tell("measured", outcome.status, outcome.message)
                continue
            facts: tuple[tuple[str, Fact], ...] = (("compiled", False),)
            if isinstance(one, BuiltCuda):
                cost = predict(self.sub, candidate.plan, shop.model, [launch.report for launch in one.launches])
                candidate = replace(candidate, cost=cost, predicted=cost.seconds)
                facts = report_facts(one, shop.target.resident_threads)
            shop.book(self.key, candidate, Outcome("predicted"), self.trials, facts)
            self._keep(candidate)
            self.search.tell(candidate, candidate.predicted)
            tell("measured", "predicted", "")

    def _keep(self, candidate: Candidate) -> None:
        self._stale = 0 if candidate.predicted < 0.99 * self._best else self._stale + 1
        self._timed[candidate.program] = Timed(candidate, (candidate.predicted,))
        self._best = self._ranked()[0].seconds

    def confirm(self, others: Sequence[tuple[PlanKey, Subject]] = ()) -> None:
        """Books the best prediction once more, as the end of the search."""
        ranked = self._ranked()
        if ranked:
            best = ranked[0].candidate
            self.winner = best.plan
            for key in self.keys:
                self._shop.book(key, best, Outcome("predicted"), self.trials, ((FINISHED, self.stop),))


def why_uncompiled(target: Target) -> str:
    """Why plans for `target` cannot be compiled here, with the mend; "" when they can."""
    compiler = find_nvrtc()
    if compiler is None:
        return MISSING
    return uncompilable(target, int(compiler.version.partition(".")[0])) or ""


def report_facts(built: BuiltCuda, resident_threads: int) -> tuple[tuple[str, Fact], ...]:
    """What the compiler said of a plan's kernels, the worst of them, and how much of a multiprocessor they fill."""
    reports = [launch.report for launch in built.launches if launch.report is not None]
    occupancies = [launch.resident * launch.threads / max(1, resident_threads) for launch in built.launches]
    return (
        ("compiled", True),
        ("registers", max((r.registers for r in reports), default=0)),
        ("stack_bytes", max((r.stack_bytes for r in reports), default=0)),
        ("spill_bytes", max((r.spill_store_bytes + r.spill_load_bytes for r in reports), default=0)),
        ("static_shared_bytes", max((r.static_shared_bytes for r in reports), default=0)),
        ("shared_bytes", max((launch.shared_bytes for launch in built.launches), default=0)),
        ("resident_blocks", min((launch.resident for launch in built.launches), default=0)),
        ("occupancy", min(occupancies, default=0.0)),
    )
