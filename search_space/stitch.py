"""Stitching: from a subgraph and the answers to its knobs to a legal plan.

One function, `build`, serves the heuristic (every knob at its default) and the search. Its steps are AStitch's
(ASPLOS 2022, section 4): dominants, groups, stages, shared intermediates, adaptive thread mapping,
places; then kernels, which the paper leaves at one.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..graphs.primitives import PRIMITIVES
from ..graphs.subgraph import Subgraph
from . import mapping
from .dominants import live
from .draft import Context, GroupDraft, StageDraft
from .edges import Conflict, places
from .grouping import place
from .keeping import groups_of, keep_shared
from .knobs import Ask, Knob, Recorder, default
from .plan import Edge, Group, Kernel, Phase, Plan, Reduction, Stage
from .staging import form_stages
from .stitch_cuda import build_cuda, unfused_cuda
from .target import Target

SERIAL_WORK = 30_000
"""Weighted iteration points below which a kernel runs on the calling thread by default."""


def heuristic(sub: Subgraph, target: Target) -> Plan:
    """The plan that needs no search: stitch as much as locality allows, into one kernel.

    On CUDA a subgraph with an empty axis, which moves next to nothing, is left unfused: a stitched group that shares
    the axis out would have no tasks, and store nothing of what lacks it.
    """
    if target.kind == "cuda" and not all(sub.domain_size(v) for v in sub.computed):
        return unfused(sub, target)
    return build(sub, target, default)


def build(sub: Subgraph, target: Target, ask: Ask) -> Plan:
    """The plan that the answers of `ask` describe. Total: every combination of answers gives a plan."""
    context = Context(sub, target)
    if context.is_cuda:
        return build_cuda(context, ask)
    answers = Recorder(ask)
    for _ in range(4 * len(sub.values) + 4):
        phases = _draft(context, answers)
        try:
            edges = places(context, phases)
        except Conflict:
            context = context.again()
            continue
        edges = _fit_block_memory(context, phases, edges)
        return _freeze(context, phases, edges, answers)
    raise AssertionError("stitching does not converge")


def _draft(context: Context, ask: Ask) -> list[list[GroupDraft]]:
    phases = place(context, ask)
    for group in groups_of(phases):
        form_stages(context, group, ask)
        keep_shared(context, group, phases, ask)
    for group in groups_of(phases):
        mapping.choose_tiles(context, group, ask)
    return phases


def block_buffers(sub: Subgraph, group: GroupDraft, edges: tuple[Edge, ...]) -> dict[int, int]:
    """Bytes of block memory of each value that a block edge of this group needs."""
    stored = {e.value for e in edges if e.place == "block"}
    here = {v for s in group.stages for v in (*s.members, *s.combine)}
    sizes: dict[int, int] = {}
    for value in sorted(stored & here):
        total = sub.values[value].dtype.size
        for axis in sub.values[value].axes:
            total *= max(1, min(group.tiles.get(axis, sub.extents[axis]), sub.extents[axis]))
        sizes[value] = total
    return sizes


def _fit_block_memory(context: Context, phases: list[list[GroupDraft]], edges: tuple[Edge, ...]) -> tuple[Edge, ...]:
    """Shrinks tiles, then demotes the largest buffers to global memory, until every group fits."""
    sub = context.sub
    for group in groups_of(phases):
        while sum(block_buffers(sub, group, edges).values()) > context.target.block_bytes:
            axis = max(group.parallel, key=lambda a: group.tiles[a], default=None)
            if axis is not None and group.tiles[axis] > 1 and axis not in mapping.split_axes(context, group):
                group.tiles[axis] //= 2
                continue
            sizes = block_buffers(sub, group, edges)
            demotable = [v for v in sizes if v not in group.combine and set(group.parallel) <= set(sub.values[v].axes)]
            if not demotable:
                break
            largest = max(demotable, key=lambda v: sizes[v])
            edges = tuple(
                Edge(e.value, e.consumer, "global") if e.value == largest and e.place == "block" else e for e in edges
            )
    return edges


def _freeze(context: Context, phases: list[list[GroupDraft]], edges: tuple[Edge, ...], ask: Ask) -> Plan:
    frozen = [Phase(tuple(_group(context, g, ask) for g in phase)) for phase in phases]
    kernels: list[list[Phase]] = []
    for number, phase in enumerate(frozen):
        cut = number > 0 and ask(Knob(f"cut.{number}", ("barrier", "kernel"), "barrier")) == "kernel"
        if number == 0 or cut:
            kernels.append([phase])
        else:
            kernels[-1].append(phase)
    parted: list[list[Phase]] = []
    for number, phase_list in enumerate(kernels):
        if len(phase_list) == 1 and len(phase_list[0].groups) > 1:
            apart = ask(Knob(f"pack.{number}", ("together", "apart"), "together")) == "apart"
            if apart:
                parted.extend([Phase((g,))] for g in phase_list[0].groups)
                continue
        parted.append(phase_list)
    team = tuple(_team(context, number, phase_list, ask) for number, phase_list in enumerate(parted))
    return Plan(
        kernels=tuple(Kernel(tuple(p), team=t) for p, t in zip(parted, team, strict=True)),
        edges=edges,
        reductions=_reductions(context, frozen, ask),
        stream=_streams(context, ask),
    )


def _group(context: Context, group: GroupDraft, ask: Ask) -> Group:
    stages = tuple(_stage(context, s, ask) for s in group.stages)
    return Group(
        parallel=tuple((a, group.tiles[a]) for a in group.parallel),
        stages=stages,
        tasks_per_block=_tasks_per_block(context, group, ask),
    )


def _tasks_per_block(context: Context, group: GroupDraft, ask: Ask) -> int:
    """Vertical packing: offered where every processor has many tasks."""
    tasks = 1
    for axis in group.parallel:
        tasks *= -(-context.sub.extents[axis] // group.tiles[axis])
    many = 64 * context.target.processors
    return int(ask(Knob(f"tasks.{group.label}", (1, 8), 1))) if tasks >= many else 1


def _stage(context: Context, stage: StageDraft, ask: Ask) -> Stage:
    width = 1
    unroll: tuple[tuple[int, int], ...] = ()
    if stage.vector >= 0:
        # One knob for the whole plan: wide registers pay or not by machine and operator mix, not by loop.
        share = int(ask(Knob("vector.share", (1, 2), 1)))
        width = max(1, context.target.vector_bytes // _widest(context, stage) // share)
        unroll = _unroll(context, stage, ask)
    return Stage(
        values=tuple(stage.members),
        order=stage.order,
        combine=tuple(stage.combine),
        vector=stage.vector,
        width=width,
        unroll=unroll,
    )


def _unroll(context: Context, stage: StageDraft, ask: Ask) -> tuple[tuple[int, int], ...]:
    """Unrolls the loop outside the vector loop where a reduction runs along it: accumulators are loaded less often."""
    outer = [a for a in stage.order if a != stage.vector]
    if not outer or not any(outer[-1] in context.sub.values[m].reduce for m in stage.members):
        return ()
    choices = tuple(f for f in (1, 2, 4, 8) if f == 1 or f < context.sub.extents[outer[-1]])
    factor = int(ask(Knob(f"unroll.{stage.members[0]}.{outer[-1]}", choices, min(4, choices[-1]))))
    return ((outer[-1], factor),) if factor > 1 else ()


def _widest(context: Context, stage: StageDraft) -> int:
    """Bytes of the widest type that the lanes of a stage compute in (low-precision floats compute in float32)."""
    values = [context.sub.values[m] for m in (*stage.members, *stage.combine)]
    return max(4 if v.dtype.is_low_precision else v.dtype.size for v in values)


def _reductions(context: Context, phases: list[Phase], ask: Ask) -> tuple[Reduction, ...]:
    """Independent accumulators for reductions along the vector axis: one count for all of a group."""
    found: list[Reduction] = []
    for group in (g for p in phases for g in p.groups):
        for stage in group.stages:
            for value in stage.values:
                if stage.vector not in context.sub.values[value].reduce:
                    continue
                lead = next(v for s in group.stages for v in s.values if context.is_reduction(v))
                # Folding accumulators at the end of a row pays after some eight steps of each.
                lanes = max(1, context.target.vector_bytes // 4)
                most = max(1, context.sub.extents[stage.vector] // (8 * lanes))
                choices = tuple(c for c in (1, 2, 4, 8) if c <= most)
                count = int(ask(Knob(f"accumulators.{lead}.{stage.vector}", choices, min(4, choices[-1]))))
                if count > 1:
                    found.append(Reduction(value, accumulators=count))
    return tuple(sorted(found, key=lambda r: r.value))


def _streams(context: Context, ask: Ask) -> tuple[int, ...]:
    """Outputs that are larger than the last-level cache bypass it, unless the answers say otherwise."""
    found: list[int] = []
    for value in context.sub.outputs:
        size = context.sub.bytes(value)
        if 2 * size > context.target.cache_bytes:
            large = size > context.target.cache_bytes
            if ask(Knob(f"stream.{value}", (False, True), large)):
                found.append(value)
    return tuple(sorted(found))


def _team(context: Context, number: int, phases: list[Phase], ask: Ask) -> bool:
    work = 0
    for stage in (s for p in phases for g in p.groups for s in g.stages):
        for value in (*stage.values, *stage.combine):
            primitive = PRIMITIVES.get(context.sub.values[value].op)
            work += context.sub.domain_size(value) * (primitive.cost if primitive else 1)
    default_team = work >= SERIAL_WORK
    if not SERIAL_WORK // 16 <= work <= SERIAL_WORK * 16:
        return default_team
    return bool(ask(Knob(f"team.{number}.{default_team}", (True, False), default_team)))


def unfused(sub: Subgraph, target: Target) -> Plan:
    """One kernel for each computed value, every value through global memory: what a graph runtime does per operator."""
    context = Context(sub, target, recompute=False, extra=frozenset(_live_computed(sub)))
    if context.is_cuda:
        return unfused_cuda(context)
    kernels: list[Kernel] = []
    edges: list[Edge] = []
    reductions: list[Reduction] = []
    for value in context.anchors:
        single = _alone(context, value)
        kernels.append(single)
        reductions.extend(_reductions(context, list(single.phases), default))
        for read in dict.fromkeys(a.value for a in context.accesses(value)):
            if sub.values[read].op not in ("input", "const"):
                edges.append(Edge(read, value, "global"))
    return Plan(
        kernels=tuple(kernels),
        edges=tuple(sorted(edges, key=lambda e: (e.value, e.consumer))),
        reductions=tuple(sorted(reductions, key=lambda r: r.value)),
        stream=_streams(context, default),
    )


def _alone(context: Context, value: int) -> Kernel:
    """A kernel that computes one value from global memory; two phases when its few rows are split over tasks."""
    sub = context.sub
    own, reduced = sub.values[value].axes, sub.values[value].reduce
    few = context.extent(own) < 2 * context.target.processors and context.domain_work(value) >= 1 << 16
    group = GroupDraft(str(value), 0, (*own, *reduced) if few and reduced else own, [value])
    phases = [[group]]
    if few and reduced:
        group.partial.add(value)
        phases.append([GroupDraft(f"{value}c", 1, own, [], combine=[value])])
    for draft in groups_of(phases):
        form_stages(context, draft, default)
        mapping.choose_tiles(context, draft, default)
    frozen = [Phase(tuple(_group(context, g, default) for g in phase)) for phase in phases]
    return Kernel(tuple(frozen), team=_team(context, 0, frozen, default))


def _live_computed(sub: Subgraph) -> Iterator[int]:
    alive = live(sub)
    return (v for v in sub.computed if v in alive)
