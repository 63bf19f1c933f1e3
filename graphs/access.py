"""From tensors to values: movement operators become access maps of the values that read through them.

Every value gets axes of its own, one per factor of a dimension; unification comes later. A read is carried back
through movement operators until it meets an input, a constant or a computed tensor, and only there split into one
index per axis.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .factor import Factors
from .index import ZERO, Renaming, Space
from .ir import Graph, Node
from .movement import Access, Movement, is_movement
from .numbering import spelling_key
from .primitives import PRIMITIVES
from .subgraph import AxisVar, Bound, Index, Int, Lookup, Read, Scalar, Value, axes_of

_MIRRORED = {"gt": "lt", "ge": "le"}
"""Comparisons spelled as another with its operands swapped."""


class Composer:
    """Builds the values of one component of a graph, each with axes of its own; equal values are built once.

    `nodes` are those that may be seen through or computed, in topological order; tensors in `available` are read as
    inputs even where a node writes them.
    """

    def __init__(
        self, graph: Graph, nodes: Sequence[Node], producers: Mapping[str, Node], available: Collection[str]
    ) -> None:
        self.space = Space()
        self.values: list[Value] = []
        self.inputs: dict[int, str] = {}
        """Tensor name of each input value."""
        self.unit = self.space.axis(1)
        """An axis of extent 1 that no value has, for bounds that single out one position."""
        self._graph = graph
        self._producers = producers
        self._available = available
        self._factors = Factors(nodes, graph.types)
        self._movement = Movement(graph, self.space, self.unit, self._factors, self._read_index)
        self._of_tensor: dict[str, int] = {}
        self._known: dict[str, int] = {}

    def compute(self, node: Node) -> None:
        """Adds the value of an elementwise or reducing node; the computed operands were added before."""
        out = node.outputs[0]
        if PRIMITIVES[node.op].kind == "reduce":
            value = self._reduction(node)
        else:
            axes, index = self._dimensions(out)
            op, reads = self._respell(node.op, [self._read(Access(name, list(index))) for name in node.inputs])
            attrs = tuple((k, v) for k, v in node.attrs if not isinstance(v, tuple))
            value = Value(op, self._graph.types[out].dtype, axes, (), tuple(reads), attrs)
        self._of_tensor[out] = self._add(value)

    def output(self, tensor: str) -> int:
        """The value whose storage is that of `tensor`: computed or input, if it is a view of one, or else a copy."""
        if tensor in self._of_tensor and self.values[self._of_tensor[tensor]].op != "const":
            return self._of_tensor[tensor]
        axes, index = self._dimensions(tensor)
        read = self._read(Access(tensor, index))
        source = self.values[read.value]
        view = not read.where and read.index == tuple(map(AxisVar, axes)) and source.op != "const"
        if view and self._sizes(source.axes) == self._sizes(axes):
            return read.value
        return self._add(Value("copy", source.dtype, axes, (), (read,)))

    # --- reads

    def _read(self, access: Access) -> Read:
        self._follow(access)
        node = self._producers.get(access.tensor)
        if node is not None and node.op == "iota" and access.tensor not in self._available:
            return self._read_iota(node, access)
        return self._finish(access)

    def _read_index(self, access: Access) -> Index | Read:
        """The read of an index tensor, or its value where that is known: a number, a position."""
        guards = len(access.where)
        self._follow(access)
        if len(access.where) == guards:
            scalar = self._constant(access.tensor)
            if scalar is not None:
                return Int(int(scalar))
            node = self._producers.get(access.tensor)
            if node is not None and node.op == "iota" and access.tensor not in self._available:
                position: Index = access.index[node.attr("axis")]
                return position
        return self._read(access)

    def _follow(self, access: Access) -> None:
        """Takes `access` through movement as far as it goes."""
        while access.tensor not in self._available:
            node = self._producers.get(access.tensor)
            if node is None or not is_movement(node, self._graph.types) or not self._movement.step(node, access):
                return

    def _finish(self, access: Access) -> Read:
        """The read at the end of the way: indices split into one per axis."""
        number = self._leaf(access.tensor)
        value = self.values[number]
        if value.op == "const":
            return Read(number, (), self._bounds(access, ()), access.fill)
        index: list[Index] = []
        for d, position in enumerate(access.index):
            sizes = self._factors.of(access.tensor, d)
            if len(sizes) == 1:
                index.append(self.space.settle(position))
                continue
            stride = math.prod(sizes)
            for k, size in enumerate(sizes):
                stride //= size
                index.append(self.space.settle(self.space.digit(position, stride, size, k == 0)))
        settled = tuple(self._own_extent(i, axis) for i, axis in zip(index, value.axes, strict=True))
        where = self._bounds(access, tuple(zip(index, value.axes, strict=True)))
        return Read(number, settled, where, access.fill)

    def _own_extent(self, index: Index, axis: int) -> Index:
        """A plain lookup counts from the end of the very axis that it indexes."""
        if isinstance(index, Lookup) and self.space.extents[index.extent] == self.space.extents[axis]:
            return Lookup(index.read, axis)
        return index

    def _bounds(self, access: Access, indices: Sequence[tuple[Index, int]]) -> tuple[Bound, ...]:
        """The bounds, over the axes of the value read where they bound its indices; each once."""
        found = []
        for bound in access.where:
            index, axis = self.space.settle(bound.index), bound.axis
            for other, own in indices:
                if axis != self.unit and other == index and self.space.extents[own] == self.space.extents[axis]:
                    index, axis = self._own_extent(index, own), own
            found.append(Bound(index, axis))
        return tuple(dict.fromkeys(found))

    def _read_iota(self, node: Node, access: Access) -> Read:
        """Positions are computed where they are read: over those of the reader's axes that they depend on."""
        position = self.space.settle(access.index[node.attr("axis")])
        theirs = sorted(axes_of(position))
        ours = {a: self.space.axis(self.space.extents[a]) for a in theirs}
        renaming = Renaming(lambda a: AxisVar(ours[a]), lambda a: a)
        dtype = self._graph.types[node.outputs[0]].dtype
        number = self._add(Value("iota", dtype, tuple(ours.values()), position=renaming.index(position)))
        return Read(number, tuple(map(AxisVar, theirs)), self._bounds(access, ()), access.fill)

    # --- values

    def _add(self, value: Value) -> int:
        """The number of `value`, or of one like it."""
        key = spelling_key(value, self.space)
        if key not in self._known:
            self._known[key] = len(self.values)
            self.values.append(value)
        return self._known[key]

    def _dimensions(self, tensor: str, dims: Sequence[int] | None = None) -> tuple[tuple[int, ...], list[Index]]:
        """New axes for the dimensions of a tensor, and the position along each dimension."""
        axes: list[int] = []
        index: list[Index] = []
        for d in range(len(self._graph.types[tensor].shape)) if dims is None else dims:
            sizes = self._factors.of(tensor, d)
            own = [self.space.axis(size) for size in sizes]
            axes += own
            index.append(self.space.linear(zip(map(AxisVar, own), sizes, strict=True)))
        return tuple(axes), index

    def _sizes(self, axes: Sequence[int]) -> list[int]:
        return [self.space.extents[a] for a in axes]

    def _reduction(self, node: Node) -> Value:
        source, out = node.inputs[0], node.outputs[0]
        rank = len(self._graph.types[source].shape)
        gone = node.attr("axes")
        kept = [d for d in range(rank) if d not in gone]
        axes, own = self._dimensions(out)
        reduce, reduced = self._dimensions(source, gone)
        index: list[Index] = [ZERO] * rank
        for d, i in [*zip(kept, own, strict=True), *zip(gone, reduced, strict=True)]:
            index[d] = i
        attrs = tuple((k, v) for k, v in node.attrs if not isinstance(v, tuple))
        dtype = self._graph.types[out].dtype
        if not reduce:
            # ArgMax and ArgMin over dimensions of size 1; other reductions over them are movement.
            return Value("const", dtype, (), attrs=(("value", 0),))
        return Value(node.op, dtype, axes, reduce, (self._read(Access(source, index)),), attrs)

    def _respell(self, op: str, reads: list[Read]) -> tuple[str, list[Read]]:
        """One spelling of the several that mean the same."""
        if op in _MIRRORED:
            return _MIRRORED[op], reads[::-1]
        if op == "pow" and not reads[1].where:
            exponent = self.values[reads[1].value]
            if exponent.op == "const" and exponent.attr("value") == 2:
                return "mul", [reads[0], reads[0]]
        return op, reads

    def _constant(self, tensor: str) -> Scalar | None:
        """The value of a constant of one element."""
        if tensor not in self._graph.constants or self._graph.types[tensor].elements != 1:
            return None
        item: Any = self._graph.constants[tensor].reshape(()).item()
        if self._graph.types[tensor].dtype.is_float:
            # One NaN object, so that equal subgraphs compare equal.
            return math.nan if math.isnan(item) else float(item)
        return bool(item) if isinstance(item, bool) else int(item)

    def _leaf(self, tensor: str) -> int:
        """The value that `tensor` is: a constant, an input or computed."""
        if tensor not in self._of_tensor:
            scalar = self._constant(tensor)
            dtype = self._graph.types[tensor].dtype
            if scalar is not None:
                number = self._add(Value("const", dtype, (), attrs=(("value", scalar),)))
            elif tensor in self._available:
                number = len(self.values)
                self.values.append(Value("input", dtype, self._dimensions(tensor)[0]))
                self.inputs[number] = tensor
            else:
                number = self._materialise(self._producers[tensor])
            self._of_tensor[tensor] = number
        return self._of_tensor[tensor]

    def _materialise(self, node: Node) -> int:
        """The value of a movement node that a read cannot be carried through."""
        out = node.outputs[0]
        axes, index = self._dimensions(out)
        template = Value("piecewise", self._graph.types[out].dtype, axes)
        if node.op == "concat":
            reads = [self._read(access) for access in self._movement.pieces(node, index)]
        elif "mode" in dict(node.attrs):
            reads = [self._read(access) for access in self._movement.mirrors(node, index)]
        else:
            reads = [self._read(Access(out, index))]
            template = replace(template, op="copy")
        return self._add(replace(template, reads=tuple(reads)))
