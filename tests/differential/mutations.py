"""Changes of a plan that no knob makes: whatever legality accepts afterwards must work."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

from stitchtune.graphs.subgraph import Subgraph
from stitchtune.search_space.aliasing import landing
from stitchtune.search_space.coupling import all_pairs
from stitchtune.search_space.plan import Buffer, Edge, Group, Kernel, Phase, Place, Plan, Reduction, Stage

Mutation = Callable[[Subgraph, Plan, random.Random], Plan]

WIDTHS = (1, 2, 4, 8, 16, 32, 64)


# --- walking a plan


def groups(plan: Plan) -> Iterator[Group]:
    for kernel in plan.kernels:
        for phase in kernel.phases:
            yield from phase.groups


def stages(plan: Plan) -> Iterator[Stage]:
    for group in groups(plan):
        yield from group.stages


def with_groups(plan: Plan, change: Callable[[Group], Group]) -> Plan:
    kernels = tuple(
        replace(k, phases=tuple(Phase(tuple(change(g) for g in p.groups)) for p in k.phases)) for k in plan.kernels
    )
    return replace(plan, kernels=kernels)


def with_stages(plan: Plan, change: Callable[[Stage], Stage]) -> Plan:
    return with_groups(plan, lambda g: replace(g, stages=tuple(change(s) for s in g.stages)))


def _some(rng: random.Random, p: float = 0.6) -> bool:
    return rng.random() < p


# --- sizes and mapping


def dynamic(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Some extents become arguments."""
    share = rng.choice((0.3, 0.7, 1.0))
    return replace(plan, dynamic=tuple(a for a in range(len(sub.extents)) if rng.random() < share))


