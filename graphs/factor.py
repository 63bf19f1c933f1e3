"""Refinement of tensor dimensions to common factors: aligned reshapes, splits and concats become selections of axes.

Dimensions that an operator maps one to one form a class. A class has *cuts*: the strides, in positions of the
dimension, at which it is divided into factors; they always form a chain in which each divides the next. Reshapes and
equal parts carry cuts from class to class until nothing changes. Where cuts would break a chain, the operator is left
alone: its reads are then linear-index maps.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .ir import Node, TensorType
from .primitives import PRIMITIVES

SHORTEST_RUN = 4
"""Elements below which a slice or concat does not divide a dimension: the innermost loop would be tiny."""

Dim = tuple[str, int]
"""A dimension of a tensor, by name and number."""


@dataclass(frozen=True)
class Alignment:
    """A smallest group of dimensions (of size other than 1) that a reshape maps onto another group."""

    source: tuple[int, ...]
    target: tuple[int, ...]


def align(source: Sequence[int], target: Sequence[int]) -> tuple[Alignment, ...] | None:
    """The groups of a reshape between two shapes, outermost first; None when both are empty and differ beyond 1s."""
    ours = [i for i, d in enumerate(source) if d != 1]
    theirs = [i for i, d in enumerate(target) if d != 1]
    if [source[i] for i in ours] == [target[i] for i in theirs]:
        return tuple(Alignment((i,), (j,)) for i, j in zip(ours, theirs, strict=True))
    if 0 in source:
        return None
    groups = []
    while ours or theirs:
        left, right = [ours.pop()], [theirs.pop()]
        a, b = source[left[0]], target[right[0]]
        while a != b:
            if a < b:
                left.append(ours.pop())
                a *= source[left[-1]]
            else:
                right.append(theirs.pop())
                b *= target[right[-1]]
        groups.append(Alignment(tuple(reversed(left)), tuple(reversed(right))))
    return tuple(reversed(groups))


def equal_part(size: int, part: int, start: int, step: int) -> bool:
    """Whether a slice takes one of several equal parts of a dimension."""
    return step == 1 and 0 < part < size and size % part == 0 and start % part == 0


def equal_parts(sizes: Sequence[int]) -> bool:
    """Whether a concat puts together parts of one size."""
    return len(sizes) > 1 and sizes[0] > 0 and len(set(sizes)) == 1


@dataclass(frozen=True)
class _Group:
    """The cuts of two rows of classes, each as one number, agree (a reshape)."""

    left: tuple[int, ...]
    right: tuple[int, ...]


@dataclass(frozen=True)
class _Part:
    """`whole` has a cut at `size`, and below it the cuts of `part`."""

    whole: int
    part: int
    size: int


class Factors:
    """Factors of every dimension of the tensors that `nodes` (in topological order) read and write."""

    def __init__(self, nodes: Sequence[Node], types: Mapping[str, TensorType]) -> None:
        self._types = types
        self._numbers: dict[Dim, int] = {}
        self._parents: list[int] = []
        self._sizes: list[int] = []
        groups: list[tuple[tuple[Dim, ...], tuple[Dim, ...]]] = []
        parts: list[tuple[Dim, Dim, int]] = []
        for node in nodes:
            self._relate(node, groups, parts)
        self._cuts: dict[int, tuple[int, ...]] = {}
        self._refine(groups, parts)

    def of(self, tensor: str, dim: int) -> tuple[int, ...]:
        """Sizes of the factors of a dimension, outer to inner; () for a dimension of size 1."""
        size = self._types[tensor].shape[dim]
        if size == 1:
            return ()
        cuts = self._of_class(self._class((tensor, dim)))
        return tuple(b // a for a, b in itertools.pairwise(cuts))[::-1] if size else (0,)

    def has_cut(self, tensor: str, dim: int, size: int) -> bool:
        """Whether a dimension is divided at `size`."""
        return size == 1 or size in self._of_class(self._class((tensor, dim)))

    # --- classes

    def _class(self, dim: Dim) -> int:
        number = self._numbers.get(dim)
        if number is None:
            number = self._numbers[dim] = len(self._parents)
            self._parents.append(number)
            self._sizes.append(self._types[dim[0]].shape[dim[1]])
        while self._parents[number] != number:
            self._parents[number] = self._parents[self._parents[number]]
            number = self._parents[number]
        return number

    def _same(self, a: Dim, b: Dim) -> None:
        """Both dimensions are one class, if they have one size."""
        if self._types[a[0]].shape[a[1]] == self._types[b[0]].shape[b[1]]:
            self._parents[self._class(b)] = self._class(a)

    def _of_class(self, number: int) -> tuple[int, ...]:
        return self._cuts.get(number, (1, self._sizes[number]))

    # --- what operators say about dimensions

    def _relate(
        self, node: Node, groups: list[tuple[tuple[Dim, ...], tuple[Dim, ...]]], parts: list[tuple[Dim, Dim, int]]
    ) -> None:
        if node.op == "reshape":
            for group in self._aligned(node):
                if len(group[0]) == len(group[1]) == 1:
                    self._same(group[0][0], group[1][0])
                else:
                    groups.append(group)
            return
        for a, b in _identities(node, self._types):
            self._same(a, b)
        for whole, part, size in _parts(node, self._types):
            run = size * math.prod(self._types[whole[0]].shape[whole[1] + 1 :])
            if size > 1 and run >= SHORTEST_RUN:
                parts.append((whole, part, size))

    def _aligned(self, node: Node) -> Iterator[tuple[tuple[Dim, ...], tuple[Dim, ...]]]:
        source, target = node.inputs[0], node.outputs[0]
        for group in align(self._types[source].shape, self._types[target].shape) or ():
            yield tuple((source, d) for d in group.source), tuple((target, d) for d in group.target)

    # --- refinement to a fixed point

    def _refine(
        self,
        groups: Sequence[tuple[tuple[Dim, ...], tuple[Dim, ...]]],
        parts: Sequence[tuple[Dim, Dim, int]],
    ) -> None:
        relations: set[_Group | _Part] = set()
        for left, right in groups:
            relations.add(_Group(tuple(map(self._class, left)), tuple(map(self._class, right))))
        for whole, part, size in parts:
            relations.add(_Part(self._class(whole), self._class(part), size))
        # Sizes decide which of two conflicting relations wins, so that names and node order do not.
        alive = sorted(relations, key=self._priority)
        changed = True
        while changed:
            changed = False
            for relation in list(alive):
                outcome = self._join(relation) if isinstance(relation, _Group) else self._divide(relation)
                if outcome is None:
                    alive.remove(relation)
                changed = changed or bool(outcome)

    def _priority(self, relation: _Group | _Part) -> tuple[object, ...]:
        match relation:
            case _Group(left, right):
                return 0, sorted([[self._sizes[c] for c in left], [self._sizes[c] for c in right]]), left, right
            case _Part(whole, part, size):
                return 1, [[self._sizes[whole], size]], (whole,), (part,)

    def _join(self, group: _Group) -> bool | None:
        """Makes the cuts of both sides agree: whether any changed, None when they do not form a chain."""
        cuts = _chain(self._positions(group.left) | self._positions(group.right))
        if cuts is None:
            return None
        return self._spread(group.left, cuts) | self._spread(group.right, cuts)

    def _divide(self, part: _Part) -> bool | None:
        whole = self._of_class(part.whole)
        inner = {c for c in whole if c < part.size} | set(self._of_class(part.part))
        cuts = _chain(inner | set(whole))
        if cuts is None:
            return None
        changed = self._set(part.whole, cuts)
        return self._set(part.part, tuple(c for c in cuts if c <= part.size)) | changed

    def _positions(self, classes: Sequence[int]) -> set[int]:
        stride, found = 1, {1}
        for number in reversed(classes):
            found.update(stride * cut for cut in self._of_class(number))
            stride *= self._sizes[number]
        return found

    def _spread(self, classes: Sequence[int], cuts: Sequence[int]) -> bool:
        stride, changed = 1, False
        for number in reversed(classes):
            top = stride * self._sizes[number]
            changed |= self._set(number, tuple(c // stride for c in cuts if stride <= c <= top))
            stride = top
        return changed

    def _set(self, number: int, cuts: tuple[int, ...]) -> bool:
        if self._of_class(number) == cuts:
            return False
        # A class may stand on both sides of one relation: nothing that it had is lost.
        merged = _chain(set(cuts) | set(self._of_class(number)))
        if merged is None or merged == self._of_class(number):
            return False
        self._cuts[number] = merged
        return True


def _chain(cuts: set[int]) -> tuple[int, ...] | None:
    """`cuts` ascending if each divides the next, else None."""
    ordered = tuple(sorted(cuts))
    return ordered if all(b % a == 0 for a, b in itertools.pairwise(ordered)) else None


def _identities(node: Node, types: Mapping[str, TensorType]) -> Iterator[tuple[Dim, Dim]]:
    """Pairs (of the output, of an operand) of dimensions between which a node maps positions to themselves."""
    out = node.outputs[0]
    rank = len(types[out].shape)
    match node.op:
        case "transpose":
            pairs = [(0, d, p) for d, p in enumerate(node.attr("perm"))]
        case "broadcast":
            pairs = [(0, d, i) for i, d in enumerate(node.attr("dims"))]
        case "slice" | "pad":
            pairs = [(0, d, d) for d in range(rank)]
        case "concat":
            axis = node.attr("axis")
            pairs = [(k, d, d) for k in range(len(node.inputs)) for d in range(rank) if d != axis]
        case "gather":
            axis, more = node.attr("axis"), len(types[node.inputs[1]].shape)
            before = [(0, d, d) for d in range(axis)]
            after = [(0, d, d - more + 1) for d in range(axis + more, rank)]
            pairs = [*before, *((1, axis + d, d) for d in range(more)), *after]
        case "gather_elements":
            axis = node.attr("axis")
            pairs = [(1, d, d) for d in range(rank)] + [(0, d, d) for d in range(rank) if d != axis]
        case "iota":
            pairs = []
        case _ if PRIMITIVES[node.op].kind == "reduce":
            gone = set(node.attr("axes"))
            kept = [d for d in range(len(types[node.inputs[0]].shape)) if d not in gone]
            pairs = [(0, d, s) for d, s in enumerate(kept)]
        case _:
            pairs = [(k, d, d) for k in range(len(node.inputs)) for d in range(rank)]
    for operand, ours, theirs in pairs:
        yield (out, ours), (node.inputs[operand], theirs)


def _parts(node: Node, types: Mapping[str, TensorType]) -> Iterator[tuple[Dim, Dim, int]]:
    """(whole, part, size of the part) of slices and concats of equal parts."""
    out = node.outputs[0]
    if node.op == "slice":
        source = node.inputs[0]
        for d, (start, step) in enumerate(zip(node.attr("starts"), node.attr("steps"), strict=True)):
            size, part = types[source].shape[d], types[out].shape[d]
            if equal_part(size, part, start, step):
                yield (source, d), (out, d), part
    elif node.op == "concat":
        d = node.attr("axis")
        if equal_parts([types[name].shape[d] for name in node.inputs]):
            for name in node.inputs:
                yield (out, d), (name, d), types[name].shape[d]
