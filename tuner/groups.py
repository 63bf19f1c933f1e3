"""What a graph gives the tuner to do: its distinct subgraphs, and the record of them that reports read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..graphs.partition import Component, Partition
from ..graphs.subgraph import Subgraph
from ..results.records import GraphRecord, Part, PlanKey
from ..search_space.stitch import heuristic, unfused
from ..search_space.target import Target
from .cost import bytes_needed


@dataclass(frozen=True)
class Group:
    """Components that share plans: equal but for slots. A key and a component number for each choice of slots."""

    sub: Subgraph
    keys: tuple[PlanKey, ...]
    components: tuple[int, ...]
    occurrences: int
    label: str
    nodes: int


def distinct(partition: Partition, key_of: Callable[[Subgraph], PlanKey]) -> list[Group]:
    """The distinct subgraphs of a graph, those that move most bytes over all occurrences first."""
    members: dict[PlanKey, dict[PlanKey, int]] = {}
    occurrences: dict[PlanKey, int] = {}
    components: tuple[Component, ...] = partition.components
    keys: dict[Subgraph, PlanKey] = {}
    for number, component in enumerate(components):
        sub = component.subgraph
        key = keys[sub] if sub in keys else keys.setdefault(sub, key_of(sub))
        shared = replace(key, slots=())
        members.setdefault(shared, {}).setdefault(key, number)
        occurrences[shared] = occurrences.get(shared, 0) + 1
    groups = [
        Group(
            components[next(iter(found.values()))].subgraph,
            tuple(found),
            tuple(found.values()),
            occurrences[shared],
            label(components[next(iter(found.values()))].subgraph),
            len(components[next(iter(found.values()))].nodes),
        )
        for shared, found in members.items()
    ]
    return sorted(groups, key=lambda g: -bytes_needed(g.sub) * g.occurrences)


def label(sub: Subgraph) -> str:
    """A short name for tables: its most telling operators and its largest shape."""
    names = dict.fromkeys(sub.values[v].op for v in sub.computed if sub.values[v].reduce)
    names |= dict.fromkeys(sub.values[v].op for v in reversed(sub.computed))
    telling = [n for n in names if n not in ("piecewise", "iota", "cast", "copy")] or list(names)
    largest = max((*sub.computed, *sub.inputs), key=sub.domain_size, default=None)
    shape = "x".join(str(sub.extents[a]) for a in sub.values[largest].domain) if largest is not None else ""
    return f"{'-'.join(telling[:3])} {shape}".strip()


def graph_record(partition: Partition, groups: Sequence[Group], run: str, target: Target) -> GraphRecord:
    """What reports need to know of the graph."""
    parts = []
    for group in groups:
        parts.append(
            Part(
                key=group.keys[0],
                occurrences=group.occurrences,
                label=group.label,
                nodes=group.nodes,
                bytes_min=bytes_needed(group.sub),
                kernels_unfused=len(unfused(group.sub, target).kernels),
                kernels_heuristic=len(heuristic(group.sub, target).kernels),
                operations=sum(group.sub.domain_size(v) for v in group.sub.computed),
            )
        )
    graph = partition.graph
    origins = {node.origin for node in graph.nodes}
    library = sum(node.op == "library" for node in graph.nodes)
    return GraphRecord(run, graph.name, tuple(parts), library, len(origins), graph.sizes)
