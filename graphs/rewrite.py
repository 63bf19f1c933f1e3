"""Small edits of graphs that the reader and the passes share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from .ir import Graph, Node


def renamed(graph: Graph, names: Mapping[str, str]) -> Graph:
    """The graph with tensors called by other names; `names` maps old to new ones, which are not in use."""

    def name(old: str) -> str:
        return names.get(old, old)

    return replace(
        graph,
        inputs=tuple(map(name, graph.inputs)),
        outputs=tuple(map(name, graph.outputs)),
        nodes=tuple(_renamed_node(node, names) for node in graph.nodes),
        types={name(k): v for k, v in graph.types.items()},
        constants={name(k): v for k, v in graph.constants.items()},
    )


def _renamed_node(node: Node, names: Mapping[str, str]) -> Node:
    if not any(n in names for n in (*node.inputs, *node.outputs)):
        return node
    inputs, outputs = (tuple(names.get(n, n) for n in group) for group in (node.inputs, node.outputs))
    return replace(node, inputs=inputs, outputs=outputs)


def with_nodes(graph: Graph, nodes: Iterable[Node]) -> Graph:
    """The graph with other nodes, and without the types and constants that nothing uses any more."""
    nodes = tuple(nodes)
    used = {*graph.inputs, *graph.outputs, *(n for node in nodes for n in (*node.inputs, *node.outputs) if n)}
    return replace(
        graph,
        nodes=nodes,
        types={n: t for n, t in graph.types.items() if n in used},
        constants={n: c for n, c in graph.constants.items() if n in used},
    )
