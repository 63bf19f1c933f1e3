"""A plan for people: as indented text, the form that docs/plans.md explains, and as counts of its schemes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from .plan import Group, Plan, Stage

SCHEMES = ("independent", "local", "regional", "global", "alias")
_SCHEME_OF = {
    "inline": "local",
    "register": "local",
    "shuffle": "regional",
    "block": "regional",
    "cluster": "regional",
    "global": "global",
    "alias": "alias",
}


def schemes(plan: Plan) -> dict[str, int]:
    """How often a plan uses each stitching scheme: edges by how the value travels, and groups that share a phase."""
    counts = dict.fromkeys(SCHEMES, 0)
    for edge in plan.edges:
        counts[_SCHEME_OF[edge.place]] += 1
    counts["independent"] = sum(len(p.groups) - 1 for k in plan.kernels for p in k.phases)
    return counts


def describe(plan: Plan) -> str:
    """The whole plan, a line per kernel, phase, group, stage and edge; decisions at their default are left out."""
    return "\n".join(_lines(plan))


def _lines(plan: Plan) -> Iterator[str]:
    for number, kernel in enumerate(plan.kernels):
        threads = kernel.phases[0].groups[0].threads
        if threads > 1:  # CUDA
            yield f"kernel {number}, blocks of {threads} threads" + ("" if kernel.team else ", one block")
        else:
            yield f"kernel {number}, {'all threads' if kernel.team else 'one thread'}"
        for position, phase in enumerate(kernel.phases):
            yield f"  phase {position}" + (" (after a barrier)" if position else "")
            for group in phase.groups:
                yield f"    {_group(group)}"
                yield from (f"      {_stage(stage)}" for stage in group.stages)
    inlined: list[str] = []
    for value, edges in groupby(plan.edges, lambda edge: edge.value):
        readers: dict[str, list[str]] = {}
        for edge in edges:
            readers.setdefault(edge.place, []).append(f"%{edge.consumer}")
        if list(readers) == ["inline"]:
            inlined.append(f"%{value}")
            continue
        ways = "; ".join(f"{place} to {', '.join(to)}" for place, to in readers.items())
        yield f"%{value}: {ways}"
    if inlined:
        yield f"inline wherever they are read: {', '.join(inlined)}"
    for reduction in plan.reductions:
        beside = f", in one pass with %{reduction.coupled}" if reduction.coupled >= 0 else ""
        yield f"reduction %{reduction.value}: {reduction.accumulators} accumulators{beside}"
    for buffer in plan.buffers:
        yield f"buffer %{buffer.value}: axes {_axes(buffer.order)}, padded by {buffer.pad}"
    if plan.stream:
        yield f"streamed {', '.join(f'%{v}' for v in plan.stream)}"
    if plan.dynamic:
        yield f"sizes as arguments: {_axes(plan.dynamic)}"


def _group(group: Group) -> str:
    tiles = ", ".join(f"i{axis} by {tile}" for axis, tile in group.parallel)
    return f"group: tasks over {tiles or 'nothing (one task)'}" + (
        f", {group.tasks_per_block} tasks at a time" if group.tasks_per_block > 1 else ""
    )


def _stage(stage: Stage) -> str:
    parts = [f"stage {', '.join(f'%{v}' for v in stage.values)}" if stage.values else "stage"]
    if stage.combine:
        parts.append(f"combines {', '.join(f'%{v}' for v in stage.combine)}")
    parts.append(f"loops {_axes(stage.order)}" if stage.order else "no loops")
    if stage.vector >= 0:
        parts.append(f"vector i{stage.vector} x {stage.width}")
    if stage.lanes:
        parts.append("threads " + ", ".join(f"i{axis} x {count}" for axis, count in stage.lanes))
    parts += [f"unrolled i{axis} x {factor}" for axis, factor in stage.unroll]
    return "; ".join(parts)


def _axes(axes: tuple[int, ...]) -> str:
    return " ".join(f"i{axis}" for axis in axes)
