"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from ..ir import Graph, Node, TensorType
from ..rewrite import substituted

SMALL = 1 << 16
"""Bytes up to which constants are compared by content; larger ones are equal when they are the same memory."""

_COMMUTATIVE = frozenset(
    ["add", "mul", "minimum", "maximum", "and", "or", "xor", "bitand", "bitor", "bitxor", "eq", "ne"]
)


def merge_common_subexpressions(graph: Graph) -> Graph:
    """The graph with equal computations done once.

    1. Constants of one type with the same bytes (small ones) or the same memory (others) are one tensor.
    2. Primitives with the same operator, operands, attributes and result type are one node; the order of
       operands does not count where the operator commutes.
    3. Library nodes are never merged: they may be random, and what they hold is not ours to compare.
    """
    replacements: dict[str, str] = {}
    seen: dict[Any, str] = {}
    for name, value in graph.constants.items():
        first = seen.setdefault(_constant_key(value), name)
        if first != name and name not in graph.outputs:
            replacements[name] = first
    for node in graph.nodes:
        if node.op == "library":
            continue
        output = node.outputs[0]
        first = seen.setdefault(_node_key(node, graph.types[output], replacements), output)
        if first != output:
            replacements[output] = first
    return substituted(graph, replacements)


def _constant_key(value: NDArray[Any]) -> Any:
    if value.nbytes <= SMALL:
        return "constant", value.dtype, value.shape, value.tobytes()
    return "memory", value.dtype, value.shape, value.strides, value.__array_interface__["data"][0]


def _node_key(node: Node, kind: TensorType, replacements: Mapping[str, str]) -> Any:
    inputs = tuple(replacements.get(n, n) for n in node.inputs)
    if node.op in _COMMUTATIVE:
        inputs = tuple(sorted(inputs))
    return node.op, inputs, node.attrs, kind
