"""One subject of the suite: a graph at the size it is measured at, and at one that the emulator can run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ... import feeds
from ...graphs.dtypes import DType
from ...graphs.ir import Graph
from ...graphs.partition import Component, partition
from ...graphs.simplify import simplify
from ...graphs.subgraph import Subgraph
from ...search_space.target import Target

Sizes = tuple[int, ...]
Fit = Literal["streams", "row", "split row", "no"]


@dataclass(frozen=True)
class Subject:
    """A memory-intensive subgraph that peers are measured on.

    make      the graph of a dtype and sizes
    sizes     at which it is measured on a device
    small     at which it is emulated: as long rows, fewer of them
    row       positions in the sizes that make up one row
    kept      elements of input, per element of a row, that are needed again after a reduction along the row
              (0: nothing is, one pass over the inputs does)
    positive  inputs that only hold positive numbers
    """

    name: str
    make: Callable[..., Graph]
    dtype: DType
    sizes: Sizes
    small: Sizes
    row: tuple[int, ...] = ()
    kept: int = 0
    positive: tuple[str, ...] = ()

    def graph(self, sizes: Sizes | None = None) -> Graph:
        """The subject as a graph of primitives, at its own sizes or others."""
        return self.make(self.dtype, *(self.sizes if sizes is None else sizes))

    @property
    def cut(self) -> str:
        """What the emulated sizes leave away, for people; "" when they are whole."""
        pairs = zip(self.sizes, self.small, strict=True)
        changed = [f"{a} -> {b}" for i, (a, b) in enumerate(pairs) if a != b and i not in self.row]
        shorter = [f"row {self.sizes[i]} -> {self.small[i]}" for i in self.row if self.sizes[i] != self.small[i]]
        return ", ".join((*changed, *shorter))

    def row_bytes(self, sizes: Sizes) -> int:
        """Bytes of one row that must stay on chip if every input is to be read once."""
        return self.kept * math.prod(sizes[i] for i in self.row) * self.dtype.size

    def rows(self, sizes: Sizes) -> int:
        return math.prod(n for i, n in enumerate(sizes) if i not in self.row)

    def fits(self, sizes: Sizes, target: Target) -> Fit:
        """Whether what is read again can stay on chip: in one multiprocessor, or with all rows split over all of them.

        A multiprocessor holds what its shared memory takes, or half of its registers where that is more.
        """
        if not self.kept:
            return "streams"
        room = max(target.block_bytes, target.registers * 4 // 2)
        if self.row_bytes(sizes) <= room:
            return "row"
        return "split row" if self.row_bytes(sizes) * self.rows(sizes) <= room * target.processors else "no"


def component(graph: Graph) -> Component:
    """The one component that a subject's graph is. Raises ValueError when it is several."""
    found = [step for step in partition(simplify(graph)).steps if isinstance(step, Component)]
    if len(found) != 1:
        raise ValueError(f"{graph.name} falls into {len(found)} components")
    return found[0]


def canonical(graph: Graph) -> Subgraph:
    """The canonical form of a subject's graph."""
    return component(graph).subgraph


def inputs(subject: Subject, graph: Graph, seed: int = 0) -> list[NDArray[Any]]:
    """Arrays for the inputs of the subject's canonical form, in its order: labels within range, masks of 0 and 1."""
    arrays = dict(feeds.synthetic(graph, seed).arrays)
    for name in subject.positive:
        arrays[name] = np.abs(arrays[name])
    part = component(graph)
    sub = part.subgraph
    memory = {**graph.constants, **arrays}
    shapes = [sub.shape(v) for v in sub.inputs]
    return [np.ascontiguousarray(memory[n]).reshape(s) for n, s in zip(part.inputs, shapes, strict=True)]
