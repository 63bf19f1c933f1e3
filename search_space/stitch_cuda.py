"""Stitching for CUDA: the same dominants, groups and stages as on the CPU, then threads, places and residency."""

from __future__ import annotations

from collections.abc import Iterator

from .banks import lay_out
from .draft import Context, GroupDraft, StageDraft
from .edges import Conflict, places
from .grouping import place
from .keeping import groups_of, keep_shared
from .knobs import Ask, Knob, Recorder, default
from .plan import Buffer, Edge, Group, Kernel, Phase, Plan, Reduction, Stage
from .residency import Keeper, Sites, sites
from .resident import keep_resident, resident_chain
from .shared_memory import group_bytes
from .staging import form_stages
from .threads import map_kernel, share_threads
from .transposing import tile_inputs
from .unrolling import unrolled

Kernels = list[list[list[GroupDraft]]]
"""Kernels of phases of groups."""


def build_cuda(context: Context, ask: Ask) -> Plan:
    """The CUDA plan that the answers of `ask` describe. Total: every combination of answers gives a plan."""
    answers = Recorder(ask)
    for _ in range(4 * len(context.sub.values) + 4):
        phases = place(context, answers)
        for group in groups_of(phases):
            form_stages(context, group, answers)
            keep_shared(context, group, phases, answers)
        try:
            edges = places(context, phases)
        except Conflict:
            context = context.again()
            continue
        return finish(context, _cut(phases, answers), edges, answers)
    raise AssertionError("stitching does not converge")


def _cut(phases: list[list[GroupDraft]], ask: Ask) -> Kernels:
    """Kernels: phases with a grid barrier between them, or a launch where the answers say so."""
    kernels: Kernels = []
    for number, phase in enumerate(phases):
        if number and ask(Knob(f"cut.{number}", ("barrier", "kernel"), "barrier")) == "barrier":
            kernels[-1].append(phase)
        else:
            kernels.append([phase])
    parted: Kernels = []
    for number, kernel in enumerate(kernels):
        several = len(kernel) == 1 and len(kernel[0]) > 1
        if several and ask(Knob(f"pack.{number}", ("together", "apart"), "together")) == "apart":
            parted.extend([[group]] for group in kernel[0])
        else:
            parted.append(kernel)
    return parted


def finish(context: Context, kernels: Kernels, edges: tuple[Edge, ...], ask: Ask) -> Plan:
    """Maps threads, decides what stays on chip, and freezes."""
    reads = sites(context.sub, [m for g in _all(kernels) for m in _listed(g)], edges)
    for kernel in kernels:
        chain = resident_chain(kernel)
        map_kernel(context, list(groups_of(kernel)), ask, chain)
        keepers: list[Keeper] = []
        for group in groups_of(kernel):
            keeper, edges = _fit(context, group, reads, edges, ask)
            keepers.append(keeper)
        kept = keep_resident(context, kernel, chain, reads, edges, ask) if chain else None
        if kept is not None:
            edges = kept
            continue
        for keeper in keepers:
            edges = tile_inputs(context, keeper.group, reads, edges, ask)
            edges = keeper.inputs(edges)
        for group in groups_of(kernel):
            lay_out(context, group, reads, edges)
    edges = tuple(Edge(e.value, e.consumer, "shuffle") if _shuffled(context, kernels, reads, e) else e for e in edges)
    return Plan(
        kernels=tuple(_kernel(context, k, ask) for k in kernels),
        edges=tuple(sorted(edges, key=lambda e: (e.value, e.consumer))),
        reductions=tuple(
            Reduction(second, coupled=first)
            for second, first in sorted(c for g in _all(kernels) for c in g.coupled.items())
        ),
        buffers=tuple(sorted(_buffers(context, kernels), key=lambda b: b.value)),
    )


def _all(kernels: Kernels) -> list[GroupDraft]:
    return [group for kernel in kernels for group in groups_of(kernel)]


def _listed(group: GroupDraft) -> list[int]:
    return [m for stage in group.stages for m in stage.members]


