"""Canonical subgraphs written by hand, for tests of the search space: f32, rows on axis 0, columns on axis 1."""

from __future__ import annotations

from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import AxisVar, Read, Scalar, Subgraph, Value
from stitchtune.search_space.target import Target

TARGET = Target("cpu", "cpu", "test", 2, 64, 1, 512 * 1024, 32 * 1024, 32 << 20)


def value(op: str, axes: tuple[int, ...], *reads: Read, reduce: tuple[int, ...] = (), **attrs: Scalar) -> Value:
    return Value(op, DType.F32, axes, reduce, reads, tuple(attrs.items()))


def read(number: int, *axes: int) -> Read:
    return Read(number, tuple(AxisVar(a) for a in axes))


def softmax(rows: int, columns: int) -> Subgraph:
    values = (
        value("input", (2, 3)),
        value("max", (0,), read(0, 0, 1), reduce=(1,)),
        value("sub", (0, 1), read(0, 0, 1), read(1, 0)),
        value("exp", (0, 1), read(2, 0, 1)),
        value("sum", (0,), read(3, 0, 1), reduce=(1,)),
        value("div", (0, 1), read(3, 0, 1), read(4, 0)),
    )
    return Subgraph(values, (5,), (rows, columns, rows, columns))


def moments(rows: int, columns: int) -> Subgraph:
    """Outputs the mean and the sum of squared deviations of each row."""
    values = (
        value("input", (2, 3)),
        value("const", (), value=1 / columns),
        value("sum", (0,), read(0, 0, 1), reduce=(1,)),
        value("mul", (0,), read(2, 0), read(1)),
        value("sub", (0, 1), read(0, 0, 1), read(3, 0)),
        value("mul", (0, 1), read(4, 0, 1), read(4, 0, 1)),
        value("sum", (0,), read(5, 0, 1), reduce=(1,)),
    )
    return Subgraph(values, (3, 6), (rows, columns, rows, columns))


def layer_norm_backward(rows: int, columns: int) -> Subgraph:
    """Outputs dx [rows, columns], dgamma [columns], dbeta [columns]; inputs dy, xhat, gamma, rstd."""
    values = (
        value("input", (2, 3)),
        value("input", (4, 5)),
        value("input", (6,)),
        value("input", (7,)),
        value("const", (), value=float(columns)),
        value("mul", (0, 1), read(0, 0, 1), read(2, 1)),
        value("sum", (0,), read(5, 0, 1), reduce=(1,)),
        value("mul", (0, 1), read(5, 0, 1), read(1, 0, 1)),
        value("sum", (0,), read(7, 0, 1), reduce=(1,)),
        value("div", (0,), read(6, 0), read(4)),
        value("div", (0,), read(8, 0), read(4)),
        value("sub", (0, 1), read(5, 0, 1), read(9, 0)),
        value("mul", (0, 1), read(1, 0, 1), read(10, 0)),
        value("sub", (0, 1), read(11, 0, 1), read(12, 0, 1)),
        value("mul", (0, 1), read(13, 0, 1), read(3, 0)),
        value("mul", (0, 1), read(0, 0, 1), read(1, 0, 1)),
        value("sum", (1,), read(15, 0, 1), reduce=(0,)),
        value("sum", (1,), read(0, 0, 1), reduce=(0,)),
    )
    return Subgraph(values, (14, 16, 17), (rows, columns, rows, columns, rows, columns, columns, rows))


def outer_difference(rows: int, columns: int) -> Subgraph:
    """e = tanh(x), then the column mean of e subtracted along the other axis: no tile holds both."""
    values = (
        value("input", (2, 3)),
        value("tanh", (0, 1), read(0, 0, 1)),
        value("sum", (1,), read(1, 0, 1), reduce=(0,)),
        value("sub", (0, 1), read(1, 0, 1), read(2, 1)),
        value("sum", (0,), read(3, 0, 1), reduce=(1,)),
        value("sub", (0, 1), read(3, 0, 1), read(4, 0)),
    )
    return Subgraph(values, (5,), (rows, columns, rows, columns))


def exponential(rows: int, columns: int) -> Subgraph:
    values = (value("input", (2, 3)), value("exp", (0, 1), read(0, 0, 1)))
    return Subgraph(values, (1,), (rows, columns, rows, columns))
