"""The kernels whose emitted CUDA is kept as golden sources: one of each kind that plans are made of."""

from __future__ import annotations

from collections.abc import Callable

from stitchtune.benchmarks.suite import normalisation, pointwise, rows
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.ir import Graph
from stitchtune.graphs.partition import Component, partition
from stitchtune.graphs.simplify import simplify
from stitchtune.graphs.subgraph import AxisVar, Lookup, Read, Subgraph
from stitchtune.search_space.devices import device_target
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.stitch import heuristic

from tests.kernels.hand import Builder

TARGET = device_target("cuda:h200")
F16, F32 = DType.F16, DType.F32


def component(graph: Graph) -> Subgraph:
    """The one memory-intensive subgraph of a graph."""
    [found] = [step.subgraph for step in partition(simplify(graph)).steps if isinstance(step, Component)]
    return found


def swish(n: int) -> Subgraph:
    """x / (1 + exp(-x)) over a length that no vector divides."""
    b = Builder()
    x, one = b.input(n), b.const(1.0)
    (i,) = b.axes(n)
    power = b.op("exp", (i,), b.op("neg", (i,), (x, (i,))))
    return b.subgraph(b.op("div", (i,), (x, (i,)), b.op("add", (i,), power, one)))


def bias_transpose(rows_: int, columns: int) -> Subgraph:
    """(x + bias) transposed."""
    b = Builder()
    x, bias = b.input(rows_, columns), b.input(columns)
    j, i = b.axes(columns, rows_)
    return b.subgraph(b.op("add", (j, i), (x, (i, j)), (bias, (j,))))


def embedding(tokens: int, width: int, vocabulary: int) -> Subgraph:
    """A row of the table for each token, scaled."""
    b = Builder()
    table, ids, scale = b.input(vocabulary, width), b.input(tokens, dtype=DType.I64), b.const(27.7)
    i, j = b.axes(tokens, width)
    row = Read(table, (Lookup(Read(ids, (AxisVar(i),)), 0), AxisVar(j)))
    return b.subgraph(b.op("mul", (i, j), row, scale))


SUBGRAPHS: dict[str, Callable[[], Subgraph]] = {
    "elementwise": lambda: swish(1_000_003),
    "softmax_rows": lambda: component(rows.softmax(F32, 8192, 384)),
    "layer_norm": lambda: component(normalisation.residual_layer_norm(F32, 2048, 4096)),
    "column_sum": lambda: component(rows.column_sum(F32, 16384, 1024)),
    "layer_norm_backward": lambda: component(normalisation.layer_norm_backward(F32, 4096, 768)),
    "softmax_split": lambda: component(rows.softmax(F32, 2, 2_097_152)),
    "bias_transpose": lambda: bias_transpose(1024, 768),
    "bias_gelu": lambda: component(pointwise.bias_gelu(F16, 1024, 3072)),
    "embedding": lambda: embedding(4096, 768, 30522),
    "batch_norm_training": lambda: component(normalisation.batch_norm_training(F32, 32, 64, 28, 28)),
}


def golden(name: str) -> tuple[Subgraph, Plan]:
    """A subgraph with the plan that its golden source is of."""
    sub = SUBGRAPHS[name]()
    return sub, heuristic(sub, TARGET)
