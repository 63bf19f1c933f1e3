"""The tensor-level graph: primitive operators on named tensors of known shape.

The front end writes it, canonicalisation reads it. Every shape is a tuple of ints: symbolic
dimensions were bound when the graph was loaded, and a graph loaded at another size is another
Graph. Sizes come back as arguments at the subgraph level, where the digest excludes them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from .dtypes import DType

Attr = int | float | bool | str | tuple[int, ...]
"""What an attribute of a primitive may be."""


@dataclass(frozen=True)
class TensorType:
    """Element type and shape of one tensor."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.size


@dataclass(frozen=True)
class Node:
    """One operator: a primitive with one output, or a library op with any number.

    `op` is a name from `primitives.PRIMITIVES`, or `"library"`. `origin` names the node and the
    operator of the exported graph it came from, for messages and `inspect`. A library node carries the
    exported operator in `payload` (the front end's own form) and in `reason` a code saying why it
    was not lowered. An input name of "" is an absent optional input (library nodes only).
    """

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: tuple[tuple[str, Attr], ...] = ()
    origin: str = ""
    reason: str = ""
    payload: Any = field(default=None, compare=False, repr=False)

    def attr(self, name: str) -> Any:
        """The attribute `name`; KeyError when the node has none."""
        return dict(self.attrs)[name]


@dataclass(frozen=True)
class Graph:
    """A whole model: nodes in topological order over named tensors.

    `inputs` and `outputs` keep the exported order; an output may be an input, a constant, or named twice.
    `types` gives the type of every tensor. `constants` holds arrays (possibly memory-mapped,
    never written) of initializers and folded values.
    """

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    types: Mapping[str, TensorType]
    constants: Mapping[str, NDArray[Any]]
    opset: int = 21
    sizes: tuple[tuple[str, int], ...] = ()
    """The symbolic dimensions of the exported graph and what they were bound to."""

    def producers(self) -> dict[str, Node]:
        return {name: node for node in self.nodes for name in node.outputs if name}

    def consumers(self) -> dict[str, list[Node]]:
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    found.setdefault(name, []).append(node)
        return found


def constant(value: NDArray[Any]) -> NDArray[Any]:
    """`value` made read-only, as constants of a Graph are."""
    if value.flags.writeable:
        value = value.view()
        value.flags.writeable = False
    return value
