"""The source that a plan becomes, and what the compiler says of it where it is compiled."""

from __future__ import annotations

from pathlib import Path

from ..graphs.subgraph import Subgraph
from ..kernels.cuda.built import BuiltCuda
from ..search_space.plan import Plan
from ..search_space.target import Target


def generated(sub: Subgraph, plan: Plan, target: Target, precision: str, cache: Path) -> tuple[str, list[str]]:
    """The text of a plan's kernels, and a line for each launch of a CUDA plan."""
    if target.kind == "cuda":
        return _cuda(sub, plan, target, precision, cache)
    from ..kernels.compile import find_compiler
    from ..kernels.cpp import emit
    from ..kernels.lower import lower

    compiler = find_compiler()
    kernels = lower(sub, plan, target, precision)
    names = [f"st_k{k}" for k in range(len(kernels))]
    return emit(kernels, names, compiler is not None and compiler.vector_math), []


def _cuda(sub: Subgraph, plan: Plan, target: Target, precision: str, cache: Path) -> tuple[str, list[str]]:
    from ..kernels.cuda.build import build_cuda
    from ..kernels.cuda.emit import emit
    from ..kernels.lower import lower

    [built] = build_cuda([(sub, plan)], target, precision=precision, cache=cache, jobs=1)
    if isinstance(built, BuiltCuda):
        return built.source, launch_lines(built, target)
    kernels = lower(sub, plan, target, precision)
    return emit(kernels, [f"st_k{k}" for k in range(len(kernels))]).source, [f"not compiled: {built.message}"]


def launch_lines(built: BuiltCuda, target: Target) -> list[str]:
    """How each kernel of a plan is launched and what it needs of `target`, a line each."""
    lines = []
    for launch in built.launches:
        how = ", cooperatively" if launch.cooperative else ""
        line = (
            f"{launch.symbol}<<<{launch.blocks} blocks, {launch.threads} threads, {launch.shared_bytes} bytes>>>{how}"
        )
        if launch.report is not None:
            full = launch.resident * launch.threads / max(1, target.resident_threads)
            line += (
                f": {launch.report.registers} registers, {launch.resident} blocks resident ({full:.0%} of the threads)"
            )
        lines.append(line)
    return lines
