"""Which plans of a subgraph to measure next.

Proposals come from three sources: an Optuna study (TPE over the conditional knobs), changes to the best plans found,
and random answers near the heuristic's. Cost model and residual rank them all; one place of a batch goes to the best
prediction, the others to draws from what the residual believes, so that the search measures where it may be wrong. A
plan whose loop program was measured is never proposed again. The same seed and the same measurements give
the same proposals.
"""

from __future__ import annotations

import hashlib
import math
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import optuna

from ..graphs.subgraph import Subgraph
from ..kernels.loops import LoopKernel
from ..kernels.lower import LoweringError, lower
from ..results.records import Kind
from ..search_space import legality
from ..search_space.knobs import Ask, Choice, Knob, default, replay
from ..search_space.plan import Plan
from ..search_space.space import Proposal, Space
from ..search_space.stitch import unfused
from ..search_space.target import DeviceModel, Target
from .cost import Cost, predict
from .residual import Observation, Residual

optuna.logging.set_verbosity(optuna.logging.WARNING)

PARENTS = 6
"""Best plans that are changed and crossed."""

PENALTY = 10.0
"""What a failed plan counts as in the study: this many times the slowest right one."""


def program_name(kernels: Sequence[LoopKernel]) -> str:
    """The same for plans that mean the same loops, in every process."""
    return hashlib.sha256(repr(kernels).encode()).hexdigest()


@dataclass(frozen=True)
class Candidate:
    """A legal plan worth measuring. `program` names its loop program; `trial` is its study trial, -1 without one."""

    plan: Plan
    assignment: tuple[tuple[str, Choice], ...]
    cost: Cost
    predicted: float
    program: str
    kind: Kind = "search"
    trial: int = -1
    knobs: tuple[Knob, ...] = ()


