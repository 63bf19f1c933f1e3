"""Dead-code elimination."""

from __future__ import annotations

from dataclasses import replace

from ..ir import Graph
from ..rewrite import trimmed


def eliminate_dead_code(graph: Graph) -> Graph:
    """The graph without what no output needs.

    1. A node none of whose outputs is read, directly or through others, by a graph output is dropped.
    2. A constant that nothing reads is dropped. Inputs stay: they are the model's interface.
    """
    live = set(graph.outputs)
    kept = []
    for node in reversed(graph.nodes):
        if any(o in live for o in node.outputs if o):
            kept.append(node)
            live.update(node.inputs)
    return trimmed(replace(graph, nodes=tuple(reversed(kept))))
