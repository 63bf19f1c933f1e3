"""The kernels of a plan for CUDA."""

from __future__ import annotations

from ....search_space.plan import Kernel
from ...loops import Expr, LoopKernel, PhaseProgram
from ..context import Context
from ..errors import LoweringError
from ..integers import maximum, number
from .group import lower_group
from .narrow import narrow
from .pinned import pin
from .registers import adopt
from .slots import slot_ranges


def lower_kernel(ctx: Context, kernel: Kernel, aligned: bool, index_bits: int | None = None) -> LoopKernel:
    """One launch. `aligned`: the caller's buffers start at multiples of 16 bytes; `index_bits`: 64 keeps them wide."""
    threads = {group.threads for phase in kernel.phases for group in phase.groups}
    if len(threads) != 1:
        raise LoweringError(f"groups of one kernel have {sorted(threads)} threads")
    phases = []
    block_bytes: Expr = number(0)
    for phase in kernel.phases:
        for group in phase.groups:
            adopt(ctx, group)
    pinned = pin(ctx, kernel)
    for phase in kernel.phases:
        lowered = [lower_group(ctx, group, not pinned.arrays, aligned, pinned) for group in phase.groups]
        for done in lowered:
            block_bytes = maximum(block_bytes, done.block_bytes)
        phases.append(PhaseProgram(tuple(done.program for done in lowered)))
    arrays = ctx.arrays.values()
    wide = LoopKernel(
        tuple(phases),
        kernel.team,
        tuple(a for a in arrays if a.space != "scratch"),
        tuple(a for a in arrays if a.space == "scratch"),
        block_bytes,
        ctx.arguments,
        threads.pop(),
        bool(pinned.arrays),
    )
    if index_bits == 64:
        return wide
    return narrow(wide, {len(ctx.plan.dynamic) + s: reach for s, reach in slot_ranges(ctx.sub).items()})
