"""Small subgraphs written by hand, for tests of the tuner."""

from __future__ import annotations

from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import AxisVar, Read, Subgraph, Value
from stitchtune.search_space.target import DeviceModel, Target

TARGET = Target("cpu", "cpu", "test", 2, 64, 1, 512 << 10, 32 << 10, 32 << 20)

MODEL = DeviceModel(
    target=TARGET,
    dram_bandwidth=30e9,
    cache_bandwidth=80e9,
    block_bandwidth=160e9,
    launch=2e-6,
    serial_launch=2e-7,
    barrier=5e-7,
    throughput=(("add", 40e9), ("div", 8e9), ("exp", 2e9), ("gather", 6e9)),
    triad=((16 << 10, 300e9, 150e9), (1 << 20, 160e9, 80e9), (16 << 20, 80e9, 40e9), (128 << 20, 30e9, 20e9)),
)


def at(value: int, *axes: int) -> Read:
    return Read(value, tuple(AxisVar(a) for a in axes))


def softmax(rows: int, columns: int) -> Subgraph:
    """Softmax over the last axis."""
    f32 = DType.F32
    values = (
        Value("input", f32, (0, 1)),
        Value("max", f32, (2,), (3,), (at(0, 2, 3),)),
        Value("sub", f32, (2, 3), (), (at(0, 2, 3), at(1, 2))),
        Value("exp", f32, (2, 3), (), (at(2, 2, 3),)),
        Value("sum", f32, (2,), (3,), (at(3, 2, 3),)),
        Value("div", f32, (2, 3), (), (at(3, 2, 3), at(4, 2))),
    )
    return Subgraph(values, (5,), (rows, columns, rows, columns))


def scaled(elements: int) -> Subgraph:
    """y = exp(x) * x."""
    f32 = DType.F32
    values = (
        Value("input", f32, (0,)),
        Value("exp", f32, (1,), (), (at(0, 1),)),
        Value("mul", f32, (1,), (), (at(1, 1), at(0, 1))),
    )
    return Subgraph(values, (2,), (elements, elements))


def transposed(rows: int, columns: int) -> Subgraph:
    """y[j, i] = x[i, j] + 1."""
    f32 = DType.F32
    values = (
        Value("input", f32, (0, 1)),
        Value("const", f32, (), attrs=(("value", 1.0),)),
        Value("add", f32, (2, 3), (), (at(0, 3, 2), at(1))),
    )
    return Subgraph(values, (2,), (rows, columns, columns, rows))


def column_sum(rows: int, columns: int) -> Subgraph:
    """s[j] = sum over i of x[i, j]."""
    f32 = DType.F32
    values = (Value("input", f32, (0, 1)), Value("sum", f32, (2,), (3,), (at(0, 3, 2),)))
    return Subgraph(values, (1,), (rows, columns, columns, rows))