class Search:
    """The search of one subgraph: proposes candidates and learns from their times."""

    def __init__(
        self,
        sub: Subgraph,
        name: str,
        target: Target,
        model: DeviceModel,
        seed: int = 0,
        precision: str = "strict",
        *,
        space: Space | None = None,
        sampler: optuna.samplers.BaseSampler | None = None,
        ranked: bool = True,
    ) -> None:
        """`name` identifies the subgraph to the residual. `ranked` False takes the study's proposals as they come."""
        self.sub = sub
        self.name = name
        self.target = target
        self.model = model
        self.precision = precision
        self.illegal = 0
        self.unlowered: list[tuple[Candidate, str]] = []
        self._ranked = ranked
        self._space = space or Space(sub, target)
        digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
        self._random = random.Random(digest)
        self._rng = np.random.default_rng(list(digest[:8]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._sampler = sampler or optuna.samplers.TPESampler(
                multivariate=True, group=True, n_startup_trials=8, seed=int.from_bytes(digest[:4], "big")
            )
        self._study = optuna.create_study(sampler=self._sampler)
        self._asked: list[int] = []
        self._programs: set[str] = set()
        self._plans: set[Plan] = set()
        self._ranking: list[tuple[float, dict[str, Choice]]] = []
        self._slowest = 0.0

    # --- proposals

    def baselines(self) -> list[Candidate]:
        """Trial 0, the unfused plan, and trial 1, the heuristic one, when it is another."""
        proposal = self._space.suggest(default)
        made: tuple[tuple[Kind, Proposal], ...] = (
            ("unfused", Proposal((), unfused(self.sub, self.target))),
            ("heuristic", proposal),
        )
        found = []
        for kind, one in made:
            candidate = self._candidate(one, kind)
            if candidate is not None and not (kind == "heuristic" and self._seen(candidate)):
                self._reserve(candidate)
                found.append(candidate)
        return found

    def propose(self, count: int, residual: Residual, pool: int = 12) -> list[Candidate]:
        """At most `count` new candidates, the most promising first, picked from `pool` proposals for each."""
        if not self._ranked:
            return self._unranked(count)
        candidates: dict[Plan, Candidate] = {}
        for make in self._sources(count, pool):
            candidate = make()
            if candidate is not None and candidate.plan not in self._plans:
                candidates.setdefault(candidate.plan, candidate)
        chosen = self._pick(list(candidates.values()), count, residual)
        self._end_trials(chosen)
        return chosen

    def _sources(self, count: int, pool: int) -> list[Callable[[], Candidate | None]]:
        """Proposal makers in order: a sixth from the study, half near the best plans, the others near the heuristic."""
        total = count * pool
        asked = max(count, total // 6)
        near = (total - asked) * 3 // 5 if self._ranking else 0
        makers: list[Callable[[], Candidate | None]] = [self._from_study] * asked
        makers += [self._from_parents] * near
        return makers + [self._from_heuristic] * (total - asked - near)

    def _pick(self, candidates: list[Candidate], count: int, residual: Residual) -> list[Candidate]:
        """The best by prediction, then the best of one draw each; plans with a known loop program fall out."""
        if not candidates:
            return []
        asked = [self.observe(c) for c in candidates]
        base = np.log([c.cost.seconds for c in candidates])
        mean = base + residual.correct(asked)[0]
        chosen: list[Candidate] = []
        left = np.ones(len(candidates), dtype=bool)
        while len(chosen) < count and left.any():
            score = mean if not chosen else base + residual.sample(asked, self._rng)
            best = int(np.argmin(np.where(left, score, np.inf)))
            left[best] = False
            candidate = self._lowered(candidates[best], float(math.exp(mean[best])))
            if candidate is not None and not self._seen(candidate):
                self._reserve(candidate)
                chosen.append(candidate)
        return chosen

    def _unranked(self, count: int) -> list[Candidate]:
        chosen: list[Candidate] = []
        for _ in range(20 * count):
            candidate = self._from_study()
            if candidate is None or candidate.plan in self._plans:
                continue
            lowered = self._lowered(candidate, candidate.cost.seconds)
            if lowered is not None and not self._seen(lowered):
                self._reserve(lowered)
                chosen.append(lowered)
            if len(chosen) == count:
                break
        self._end_trials(chosen)
        return chosen

    def _from_study(self) -> Candidate | None:
        trial = self._study.ask()
        self._asked.append(trial.number)

        def ask(knob: Knob) -> Choice:
            return cast(Choice, trial.suggest_categorical(knob.name, knob.choices))

        return self._candidate(self._space.suggest(ask), trial=trial.number)

    def _from_parents(self) -> Candidate | None:
        """One of the best plans with a few knobs changed, or with knobs of another one."""
        parents = self._ranking[:PARENTS]
        weights = [1.0 / (1 + i) for i in range(len(parents))]
        first, second = (self._random.choices(parents, weights)[0][1] for _ in range(2))
        mixed = dict(first)
        if first is not second and self._random.random() < 0.4:
            mixed |= {name: value for name, value in second.items() if self._random.random() < 0.5}
        changes = self._random.choice((1, 1, 2, 3))
        names = self._random.sample(sorted(mixed), min(changes, len(mixed)))
        return self._candidate(self._space.suggest(self._changing(mixed, set(names))))

    def _from_heuristic(self) -> Candidate | None:
        """The heuristic's answers, each replaced at random with some probability."""
        share = self._random.choice((0.1, 0.3, 0.6, 1.0))

        def ask(knob: Knob) -> Choice:
            return self._random.choice(knob.choices) if self._random.random() < share else knob.default

        return self._candidate(self._space.suggest(ask))

    def _changing(self, assignment: Mapping[str, Choice], names: set[str]) -> Ask:
        known = replay(assignment)

        def ask(knob: Knob) -> Choice:
            return self._random.choice(knob.choices) if knob.name in names else known(knob)

        return ask

    # --- candidates

    def _candidate(self, proposal: Proposal, kind: Kind = "search", trial: int = -1) -> Candidate | None:
        """A candidate without its loop program; None when the plan is not legal."""
        if legality.check(self.sub, proposal.plan, self.target):
            self.illegal += 1
            return None
        cost = predict(self.sub, proposal.plan, self.model)
        found = Candidate(proposal.plan, proposal.assignment, cost, cost.seconds, "", kind, trial, proposal.knobs)
        return self._lowered(found, cost.seconds) if kind != "search" else found

    def _lowered(self, candidate: Candidate, predicted: float) -> Candidate | None:
        """The candidate with the name of its loop program; None when it has none."""
        try:
            kernels = lower(self.sub, candidate.plan, self.target, self.precision)
        except LoweringError as error:
            # A legal plan that does not lower is a bug of ours: it goes on record, the search goes on.
            self.unlowered.append((candidate, str(error)))
            return None
        return replace(candidate, predicted=predicted, program=program_name(kernels))

    def _seen(self, candidate: Candidate) -> bool:
        return candidate.program in self._programs

    def _reserve(self, candidate: Candidate) -> None:
        self._programs.add(candidate.program)
        self._plans.add(candidate.plan)

    def observe(self, candidate: Candidate, seconds: float | None = None) -> Observation:
        """The candidate as the residual sees it."""
        ratio = 0.0 if seconds is None else math.log(seconds / candidate.cost.seconds)
        return Observation(self.name, candidate.cost.features, candidate.assignment, ratio)

    # --- results

    def tell(self, candidate: Candidate, seconds: float | None) -> None:
        """What the candidate took; None when it failed."""
        if seconds is not None:
            self._slowest = max(self._slowest, seconds)
            if candidate.assignment:
                self._ranking.append((seconds, dict(candidate.assignment)))
                self._ranking.sort(key=lambda pair: pair[0])
        value = math.log(seconds if seconds is not None else PENALTY * (self._slowest or 1.0))
        if candidate.trial >= 0:
            self._study.tell(candidate.trial, value)
        elif candidate.knobs:
            searched = {k.name: k for k in candidate.knobs if len(k.choices) > 1}
            answers = dict(candidate.assignment)
            self._study.add_trial(
                optuna.trial.create_trial(
                    params={name: answers[name] for name in searched},
                    distributions={
                        name: optuna.distributions.CategoricalDistribution(knob.choices)
                        for name, knob in searched.items()
                    },
                    value=value,
                )
            )

    def replay(self, plan: Plan, assignment: Mapping[str, Choice], seconds: float | None) -> Candidate | None:
        """A measurement from the database, as if it had been proposed and told; None when it is no plan of today."""
        proposal = self._space.suggest(replay(assignment)) if assignment else Proposal((), plan)
        if proposal.plan != plan:
            proposal = Proposal((), plan)
        candidate = self._candidate(proposal)
        if candidate is None:
            return None
        lowered = self._lowered(candidate, candidate.cost.seconds)
        if lowered is not None and not self._seen(lowered):
            self._reserve(lowered)
            self.tell(lowered, seconds)
        return lowered

    def recall(self, plan: Plan, assignment: Mapping[str, Choice]) -> Candidate | None:
        """A plan of another run as a proposal of this one; None when it is no plan of today, or was proposed before."""
        proposal = self._space.suggest(replay(assignment)) if assignment else Proposal((), plan)
        candidate = self._candidate(proposal if proposal.plan == plan else Proposal((), plan))
        lowered = self._lowered(candidate, candidate.cost.seconds) if candidate is not None else None
        if lowered is None or self._seen(lowered):
            return None
        self._reserve(lowered)
        return lowered

    def _end_trials(self, chosen: Sequence[Candidate]) -> None:
        """Ends the study's trials that will not be measured, so that the sampler does not wait for them."""
        kept = {c.trial for c in chosen}
        for number in self._asked:
            if number not in kept:
                self._study.tell(number, state=optuna.trial.TrialState.FAIL)
        self._asked.clear()
