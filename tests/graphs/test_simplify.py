"""What each pass removes, and what it must leave."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from stitchtune.graphs.builder import GraphBuilder
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.errors import VerifyError
from stitchtune.graphs.interpret.tensors import run_graph
from stitchtune.graphs.ir import Graph, Node, TensorType
from stitchtune.graphs.passes.common_subexpressions import merge_common_subexpressions
from stitchtune.graphs.passes.constant_folding import LIMIT, fold_constants
from stitchtune.graphs.passes.dead_code import eliminate_dead_code
from stitchtune.graphs.passes.no_ops import remove_no_ops
from stitchtune.graphs.shapes import TypeMismatch
from stitchtune.graphs.simplify import simplify
from stitchtune.graphs.verify import verify_graph

F32, I32, BOOL = DType.F32, DType.I32, DType.BOOL


def ops(graph: Graph) -> dict[str, int]:
    return dict(Counter(node.op for node in graph.nodes))


def finished(b: GraphBuilder, *outputs: str) -> Graph:
    for name in outputs:
        b.output(name)
    graph = b.build()
    verify_graph(graph)
    return graph


def same_results(before: Graph, after: Graph, *values: Any) -> None:
    """Both give the same bits, signs of zeros and places of NaN included."""
    verify_graph(after)
    feeds = {n: np.asarray(v, before.types[n].dtype.numpy) for n, v in zip(before.inputs, values, strict=True)}
    found, expected = run_graph(after, feeds), run_graph(before, feeds)
    assert list(found) == list(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
        if value.dtype.kind == "f":
            number = ~np.isnan(value)
            np.testing.assert_array_equal(np.signbit(found[name])[number], np.signbit(value)[number])


AWKWARD = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-42, -2.5]


# --- no-ops


@pytest.mark.parametrize(
    ("op", "value", "left", "right"),
    [
        ("mul", 1, True, True),
        ("div", 1, False, True),
        ("sub", 0.0, False, True),
        ("sub", -0.0, False, False),
        ("add", -0.0, True, True),
        ("add", 0.0, False, False),
        ("mul", 0, False, False),
        ("maximum", -np.inf, True, True),
        ("minimum", np.inf, True, True),
        ("maximum", 0, False, False),
        ("pow", 1, False, False),
    ],
)
def test_neutral_operands_of_floats(op: str, value: float, left: bool, right: bool) -> None:
    for on_left, removed in ((True, left), (False, right)):
        b = GraphBuilder()
        x = b.input("x", F32, (7,))
        c = b.full(value, F32, (7,))
        graph = finished(b, b.op("neg", b.op(op, *((c, x) if on_left else (x, c)))))
        after = eliminate_dead_code(remove_no_ops(graph))
        assert (op not in ops(after)) == removed
        same_results(graph, after, AWKWARD)


def test_neutral_operands_of_integers_and_bools() -> None:
    b = GraphBuilder()
    x, c = b.input("x", I32, (3,)), b.input("c", BOOL, (3,))
    y = b.op("add", x, b.full(0, I32, (3,)))
    y = b.op("div", b.op("mul", y, b.full(1, I32, (3,))), b.full(1, I32, (3,)))
    p = b.op("and", c, b.full(True, BOOL, (3,)))
    p = b.op("xor", b.op("or", p, b.full(False, BOOL, (3,))), b.full(False, BOOL, (3,)))
    graph = finished(b, b.op("neg", y), b.op("not", p))
    after = simplify(graph)
    assert ops(after) == {"neg": 1, "not": 1}
    same_results(graph, after, [1, -2, 3], [True, False, True])


def test_movement_that_keeps_everything_in_place() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, (2, 3))
    y = b.op("reshape", x, shape=(2, 3))
    y = b.op("broadcast", y, shape=(2, 3), dims=(0, 1))
    y = b.op("transpose", y, perm=(0, 1))
    y = b.op("slice", y, sizes=(2, 3), starts=(0, 0), steps=(1, 1))
    y = b.op("pad", y, before=(0, 0), after=(0, 0), value=0.0)
    y = b.op("concat", b.op("copy", b.op("cast", y, dtype=F32)), axis=0)
    after = simplify(finished(b, b.op("exp", y)))
    assert ops(after) == {"exp": 1}


def test_movement_that_does_not() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, (2, 2))
    reversed_ = b.op("slice", x, sizes=(2, 2), starts=(1, 0), steps=(-1, 1))
    turned = b.op("transpose", x, perm=(1, 0))
    shifted = b.op("pad", x, before=(1, 0), after=(-1, 0), value=0.0)
    graph = finished(b, reversed_, turned, shifted)
    assert simplify(graph).nodes == graph.nodes


def test_detours_are_joined() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, (2, 3, 4))
    there_and_back = b.op("transpose", b.op("transpose", x, perm=(1, 2, 0)), perm=(2, 0, 1))
    flat = b.op("reshape", b.op("reshape", there_and_back, shape=(6, 4)), shape=(24,))
    wide = b.op("broadcast", b.op("broadcast", flat, shape=(24, 5), dims=(0,)), shape=(3, 24, 5), dims=(1, 2))
    graph = finished(b, wide)
    after = simplify(graph)
    assert ops(after) == {"reshape": 1, "broadcast": 1}
    same_results(graph, after, np.arange(24).reshape(2, 3, 4))


def test_double_negations_and_choices() -> None:
    b = GraphBuilder()
    x, c = b.input("x", F32, (7,)), b.input("c", BOOL, (7,))
    y = b.op("neg", b.op("neg", x))
    same = b.op("where", b.op("not", b.op("not", c)), y, y)
    first = b.op("where", b.full(True, BOOL, (7,)), same, b.full(3, F32, (7,)))
    graph = finished(b, b.op("exp", first))
    after = simplify(graph)
    assert ops(after) == {"exp": 1}
    same_results(graph, after, AWKWARD, [True] * 7)


@pytest.mark.parametrize(
    ("first", "second", "removed"),
    [
        (DType.F32, DType.F64, True),
        (DType.I8, DType.I32, True),
        (DType.BOOL, DType.F32, True),
        (DType.F32, DType.F16, False),
        (DType.I32, DType.F32, False),
        (DType.F16, DType.F32, False),
    ],
)
def test_casts_there_and_back(first: DType, second: DType, removed: bool) -> None:
    b = GraphBuilder()
    x = b.input("x", first, (2,))
    graph = finished(b, b.op("cast", b.op("cast", x, dtype=second), dtype=first))
    assert ("cast" not in ops(simplify(graph))) == removed


def test_outputs_keep_their_names() -> None:
    """An output that is an input, a constant or another output is a copy; any other takes the name over."""
    b = GraphBuilder()
    x = b.input("x", F32, (2,))
    b.constant(np.ones(2, np.float32), "w")
    b.op("copy", x, name="same")
    b.op("exp", x, name="e")
    b.op("copy", "e", name="again")
    b.op("copy", b.op("neg", x, name="hidden"), name="shown")
    b.op("copy", "w", name="ones")
    graph = finished(b, "same", "e", "again", "shown", "ones", "w", "x", "e")
    after = simplify(graph)
    assert after.outputs == graph.outputs
    assert ops(after) == {"exp": 1, "neg": 1, "copy": 3}
    same_results(graph, after, [1, 2])
    assert simplify(after).nodes == after.nodes


# --- common subexpressions


def test_equal_work_is_done_once() -> None:
    b = GraphBuilder()
    x, y = b.input("x", F32, (2, 2)), b.input("y", F32, (2, 2))
    one = b.op("exp", b.op("add", x, y))
    two = b.op("exp", b.op("add", y, x))
    other = b.op("exp", b.op("sub", x, y)), b.op("exp", b.op("sub", y, x))
    sums = b.reduce("sum", one, [0]), b.reduce("sum", two, [0]), b.reduce("sum", two, [1])
    graph = finished(b, *other, *sums)
    after = merge_common_subexpressions(graph)
    assert ops(after) == {"add": 1, "sub": 2, "exp": 3, "sum": 2, "copy": 1}
    same_results(graph, after, [[1, 2], [3, 4]], [[5, 6], [7, 8]])


def test_equal_constants_are_one() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, (2,))
    values = [np.array(v, np.float32) for v in ([0.0, 1.0], [0.0, 1.0], [-0.0, 1.0])]
    names = [b.constant(v, f"w{i}") for i, v in enumerate(values)]
    large = np.zeros(1 << 15)
    names += [b.constant(large, "l0"), b.constant(large, "l1"), b.constant(large.copy(), "l2")]
    added = [b.op("add", x, n) for n in names[:3]]
    graph = finished(b, *added, *(b.reduce("sum", n, [0]) for n in names[3:]))
    after = merge_common_subexpressions(graph)
    assert set(after.constants) == {"w0", "w2", "l0", "l2"}
    same_results(graph, after, [0, -1])


def test_library_nodes_are_not_merged() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, (2,))
    kind = TensorType(F32, (2,))
    for name in ("r0", "r1"):
        b.library([x], [(name, kind)], "random")
    graph = finished(b, "r0", "r1")
    assert simplify(graph) == graph


# --- constants


def test_constants_are_folded() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, (2, 3))
    weights = b.constant(np.arange(6, dtype=np.float32).reshape(3, 2), "w")
    turned = b.transpose(weights, (1, 0))
    scaled = b.elementwise("mul", turned, b.scalar(2, F32))
    graph = finished(b, b.op("add", x, scaled))
    after = simplify(graph)
    assert ops(after) == {"add": 1}
    same_results(graph, after, np.ones((2, 3)))


def test_folding_stays_scalar_under_broadcasts() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, (1 << 12, 1 << 10))
    shape = b.shape(x)
    half = b.op("div", b.full(1, F32, shape), b.full(2, F32, shape))
    after = simplify(finished(b, b.op("add", x, half)))
    assert ops(after) == {"broadcast": 1, "add": 1}
    assert [v.tolist() for v in after.constants.values()] == [0.5]


def test_uniform_results_become_scalars() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, (4,))
    position = b.op("iota", dtype=I32, sizes=(4,), axis=0)
    zero = b.cast(b.op("mul", position, b.full(0, I32, (4,))), F32)
    after = simplify(finished(b, b.op("add", x, zero)))
    assert [v.shape for v in after.constants.values()] == [()]


def test_folding_does_not_grow_the_model() -> None:
    b = GraphBuilder()
    size = LIMIT // 4 + 1
    line = b.constant(np.arange(size, dtype=np.float32), "line")
    wide = b.broadcast(b.reshape(line, (size, 1)), (size, 3))
    big = b.op("transpose", wide, perm=(1, 0))
    positions = b.op("exp", b.op("iota", dtype=F32, sizes=(size,), axis=0))
    own = b.op("exp", line)
    after = fold_constants(finished(b, big, positions, own))
    # exp(line) is as large as line; the others would be made from less.
    assert ops(after) == {"broadcast": 1, "transpose": 1, "exp": 1, "iota": 1}
    assert own in after.constants


def test_weights_are_folded_as_views_where_they_can_be() -> None:
    b = GraphBuilder()
    weights = np.arange(6, dtype=np.float32)
    y = b.reshape(b.constant(weights, "w"), (2, 3))
    after = fold_constants(finished(b, y))
    assert np.shares_memory(after.constants[y], weights)


def test_gather_out_of_range_is_left() -> None:
    b = GraphBuilder()
    y = b.op("gather", b.constant(np.ones(3, np.float32)), b.constant(np.array([7])), axis=0)
    assert ops(simplify(finished(b, y))) == {"gather": 1}


def test_dead_code_goes_and_inputs_stay() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, (2,))
    b.input("unused", F32, (2,))
    b.op("exp", b.op("neg", x))
    b.constant(np.zeros(9))
    after = eliminate_dead_code(finished(b, b.op("abs", x)))
    assert ops(after) == {"abs": 1}
    assert after.inputs == ("x", "unused")
    assert not after.constants
    assert set(after.types) == {"x", "unused", *after.outputs}


# --- the verifier and the builder


def test_verifier_refuses() -> None:
    b = GraphBuilder()
    x = b.input("x", F32, (2, 3))
    y = b.op("exp", x, name="y")
    graph = finished(b, y)
    (node,) = graph.nodes
    wrong = [
        replace(graph, nodes=(replace(node, inputs=("ghost",)),)),
        replace(graph, nodes=(node, node)),
        replace(graph, nodes=()),
        replace(graph, nodes=(replace(node, op="frobnicate"),)),
        replace(graph, nodes=(replace(node, attrs=(("axis", 1),)),)),
        replace(graph, nodes=(replace(node, reason="why"),)),
        replace(graph, nodes=(Node("library", ("x",), ("y",)),)),
        replace(graph, types={**graph.types, "y": TensorType(F32, (2, 4))}),
        replace(graph, types={**graph.types, "y": TensorType(F32, (2, -3))}),
        replace(graph, types={**graph.types, "stale": TensorType(F32, ())}),
        replace(graph, types={"x": graph.types["x"]}),
        replace(graph, outputs=("nothing",)),
        replace(graph, constants={"y": np.zeros((2, 3), np.float32)}),
    ]
    for bad in wrong:
        with pytest.raises(VerifyError):
            verify_graph(bad)


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"),
    [
        ("add", [(2,), (3,)], {}),
        ("add", [(2,)], {}),
        ("add", [(2,), (2,)], {"axis": 0}),
        ("and", [(2,), (2,)], {}),
        ("sum", [(2, 3)], {"axes": (1, 0)}),
        ("sum", [(2, 3)], {"axes": ()}),
        ("sum", [(2, 3)], {"axes": (2,)}),
        ("sum", [(2, 3)], {}),
        ("argmax", [(2, 3)], {"axes": (0,)}),
        ("argmax", [(2, 0)], {"axes": (1,), "select_last": False}),
        ("broadcast", [(2, 3)], {"shape": (2, 4), "dims": (0, 1)}),
        ("broadcast", [(2, 3)], {"shape": (3, 2), "dims": (1, 0)}),
        ("transpose", [(2, 3)], {"perm": (0, 0)}),
        ("reshape", [(2, 3)], {"shape": (5,)}),
        ("reshape", [(2, 3)], {"shape": (-2, -3)}),
        ("slice", [(4,)], {"starts": (2,), "steps": (1,)}),
        ("pad", [(4,)], {"before": (-3,), "after": (-3,), "value": 0.0}),
        ("pad", [(4,)], {"before": (1,), "after": (0,), "value": True}),
        ("pad", [(4,)], {"before": (4,), "after": (0,), "mode": "reflect"}),
        ("pad", [(4,)], {"before": (4,), "after": (0,), "mode": "wrap"}),
        ("concat", [(2, 3), (2, 4)], {"axis": 0}),
        ("concat", [], {"axis": 0}),
        ("gather", [(2, 3), (2,)], {"axis": 0}),
        ("gather_elements", [(2, 3), (2, 3)], {"axis": 2}),
        ("frobnicate", [(2,)], {}),
    ],
)
def test_builder_refuses(op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any]) -> None:
    b = GraphBuilder()
    operands = [b.input(f"x{i}", F32, shape) for i, shape in enumerate(shapes)]
    with pytest.raises(TypeMismatch):
        b.op(op, *operands, **attrs)
