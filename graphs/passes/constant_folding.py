"""Constant folding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError
from ..fold import fold
from ..ir import Graph, Node, TensorType, constant
from ..primitives import PRIMITIVES
from ..rewrite import trimmed

LIMIT = 1 << 20
"""Bytes that a folded constant may take when its operands take less."""

_SPREADING = ("broadcast", "iota")
"""Operators that make much of little: their results are cheaper to read through than to store."""


def fold_constants(graph: Graph) -> Graph:
    """The graph with primitives over constants computed.

    1. A primitive whose operands are all constants, or broadcasts and positions made of them, is replaced by its
       value, if that takes at most LIMIT bytes or no more than the constants it is made of. Broadcasts
       and iotas themselves are left.
    2. An elementwise primitive whose operands are all broadcasts of constants of one shape along the same dimensions is
       computed on those constants, and broadcast then.
    3. A folded value whose elements are all the same bits becomes a scalar and a broadcast.
    4. A gather out of range is left for whoever runs the graph to report.
    """
    return _Folding(graph).run()


class _Folding:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.types = dict(graph.types)
        self.constants: dict[str, NDArray[Any]] = dict(graph.constants)
        self.spread: dict[str, Node] = {}
        """Broadcasts and iotas that depend on constants alone."""
        self.nodes: list[Node] = []

    def run(self) -> Graph:
        for node in self.graph.nodes:
            self._visit(node)
        return trimmed(replace(self.graph, nodes=tuple(self.nodes), types=self.types, constants=self.constants))

    def _visit(self, node: Node) -> None:
        known = node.op != "library" and all(n in self.constants or n in self.spread for n in node.inputs)
        if node.op in _SPREADING:
            if all(n in self.constants for n in node.inputs):
                self.spread[node.outputs[0]] = node
        elif known and node.op != "copy" and (self._fold_inside(node) or self._fold(node)):
            return
        self.nodes.append(node)

    # --- rule 2

    def _fold_inside(self, node: Node) -> bool:
        """Folds an elementwise node under the broadcast that its operands share."""
        spreads = [self.spread.get(n) for n in node.inputs]
        first = spreads[0] if spreads else None
        if PRIMITIVES[node.op].kind != "elementwise" or first is None or first.op != "broadcast":
            return False
        for other in spreads:
            if other is None or other.op != "broadcast" or other.attrs != first.attrs:
                return False
        sources = [s.inputs[0] for s in spreads if s is not None]
        if any(s not in self.constants or self.types[s].shape != self.types[sources[0]].shape for s in sources):
            return False
        output = node.outputs[0]
        kind = TensorType(self.types[output].dtype, self.types[sources[0]].shape)
        value = fold(node, [self.constants[s] for s in sources], kind)
        self._spread(output, value, replace(first, origin=node.origin))
        return True

    # --- rules 1 and 3

    def _fold(self, node: Node) -> bool:
        output = node.outputs[0]
        kind = self.types[output]
        made_of = sum(self.constants[n].nbytes for n in self._sources(node.inputs))
        wide = max((self.types[n].bytes for n in node.inputs), default=0)
        if kind.bytes > max(LIMIT, made_of) or wide > max(LIMIT, made_of):
            return False
        try:
            value = fold(node, [self._value(n) for n in node.inputs], kind)
        except InputError:
            return False
        if value.size > 1 and _is_uniform(value):
            scalar = np.array(value[(0,) * value.ndim])
            attrs = (("dims", ()), ("shape", kind.shape))
            self._spread(output, scalar, Node("broadcast", ("",), (output,), attrs, node.origin))
        else:
            self.constants[output] = constant(np.asarray(value, order="C"))
        return True

    def _sources(self, names: Sequence[str]) -> set[str]:
        """The constants that known tensors are made of."""
        return {c for n in names for c in ((n,) if n in self.constants else self.spread[n].inputs)}

    def _value(self, name: str) -> NDArray[Any]:
        if name in self.constants:
            return self.constants[name]
        node = self.spread[name]
        return fold(node, [self.constants[n] for n in node.inputs], self.types[name])

    def _spread(self, output: str, value: NDArray[Any], broadcast: Node) -> None:
        """Makes `output` a broadcast of `value`, a new constant."""
        name = f"{output}:value"
        while name in self.types:
            name += "'"
        self.constants[name] = constant(value)
        self.types[name] = TensorType(self.types[output].dtype, value.shape)
        node = replace(broadcast, inputs=(name,), outputs=(output,))
        self.spread[output] = node
        self.nodes.append(node)


def _is_uniform(value: NDArray[Any]) -> bool:
    """Whether all elements are the same bits (NaNs and zeros of either sign told apart)."""
    flat = np.ascontiguousarray(value).reshape(-1).view(np.uint8).reshape(value.size, -1)
    return bool((flat == flat[0]).all())
