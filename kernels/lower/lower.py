"""A plan becomes loop kernels."""

from __future__ import annotations

from ...graphs.subgraph import Subgraph
from ...search_space.plan import Plan
from ...search_space.target import Target
from ..loops import Expr, LoopKernel, PhaseProgram
from .context import Context, lay_out
from .errors import LoweringError
from .group import lower_group
from .integers import maximum, number
from .threads.kernel import lower_kernel


def lower(
    sub: Subgraph,
    plan: Plan,
    target: Target,
    precision: str = "strict",
    aligned: bool = True,
    index_bits: int | None = None,
) -> tuple[LoopKernel, ...]:
    """One loop kernel for each kernel of the plan.

    `precision` is "strict" (every low-precision value is rounded to its dtype) or "fast" (only casts and what is
    stored are). `aligned` (CUDA): the caller's buffers start at multiples of 16 bytes;
    `index_bits` 64 keeps indices wide where 32 bits would do.
    Raises LoweringError when the plan is inconsistent.
    """
    if precision not in ("strict", "fast"):
        raise ValueError(f"precision {precision!r} is neither 'strict' nor 'fast'")
    ctx = Context(sub, plan, precision == "strict")
    lay_out(ctx)
    if not plan.kernels:
        raise LoweringError("a plan without kernels")
    if target.kind == "cuda":
        if plan.stream:
            raise LoweringError("there are no stores past the caches on CUDA")
        return tuple(lower_kernel(ctx, kernel, aligned, index_bits) for kernel in plan.kernels)
    scratch = tuple(a for a in ctx.arrays.values() if a.space == "scratch")
    kernels = []
    for kernel in plan.kernels:
        phases = []
        block_bytes: Expr = number(0)
        for phase in kernel.phases:
            groups = [lower_group(ctx, group) for group in phase.groups]
            for group in groups:
                block_bytes = maximum(block_bytes, group.block_bytes)
            phases.append(PhaseProgram(tuple(group.program for group in groups)))
        globals_ = tuple(a for a in ctx.arrays.values() if a.space != "scratch")
        kernels.append(
            LoopKernel(
                tuple(phases),
                kernel.team,
                globals_,
                scratch,
                block_bytes,
                ctx.arguments,
            )
        )
    return tuple(kernels)