def _fit(
    context: Context, group: GroupDraft, reads: Sites, edges: tuple[Edge, ...], ask: Ask
) -> tuple[Keeper, tuple[Edge, ...]]:
    """Puts what it can into registers; shrinks tiles, then demotes the largest buffers to global memory, until the
    group fits a block's memory."""
    sub = context.sub
    while True:
        keeper = Keeper(context, group, reads, ask)
        held = keeper.registers(edges)
        sizes = group_bytes(sub, group, held)
        if sum(sizes.values()) <= context.target.block_bytes:
            return keeper, held
        split = {a for m in group.partial for a in sub.values[m].reduce}
        axis = max((a for a in group.parallel if a not in split), key=lambda a: group.tiles[a], default=None)
        if axis is not None and group.tiles[axis] > 1:
            group.tiles[axis] //= 2
            share_threads(context, group)
            continue
        demotable = [v for v in sizes if v >= 0 and v not in group.combine]
        demotable = [v for v in demotable if set(group.parallel) <= set(sub.values[v].axes)]
        if not demotable:
            return keeper, held
        largest = max(demotable, key=lambda v: sizes[v])
        edges = tuple(
            Edge(e.value, e.consumer, "global") if e.value == largest and e.place == "block" else e for e in edges
        )


def _shuffled(context: Context, kernels: Kernels, reads: Sites, edge: Edge) -> bool:
    """True for a reduction that some reader in its own stage gets from a fold across threads."""
    reduced = context.sub.values[edge.value].reduce
    stage = next((s for g in _all(kernels) for s in g.stages if edge.value in s.members), None)
    if edge.place != "register" or stage is None or not any(n > 1 for a, n in stage.lanes if a in reduced):
        return False
    return any(access.root in stage.members for access in reads[edge.value, edge.consumer])


def _kernel(context: Context, kernel: list[list[GroupDraft]], ask: Ask) -> Kernel:
    phases = tuple(Phase(tuple(_group(context, g, ask) for g in phase)) for phase in kernel)
    blocks = [sum(-(-g.tasks(context.sub) // g.tasks_per_block) for g in phase) for phase in kernel]
    return Kernel(phases, team=max(blocks) > 1)


def _group(context: Context, group: GroupDraft, ask: Ask) -> Group:
    return Group(
        parallel=tuple((a, group.tiles[a]) for a in group.parallel),
        stages=tuple(_stage(s, unrolled(context, group, s, ask)) for s in group.stages),
        tasks_per_block=group.tasks_per_block,
        threads=group.threads,
    )


def _stage(stage: StageDraft, unroll: tuple[tuple[int, int], ...]) -> Stage:
    return Stage(
        values=tuple(sorted((*stage.inputs, *stage.members))),
        order=stage.order,
        combine=tuple(stage.combine),
        vector=stage.vector,
        width=stage.width,
        unroll=unroll,
        lanes=stage.lanes,
    )


def _buffers(context: Context, kernels: Kernels) -> Iterator[Buffer]:
    for group in _all(kernels):
        loaded = {v: axes for stage in group.stages for v, axes in stage.inputs.items()}
        for value, (order, pad) in group.layouts.items():
            if (order, pad) != (loaded.get(value, context.sub.values[value].axes), 0):
                yield Buffer(value, order, pad)


def unfused_cuda(context: Context) -> Plan:
    """One kernel for each computed value, every value through global memory: what a graph runtime does per operator."""
    sub = context.sub
    edges: list[Edge] = []
    kernels: Kernels = []
    for value in context.anchors:
        kernels.append(_alone(context, value))
        for read in dict.fromkeys(a.value for a in context.accesses(value)):
            if sub.values[read].op not in ("input", "const"):
                edges.append(Edge(read, value, "global"))
    return finish(context, kernels, tuple(sorted(edges, key=lambda e: (e.value, e.consumer))), default)


def _alone(context: Context, value: int) -> list[list[GroupDraft]]:
    """A kernel that computes one value from global memory; two phases when its few rows are split over tasks."""
    own, reduced = context.sub.values[value].axes, context.sub.values[value].reduce
    few = context.extent(own) < context.target.processors and context.domain_work(value) >= 1 << 16
    group = GroupDraft(str(value), 0, (*own, *reduced) if few and reduced else own, [value])
    phases = [[group]]
    if few and reduced:
        group.partial.add(value)
        phases.append([GroupDraft(f"{value}c", 1, own, [], combine=[value])])
    for draft in groups_of(phases):
        form_stages(context, draft, default)
    return phases
