"""Primitives of the reference against values written down, or against NumPy where it means the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.errors import GraphError, InputError
from stitchtune.graphs.interpret import eval_node, run_graph
from stitchtune.graphs.interpret.elementwise import erf
from stitchtune.graphs.ir import Node, TensorType
from stitchtune.graphs.rounding import narrow, round_to, settle

from tests.random_graphs import random_feeds, random_graph

NAN, INF = math.nan, math.inf


def run(op: str, *args: Any, to: DType = DType.F64, shape: tuple[int, ...] | None = None, **attrs: Any) -> Any:
    """The narrow result of one node on arrays."""
    arrays = [np.asarray(a) for a in args]
    kind = TensorType(to, arrays[0].shape if shape is None else shape)
    names = tuple(f"x{i}" for i in range(len(arrays)))
    return narrow(eval_node(Node(op, names, ("y",), tuple(sorted(attrs.items()))), arrays, kind), to)


def i32(*values: int) -> Any:
    return np.array(values, np.int32)


@pytest.mark.parametrize(
    ("op", "a", "b", "want"),
    [
        ("div", i32(-7, 7, -7, 5, -(2**31)), i32(2, -2, -2, 0, -1), [-3, -3, 3, 0, -(2**31)]),
        ("mod", i32(-7, 7, -7, 5), i32(2, -2, -2, 0), [1, -1, -1, 0]),
        ("fmod", i32(-7, 7, -7, 5), i32(2, -2, -2, 0), [-1, 1, -1, 0]),
        ("add", i32(2**31 - 1), i32(1), [-(2**31)]),
        ("mul", i32(2**30), i32(4), [0]),
        ("shl", i32(1, 3), i32(4, 31), [16, -(2**31)]),
        ("shr", i32(-8, 8), i32(1, 2), [-4, 2]),
        ("pow", i32(3, 2, -1, 2, 0), i32(4, 31, -3, -1, 0), [81, -(2**31), -1, 0, 1]),
        ("bitxor", i32(6), i32(3), [5]),
    ],
)
def test_integers(op: str, a: Any, b: Any, want: list[int]) -> None:
    assert run(op, a, b, to=DType.I32).tolist() == want


def test_unsigned_integers_wrap() -> None:
    assert run("sub", np.array([1], np.uint8), np.array([2], np.uint8), to=DType.U8).tolist() == [255]
    assert run("sum", np.full((2, 3), 100, np.uint8), to=DType.U8, shape=(2,), axes=(1,)).tolist() == [44, 44]


@pytest.mark.parametrize(
    ("op", "args", "want"),
    [
        ("maximum", ([NAN, 1.0, -INF], [2.0, NAN, 3.0]), [NAN, NAN, 3.0]),
        ("minimum", ([NAN, 1.0], [2.0, -INF]), [NAN, -INF]),
        ("round", ([-2.5, -0.5, 0.5, 1.5, 2.5],), [-2.0, -0.0, 0.0, 2.0, 2.0]),
        ("sign", ([-3.0, 0.0, NAN],), [-1.0, 0.0, NAN]),
        ("mod", ([-7.5, 7.5], [2.0, -2.0]), [0.5, -0.5]),
        ("fmod", ([-7.5, 7.5], [2.0, -2.0]), [-1.5, 1.5]),
        ("pow", ([-8.0, -2.0, 0.0, NAN, 1.0, 0.0], [1 / 3, 3.0, 0.0, 0.0, NAN, -1.0]), [NAN, -8.0, 1.0, 1.0, 1.0, INF]),
        ("trunc", ([-1.7, 1.7],), [-1.0, 1.0]),
        ("recip", ([0.0, -INF],), [INF, -0.0]),
        ("where", ([True, False], [1.0, 2.0], [NAN, 4.0]), [1.0, 4.0]),
    ],
)
def test_floats(op: str, args: tuple[Any, ...], want: list[float]) -> None:
    got = run(op, *args)
    np.testing.assert_array_equal(got, want)
    assert np.signbit(got).tolist() == np.signbit(want).tolist() or np.isnan(want).any()


def test_casts() -> None:
    assert run("cast", [-1.9, 1.9, 0.5], to=DType.I8).tolist() == [-1, 1, 0]
    assert run("cast", [0.0, NAN, 1e-300], to=DType.BOOL).tolist() == [False, True, True]
    assert run("cast", np.array([300, -1]), to=DType.U8).tolist() == [44, 255]
    assert run("cast", [2.0**-24, 65519.0, 65520.0], to=DType.F16).tolist() == [2.0**-24, 65504.0, INF]
    assert run("cast", [1.00390625, 1.01171875], to=DType.BF16).astype(float).tolist() == [1.0, 1.015625]


def test_low_precision_is_rounded_at_every_edge_only_when_strict() -> None:
    node, kind = Node("add", ("a", "b"), ("y",)), TensorType(DType.F16, ())
    args = [np.float16(2048), np.float16(1)]
    assert eval_node(node, args, kind) == 2048  # type: ignore[arg-type]
    assert eval_node(node, args, kind, "fast") == 2049  # type: ignore[arg-type]


def test_float32_has_its_range_and_float64_precision() -> None:
    assert settle(np.array([1e39, 1e-50, 1e-45, 1.5]), DType.F32).tolist() == [INF, 0.0, 2.0**-149, 1.5]
    assert settle(np.array([0.1]), DType.F32) == 0.1
    assert round_to(np.array([0.1]), DType.F32) == np.float32(0.1)


def test_erf_is_exact() -> None:
    x = np.linspace(-6, 6, 101).reshape(1, 101)
    np.testing.assert_array_equal(erf(x), [[math.erf(v) for v in x[0]]])


def test_positions_prefer_nan_and_the_wanted_end() -> None:
    x = np.array([[1, NAN, 3, NAN], [NAN] * 4, [5, 5, 1, 5], [-INF] * 4])
    for op, last, want in (
        ("argmax", False, [1, 0, 0, 0]),
        ("argmax", True, [3, 3, 3, 3]),
        ("argmin", False, [1, 0, 2, 0]),
        ("argmin", True, [3, 3, 2, 3]),
    ):
        assert run(op, x, to=DType.I64, shape=(4,), axes=(1,), select_last=last).tolist() == want
    y = np.zeros((2, 3, 4))
    y[1, 0, 2] = y[0, 2, 3] = 1
    assert run("argmax", y, to=DType.I64, shape=(3,), axes=(0, 2), select_last=False).tolist() == [6, 0, 3]


def test_reductions_of_nothing() -> None:
    x = np.zeros((3, 0))
    values = {"sum": 0.0, "prod": 1.0, "max": -INF, "min": INF}
    for op, want in values.items():
        assert run(op, x, shape=(3,), axes=(1,)).tolist() == [want] * 3
    least = np.iinfo(np.int8).min
    assert run("max", np.zeros((1, 0), np.int8), to=DType.I8, shape=(1,), axes=(1,)).tolist() == [least]


def test_movement() -> None:
    x = np.arange(6.0).reshape(2, 3)
    assert run("broadcast", x[0], shape=(3, 2), dims=(0,)).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert run("slice", x, shape=(1, 2), starts=(1, 2), steps=(1, -2)).tolist() == [[5, 3]]
    assert run("pad", x, shape=(2, 4), before=(0, 2), after=(0, -1), value=9.0).tolist() == [[9, 9, 0, 1], [9, 9, 3, 4]]
    assert run("pad", x[0], shape=(6,), before=(2,), after=(1,), mode="reflect").tolist() == [2, 1, 0, 1, 2, 1]
    assert run("gather", x, np.array([[-1, 0]]), shape=(2, 1, 2), axis=1).tolist() == [[[2, 0]], [[5, 3]]]
    assert run("gather_elements", x, np.array([[1], [-3]]), shape=(2, 1), axis=1).tolist() == [[1], [3]]
    assert run("concat", x, x[:1], shape=(3, 3), axis=0).tolist() == [[0, 1, 2], [3, 4, 5], [0, 1, 2]]
    with pytest.raises(InputError, match="gather index out of range: 3 for a dimension of 3"):
        run("gather", x, np.array([3]), shape=(2, 1), axis=1)


def test_a_library_node_needs_its_library() -> None:
    from stitchtune.graphs.builder import GraphBuilder

    b = GraphBuilder("net")
    x = b.input("x", DType.F32, (2,))
    b.origin = "MatMul_1"
    (y,) = b.library([x, ""], [("y", TensorType(DType.F32, (2,)))], "matmul")
    b.output(b.elementwise("add", y, y))
    graph, feeds = b.build(), {"x": np.ones(2, np.float32)}
    with pytest.raises(GraphError, match=r"net: MatMul_1 needs a library \(matmul\)"):
        run_graph(graph, feeds)
    (got,) = run_graph(graph, feeds, lambda node, args: [args[0] * 3]).values()
    assert got.tolist() == [6, 6]
    assert got.dtype == np.float32


def test_feeds_are_checked() -> None:
    graph = random_graph(3)
    feeds = random_feeds(graph, 3)
    name = graph.inputs[0]
    with pytest.raises(InputError, match="no value is given"):
        run_graph(graph, {k: v for k, v in feeds.items() if k != name})
    with pytest.raises(InputError, match="not "):
        run_graph(graph, {**feeds, name: feeds[name][None]})
