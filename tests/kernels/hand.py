"""Subgraphs written by hand, small enough to give them plans by hand."""

from __future__ import annotations

from collections.abc import Sequence

from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import AxisVar, Index, Read, Scalar, Subgraph, Value
from stitchtune.search_space.plan import Edge, Group, Kernel, Phase, Place, Plan, Stage

Operand = int | tuple[int, tuple[int, ...]] | Read
"""A value read through its own axes, one read along other axes, or a read as it is."""


class Builder:
    """Collects values; methods return value (or axis) numbers."""

    def __init__(self, dtype: DType = DType.F32) -> None:
        self.dtype = dtype
        self.values: list[Value] = []
        self.extents: list[int] = []

    def axes(self, *extents: int) -> tuple[int, ...]:
        self.extents += extents
        return tuple(range(len(self.extents) - len(extents), len(self.extents)))

    def add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def input(self, *extents: int, dtype: DType | None = None) -> int:
        return self.add(Value("input", dtype or self.dtype, self.axes(*extents)))

    def const(self, value: Scalar) -> int:
        return self.add(Value("const", self.dtype, (), attrs=(("value", value),)))

    def op(
        self,
        op: str,
        axes: tuple[int, ...],
        *operands: Operand,
        reduce: tuple[int, ...] = (),
        dtype: DType | None = None,
        **attrs: Scalar,
    ) -> int:
        reads = tuple(self._read(o) for o in operands)
        return self.add(Value(op, dtype or self.dtype, axes, reduce, reads, tuple(attrs.items())))

    def _read(self, operand: Operand) -> Read:
        if isinstance(operand, Read):
            return operand
        value, axes = operand if isinstance(operand, tuple) else (operand, self.values[operand].axes)
        index: tuple[Index, ...] = tuple(AxisVar(a) for a in axes)
        return Read(value, index)

    def subgraph(self, *outputs: int, slots: tuple[int, ...] = ()) -> Subgraph:
        return Subgraph(tuple(self.values), outputs, tuple(self.extents), slots)


def layer_norm(rows: int, columns: int, dtype: DType = DType.F32) -> Subgraph:
    """Values: 0 x, 1 scale, 2 1/n, 3 eps, 4 sum, 5 mean, 6 centred, 7 squared, 8 sum, 9 mean, 10 + eps, 11 sqrt,
    12 recip, 13 normalised, 14 scaled; axes: 3 rows, 4 columns."""
    b = Builder(dtype)
    x, scale, share, eps = b.input(rows, columns), b.input(columns), b.const(1 / columns), b.const(1e-5)
    i, j = b.axes(rows, columns)
    total = b.op("sum", (i,), (x, (i, j)), reduce=(j,))
    mean = b.op("mul", (i,), total, share)
    centred = b.op("sub", (i, j), (x, (i, j)), mean)
    squared = b.op("mul", (i, j), centred, centred)
    spread = b.op("sum", (i,), squared, reduce=(j,))
    variance = b.op("mul", (i,), spread, share)
    shifted = b.op("add", (i,), variance, eps)
    deviation = b.op("sqrt", (i,), shifted)
    inverse = b.op("recip", (i,), deviation)
    normalised = b.op("mul", (i, j), centred, inverse)
    return b.subgraph(b.op("mul", (i, j), normalised, (scale, (j,))))


def softmax(rows: int, columns: int) -> Subgraph:
    """Values: 0 x, 1 max, 2 x - max, 3 exp, 4 sum, 5 quotient; axes: 2 rows, 3 columns."""
    b = Builder()
    x = b.input(rows, columns)
    i, j = b.axes(rows, columns)
    top = b.op("max", (i,), (x, (i, j)), reduce=(j,))
    shifted = b.op("sub", (i, j), (x, (i, j)), top)
    power = b.op("exp", (i, j), shifted)
    total = b.op("sum", (i,), power, reduce=(j,))
    return b.subgraph(b.op("div", (i, j), power, total))


def sums(rows: int, columns: int) -> Subgraph:
    """Row and column sums of x squared. Values: 0 x, 1 squared, 2 row sums, 3 column sums; axes: 2 rows, 3 columns."""
    b = Builder()
    x = b.input(rows, columns)
    i, j = b.axes(rows, columns)
    squared = b.op("mul", (i, j), (x, (i, j)), (x, (i, j)))
    return b.subgraph(b.op("sum", (i,), squared, reduce=(j,)), b.op("sum", (j,), squared, reduce=(i,)))


def edges(**places: str) -> tuple[Edge, ...]:
    """`v1_2="block"`: value 1 reaches value 2 through block memory."""
    found = []
    for name, place in places.items():
        value, consumer = name[1:].split("_")
        kind: Place = place  # type: ignore[assignment]
        found.append(Edge(int(value), int(consumer), kind))
    return tuple(sorted(found, key=lambda e: (e.value, e.consumer)))


def one_group(parallel: Sequence[tuple[int, int]], *stages: Stage) -> tuple[Kernel, ...]:
    return (Kernel((Phase((Group(tuple(parallel), stages),)),)),)


def layer_norm_plan(tile: int, width: int = 16) -> Plan:
    """Three stages, the centred row in block memory, the sums handed over in block memory as well."""
    kernels = one_group(
        [(3, tile)],
        Stage((4,), (3, 4), vector=4, width=width),
        Stage((6, 8), (3, 4), vector=4, width=width),
        Stage((14,), (3, 4), vector=4, width=width),
    )
    places = edges(
        v4_5="block",
        v5_6="inline",
        v6_7="register",
        v6_13="block",
        v7_8="inline",
        v8_9="block",
        v9_10="inline",
        v10_11="inline",
        v11_12="inline",
        v12_13="inline",
        v13_14="inline",
    )
    return Plan(kernels, places)


def softmax_plan(tile: int, width: int = 16) -> Plan:
    kernels = one_group(
        [(2, tile)],
        Stage((1,), (2, 3), vector=3, width=width),
        Stage((3, 4), (2, 3), vector=3, width=width),
        Stage((5,), (2, 3), vector=3, width=width),
    )
    return Plan(kernels, edges(v1_2="block", v2_3="inline", v3_4="register", v3_5="block", v4_5="block"))


def split_sums_plan(row_tile: int, column_tile: int) -> Plan:
    """Both sums are split over a grid of tiles; a second phase combines them in two groups."""
    accumulate = Group(((2, row_tile), (3, column_tile)), (Stage((2, 3), (2, 3), vector=3, width=16),))
    rows = Group(((2, 16),), (Stage((), (2,), combine=(2,), vector=2, width=16),))
    columns = Group(((3, 16),), (Stage((), (3,), combine=(3,), vector=3, width=16),))
    return Plan((Kernel((Phase((accumulate,)), Phase((rows, columns)))),), edges(v1_2="inline", v1_3="inline"))
