"""Partition: a graph as library operators and, between them, memory-intensive components in canonical form.

The *depth* of a tensor is the greatest number of library operators on a path to it. Values of one depth never depend
on each other through a library operator, so those that must be in memory can be computed by one component (remote
stitching), or by one for each connected part. Every component is convex: from one level of depth, paths lead
only to the same or deeper levels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .canonical import Canonical, canonicalise, closure
from .errors import VerifyError
from .ir import Graph, Node
from .movement import is_movement
from .placement import Placement, place
from .subgraph import Subgraph


@dataclass(frozen=True)
class Component:
    """One memory-intensive subgraph, placed in its graph.

    inputs   tensor name for each of `subgraph.inputs`; the tensor's row-major memory is the input's storage
    outputs  tensor name for each of `subgraph.outputs`
    nodes    origins of the exported nodes that it covers, each once; one may be covered by several components
    depth    library operators before it, at most
    """

    subgraph: Subgraph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[str, ...]
    depth: int


@dataclass(frozen=True)
class LibraryStep:
    """A library operator; its depth counts itself."""

    node: Node
    depth: int


@dataclass(frozen=True)
class ViewStep:
    """Tensor `output` has the bytes of `source`, under another name and perhaps shape: no kernel."""

    output: str
    source: str


Step = Component | LibraryStep | ViewStep


@dataclass(frozen=True)
class Partition:
    """The whole graph as steps in execution order."""

    graph: Graph
    steps: tuple[Step, ...]

    @property
    def components(self) -> tuple[Component, ...]:
        return tuple(step for step in self.steps if isinstance(step, Component))


def partition(graph: Graph, join: bool = True) -> Partition:
    """The steps of `graph`: with `join`, one component for each depth that needs any; else one for each connected
    part of it. Library operators carry the reason why they stand outside."""
    placement = place(graph)
    producers = placement.producers
    available = {*graph.inputs, *graph.constants}
    library: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if node.op == "library":
            library.setdefault(placement.depth[next(filter(None, node.outputs))], []).append(node)
    views = _Views(placement)
    steps: list[Step] = list(views.of(available))
    for depth in range(max([0, *library, *placement.written]) + 1):
        for node in library.get(depth, ()):
            steps.append(LibraryStep(node, depth))
            made = [name for name in node.outputs if name]
            available.update(made)
            steps += views.of(made)
        wanted = placement.written.get(depth, [])
        groups = [wanted] if join and wanted else _connected(wanted, available, producers, graph)
        found = [canonicalise(graph, group, frozenset(available), producers) for group in groups]
        for canonical in found:
            steps += _steps(canonical, depth)
        available.update(wanted)
        steps += views.of(wanted)
    return Partition(graph, tuple(steps))


def _steps(canonical: Canonical, depth: int) -> list[Step]:
    steps: list[Step] = []
    if canonical.outputs:
        origins = dict.fromkeys(node.origin for node in canonical.nodes if node.origin)
        steps.append(Component(canonical.subgraph, canonical.inputs, canonical.outputs, tuple(origins), depth))
    return steps + [ViewStep(tensor, source) for tensor, source in canonical.views]


class _Views:
    """Tensors that library operators or the caller need and that are views of others, to be told when their source is
    there."""

    def __init__(self, placement: Placement) -> None:
        self._by_source: dict[str, list[str]] = {}
        for tensor, source in placement.views.items():
            self._by_source.setdefault(source, []).append(tensor)

    def of(self, sources: Sequence[str] | set[str]) -> list[Step]:
        return [ViewStep(tensor, source) for source in sources for tensor in self._by_source.get(source, ())]


def _connected(
    wanted: Sequence[str], available: set[str], producers: Mapping[str, Node], graph: Graph
) -> list[list[str]]:
    """`wanted` in groups whose computations have a computed tensor in common, in the order of their first members."""
    group_of: dict[str, int] = {}
    groups: dict[int, list[str]] = {}
    for number, tensor in enumerate(wanted):
        groups[number] = [tensor]
        names = [
            node.outputs[0]
            for node in closure([tensor], available, producers)
            if node.op != "iota" and (not is_movement(node, graph.types) or node.op == "concat")
        ]
        for name in [tensor, *names]:
            other = group_of.get(name, number)
            if other != number:
                groups[number] = groups.pop(other) + groups[number]
                for member, owner in group_of.items():
                    if owner == other:
                        group_of[member] = number
            group_of[name] = number
    return sorted(groups.values(), key=lambda group: wanted.index(group[0]))


def verify_partition(part: Partition) -> None:
    """Raises VerifyError unless every step reads what steps before it (or the caller) wrote, nothing is written twice,
    and all library operators and outputs of the graph are there."""
    graph = part.graph
    written = {*graph.inputs, *graph.constants}
    for step in part.steps:
        match step:
            case Component():
                reads, writes = step.inputs, step.outputs
            case LibraryStep():
                reads = tuple(name for name in step.node.inputs if name)
                writes = tuple(name for name in step.node.outputs if name)
            case ViewStep():
                reads, writes = (step.source,), (step.output,)
        for name in reads:
            if name not in written:
                raise VerifyError(f"{type(step).__name__} reads {name!r} before anything writes it")
        for name in writes:
            if name in written:
                raise VerifyError(f"{type(step).__name__} writes {name!r} again")
        written.update(writes)
    nodes = [step.node for step in part.steps if isinstance(step, LibraryStep)]
    if {n.outputs for n in nodes} != {n.outputs for n in graph.nodes if n.op == "library"}:
        raise VerifyError("library operators are missing")
    if missing := [name for name in graph.outputs if name not in written]:
        raise VerifyError(f"outputs {missing} are not written")
