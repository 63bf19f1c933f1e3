"""One subgraph taken out of its graph: as primitives, and as a model of the exported operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..graphs.ir import Graph, Node


def extract(graph: Graph, inputs: Sequence[str], outputs: Sequence[str], name: str = "subgraph") -> Graph:
    """The part of `graph` that computes `outputs` from `inputs`; other constants that it needs come along."""
    producers, stop = graph.producers(), frozenset(inputs)
    needed = _behind(outputs, stop, producers)
    nodes = tuple(n for n in graph.nodes if any(o in needed for o in n.outputs))
    constants = {k: v for k, v in graph.constants.items() if k in needed and k not in stop}
    types = {k: v for k, v in graph.types.items() if k in needed}
    return Graph(name, tuple(inputs), tuple(outputs), nodes, types, constants, graph.opset)


def _behind(outputs: Iterable[str], stop: frozenset[str], producers: dict[str, Node]) -> set[str]:
    """Every tensor that `outputs` need, up to those in `stop`."""
    found: set[str] = set()
    waiting = [*outputs, *stop]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        if name in producers and name not in stop:
            waiting += [i for i in producers[name].inputs if i]
    return found
