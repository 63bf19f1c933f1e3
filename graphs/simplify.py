"""The clean-up of a graph: constants folded, equal work done once, what does nothing or is not needed gone."""

from __future__ import annotations

from .ir import Graph
from .passes.common_subexpressions import merge_common_subexpressions
from .passes.constant_folding import fold_constants
from .passes.dead_code import eliminate_dead_code
from .passes.no_ops import remove_no_ops

PASSES = (eliminate_dead_code, fold_constants, remove_no_ops, merge_common_subexpressions, eliminate_dead_code)

ROUNDS = 4
"""One pass can open the way for another; after two rounds there is hardly ever anything left."""


def simplify(graph: Graph) -> Graph:
    """An equivalent graph with the same inputs and outputs, after the PASSES, until they change nothing.

    Every pass gives, bit for bit, the results that the graph gave before, but for constants, which are folded in
    float64 and rounded once. A valid graph stays valid.
    """
    for _ in range(ROUNDS):
        before = graph
        for run in PASSES:
            graph = run(graph)
        if graph.nodes == before.nodes:
            break
    return graph
