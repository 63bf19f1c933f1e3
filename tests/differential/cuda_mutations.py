"""Changes of a CUDA plan that no knob makes: threads, how loops are shared among them, widths."""

from __future__ import annotations

import random
from dataclasses import replace

from stitchtune.graphs.subgraph import Subgraph
from stitchtune.search_space.plan import Group, Kernel, Phase, Place, Plan, Stage

from tests.differential.mutations import (
    Mutation,
    accumulators,
    alias,
    apart,
    buffers,
    coupled,
    cut,
    dynamic,
    less_parallel,
    merge_groups,
    merge_kernels,
    merge_phases,
    merge_stages,
    more_parallel,
    packing,
    parallel_order,
    places,
    stages,
    team,
    tiles,
    unroll,
    with_stages,
)

WIDTHS = (1, 2, 4, 8, 16)
THREADS = (32, 64, 64, 96, 128, 128, 256)


def shared_out(sub: Subgraph, stage: Stage, threads: int, rng: random.Random) -> Stage:
    """The loops of a stage shared among the block's threads in another way, all of them where a reduction needs it."""
    axes = list(stage.order)
    reduced = {a for v in stage.values for a in sub.values[v].reduce}
    if not axes:
        return replace(stage, lanes=())
    taken = rng.sample(axes, rng.randint(1, min(3, len(axes))))
    if threads & (threads - 1) or (not reduced & set(taken) and rng.random() < 0.2):
        # Any numbers do where nothing is folded across threads.
        taken = [a for a in taken if a not in reduced][:1]
        return replace(stage, lanes=tuple((a, rng.randint(2, threads)) for a in taken))
    bits = threads.bit_length() - 1
    cuts = sorted(rng.randint(0, bits) for _ in taken[1:])
    parts = [b - a for a, b in zip((0, *cuts), (*cuts, bits), strict=True)]
    return replace(stage, lanes=tuple((a, 1 << n) for a, n in zip(taken, parts, strict=True) if n))


def threads(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Blocks of another size, all loops shared anew."""

    def change(kernel: Kernel) -> Kernel:
        size = rng.choice(THREADS)

        def group(old: Group) -> Group:
            return replace(old, threads=size, stages=tuple(shared_out(sub, s, size, rng) for s in old.stages))

        return replace(kernel, phases=tuple(Phase(tuple(group(g) for g in p.groups)) for p in kernel.phases))

    return replace(plan, kernels=tuple(change(k) for k in plan.kernels))


def lanes(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Some stages share their loops anew."""

    def group(old: Group) -> Group:
        stages = (shared_out(sub, s, old.threads, rng) if rng.random() < 0.6 else s for s in old.stages)
        return replace(old, stages=tuple(stages))

    kernels = (
        replace(k, phases=tuple(Phase(tuple(group(g) for g in p.groups)) for p in k.phases)) for k in plan.kernels
    )
    return replace(plan, kernels=tuple(kernels))


def widths(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """Other packs, along any axis."""

    def change(stage: Stage) -> Stage:
        if not stage.order or rng.random() < 0.3:
            return stage
        axis = stage.vector if stage.vector >= 0 and rng.random() < 0.6 else rng.choice(stage.order)
        unrolled = tuple((a, f) for a, f in stage.unroll if a != axis)
        return replace(stage, vector=axis, width=rng.choice(WIDTHS), unroll=unrolled)

    return with_stages(plan, change)


def scalars(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    return with_stages(plan, lambda s: replace(s, vector=-1, width=1) if rng.random() < 0.6 else s)


def loop_order(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    return with_stages(plan, lambda s: replace(s, order=tuple(rng.sample(s.order, len(s.order)))))


def handed_back(sub: Subgraph, plan: Plan, rng: random.Random) -> Plan:
    """What is made of a reduction, row by row, is evaluated once in the stage of the reduction instead of inline."""
    listed = {v for s in stages(plan) for v in s.values}
    options = [
        (e.value, e.consumer)
        for e in plan.edges
        if e.value in listed
        and e.consumer not in listed
        and sub.values[e.value].reduce
        and sub.values[e.consumer].axes == sub.values[e.value].axes
        and not sub.values[e.consumer].reduce
    ]
    if not options:
        return plan
    first, second = rng.choice(options)
    place: Place = rng.choice(("shuffle", "register"))
    kept: Place = rng.choice(("register", "block", "global"))

    def change(stage: Stage) -> Stage:
        return replace(stage, values=tuple(sorted((*stage.values, second)))) if first in stage.values else stage

    edges = (
        replace(e, place=place)
        if (e.value, e.consumer) == (first, second)
        else replace(e, place=kept)
        if e.value == second
        else e
        for e in plan.edges
    )
    return replace(with_stages(plan, change), edges=tuple(edges))


CUDA_MUTATIONS: tuple[Mutation, ...] = (
    threads,
    merge_kernels,
    widths,
    packing,
    lanes,
    dynamic,
    threads,
    alias,
    tiles,
    unroll,
    lanes,
    buffers,
    coupled,
    widths,
    merge_groups,
    handed_back,
    threads,
    accumulators,
    merge_phases,
    places,
    lanes,
    team,
    cut,
    loop_order,
    merge_stages,
    widths,
    more_parallel,
    parallel_order,
    scalars,
    apart,
    less_parallel,
)
