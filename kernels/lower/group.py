"""One group: decode the task number into tile starts, then run the stages."""

from __future__ import annotations

from dataclasses import dataclass

from ...graphs.dtypes import DType
from ...search_space.plan import Group
from ..loops import Expr, GroupProgram, Let, Literal, Local, Stmt
from .algebra import computing
from .context import Context
from .errors import LoweringError
from .integers import Range, ceiling, divide, minimum, modulo, mul, number, sub
from .memory import Memory
from .names import Names
from .nest import Axis
from .stage import GroupState, lower_stage

SLOT_LIMIT = 2**30
"""Slots are taken to lie within this of zero, when they do at the subgraph's own."""


@dataclass(frozen=True)
class LoweredGroup:
    program: GroupProgram
    block_bytes: Expr


@dataclass
class Frame:
    """The code that decodes a group's task number, and what it found.

    axes   inside a task; tiles the number of the task's tile along each parallel axis
    """

    task: Local
    names: Names
    ranges: dict[Expr, Range]
    axes: dict[int, Axis]
    tiles: dict[int, Expr]
    body: list[Stmt]
    tasks: Expr


def decode(ctx: Context, group: Group) -> Frame:
    """Decodes the task number; serial axes of the group's stages are whole."""
    names = Names()
    task = Local("task", DType.I64)
    ranges: dict[Expr, Range] = {task: (0, 2**62), **_slot_ranges(ctx)}
    axes: dict[int, Axis] = {}
    tiles: dict[int, Expr] = {}
    body: list[Stmt] = []

    def let(expr: Expr, reach: Range | None) -> Expr:
        if isinstance(expr, Literal | Local):
            return expr
        local = names.fresh("k")
        body.append(Let(local, expr))
        if reach is not None:
            ranges[local] = reach
        return local

    counts = [ceiling(ctx.extent(a), tile) for a, tile in group.parallel]
    rest: Expr = task
    for position in reversed(range(len(counts))):
        axis, tile = group.parallel[position]
        if tile < 1:
            raise LoweringError(f"tile {tile} of axis {axis}")
        count, extent = counts[position], ctx.extent(axis)
        last = int(count.value) - 1 if isinstance(count, Literal) else 2**40
        outermost = position == 0
        known = (0, 2**62)
        if count == number(0):
            count = number(1)  # no task will run
        number_ = number(0) if count == number(1) else let(rest if outermost else modulo(rest, count, known), (0, last))
        tiles[axis] = number_
        start = let(mul(number_, number(tile)), (0, max(0, last) * tile))
        size: Expr = number(tile)
        if isinstance(extent, Literal):
            tile = min(tile, int(extent.value))
            size = number(tile)
            trip = size if tile and int(extent.value) % tile == 0 else let(minimum(size, sub(extent, start)), (1, tile))
        else:
            trip = size if tile == 1 else let(minimum(size, sub(extent, start)), (1, tile))
        axes[axis] = Axis(start, trip, size)
        if not outermost:
            rest = let(divide(rest, count, known), known)
    if not group.stages:
        raise LoweringError("a group without stages")
    for stage in group.stages:
        for axis in stage.order:
            if axis not in axes:
                axes[axis] = Axis(number(0), ctx.extent(axis), ctx.extent(axis))
    tasks: Expr = number(1)
    for count in counts:
        tasks = mul(tasks, count)
    return Frame(task, names, ranges, axes, tiles, body, tasks)


def lower_group(ctx: Context, group: Group) -> LoweredGroup:
    """The group's tasks and what each does."""
    frame = decode(ctx, group)
    memory = Memory(ctx, frame.axes)
    state = GroupState(ctx, group, frame.names, frame.axes, frame.tiles, frame.ranges, memory)
    body = frame.body
    for k, stage in enumerate(group.stages):
        memory.stage = k
        body += lower_stage(state, stage)
        ctx.finished |= {*stage.values, *stage.combine}
    arrays, block_bytes = memory.place()
    vector_bytes = _vector_bytes(ctx, group)
    program = GroupProgram(frame.tasks, group.tasks_per_block, frame.task, arrays, tuple(body), vector_bytes)
    return LoweredGroup(program, block_bytes)


def _slot_ranges(ctx: Context) -> dict[Expr, Range]:
    """The sign of each slot, which spares tests and signed divisions; its value is the launch's business."""
    signs = {s: (0, SLOT_LIMIT) if value >= 0 else (-SLOT_LIMIT, -1) for s, value in enumerate(ctx.sub.slots)}
    return {ctx.slot(s): reach for s, reach in signs.items() if abs(ctx.sub.slots[s]) <= SLOT_LIMIT}


def _vector_bytes(ctx: Context, group: Group) -> int:
    """The widest vector that the group's stages ask for: width times the widest element they compute with."""
    widest = 0
    for stage in group.stages:
        if stage.vector < 0:
            continue
        for v in (*stage.values, *stage.combine):
            operands = [read.value for read in ctx.value(v).reads]
            sizes = [computing(ctx.value(u).dtype).size for u in (v, *operands)]
            widest = max(widest, stage.width * max(sizes))
    return widest
