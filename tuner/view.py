"""A plan with what the cost model asks of it again and again."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..graphs.primitives import PRIMITIVES
from ..graphs.subgraph import AxisVar, Index, Mod, Subgraph, Sum
from ..search_space.access import Access, walk
from ..search_space.coupling import pairs
from ..search_space.plan import Place, Plan
from ..search_space.target import DeviceModel

SECONDS = {"add": 1 / 30e9, "gather": 1 / 5e9, "chain": 1 / 0.7e9, "loop": 1 / 3e8, "task": 1 / 5e7}
"""Seconds per element of the classes that every model knows, where it has not measured them."""


@dataclass(frozen=True)
class View:
    """A plan with what several groups need to know of each other."""

    sub: Subgraph
    plan: Plan
    model: DeviceModel
    places: Mapping[tuple[int, int], Place]
    parts: Mapping[int, int]
    """Partial results per element of each split reduction."""
    rates: Mapping[str, float]
    kept: frozenset[int] = field(default=frozenset())
    """Values that some consumer reads from memory."""
    beside: Mapping[int, int] = field(default_factory=dict)
    """Reductions that run beside another one in one pass: the second to the first."""
    _walks: dict[int, tuple[Access, ...]] = field(default_factory=dict, compare=False)

    def inlined(self, value: int, reader: int) -> bool:
        return self.places.get((value, reader)) == "inline"

    def walk(self, root: int) -> tuple[Access, ...]:
        """Every access that evaluating `root` performs, those to what is inlined into it too.

        A reduction beside another one reads what that one reads.
        """
        if root not in self._walks:
            self._walks[root] = tuple(walk(self.sub, self.beside.get(root, root), self.inlined))
        return self._walks[root]

    def rate(self, op: str) -> float:
        """Elements of four bytes per second and processor, vectorised."""
        if op in self.rates:
            return self.rates[op]
        if op in SECONDS:
            return 1 / SECONDS[op]
        cost = PRIMITIVES[op].cost if op in PRIMITIVES else 1
        nearest = "exp" if cost >= 12 and "exp" in self.rates else "add"
        weight = cost / 12 if nearest == "exp" else cost
        return self.rate(nearest) / weight

    def scalar_rate(self, op: str) -> float:
        return self.rate(op) / (self.model.target.vector_bytes / 4)


def view(sub: Subgraph, plan: Plan, model: DeviceModel) -> View:
    """`plan` of `sub` on the device of `model`, ready for `group_work`."""
    places = {(e.value, e.consumer): e.place for e in plan.edges}
    kept = {e.value for e in plan.edges if e.place in ("block", "global", "alias")} | set(sub.outputs)
    parts: dict[int, int] = {}
    for kernel in plan.kernels:
        for phase in kernel.phases:
            for group in phase.groups:
                tiles = dict(group.parallel)
                for stage in group.stages:
                    for value in stage.values:
                        split = [math.ceil(sub.extents[a] / tiles[a]) for a in sub.values[value].reduce if a in tiles]
                        parts[value] = max(parts.get(value, 1), math.prod(split))
    beside = {second: first for first, second in pairs(plan).items()}
    return View(sub, plan, model, places, parts, dict(model.throughput), frozenset(kept), beside)


def unit_axis(index: Index) -> int:
    """The axis along which an index advances by one; -1 when there is none."""
    match index:
        case AxisVar(axis):
            return axis
        case Sum(terms):
            return next((unit_axis(t) for c, t in terms if c == 1 and unit_axis(t) >= 0), -1)
        case Mod(term, _):
            return unit_axis(term)
        case _:
            return -1
