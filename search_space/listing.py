"""Where a plan computes each value and where it combines partial results: what legality is judged on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ..graphs.subgraph import Subgraph
from .plan import Group, Plan, Stage


@dataclass(frozen=True)
class Location:
    """Where a stage stands."""

    kernel: int
    phase: int
    group: int
    stage: int

    @property
    def group_key(self) -> tuple[int, int, int]:
        return (self.kernel, self.phase, self.group)

    def before(self, other: Location) -> bool:
        """True when a barrier or a kernel boundary separates this stage from the later `other`."""
        return (self.kernel, self.phase) < (other.kernel, other.phase)


@dataclass
class Listing:
    """Where each value is computed and where its partial results are combined."""

    sub: Subgraph
    plan: Plan
    values: dict[int, Location] = field(default_factory=dict)
    combines: dict[int, list[Location]] = field(default_factory=dict)

    def group(self, at: Location) -> Group:
        return self.plan.kernels[at.kernel].phases[at.phase].groups[at.group]

    def stage(self, at: Location) -> Stage:
        return self.group(at).stages[at.stage]

    def parallel(self, at: Location) -> frozenset[int]:
        return frozenset(a for a, _ in self.group(at).parallel)

    def is_partial(self, value: int) -> bool:
        """True when the value's reduction runs over a parallel axis of its group."""
        return not self.parallel(self.values[value]).isdisjoint(self.sub.values[value].reduce)


def locations(plan: Plan) -> Iterator[tuple[Location, Group, Stage]]:
    """Every stage of a plan, in execution order."""
    for k, kernel in enumerate(plan.kernels):
        for p, phase in enumerate(kernel.phases):
            for g, group in enumerate(phase.groups):
                for s, stage in enumerate(group.stages):
                    yield Location(k, p, g, s), group, stage


def locate(sub: Subgraph, plan: Plan) -> Listing:
    """The listing of a well-formed plan."""
    listing = Listing(sub, plan)
    for at, _, stage in locations(plan):
        for value in stage.values:
            listing.values[value] = at
        for value in stage.combine:
            listing.combines.setdefault(value, []).append(at)
    return listing


def partial_parts(sub: Subgraph, listing: Listing, value: int) -> int:
    """Number of parts P of a split reduction: tiles along its reduced parallel axes."""
    total = 1
    for axis, tile in listing.group(listing.values[value]).parallel:
        if axis in sub.values[value].reduce:
            total *= max(1, -(-sub.extents[axis] // tile))
    return total
