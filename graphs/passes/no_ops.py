"""Removal of operators that change nothing, and of detours in movement."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ..dtypes import DType
from ..ir import Graph, Node
from ..rewrite import substituted


def remove_no_ops(graph: Graph) -> Graph:
    """The graph without operators whose result is an operand, bit for bit.

    1. A copy; a cast to the same type, or back after an exact widening (but not to float16 or bfloat16: there a
       cast rounds what was computed in float32); a transpose, reshape, broadcast, slice or
       pad that keeps every element in place; a concat of one.
    2. x * 1, x / 1, x - 0; x + 0 of integers, x + -0 of floats (+0 would change -0); max(x, -inf), min(x, +inf);
       x and True, x or False, x xor False.
    3. where(c, x, x), where(True, x, y), where(False, y, x); neg(neg(x)), not(not(x)), bitnot(bitnot(x)).
    4. A transpose of a transpose, reshape of a reshape or broadcast of a broadcast is one of them.
    """
    return _Removal(graph).run()


class _Removal:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.replacements: dict[str, str] = {}
        self.producer: dict[str, Node] = {}

    def run(self) -> Graph:
        nodes = []
        for node in self.graph.nodes:
            node = self._joined(node)
            nodes.append(node)
            self.producer.update({o: node for o in node.outputs if o})
            if node.op != "library" and (source := self._same(node)) is not None:
                self.replacements[node.outputs[0]] = self._find(source)
        return substituted(replace(self.graph, nodes=tuple(nodes)), self.replacements)

    def _find(self, name: str) -> str:
        return self.replacements.get(name, name)

    def _before(self, name: str) -> Node | None:
        """The primitive that writes `name`, or None."""
        node = self.producer.get(self._find(name))
        return None if node is None or node.op == "library" else node

    # --- rule 4

    def _joined(self, node: Node) -> Node:
        inner = self._before(node.inputs[0]) if node.op in ("transpose", "reshape", "broadcast") else None
        if inner is None or inner.op != node.op:
            return node
        attrs = dict(node.attrs)
        if node.op == "transpose":
            attrs["perm"] = tuple(inner.attr("perm")[p] for p in node.attr("perm"))
        elif node.op == "broadcast":
            attrs["dims"] = tuple(node.attr("dims")[d] for d in inner.attr("dims"))
        return replace(node, inputs=inner.inputs, attrs=tuple(sorted(attrs.items())))

    # --- rules 1 to 3

    def _same(self, node: Node) -> str | None:
        """The operand that the node's result equals, or None."""
        types, x = self.graph.types, node.inputs[0] if node.inputs else ""
        match node.op:
            case "copy":
                return x
            case "cast":
                return self._cast(node)
            case "reshape" | "broadcast" | "slice" | "pad" | "concat":
                return x if self._in_place(node) else None
            case "transpose":
                return x if list(node.attr("perm")) == list(range(len(types[x].shape))) else None
            case "neg" | "not" | "bitnot":
                inner = self._before(x)
                return inner.inputs[0] if inner is not None and inner.op == node.op else None
            case "where":
                return self._where(node)
        return self._neutral(node)

    def _in_place(self, node: Node) -> bool:
        """Whether a movement that keeps the order of elements keeps all of them, and the shape."""
        if self.graph.types[node.inputs[0]] != self.graph.types[node.outputs[0]]:
            return False
        match node.op:
            case "slice":
                # As many elements as there are, in order: the first one is the start.
                sizes = self.graph.types[node.inputs[0]].shape
                return all(n < 2 or step == 1 for n, step in zip(sizes, node.attr("steps"), strict=True))
            case "pad":
                return not any(node.attr("before") + node.attr("after"))
            case "concat":
                return len(node.inputs) == 1
        return True

    def _cast(self, node: Node) -> str | None:
        source, target = self.graph.types[node.inputs[0]].dtype, self.graph.types[node.outputs[0]].dtype
        if source is target:
            return node.inputs[0]
        inner = self._before(node.inputs[0])
        if inner is None or inner.op != "cast":
            return None
        first = self.graph.types[inner.inputs[0]].dtype
        return inner.inputs[0] if first is target and source in _EXACT.get(first, ()) else None

    def _where(self, node: Node) -> str | None:
        condition, a, b = node.inputs
        if self._find(a) == self._find(b):
            return a
        value = self._uniform(condition)
        return None if value is None else a if value else b

    def _neutral(self, node: Node) -> str | None:
        if node.op not in _NEUTRAL or len(node.inputs) != 2:
            return None
        a, b = node.inputs
        is_float = self.graph.types[a].dtype.is_float
        if _is_neutral(node.op, self._uniform(b), is_float):
            return a
        return b if node.op not in ("div", "sub") and _is_neutral(node.op, self._uniform(a), is_float) else None

    def _uniform(self, name: str) -> Any:
        """The Python value of a constant of one element, broadcast or not; None for anything else."""
        name = self._find(name)
        node = self.producer.get(name)
        while node is not None and node.op in ("broadcast", "reshape"):
            name = self._find(node.inputs[0])
            node = self.producer.get(name)
        value = self.graph.constants.get(name)
        if value is None or value.size != 1:
            return None
        return value.reshape(()).astype("float64").item() if self.graph.types[name].dtype.is_float else value.item()


_EXACT = {
    DType.F32: (DType.F64,),
    DType.I8: (DType.I16, DType.I32, DType.I64),
    DType.I16: (DType.I32, DType.I64),
    DType.I32: (DType.I64, DType.F64),
    DType.U8: (DType.U16, DType.U32, DType.U64, DType.I16, DType.I32, DType.I64),
    DType.BOOL: tuple(DType),
}
"""Types that hold every value of a type, so that casting there and back changes nothing."""

_NEUTRAL = {"mul": 1, "div": 1, "sub": 0, "add": 0, "maximum": -math.inf, "minimum": math.inf}
_NEUTRAL |= {"and": True, "or": False, "xor": False}


def _is_neutral(op: str, value: Any, is_float: bool) -> bool:
    """Whether `op` with `value` as one operand (the right one of div and sub) gives the other."""
    if value is None or value != _NEUTRAL[op]:
        return False
    if is_float and op in ("add", "sub"):
        return math.copysign(1, value) == (-1 if op == "add" else 1)
    return True
