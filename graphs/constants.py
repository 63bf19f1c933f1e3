"""A builder that knows which tensors are constant, and their values when asked: shapes are computed by graphs."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from .builder import GraphBuilder
from .errors import InputError
from .fold import fold
from .ir import Node, TensorType, constant
from .shapes import TypeMismatch

LIMIT = 1 << 16
"""Elements up to which a computed constant is evaluated while importing; shapes and indices have few."""

ABSURD = 1 << 42
"""Bytes from which on a tensor is taken for a mistake."""


class ValueBuilder(GraphBuilder):
    """A GraphBuilder whose `value` evaluates primitives over constants, on demand and once."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._known: dict[str, NDArray[Any] | None] = {}
        self._producers: dict[str, Node] = {}
        self._indexed = 0

    def value(self, name: str) -> NDArray[Any] | None:
        """The value of a tensor that depends on no input; None for one that does or that is large to compute."""
        self._index()
        stack = [name]
        while stack:
            top = stack[-1]
            if top in self._known:
                stack.pop()
                continue
            if top in self.constants:
                self._known[top] = self.constants[top]
                continue
            node = self._producers.get(top)
            if node is None or node.op == "library" or self.types[top].elements > LIMIT:
                self._known[top] = None
                continue
            waiting = [i for i in node.inputs if i not in self._known]
            if any(self._known.get(i, self) is None for i in node.inputs):
                self._known[top] = None
            elif waiting:
                stack += waiting
            else:
                self._known[top] = self._evaluate(node)
        return self._known[name]

    def _evaluate(self, node: Node) -> NDArray[Any] | None:
        args = []
        for i in node.inputs:
            arg = self._known[i]
            assert arg is not None
            args.append(arg)
        try:
            return constant(fold(node, args, self.types[node.outputs[0]]))
        except InputError:
            # A gather out of range: whoever runs the graph says so.
            return None

    def _index(self) -> None:
        for node in self._nodes[self._indexed :]:
            self._producers.update(dict.fromkeys(node.outputs, node))
        self._indexed = len(self._nodes)

    def _declare(self, name: str, kind: TensorType) -> None:
        if kind.bytes > ABSURD:
            raise TypeMismatch(f"a tensor of shape {list(kind.shape)} takes {kind.bytes} bytes")
        super()._declare(name, kind)

    # --- taking back

    def mark(self) -> tuple[int, int]:
        """Where the graph stands, for `rollback`."""
        return len(self._nodes), len(self.types)

    def rollback(self, mark: tuple[int, int]) -> None:
        """Takes back every node and tensor added since `mark`, but for shared constants, which do no harm."""
        nodes, _ = mark
        for node in self._nodes[nodes:]:
            for name in node.outputs:
                if name:
                    del self.types[name]
                    self._known.pop(name, None)
                    self._producers.pop(name, None)
        del self._nodes[nodes:]
        self._indexed = min(self._indexed, nodes)
