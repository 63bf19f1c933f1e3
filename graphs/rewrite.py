"""Small edits of graphs that the reader and the passes share."""

from __future__ import annotations

from collections.abc import Mapping
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


def trimmed(graph: Graph) -> Graph:
    """The graph without the types and constants that nothing uses."""
    used = {*graph.inputs, *graph.outputs, *(n for node in graph.nodes for n in (*node.inputs, *node.outputs) if n)}
    return replace(
        graph,
        types={n: t for n, t in graph.types.items() if n in used},
        constants={n: c for n, c in graph.constants.items() if n in used},
    )


def substituted(graph: Graph, replacements: Mapping[str, str]) -> Graph:
    """The graph with uses of each tensor in `replacements` turned to what it maps to; nodes that write one are dropped.

    What stands in is of the same type, written earlier, and not replaced itself. Outputs keep their names: what
    stands in for one takes its name over, or is copied to it where it has a name to keep (an input, a constant, another
    output).
    """
    if not replacements:
        return graph

    dropped = {n.outputs[0]: n for n in graph.nodes if n.outputs[0] in replacements}
    nodes = [_renamed_inputs(n, replacements) for n in graph.nodes if n.outputs[0] not in dropped]
    movable = {o for n in nodes for o in n.outputs if o} - set(graph.outputs)
    taken_over: dict[str, str] = {}
    for output in dict.fromkeys(graph.outputs):
        if output not in replacements:
            continue
        source = replacements[output]
        if source in movable and source not in taken_over:
            taken_over[source] = output
        else:
            nodes.append(Node("copy", (source,), (output,), origin=dropped[output].origin))
    types = {n: t for n, t in graph.types.items() if n not in taken_over.values()}
    return trimmed(renamed(replace(graph, nodes=tuple(nodes), types=types), taken_over))


def _renamed_inputs(node: Node, names: Mapping[str, str]) -> Node:
    if not any(n in names for n in node.inputs):
        return node
    return replace(node, inputs=tuple(names.get(n, n) for n in node.inputs))
