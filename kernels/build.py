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
from .cuda.built import BuiltCuda
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
    per_unit: int = 1,
) -> Sequence[BuiltPlan | BuiltCuda | BuildFailure]:
    """Each (subgraph, plan) lowered and compiled; `per_unit` neighbours share a unit, equal units are compiled once.

    What comes is of the target's kind. `compiler` is the CPU's. A unit of many plans saves what the compiler needs for
    every unit, but (on the CPU) one that does not compile fails them all. Raises LoweringError for an inconsistent plan
    and OSError when the cache cannot be used.
    """
    if target.kind == "cuda":
        from .cuda.opening import builder

        return builder(target)(items, target, precision=precision, cache=cache, jobs=jobs, per_unit=per_unit)
    return build_cpu(items, target, precision, cache, jobs, compiler, per_unit)


def build_cpu(
    items: Sequence[tuple[Subgraph, Plan]],
    target: Target,
    precision: str,
    cache: Path,
    jobs: int,
    compiler: Compiler | None,
    per_unit: int,
) -> list[BuiltPlan | BuildFailure]:
    """What `build_plans` does for a target of kind "cpu"."""
    compiler = compiler or find_compiler()
    if compiler is None:
        return [BuildFailure("compiler", "no C++ compiler works here: install g++ or clang++") for _ in items]
    lowered = [lower(sub, plan, target, precision) for sub, plan in items]
    units = [range(i, min(i + per_unit, len(items))) for i in range(0, len(items), per_unit)]
    names = {i: symbols(i - unit.start, len(lowered[i])) for unit in units for i in unit}
    sources = [
        emit([k for i in unit for k in lowered[i]], [n for i in unit for n in names[i]], compiler.vector_math)
        for unit in units
    ]
    built: list[BuiltPlan | BuildFailure] = []
    for unit, source, made in zip(units, sources, compile_units(sources, compiler, cache, jobs), strict=True):
        for i in unit:
            match made:
                case Artifact(library, _):
                    built.append(BuiltPlan(*items[i], lowered[i], library, names[i], source))
                case BuildFailure():
                    built.append(made)
    return built


def symbols(plan: int, kernels: int) -> tuple[str, ...]:
    """The functions of the kernels of a unit's plan number `plan`."""
    prefix = f"st_p{plan}_k" if plan else "st_k"
    return tuple(f"{prefix}{k}" for k in range(kernels))
