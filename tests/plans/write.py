"""Writes the eight plan fixtures: `python -m tests.plans.write`, from the repository root.

Each file holds a canonical subgraph and a plan for it, both as plain data. The plans are chosen here, by answers to
knobs where the heuristic would not show what the fixture is for; none was found by searching.
"""

from __future__ import annotations

import json
from pathlib import Path

from stitchtune.graphs.ir import Graph
from stitchtune.graphs.partition import Component, partition
from stitchtune.graphs.simplify import simplify
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.search_space import codec
from stitchtune.search_space.knobs import Choice, Knob
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.stitch import build
from stitchtune.search_space.target import Target

from tests.plans.subjects import SUBJECTS

HERE = Path(__file__).parent
TARGET = Target("cpu", "cpu", "fixture", 2, 64, 1, 512 * 1024, 32 * 1024, 32 << 20)

ANSWERS: dict[str, dict[str, Choice]] = {
    "batch_norm_training": {"axes": "split"},
    "cross_entropy": {"keep": "inline"},
    "rms_norm": {"tile": 1},
}
"""Answers by subject and kind of knob (the part of its name before the first dot)."""


def component(graph: Graph) -> Subgraph:
    """The one memory-intensive subgraph of a fixture's graph."""
    steps = partition(simplify(graph)).steps
    [found] = [step.subgraph for step in steps if isinstance(step, Component)]
    return found


def plan_of(name: str, sub: Subgraph) -> Plan:
    answers = ANSWERS.get(name, {})

    def ask(knob: Knob) -> Choice:
        answer = answers.get(knob.name.split(".")[0], knob.default)
        return answer if answer in knob.choices else knob.default

    return build(sub, TARGET, ask)


def main() -> None:
    for name, make in SUBJECTS.items():
        sub = component(make())
        document = {"subgraph": codec.to_json(sub), "plan": codec.to_json(plan_of(name, sub))}
        (HERE / f"{name}.json").write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
