"""Kernels to mutate: small subgraphs whose shapes make every guard matter, with plans of many kinds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.stitch import heuristic
from stitchtune.search_space.target import Target

from tests.differential import drawing
from tests.differential.cuda import EmulatedCuda
from tests.differential.cuda_mutations import CUDA_MUTATIONS
from tests.kernels.hand import Builder, layer_norm, softmax
from tests.random_values import random_inputs

Array = NDArray[Any]

TARGET = EmulatedCuda.target


@dataclass(frozen=True, eq=False)
class Subject:
    """A subgraph with a plan, and inputs that tell right from wrong."""

    name: str
    sub: Subgraph
    plan: Plan
    inputs: tuple[Array, ...]
    target: Target = TARGET


def subjects(names: Sequence[str] = ()) -> Iterator[Subject]:
    """Those of these names, or all."""
    for name in names or SUBJECTS:
        sub, plan = SUBJECTS[name]()
        inputs = random_inputs(sub, 1)
        if name == "argmax":
            inputs[0][3] = -np.inf  # where nothing is larger than what the search begins with
        yield Subject(name, sub, plan, tuple(inputs))


def column_sums(rows: int, columns: int) -> Subgraph:
    b = Builder()
    x = b.input(rows, columns)
    i, j = b.axes(rows, columns)
    return b.subgraph(b.op("sum", (j,), (x, (i, j)), reduce=(i,)))


def both_sums(rows: int, columns: int) -> Subgraph:
    """x over the maximum of its row, beside the sums of its columns."""
    b = Builder()
    x = b.input(rows, columns)
    i, j = axes = b.axes(rows, columns)
    top = b.op("max", (i,), (x, axes), reduce=(j,))
    share = b.op("div", axes, (x, axes), top)
    return b.subgraph(share, b.op("sum", (j,), (x, axes), reduce=(i,)))


def largest(rows: int, columns: int) -> Subgraph:
    """Where the largest of each row is."""
    b = Builder()
    x = b.input(rows, columns)
    i, j = axes = b.axes(rows, columns)
    return b.subgraph(b.op("argmax", (i,), (x, axes), reduce=(j,), dtype=DType.I64))


def scaled(n: int) -> Subgraph:
    b = Builder()
    x = b.input(n)
    (i,) = b.axes(n)
    return b.subgraph(b.op("mul", (i,), b.op("exp", (i,), (x, (i,))), (x, (i,))))


def _heuristic(sub: Subgraph) -> tuple[Subgraph, Plan]:
    return sub, heuristic(sub, TARGET)


def _drawn(sub: Subgraph, wanted: Callable[[Plan], bool], start: int = 0) -> tuple[Subgraph, Plan]:
    """The first random plan that is as wanted."""
    for turn in range(start, start + 400):
        with contextlib.suppress(drawing.Illegal):
            plan, _ = drawing.draw(sub, turn, TARGET, CUDA_MUTATIONS)
            if wanted(plan):
                return sub, plan
    raise LookupError("no such plan is drawn")


def _phases(n: int) -> Callable[[Plan], bool]:
    return lambda plan: any(len(k.phases) >= n for k in plan.kernels)


SUBJECTS: dict[str, Callable[[], tuple[Subgraph, Plan]]] = {
    "elementwise": lambda: _heuristic(scaled(5003)),
    "softmax": lambda: _heuristic(softmax(37, 97)),
    "softmax of short rows": lambda: _heuristic(softmax(67, 12)),
    "layer norm": lambda: _heuristic(layer_norm(11, 256)),
    "column sums": lambda: _heuristic(column_sums(131, 301)),
    "rows and columns": lambda: _heuristic(both_sums(45, 70)),
    "argmax": lambda: _heuristic(largest(19, 131)),
    "softmax in phases": lambda: _drawn(softmax(21, 150), _phases(2)),
    "layer norm in phases": lambda: _drawn(layer_norm(9, 75), _phases(2), 40),
    "rows and columns in phases": lambda: _drawn(both_sums(33, 40), _phases(2), 80),
}
