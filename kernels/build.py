"""Plans become compiled kernels: lower, emit, compile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..graphs.subgraph import Subgraph
from ..search_space.plan import Plan
from ..search_space.target import Target
from .compile import Artifact, BuildFailure, Compiler, compile_units, find_compiler
from .cpp import emit
from .loops import Array, Expr, LoopKernel, evaluate
from .lower import lower


@dataclass(frozen=True)
class BuiltPlan:
    """A plan with its compiled kernels, in order of execution; nothing is loaded yet.

    scratch   shared by all kernels; sizes by `scratch_bytes`
    """

    sub: Subgraph
    plan: Plan
    kernels: tuple[LoopKernel, ...]
    library: Path
    symbols: tuple[str, ...]
    source: str

    @property
    def arguments(self) -> tuple[int, ...]:
        """The launch arguments at the subgraph's own sizes: dynamic extents, then slots."""
        return (*(self.sub.extents[a] for a in self.plan.dynamic), *self.sub.slots)

    @property
    def scratch(self) -> tuple[Array, ...]:
        return self.kernels[0].scratch

    @property
    def scratch_bytes(self) -> tuple[int, ...]:
        """Bytes of each scratch array at the subgraph's sizes."""
        return tuple(_size(a.elements, self.arguments) * a.dtype.size for a in self.scratch)

    @property
    def block_bytes(self) -> tuple[int, ...]:
        """Bytes of private memory each thread needs, per kernel."""
        return tuple(_size(k.block_bytes, self.arguments) for k in self.kernels)


def _size(expr: Expr, arguments: tuple[int, ...]) -> int:
    return evaluate(expr, arguments)


def build_plans(
    items: Sequence[tuple[Subgraph, Plan]],
    target: Target,
    *,
    precision: str = "strict",
    cache: Path,
    jobs: int = 2,
    compiler: Compiler | None = None,
) -> list[BuiltPlan | BuildFailure]:
    """Each (subgraph, plan) lowered and compiled; a unit per item, equal units compiled once.

    Raises LoweringError for an inconsistent plan and OSError when the cache cannot be used.
    """
    compiler = compiler or find_compiler()
    if compiler is None:
        return [BuildFailure("compiler", "no C++ compiler works here: install g++ or clang++") for _ in items]
    lowered = [lower(sub, plan, target, precision) for sub, plan in items]
    names = [tuple(f"st_k{k}" for k in range(len(kernels))) for kernels in lowered]
    sources = [emit(kernels, n, compiler.vector_math) for kernels, n in zip(lowered, names, strict=True)]
    built: list[BuiltPlan | BuildFailure] = []
    for (sub, plan), kernels, symbols, source, made in zip(
        items, lowered, names, sources, compile_units(sources, compiler, cache, jobs), strict=True
    ):
        match made:
            case Artifact(library, _):
                built.append(BuiltPlan(sub, plan, kernels, library, symbols, source))
            case BuildFailure():
                built.append(made)
    return built
