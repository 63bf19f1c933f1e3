"""The space of a subgraph: proposals drawn through an `ask` function, and plans rebuilt from recorded answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..graphs.subgraph import Subgraph
from .knobs import Ask, Choice, Knob, Recorder, replay
from .plan import Plan
from .stitch import build as build_plan
from .target import Target


@dataclass(frozen=True)
class Proposal:
    """A plan with the answers that made it, in the order in which they were asked."""

    assignment: tuple[tuple[str, Choice], ...]
    plan: Plan
    knobs: tuple[Knob, ...] = ()


@dataclass(frozen=True)
class Space:
    """Every plan that the knobs of a subgraph can describe on a target."""

    sub: Subgraph
    target: Target

    def suggest(self, ask: Ask) -> Proposal:
        """Builds the plan for the answers of `ask`. Thread-safe when `ask` is."""
        answers = Recorder(ask)
        plan = build_plan(self.sub, self.target, answers)
        return Proposal(tuple(answers.assignment.items()), plan, tuple(answers.knobs.values()))


def build(sub: Subgraph, assignment: Mapping[str, Choice], target: Target) -> Plan:
    """The plan of recorded answers; knobs that it does not know take their default."""
    return build_plan(sub, target, replay(assignment))
