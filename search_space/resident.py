"""Resident kernels: a block keeps its part of split rows in shared memory from phase to phase, across the barrier."""

from __future__ import annotations

from dataclasses import dataclass

from ..graphs.subgraph import Subgraph
from .draft import Context, GroupDraft
from .keeping import groups_of
from .knobs import Ask, Knob
from .loading import identity_axes
from .plan import Edge
from .residency import Sites, is_loaded, load, reads_plainly
from .shared_memory import group_bytes, tile_bytes


def resident_chain(kernel: list[list[GroupDraft]]) -> list[GroupDraft]:
    """The groups, one a phase, whose blocks could keep their parts: they split alike the same axes.

    Empty when there are none. They come first in their phases, in one order of axes, so that a block has the same task
    in all of them.
    """
    base = next((g for g in kernel[0] if g.partial), None)
    if base is None or len(kernel) < 2:
        return []
    chain = [base]
    for phase in kernel[1:]:
        chain.extend([g for g in phase if set(g.parallel) == set(base.parallel)][:1])
    if len(chain) < 2:
        return []
    for phase in kernel:
        phase.sort(key=lambda g: g not in chain)
    for group in chain[1:]:
        group.parallel = base.parallel
    return chain


def keep_resident(
    context: Context,
    kernel: list[list[GroupDraft]],
    chain: list[GroupDraft],
    reads: Sites,
    edges: tuple[Edge, ...],
    ask: Ask,
) -> tuple[Edge, ...] | None:
    """The edges with inputs kept across phases; None when that is impossible or not wanted."""
    sub, target = context.sub, context.target
    blocks = max(sum(g.tasks(sub) for g in phase) for phase in kernel)
    if blocks > target.processors or any(g.tiles != chain[0].tiles for g in chain):
        return None
    if not any(_readers(sub, chain, reads, v) for v in sub.inputs):
        return None
    if ask(Knob(f"resident.{chain[0].label}", (True, False), True)) is False:
        return None
    most = max(sum(group_bytes(sub, g, edges).values()) for g in groups_of(kernel))
    kept: tuple[Edge, ...] = ()
    for value in sub.inputs:
        found = _readers(sub, chain, reads, value)
        if found is None or is_loaded(edges, value):
            continue
        size = tile_bytes(sub, value, found.axes, lambda a: chain[0].trip(sub, a))
        if most + size <= target.block_bytes:
            most += size
            kept = (*kept, *load(chain[found.home], value, found.axes, found.stages, found.first))
    for group in groups_of(kernel) if kept else ():
        group.tasks_per_block = 1
    return (*edges, *kept) if kept else None


@dataclass(frozen=True)
class _Readers:
    """Who reads an input in several phases.

    axes    along which they all read it
    home    the first group of the chain that does, and `first` its first stage that does
    stages  for every consumer, its stages in that group; -1 for those in later phases
    """

    axes: tuple[int, ...]
    home: int
    first: int
    stages: dict[int, set[int]]


def _readers(sub: Subgraph, chain: list[GroupDraft], reads: Sites, value: int) -> _Readers | None:
    """None for an input that fewer than two phases read where it could be kept."""
    found: dict[int, set[tuple[int, int]]] = {}
    by_axes: set[tuple[int, ...]] = set()
    for (source, consumer), accesses in reads.items():
        axes = identity_axes(sub, value, consumer) if source == value else None
        if axes is None or any(_place(chain, a.root) is None for a in accesses):
            continue
        places = {_place(chain, a.root) for a in accesses if reads_plainly(a, axes)}
        if places:
            found[consumer] = {p for p in places if p is not None}
            by_axes.add(axes)
    homes = {home for places in found.values() for home, _ in places}
    if len(homes) < 2 or len(by_axes) != 1:
        return None
    home = min(homes)
    first = min(stage for places in found.values() for at, stage in places if at == home)
    stages = {c: {stage if at == home else -1 for at, stage in places} for c, places in found.items()}
    return _Readers(by_axes.pop(), home, first, stages)


def _place(chain: list[GroupDraft], root: int) -> tuple[int, int] | None:
    """The group of the chain and the stage that list a value."""
    return next(((k, s) for k, g in enumerate(chain) if (s := g.stage_of(root)) >= 0), None)
