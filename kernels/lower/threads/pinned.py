"""Values that each block keeps in block memory across grid barriers, for the same task of a later phase.

They take the first bytes of block memory for the whole kernel.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ....graphs.subgraph import all_reads
from ....search_space.plan import Group, Kernel
from ...loops import Array, Literal
from ..context import Context
from ..errors import LoweringError
from ..group import decode
from ..integers import number
from ..memory import LINE, Memory
from .registers import evaluated


@dataclass(frozen=True)
class Pinned:
    """The arrays by value, and how many bytes they take together."""

    arrays: dict[int, Array] = field(default_factory=dict)
    bytes: int = 0


def pin(ctx: Context, kernel: Kernel) -> Pinned:
    """What the kernel's phases hand on in block memory. Raises LoweringError where blocks could not keep it."""
    makers: dict[int, tuple[int, int, Group]] = {}
    arrays: dict[int, Array] = {}
    end = 0
    for p, phase in enumerate(kernel.phases):
        for g, group in enumerate(phase.groups):
            made = {v for stage in group.stages for v in (*stage.values, *stage.combine)}
            for v in sorted(_read_from_block(ctx, group) - made):
                if v not in makers or makers[v][0] == p:
                    raise LoweringError(f"value {v} is read from block memory before it is there")
                _same_tasks(v, g, group, makers[v])
                if v not in arrays:
                    arrays[v], end = _array(ctx, v, group, end)
            makers.update({v: (p, g, group) for v in made if v not in makers})
    if arrays and any(group.tasks_per_block != 1 for phase in kernel.phases for group in phase.groups):
        raise LoweringError("blocks that keep values across phases take several tasks")
    return Pinned(arrays, end)


def _read_from_block(ctx: Context, group: Group) -> set[int]:
    found: set[int] = set()
    for stage in group.stages:
        for reader in evaluated(ctx, stage):
            reads = (read.value for read in all_reads(ctx.value(reader)))
            found |= {v for v in reads if ctx.places.get((v, reader)) == "block"}
    return found


def _same_tasks(value: int, number_: int, group: Group, maker: tuple[int, int, Group]) -> None:
    """A block has the same task in both phases when the groups stand at one place and have the same tiles."""
    if number_ != maker[1] or group.parallel != maker[2].parallel:
        raise LoweringError(f"value {value} is kept by blocks that do not read it in the later phase")


def _array(ctx: Context, value: int, group: Group, start: int) -> tuple[Array, int]:
    shape = Memory(ctx, decode(ctx, group).axes).shape(value)
    if not isinstance(shape.elements, Literal):
        raise LoweringError(f"value {value} is kept across phases but has no constant size")
    dtype = ctx.kept(value)
    size = -(-int(shape.elements.value) * dtype.size // LINE) * LINE
    return Array(f"c{value}", dtype, "block", shape.elements, start=number(start)), start + size
