"""How each movement operator carries an index of its result to an index of its operand.

An `Access` is a read on its way through a graph: of a tensor, at one index per dimension over the reader's axes
(`ZERO` for dimensions of size 1), valid where its bounds hold. `Movement.step` takes it through one node.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .factor import Factors, align, equal_part, equal_parts
from .index import ZERO, Space
from .ir import Graph, Node, TensorType
from .subgraph import Bound, Index, Int, Lookup, Read, Scalar, Slot, Sum


@dataclass
class Access:
    """A read on its way; `plain` forbids further bounds (another meaning is already given to those that fail)."""

    tensor: str
    index: list[Index]
    where: list[Bound] = field(default_factory=list)
    fill: Scalar | None = None
    plain: bool = False


def is_movement(node: Node, types: Mapping[str, TensorType]) -> bool:
    """Whether a node only moves data, so that a read may look through it; a concat only where one piece is read.

    Casts to the same type and reductions over dimensions of size 1 do. Mirroring pads do not: they are computed.
    """
    if node.op == "cast":
        return types[node.inputs[0]].dtype is types[node.outputs[0]].dtype
    if node.op in ("sum", "prod", "max", "min"):
        shape = types[node.inputs[0]].shape
        return all(shape[a] == 1 for a in node.attr("axes"))
    if node.op == "pad":
        return "mode" not in dict(node.attrs)
    return node.op in ("copy", "broadcast", "transpose", "reshape", "slice", "gather", "gather_elements", "concat")


class Movement:
    """Steps of accesses over the axes of one space. `read` composes the read of an index tensor."""

    def __init__(
        self, graph: Graph, space: Space, unit: int, factors: Factors, read: Callable[[Access], Index | Read]
    ) -> None:
        self._types = graph.types
        self._space = space
        self._unit = unit
        self._factors = factors
        self._read = read

    def step(self, node: Node, access: Access) -> bool:
        """Moves `access` from the result of a movement node to an operand; False (and no change) where it cannot."""
        match node.op:
            case "pad":
                return self._pad(node, access)
            case "concat":
                return self._one_piece(node, access)
            case "gather" | "gather_elements":
                access.index = self._gather(node, access)
            case "transpose":
                perm = node.attr("perm")
                access.index = [access.index[perm.index(d)] for d in range(len(perm))]
            case "broadcast":
                shape = self._types[node.inputs[0]].shape
                dims = node.attr("dims")
                access.index = [ZERO if n == 1 else access.index[d] for n, d in zip(shape, dims, strict=True)]
            case "slice":
                access.index = self._slice(node, access.index)
            case "reshape" | "sum" | "prod" | "max" | "min":
                access.index = self._reshape(node, access.index)
            case _:
                pass
        access.tensor = node.inputs[0]
        return True

    def _reshape(self, node: Node, index: Sequence[Index]) -> list[Index]:
        source, target = self._types[node.inputs[0]].shape, self._types[node.outputs[0]].shape
        found: list[Index] = [ZERO] * len(source)
        for group in align(source, target) or ():
            if len(group.source) == 1:
                position = self._space.linear([(index[d], target[d]) for d in group.target])
                found[group.source[0]] = position
                continue
            position, stride = self._space.linear([(index[d], target[d]) for d in group.target]), 1
            for d in reversed(group.source):
                found[d] = self._space.digit(position, stride, source[d], d == group.source[0])
                stride *= source[d]
        return found

    def _slice(self, node: Node, index: Sequence[Index]) -> list[Index]:
        source = node.inputs[0]
        sizes, parts = self._types[source].shape, self._types[node.outputs[0]].shape
        found = []
        for d, (start, step) in enumerate(zip(node.attr("starts"), node.attr("steps"), strict=True)):
            size, part = sizes[d], parts[d]
            if part == 0 or (part == size and start == 0 and step == 1):
                found.append(index[d])
            elif equal_part(size, part, start, step) and self._factors.has_cut(source, d, part):
                slot = self._space.slot(start // part, 0, size // part - 1)
                found.append(self._space.sum((part, slot), (1, index[d])))
            else:
                reach = step * (part - 1)
                slot = self._space.slot(start, max(0, -reach), size - 1 - max(0, reach))
                found.append(self._space.sum((1, slot), (step, index[d])))
        return found

    def _pad(self, node: Node, access: Access) -> bool:
        sizes = self._types[node.inputs[0]].shape
        found, bounds = [], []
        for i, size, before, after in zip(access.index, sizes, node.attr("before"), node.attr("after"), strict=True):
            if before == after == 0:
                found.append(i)
                continue
            total = before + after
            moved = self._space.sum((1, i), (1, self._space.slot(-before, min(-total, 0), max(-total, 0))))
            found.append(moved)
            low, high = self._space.range(moved)
            if (before > 0 or after > 0) and (low < 0 or high >= size):
                bounds.append(Bound(moved, self._space.axis(size)))
        if bounds:
            fill = node.attr("value")
            if access.plain or (access.where and repr(access.fill) != repr(fill)):
                return False
            access.where += bounds
            access.fill = fill
        access.index = found
        access.tensor = node.inputs[0]
        return True

    def _gather(self, node: Node, access: Access) -> list[Index]:
        data, indices = node.inputs
        axis = node.attr("axis")
        own, more = access.index, len(self._types[indices].shape)
        size = self._types[data].shape[axis]
        inner = own[axis : axis + more] if node.op == "gather" else own
        # Where the read is not valid, its indices must not be looked up either.
        where = list(access.where)
        found = self._read(Access(indices, list(inner), where, 0 if where else None))
        if isinstance(found, Read):
            at: Index = Lookup(found, self._space.axis(size))
        elif isinstance(found, Int):
            position = found.value % size if size else 0
            at = self._space.slot(position, 0, max(size - 1, 0))
        else:
            at = found
        return [*own[:axis], at, *own[axis + (more if node.op == "gather" else 1) :]]

    # --- concat and mirroring pads

    def _one_piece(self, node: Node, access: Access) -> bool:
        """Sees through a concat of which one piece is read."""
        axis = node.attr("axis")
        low, high = self._space.range_here(access.index[axis])
        offset = 0
        for name in node.inputs:
            size = self._types[name].shape[axis]
            if offset <= low and high < offset + size:
                access.index[axis] = self._rebase(access.index[axis], offset, size)
                access.tensor = name
                return True
            offset += size
        return False

    def _rebase(self, index: Index, offset: int, size: int) -> Index:
        """`index - offset` for an index known to lie within `size` from there on; its slots become one or vanish."""
        terms = index.terms if isinstance(index, Sum) else ((1, index),)
        moving = [(f, t) for f, t in terms if not isinstance(t, Slot | Int)]
        fixed = self._space.sum(*((f, t) for f, t in terms if isinstance(t, Slot | Int)))
        shift = self._space.range_here(fixed)[0] - offset
        if shift == 0:
            return self._space.sum(*moving)
        low, high = self._space.range(self._space.sum(*moving))
        return self._space.sum(*moving, (1, self._space.slot(shift, -low, size - 1 - high)))

    def pieces(self, node: Node, index: Sequence[Index]) -> Iterator[Access]:
        """The operands of a concat as the reads of a piecewise value."""
        axis, out = node.attr("axis"), node.outputs[0]
        sizes = [self._types[name].shape[axis] for name in node.inputs]
        equal = equal_parts(sizes) and self._factors.has_cut(out, axis, sizes[0])
        offset, position = 0, index[axis]
        for k, (name, size) in enumerate(zip(node.inputs, sizes, strict=True)):
            inner = list(index)
            if equal:
                inner[axis] = self._space.mod(position, size)
                bound = Bound(self._space.shift(self._space.floordiv(position, size), -k), self._unit)
            else:
                inner[axis] = self._space.sum((1, position), (1, self._space.slot(-offset, -offset, 0)))
                bound = Bound(inner[axis], self._space.axis(size))
            if size or not any(sizes):
                yield Access(name, inner, [bound], plain=True)
            offset += size

    def mirrors(self, node: Node, index: Sequence[Index]) -> Iterator[Access]:
        """A pad by edge or reflection as the reads of a piecewise value: the middle first, then what is around."""
        sizes = self._types[node.inputs[0]].shape
        spans = zip(index, sizes, node.attr("before"), node.attr("after"), strict=True)
        reflect = node.attr("mode") == "reflect"
        for choice in itertools.product(*(list(self._spans(i, n, b, a, reflect)) for i, n, b, a in spans)):
            bounds = [bound for _, bound in choice if bound is not None]
            yield Access(node.inputs[0], [i for i, _ in choice], bounds, plain=True)

    def _spans(
        self, index: Index, size: int, before: int, after: int, reflect: bool
    ) -> Iterator[tuple[Index, Bound | None]]:
        """(index, bound) of the middle of one padded dimension, of what lies before and of what lies after."""
        if before == after == 0:
            yield index, None
            return
        constant = self._space.slot
        moved = self._space.sum((1, index), (1, constant(-before, -before, -before)))
        yield moved, Bound(moved, self._space.axis(size))
        if before > 0:
            distance = self._space.sum((-1, index), (1, constant(before, before, before)))
            bound = Bound(self._space.shift(distance, -1), self._space.axis(before))
            yield (distance if reflect else ZERO), bound
        if after > 0:
            last = constant(size - 1, size - 1, size - 1)
            beyond = constant(-before - size, -before - size, -before - size)
            bound = Bound(self._space.sum((1, index), (1, beyond)), self._space.axis(after))
            mirrored = constant(2 * (size - 1) + before, size - 1, 2 * (size - 1) + before)
            yield (self._space.sum((-1, index), (1, mirrored)) if reflect else last), bound
