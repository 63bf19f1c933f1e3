"""The source that a plan becomes, under a comment that states the plan and, for CUDA, how its kernels are launched."""

from __future__ import annotations

from pathlib import Path

from ..graphs.subgraph import Subgraph
from ..kernels.lower import lower
from ..search_space.plan import Plan
from ..search_space.target import Target


def generated(sub: Subgraph, plan: Plan, target: Target, precision: str, cache: Path) -> tuple[str, str]:
    """The comment and the text of a plan's kernels. Where CUDA cannot be compiled the comment says why."""
    if target.kind == "cuda":
        return _cuda(sub, plan, target, precision, cache)
    from ..graphs.describe import describe
    from ..kernels.compile import find_compiler
    from ..kernels.cpp import emit
    from ..search_space.describe import describe as describe_plan

    compiler = find_compiler()
    kernels = lower(sub, plan, target, precision)
    text = emit(kernels, [f"st_k{k}" for k in range(len(kernels))], compiler is not None and compiler.vector_math)
    return commented(f"{describe(sub)}\n\n{describe_plan(plan)}"), text


def commented(text: str) -> str:
    return "\n".join(f"// {line}".rstrip() for line in text.splitlines()) + "\n"


def _cuda(sub: Subgraph, plan: Plan, target: Target, precision: str, cache: Path) -> tuple[str, str]:
    from ..kernels.cuda.built import BuiltCuda
    from ..kernels.cuda.opening import builder
    from ..kernels.cuda.text.comment import comment_head
    from ..kernels.cuda.text.emit import emit

    [built] = builder(target)([(sub, plan)], target, precision=precision, cache=cache, jobs=1)
    if isinstance(built, BuiltCuda):
        return comment_head(sub, plan, built.launches), built.source
    kernels = lower(sub, plan, target, precision)
    text = emit(kernels, [f"st_k{k}" for k in range(len(kernels))]).source
    return comment_head(sub, plan) + commented(f"\nnot compiled: {built.message}"), text
