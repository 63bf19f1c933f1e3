"""One group: the task's tile, the threads' coordinates, the stages with the syncs that they need."""

from __future__ import annotations

from ....search_space.plan import Group
from ....search_space.target import MOST_THREADS, WARP
from ...loops import GroupProgram, Stmt
from ..context import Context
from ..errors import LoweringError
from ..group import LoweredGroup, decode
from .divisors import Divisors
from .fold import Scratch
from .lanes import Coordinates
from .memory import ThreadMemory
from .packs import pack
from .pinned import Pinned
from .registers import Resident, kept_here
from .stage import ThreadState, lower_stage
from .sync import synchronise


def lower_group(ctx: Context, group: Group, again: bool, aligned: bool, pinned: Pinned) -> LoweredGroup:
    """What each task of the group does; `again`: a block may run several tasks; `aligned`: see `pack`;
    `pinned`: what the kernel keeps in block memory across its phases."""
    if group.threads % WARP or not WARP <= group.threads <= MOST_THREADS:
        raise LoweringError(f"{group.threads} threads make no whole warps")
    frame = decode(ctx, group)
    memory = ThreadMemory(ctx, frame.axes, threads=group.threads, last=len(group.stages) - 1, pinned=pinned.arrays)
    coordinates = Coordinates(group.threads, frame.names, frame.ranges)
    resident = Resident(ctx)
    known = Divisors()
    known.learn(frame.body)
    state = ThreadState(ctx, group, frame, memory, coordinates, Scratch(memory), resident, kept_here(ctx, group), known)
    stages: list[tuple[Stmt, ...]] = []
    for k, stage in enumerate(group.stages):
        memory.stage = k
        stages.append(lower_stage(state, k))
        ctx.finished |= {*stage.values, *stage.combine}
    arrays, block_bytes = memory.place(pinned.bytes)
    arrays = (*(a for a in pinned.arrays.values() if a.name in memory.layouts), *arrays)
    accesses = [memory.accesses.get(k, []) for k in range(len(stages))]
    body = synchronise(stages, accesses, arrays, again)
    whole = (*frame.body, *coordinates.lets, *resident.declared, *body)
    packed = pack(whole, {**ctx.arrays, **{a.name: a for a in arrays}}, frame.names, aligned)
    program = GroupProgram(frame.tasks, group.tasks_per_block, frame.task, arrays, packed)
    return LoweredGroup(program, block_bytes)