def tiles(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Any tile sizes, mostly ones that do not divide."""

    def change(group: Group) -> Group:
        sizes = tuple((a, rng.randint(1, max(1, sub.extents[a])) if _some(rng) else t) for a, t in group.parallel)
        return replace(group, parallel=sizes)

    return with_groups(plan, change)


def packing(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    return with_groups(plan, lambda g: replace(g, tasks_per_block=rng.choice((1, 2, 3, 5, 8))))


def parallel_order(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    return with_groups(plan, lambda g: replace(g, parallel=tuple(rng.sample(g.parallel, len(g.parallel)))))


def more_parallel(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Another axis is shared out to tasks, perhaps one that some values lack."""

    def change(group: Group) -> Group:
        have = {a for a, _ in group.parallel}
        loops = sorted({a for s in group.stages for a in s.order} - have)
        if not loops or not _some(rng):
            return group
        axis = rng.choice(loops)
        added = (axis, rng.randint(1, max(1, sub.extents[axis])))
        at = rng.randint(0, len(group.parallel))
        return replace(group, parallel=(*group.parallel[:at], added, *group.parallel[at:]))

    return with_groups(plan, change)


def less_parallel(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    return with_groups(plan, lambda g: replace(g, parallel=tuple(p for p in g.parallel if _some(rng, 0.7))))


def team(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    return replace(plan, kernels=tuple(replace(k, team=not k.team if _some(rng) else k.team) for k in plan.kernels))


# --- loops


def unroll(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    def change(stage: Stage) -> Stage:
        loops = [a for a in stage.order if a != stage.vector]
        return replace(stage, unroll=tuple((a, rng.choice((2, 3, 4, 8))) for a in loops if _some(rng)))

    return with_stages(plan, change)


def no_vector(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    return with_stages(plan, lambda s: replace(s, vector=-1, width=1) if _some(rng) else s)


def other_vector(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Another loop becomes the innermost one, in lanes."""

    def change(stage: Stage) -> Stage:
        if not stage.order or not _some(rng, 0.8):
            return stage
        axis = rng.choice(stage.order)
        order = (*(a for a in stage.order if a != axis), axis)
        unrolled = tuple((a, f) for a, f in stage.unroll if a != axis)
        return replace(stage, order=order, vector=axis, width=rng.choice(WIDTHS), unroll=unrolled)

    return with_stages(plan, change)


def loop_order(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    def change(stage: Stage) -> Stage:
        outer = [a for a in stage.order if a != stage.vector]
        order = rng.sample(outer, len(outer)) + [stage.vector] * (stage.vector >= 0)
        return replace(stage, order=tuple(order))

    return with_stages(plan, change)


def width(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    odd = rng.random() < 0.2

    def change(stage: Stage) -> Stage:
        if stage.vector < 0:
            return stage
        return replace(stage, width=rng.choice((3, 5, 12, 24)) if odd else rng.choice(WIDTHS))

    return with_stages(plan, change)


def accumulators(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    reductions = [v for v in sub.computed if sub.values[v].reduce]
    kept = {r.value: r.coupled for r in plan.reductions}
    made = (Reduction(v, rng.choice((1, 2, 4, 8)), kept.get(v, -1)) for v in reductions)
    return replace(plan, reductions=tuple(r for r in made if r != Reduction(r.value)))


def coupled(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Two reductions in one pass: the later one joins the stage of the first."""
    options = [p for p in all_pairs(sub) if all(any(v in s.values for s in stages(plan)) for v in p)]
    if not options:
        return plan
    first, second = rng.choice(options)
    where = next(s for s in stages(plan) if first in s.values)

    def change(stage: Stage) -> Stage:
        if stage == where:
            return replace(stage, values=tuple(sorted({*stage.values, second})))
        return replace(stage, values=tuple(v for v in stage.values if v != second))

    reduction = Reduction(second, plan.reduction(second).accumulators, first)
    others = [r for r in plan.reductions if r.value != second]
    moved = replace(with_stages(plan, change), reductions=tuple(sorted([*others, reduction], key=lambda r: r.value)))
    return without_empty(moved)


# --- memory


def buffers(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Kept values with another axis order and padding."""
    kept = sorted({e.value for e in plan.edges if e.place in ("block", "global")})
    made = []
    for v in kept:
        axes = sub.values[v].axes
        if _some(rng, 0.8):
            made.append(Buffer(v, tuple(rng.sample(axes, len(axes))), rng.choice((0, 0, 1, 3, 8))))
    return replace(plan, buffers=tuple(made))


def stream(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    return replace(plan, stream=tuple(v for v in sorted(sub.outputs) if _some(rng, 0.7)))


def places(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """One edge goes through another place."""
    if not plan.edges:
        return plan
    options: tuple[Place, ...] = ("inline", "register", "shuffle", "block", "global")
    at = rng.randrange(len(plan.edges))
    edge = plan.edges[at]
    changed = replace(edge, place=rng.choice([p for p in options if p != edge.place]))
    return replace(plan, edges=(*plan.edges[:at], changed, *plan.edges[at + 1 :]))


def alias(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Listed operands of a concat or a copy are stored in it."""
    listed = {v for s in stages(plan) for v in s.values}
    consumers = [c for c in sub.computed if sub.values[c].op in ("piecewise", "copy") and c in listed]
    options = [
        (read.value, c)
        for c in consumers
        for read in sub.values[c].reads
        if read.value in listed and landing(sub, c, read) is not None
    ]
    if not options:
        return plan
    chosen = {rng.choice(options), *(o for o in options if _some(rng, 0.4))}
    targets = {c for _, c in chosen}

    def change(edge: Edge) -> Edge:
        if (edge.value, edge.consumer) in chosen:
            return replace(edge, place="alias")
        return replace(edge, place="global") if edge.value in targets and edge.place != "alias" else edge

    return replace(plan, edges=tuple(change(e) for e in plan.edges))


# --- kernels, phases and groups


def without_empty(plan: Plan) -> Plan:
    """The plan without stages, groups, phases and kernels that hold nothing."""
    kernels = []
    for kernel in plan.kernels:
        phases = []
        for phase in kernel.phases:
            full = [replace(g, stages=tuple(s for s in g.stages if s.values or s.combine)) for g in phase.groups]
            full = [g for g in full if g.stages]
            if full:
                phases.append(Phase(tuple(full)))
        if phases:
            kernels.append(replace(kernel, phases=tuple(phases)))
    return replace(plan, kernels=tuple(kernels))


def cut(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Barriers become kernel boundaries."""
    made: list[Kernel] = []
    for kernel in plan.kernels:
        made.append(replace(kernel, phases=kernel.phases[:1]))
        for phase in kernel.phases[1:]:
            if _some(rng):
                made.append(replace(kernel, phases=(phase,)))
            else:
                made[-1] = replace(made[-1], phases=(*made[-1].phases, phase))
    return replace(plan, kernels=tuple(made))


def apart(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Groups of one phase become phases of their own."""
    kernels = []
    for kernel in plan.kernels:
        phases: list[Phase] = []
        for phase in kernel.phases:
            alone = len(phase.groups) > 1 and _some(rng)
            phases += [Phase((g,)) for g in phase.groups] if alone else [phase]
        kernels.append(replace(kernel, phases=tuple(phases)))
    return replace(plan, kernels=tuple(kernels))


def merge_kernels(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Kernel boundaries become barriers."""
    made: list[Kernel] = []
    for kernel in plan.kernels:
        if made and _some(rng, 0.7):
            both = made[-1].team or kernel.team
            made[-1] = Kernel((*made[-1].phases, *kernel.phases), team=both)
        else:
            made.append(kernel)
    return replace(plan, kernels=tuple(made))


def merge_phases(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Two phases of a kernel become one: their groups must not depend on each other."""
    kernels = list(plan.kernels)
    many = [i for i, k in enumerate(kernels) if len(k.phases) > 1]
    if not many:
        return plan
    i = rng.choice(many)
    phases = kernels[i].phases
    p = rng.randrange(len(phases) - 1)
    merged = Phase((*phases[p].groups, *phases[p + 1].groups))
    kernels[i] = replace(kernels[i], phases=(*phases[:p], merged, *phases[p + 2 :]))
    return replace(plan, kernels=tuple(kernels))


def merge_groups(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """The stages of a group go into the one before it that has the same parallel axes; values stay in reach."""
    before: Group | None = None
    taken: tuple[Group, Group] | None = None
    for group in groups(plan):
        if before is not None and [a for a, _ in before.parallel] == [a for a, _ in group.parallel] and _some(rng):
            taken = before, group
            break
        before = group
    if taken is None:
        return plan
    first, second = taken
    joined = replace(first, stages=(*first.stages, *second.stages))
    moved = with_groups(plan, lambda g: joined if g is first else replace(g, stages=()) if g is second else g)
    here = {v for s in joined.stages for v in s.values}
    edges = tuple(
        replace(e, place="block")
        if e.value in here and e.place == "global" and e.consumer in here and _some(rng)
        else e
        for e in plan.edges
    )
    return without_empty(replace(moved, edges=edges))


def merge_stages(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Two stages with the same loops become one, with registers between them."""
    here: set[int] = set()

    def change(group: Group) -> Group:
        done: list[Stage] = []
        for stage in group.stages:
            if done and set(done[-1].order) == set(stage.order) and not here and _some(rng):
                values = tuple(sorted((*done[-1].values, *stage.values)))
                here.update(values)
                done[-1] = replace(done[-1], values=values, combine=tuple(sorted({*done[-1].combine, *stage.combine})))
            else:
                done.append(stage)
        return replace(group, stages=tuple(done))

    merged = with_groups(plan, change)
    edges = tuple(
        replace(e, place="register") if {e.value, e.consumer} <= here and e.place in ("block", "global") else e
        for e in plan.edges
    )
    return replace(merged, edges=edges)


MUTATIONS: tuple[Mutation, ...] = (
    dynamic,
    alias,
    unroll,
    stream,
    packing,
    buffers,
    coupled,
    other_vector,
    tiles,
    width,
    merge_kernels,
    merge_groups,
    no_vector,
    accumulators,
    merge_phases,
    places,
    team,
    cut,
    loop_order,
    merge_stages,
    more_parallel,
    parallel_order,
    apart,
    less_parallel,
)
