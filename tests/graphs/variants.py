"""One graph spelled otherwise: names, node order, order of commuting operands; and with library operators cut in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stitchtune.graphs.interpret import eval_node
from stitchtune.graphs.ir import Graph, Node
from stitchtune.graphs.numbering import COMMUTATIVE
from stitchtune.graphs.rounding import narrow


def renamed(graph: Graph, seed: int) -> Graph:
    """Every tensor under another name, in another lexical order."""
    order = np.random.default_rng(seed).permutation(len(graph.types))
    names = {name: f"t{order[i]}" for i, name in enumerate(graph.types)}
    return replace(
        graph,
        inputs=tuple(names[n] for n in graph.inputs),
        outputs=tuple(names[n] for n in graph.outputs),
        nodes=tuple(
            replace(
                n, inputs=tuple(names.get(i, "") for i in n.inputs), outputs=tuple(names.get(o, "") for o in n.outputs)
            )
            for n in graph.nodes
        ),
        types={names[n]: kind for n, kind in graph.types.items()},
        constants={names[n]: value for n, value in graph.constants.items()},
    )


def shuffled(graph: Graph, seed: int) -> Graph:
    """Inputs, outputs, and nodes in another order (topological still), commuting operands swapped now and then."""
    rng = np.random.default_rng(seed)
    ready = {*graph.inputs, *graph.constants, ""}
    waiting = [graph.nodes[i] for i in rng.permutation(len(graph.nodes))]
    nodes: list[Node] = []
    while waiting:
        for node in waiting:
            if ready.issuperset(node.inputs):
                break
        waiting.remove(node)
        ready.update(node.outputs)
        if node.op in COMMUTATIVE and rng.random() < 0.5:
            node = replace(node, inputs=node.inputs[::-1])
        nodes.append(node)
    inputs = tuple(graph.inputs[i] for i in rng.permutation(len(graph.inputs)))
    outputs = tuple(graph.outputs[i] for i in rng.permutation(len(graph.outputs)))
    return replace(graph, nodes=tuple(nodes), inputs=inputs, outputs=outputs)


def cut(graph: Graph, seed: int, share: float = 0.2) -> Graph:
    """Some nodes as library operators that `run_cut` runs."""
    rng = np.random.default_rng(seed)

    def maybe(node: Node) -> Node:
        if rng.random() >= share:
            return node
        payload = (node, graph.types[node.outputs[0]])
        return Node("library", node.inputs, node.outputs, (), node.origin, "test", payload)

    return replace(graph, nodes=tuple(map(maybe, graph.nodes)))


def run_cut(node: Node, args: list[NDArray[Any]]) -> list[NDArray[Any]]:
    """What a library operator of `cut` gives."""
    inner, kind = node.payload
    return [narrow(eval_node(inner, args, kind), kind.dtype)]
