"""Knobs: the scalar choices of the search, asked for while a plan is built.

The space is *define by run*: building a plan asks for each choice where it arises, so a knob that exists only under
one scheme is asked only there. A name always comes with the same choices for one subgraph and target, since it
names whatever its choices depend on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Choice = int | str | bool


@dataclass(frozen=True)
class Knob:
    """One choice: a stable name, the possible values, and the one the heuristic takes."""

    name: str
    choices: tuple[Choice, ...]
    default: Choice


Ask = Callable[[Knob], Choice]
"""Answers a knob with one of its choices."""


def default(knob: Knob) -> Choice:
    """The heuristic's answer."""
    return knob.default


class Recorder:
    """Answers through `ask` and remembers what was answered, in order."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.assignment: dict[str, Choice] = {}
        self.knobs: dict[str, Knob] = {}

    def __call__(self, knob: Knob) -> Choice:
        if knob.name in self.assignment:
            return self.assignment[knob.name]
        answer = self._ask(knob) if len(knob.choices) > 1 else knob.choices[0]
        self.assignment[knob.name] = answer
        self.knobs[knob.name] = knob
        return answer


def replay(assignment: Mapping[str, Choice]) -> Ask:
    """Answers from `assignment`; a knob it lacks, or a value that is no longer a choice, gets its default."""

    def ask(knob: Knob) -> Choice:
        answer = assignment.get(knob.name, knob.default)
        return answer if answer in knob.choices else knob.default

    return ask
