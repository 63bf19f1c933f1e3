"""Values that stay in registers from one stage of a group to a later one: which, and along which axes they are indexed.

Every thread reads the elements that it has computed or loaded itself, so both stages must give the value's axes the
same threads and the same steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ....graphs.subgraph import all_reads
from ....search_space.loading import loaded_axes
from ....search_space.plan import Group, Stage
from ....search_space.registers import held, same_threads
from ...loops import Declare, Expr, Load, Stmt
from ..algebra import computing
from ..context import Context
from ..errors import LoweringError
from .nest import ThreadNest
from .reduce import REGISTERS

Steps = tuple[tuple[int, int, int, int], ...]
"""How a stage walks a value's axes: (axis, threads, stride of the threads, neighbours a step)."""


@dataclass
class Resident:
    """The register arrays of one group. `arrays` and `steps` have the values that are in one by now."""

    ctx: Context
    arrays: dict[int, str] = field(default_factory=dict)
    steps: dict[int, Steps] = field(default_factory=dict)
    declared: list[Stmt] = field(default_factory=list)

    def store(self, value: int, nest: ThreadNest) -> tuple[str, Expr]:
        """The array of `value` (declared at its first store) and the place of the thread's current element."""
        axes = self.ctx.value(value).axes
        index, total = nest.register_index([a for a in axes if a in nest.strip])
        if total > REGISTERS:
            raise LoweringError(f"value {value} has {total} elements a thread, too many for registers")
        if value not in self.arrays:
            self.arrays[value] = f"h{value}"
            self.steps[value] = steps_of(nest, axes)
            self.declared.append(Declare(f"h{value}", computing(self.ctx.value(value).dtype), total))
        return self.arrays[value], index

    def load(self, value: int, nest: ThreadNest) -> Expr:
        axes = self.ctx.value(value).axes
        if self.steps[value] != steps_of(nest, axes):
            raise LoweringError(f"value {value} is in the registers of threads that do not read it")
        index, _ = nest.register_index([a for a in axes if a in nest.strip])
        return nest.bind(Load(self.arrays[value], index, computing(self.ctx.value(value).dtype)))


def steps_of(nest: ThreadNest, axes: tuple[int, ...]) -> Steps:
    """Of a stage and a value's axes."""
    found = []
    for a in axes:
        lane = nest.lanes.get(a)
        width = nest.width if a == nest.vector else 1
        found.append((a, lane.count if lane else 1, lane.stride if lane else 0, width))
    return tuple(found)


def kept_here(ctx: Context, group: Group) -> dict[int, set[int]]:
    """Values that a stage hands to later stages of the group in registers, with the numbers of the stages that touch
    each: where the plan says so, and where a later stage would read back from device memory the one element that each
    thread has stored there for others."""
    made = {v: k for k, stage in enumerate(group.stages) for v in (*stage.combine, *stage.values)}
    found: dict[int, set[int]] = {}
    for k, stage in enumerate(group.stages):
        for reader in sorted(evaluated(ctx, stage)):
            for read in dict.fromkeys(r.value for r in all_reads(ctx.value(reader))):
                place = ctx.places.get((read, reader))
                if made.get(read, k) >= k:
                    continue
                kept = place in ("register", "shuffle")
                if kept or (place == "global" and _single(ctx, group, read, group.stages[made[read]], stage)):
                    found.setdefault(read, {made[read]}).add(k)
    return found


def _single(ctx: Context, group: Group, value: int, maker: Stage, reader: Stage) -> bool:
    """True when a thread has one element of the value in both stages, which storing does not change."""
    axes, tiles = ctx.value(value).axes, dict(group.parallel)
    if ctx.plan.dynamic or (ctx.value(value).dtype.is_low_precision and not ctx.strict):
        return False

    def trip(axis: int) -> int:
        return min(tiles.get(axis, ctx.sub.extents[axis]), ctx.sub.extents[axis])

    return same_threads(maker, reader, axes) and held(maker, axes, trip) == 1


def evaluated(ctx: Context, stage: Stage) -> set[int]:
    """What a stage evaluates: its values and all that is inlined into them."""
    found: set[int] = set()
    pending = list(stage.values)
    while pending:
        v = pending.pop()
        if v in found:
            continue
        found.add(v)
        reads = (r.value for r in all_reads(ctx.value(v)))
        pending += [u for u in reads if ctx.places.get((u, v)) == "inline"]
    return found


def adopt(ctx: Context, group: Group) -> None:
    """Gives each input that a stage loads for its readers the axes that these read it along."""
    for stage in group.stages:
        for v in stage.values:
            if not ctx.value(v).is_input:
                continue
            axes = loaded_axes(ctx.sub, ctx.plan, v)
            if axes is None:
                raise LoweringError(f"input {v} is loaded for readers that do not read it alike")
            ctx.take_axes(v, axes)
