"""Kernels to mutate: small subgraphs whose shapes make every guard matter, with plans of many kinds."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from stitchtune.benchmarks.suite import normalisation, pointwise, rows
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.loops import LoopKernel, Sync, statements
from stitchtune.kernels.lower import lower
from stitchtune.kernels.lower.errors import LoweringError
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.stitch import heuristic
from stitchtune.search_space.target import Target

from tests.differential import drawing
from tests.differential.cuda import EmulatedCuda
from tests.differential.cuda_mutations import CUDA_MUTATIONS
from tests.golden.kernels import bias_transpose, component, embedding, swish
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
        if name in PEAKED:
            peaks(inputs[0])
        yield Subject(name, sub, plan, tuple(inputs))


PEAKED = (
    "softmax_rows",
    "softmax_split",
    "short rows",
    "rows and columns",
    "argmax",
    "softmax in phases",
    "rows and columns in phases",
    "softmax, warps in step",
    "rows and columns, warps in step",
)
"""Whose result hangs on the largest element of a row."""


def peaks(x: Array) -> None:
    """Puts one large element into every other row, wherever a thread, a lane or a strip may begin or end: whoever
    misses it gets another maximum, of which exp makes infinity. (By itself the maximum cancels out of a softmax.)"""
    columns = x.shape[1]
    ends = (n for p in (11, *range(12)) for n in ((1 << p) - 1, 1 << p))
    places = [columns - 1, *(n for n in ends if n < columns)]
    for number, row in enumerate(range(0, len(x), 2)):
        x[row, places[number % len(places)]] = 1000


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


def _heuristic(sub: Subgraph) -> tuple[Subgraph, Plan]:
    return sub, heuristic(sub, TARGET)


def _drawn(sub: Subgraph, wanted: Callable[[LoopKernel], bool], start: int = 0) -> tuple[Subgraph, Plan]:
    """The first random plan with a kernel as wanted."""
    for turn in range(start, start + 400):
        with contextlib.suppress(drawing.Illegal, LoweringError):
            plan, _ = drawing.draw(sub, turn, TARGET, CUDA_MUTATIONS)
            if any(map(wanted, lower(sub, plan, TARGET))):
                return sub, plan
    raise LookupError("no such plan is drawn")


def _in_phases(kernel: LoopKernel) -> bool:
    return len(kernel.phases) > 1


def _warps_in_step(kernel: LoopKernel) -> bool:
    bodies = (g.body for p in kernel.phases for g in p.groups)
    return any(isinstance(s, Sync) and s.scope == "warp" for body in bodies for s in statements(body))


SUBJECTS: dict[str, Callable[[], tuple[Subgraph, Plan]]] = {
    # the golden kernels (tests/golden/kernels.py) at sizes that end within vectors, tiles and tasks
    "elementwise": lambda: _heuristic(swish(5003)),
    "softmax_rows": lambda: _heuristic(component(rows.softmax(DType.F32, 37, 97))),
    "layer_norm": lambda: _heuristic(component(normalisation.residual_layer_norm(DType.F32, 11, 260))),
    "column_sum": lambda: _heuristic(component(rows.column_sum(DType.F32, 131, 301))),
    "layer_norm_backward": lambda: _heuristic(component(normalisation.layer_norm_backward(DType.F32, 45, 70))),
    "softmax_split": lambda: _heuristic(component(rows.softmax(DType.F32, 3, 9001))),
    "bias_transpose": lambda: _heuristic(bias_transpose(45, 70)),
    "bias_gelu": lambda: _heuristic(component(pointwise.bias_gelu(DType.F16, 21, 100))),
    "embedding": lambda: _heuristic(embedding(37, 90, 50)),
    "batch_norm_training": lambda: _heuristic(component(normalisation.batch_norm_training(DType.F32, 3, 9, 7, 5))),
    # other kinds
    "short rows": lambda: _heuristic(softmax(67, 12)),
    "rows and columns": lambda: _heuristic(both_sums(45, 70)),
    "argmax": lambda: _heuristic(largest(19, 131)),
    "softmax in phases": lambda: _drawn(softmax(21, 150), _in_phases),
    "layer norm in phases": lambda: _drawn(layer_norm(9, 75), _in_phases, 40),
    "softmax, warps in step": lambda: _drawn(softmax(21, 150), _warps_in_step),
    "layer norm, warps in step": lambda: _drawn(layer_norm(10, 64), _warps_in_step, 260),
    "rows and columns, warps in step": lambda: _drawn(both_sums(33, 32), _warps_in_step, 180),
    "rows and columns in phases": lambda: _drawn(both_sums(33, 40), _in_phases, 80),
}
