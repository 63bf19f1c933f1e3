"""The CPU under watch: a team of two threads, and fences around all memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.build import BuiltPlan, build_plans
from stitchtune.kernels.compile import BuildFailure
from stitchtune.kernels.team import Team, build_runtime
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.target import Target

from tests.differential import drawing
from tests.differential.machine import Arrays, Pair, Setting
from tests.differential.marks import EVERY_MARK, Mark, marks
from tests.differential.running import run_watched


class Cpu:
    """Small caches, so that small subgraphs meet their limits."""

    name = "cpu"
    target = Target("cpu", "cpu", "test", 2, 64, 1, 64 * 1024, 16 * 1024, 16 * 1024)
    unit = 8
    kinds = "sgssgjsg"
    focus = (16, 8, 18)
    wanted = EVERY_MARK

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        runtime = build_runtime(cache)
        if isinstance(runtime, BuildFailure):
            raise RuntimeError(runtime.message)
        self.team = Team(runtime, 2)

    def setting(self, batch: int) -> Setting:
        return Setting("fast" if batch % 5 == 4 else "strict")

    def draw(self, sub: Subgraph, turn: int) -> tuple[Plan, tuple[str, ...]]:
        return drawing.draw(sub, turn, self.target)

    def build(self, pairs: Sequence[Pair], setting: Setting, unit: int) -> list[Any]:
        items = [(p.subject.sub, p.plan) for p in pairs]
        return build_plans(
            items, self.target, precision=setting.precision, cache=self.cache, jobs=1, per_unit=max(1, unit)
        )

    def run(self, built: BuiltPlan, pair: Pair, setting: Setting) -> Arrays:
        return run_watched(built, pair.subject.inputs, self.team)

    def marks(self, pair: Pair, built: BuiltPlan, setting: Setting) -> set[Mark]:
        return marks(pair.subject.sub, pair.plan, built.kernels)
