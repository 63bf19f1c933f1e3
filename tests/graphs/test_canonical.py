"""Canonical form: which axes are shared, which maps remain, and that spelling does not matter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from stitchtune.graphs.builder import GraphBuilder
from stitchtune.graphs.canonical import Canonical, canonicalise
from stitchtune.graphs.describe import describe
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.interpret import run_graph, run_subgraph
from stitchtune.graphs.subgraph import AxisVar, Lookup, Subgraph, Value
from stitchtune.graphs.verify import verify_graph
from stitchtune.graphs.verify_subgraph import verify_subgraph

F = DType.F32


def canonical(b: GraphBuilder, *outputs: str) -> Canonical:
    """The one component of a graph of primitives, verified, and checked against the reference on random inputs."""
    for name in outputs:
        b.output(name)
    graph = b.build()
    verify_graph(graph)
    found = canonicalise(graph, outputs, {*graph.inputs, *graph.constants})
    verify_subgraph(found.subgraph)
    rng = np.random.default_rng(0)
    feeds = {}
    for name in graph.inputs:
        kind = graph.types[name]
        drawn = rng.standard_normal(kind.shape) if kind.dtype.is_float else rng.integers(0, 3, kind.shape)
        feeds[name] = drawn.astype(kind.dtype.numpy)
    expected = run_graph(graph, feeds)
    memory = {**feeds, **graph.constants}
    sub = found.subgraph
    arrays = [memory[name].reshape(sub.shape(v)) for name, v in zip(found.inputs, sub.inputs, strict=True)]
    memory.update(zip(found.outputs, run_subgraph(sub, arrays), strict=True))
    memory.update((tensor, memory[source]) for tensor, source in found.views)
    for name in outputs:
        got = memory[name].reshape(graph.types[name].shape)
        np.testing.assert_allclose(got, expected[name], rtol=1e-6, atol=1e-6)
    return found


def values(sub: Subgraph, op: str) -> list[Value]:
    return [v for v in sub.values if v.op == op]


def layer_norm(b: GraphBuilder, x: str, keepdims: bool = True, power: bool = False) -> str:
    rank = len(b.shape(x))
    size = b.scalar(b.shape(x)[-1], F)

    def mean(of: str) -> str:
        if keepdims:
            return b.elementwise("div", b.reduce("sum", of, [rank - 1], True), size)
        flat = b.elementwise("div", b.reduce("sum", of, [rank - 1]), size)
        return b.broadcast(flat, b.shape(x), range(rank - 1))

    d = b.elementwise("sub", x, mean(x))
    squares = b.elementwise("pow", d, b.scalar(2, F)) if power else b.op("mul", d, d)
    deviation = b.op("sqrt", b.elementwise("add", mean(squares), b.scalar(1e-5, F)))
    return b.elementwise("div", d, deviation)


# --- axes


def test_residual_and_layer_norm_share_two_axes() -> None:
    b = GraphBuilder()
    x, r, g = b.input("x", F, (4, 8, 24)), b.input("r", F, (4, 8, 24)), b.input("g", F, (24,))
    sub = canonical(b, b.elementwise("mul", layer_norm(b, b.op("add", x, r)), g)).subgraph
    assert {a for v in sub.computed for a in sub.values[v].domain} == {0, 1}
    assert sub.extents[:2] == (32, 24)


def test_softmax_keeps_the_axes_that_a_mask_tells_apart() -> None:
    b = GraphBuilder()
    x, m = b.input("x", F, (2, 3, 5, 7)), b.input("m", F, (2, 1, 1, 7))
    s = b.elementwise("add", b.elementwise("mul", x, b.scalar(0.5, F)), m)
    e = b.op("exp", b.elementwise("sub", s, b.reduce("max", s, [3], True)))
    sub = canonical(b, b.elementwise("div", e, b.reduce("sum", e, [3], True))).subgraph
    assert sub.extents[:3] == (2, 15, 7)
    assert {a for v in sub.computed for a in sub.values[v].domain} == {0, 1, 2}


def test_split_heads_and_transpose_are_a_copy_of_the_bias() -> None:
    b = GraphBuilder()
    x, bias = b.input("x", F, (2, 5, 12)), b.input("bias", F, (12,))
    heads = b.reshape(b.elementwise("add", x, bias), (2, 5, 3, 4))
    sub = canonical(b, b.transpose(heads, (0, 2, 1, 3))).subgraph
    (add,), (copy,) = values(sub, "add"), values(sub, "copy")
    assert add.axes == (0, 1, 2, 3)
    assert copy.axes == (0, 2, 1, 3)
    assert copy.reads[0].is_plain


@pytest.mark.parametrize("axis", [0, 1])
def test_a_value_and_its_transpose_do_not_unify(axis: int) -> None:
    b = GraphBuilder()
    e = b.op("tanh", b.input("x", F, (6, 6)))
    sub = canonical(b, b.reduce("max", b.op("add", e, b.transpose(e, (1, 0))), [axis])).subgraph
    (add,) = values(sub, "add")
    assert {r.index for r in add.reads} == {(AxisVar(0), AxisVar(1)), (AxisVar(1), AxisVar(0))}


@pytest.mark.parametrize("axis", [0, 1])
def test_pairwise_differences(axis: int) -> None:
    b = GraphBuilder()
    e = b.op("tanh", b.input("x", F, (6,)))
    d = b.elementwise("sub", b.reshape(e, (6, 1)), b.reshape(e, (1, 6)))
    sub = canonical(b, b.reduce("max", d, [axis])).subgraph
    (sub_value,) = values(sub, "sub")
    assert sub_value.reads[0].index != sub_value.reads[1].index


def test_a_mean_along_the_other_axis_stays_a_map() -> None:
    b = GraphBuilder()
    e = b.op("tanh", b.input("x", F, (6, 6)))
    mean = b.elementwise("div", b.reduce("sum", e, [1]), b.scalar(6, F))
    sub = canonical(b, b.elementwise("sub", e, mean)).subgraph
    (difference,) = values(sub, "sub")
    rows, columns = (r.index for r in difference.reads)
    assert rows == tuple(map(AxisVar, difference.axes))
    assert columns == (AxisVar(difference.axes[1]),)
    assert values(sub, "sum")[0].axes == (difference.axes[0],)


def test_readers_of_one_input_at_one_position_share_axes() -> None:
    b = GraphBuilder()
    x = b.input("x", F, (6, 7))
    sub = canonical(b, b.op("exp", x), b.op("tanh", x)).subgraph
    (a,), (c,) = values(sub, "exp"), values(sub, "tanh")
    assert a.axes == c.axes


def test_reading_an_input_and_its_transpose_unifies_nothing() -> None:
    b = GraphBuilder()
    x = b.input("x", F, (6, 6))
    sub = canonical(b, b.elementwise("add", x, b.transpose(x, (1, 0)))).subgraph
    (total,) = values(sub, "add")
    assert len(set(total.axes)) == 2


# --- movement


def test_a_reshape_that_does_not_align_is_a_linear_map() -> None:
    b = GraphBuilder()
    e = b.op("tanh", b.input("x", F, (2, 10, 7)))
    shifted = b.slice(b.reshape(e, (2, 7, 10)), 1, 1, 6)
    sub = canonical(b, b.elementwise("mul", shifted, b.input("m", F, (6, 10)))).subgraph
    assert len(values(sub, "tanh")) == len(sub.computed) - 1 == 1


def test_halves_swapped_and_negated_select_an_outer_factor() -> None:
    b = GraphBuilder()
    x, c, s = b.input("x", F, (3, 5, 8)), b.input("c", F, (5, 8)), b.input("s", F, (5, 8))
    h = b.op("tanh", x)
    turned = b.op("concat", b.op("neg", b.slice(h, 2, 4, 4)), b.slice(h, 2, 0, 4), axis=2)
    out = b.elementwise("add", b.elementwise("mul", h, c), b.elementwise("mul", turned, s))
    found = canonical(b, out).subgraph
    (piecewise,) = values(found, "piecewise")
    assert [found.extents[a] for a in piecewise.axes] == [3, 5, 2, 4]
    assert all(found.extents[read.where[0].axis] == 1 for read in piecewise.reads)


def test_slice_starts_are_slots_and_no_structure() -> None:
    subs = []
    for start in (0, 3):
        b = GraphBuilder()
        e = b.op("exp", b.input("x", F, (9, 5)))
        total = b.reduce("sum", e, [0])
        subs.append(canonical(b, b.elementwise("mul", b.slice(e, 0, start, 5), total)).subgraph)
    assert subs[0].values == subs[1].values
    assert subs[0].slots != subs[1].slots


def test_gates_of_a_cell_are_computed_where_they_are_read() -> None:
    b = GraphBuilder()
    x, h, c = b.input("x", F, (5, 16)), b.input("h", F, (5, 16)), b.input("c", F, (5, 4))
    gates = b.op("add", x, h)
    i, f, g, o = (b.slice(gates, 1, 4 * k, 4) for k in range(4))
    state = b.op("add", b.op("mul", f, c), b.op("mul", b.op("exp", i), b.op("tanh", g)))
    sub = canonical(b, state, b.op("mul", b.op("tanh", state), o)).subgraph
    assert all(len(sub.values[v].axes) == 2 for v in sub.computed)
    assert {a for v in sub.computed for a in sub.values[v].domain} == {0, 1}
    assert len(sub.slots) == 8


def test_a_piece_of_a_concat_is_the_piece() -> None:
    b = GraphBuilder()
    x, y = b.input("x", F, (3, 4)), b.input("y", F, (3, 4))
    both = b.op("concat", b.op("exp", x), b.op("tanh", y), axis=1)
    found = canonical(b, b.op("neg", b.slice(both, 1, 4, 4)))
    assert found.inputs == ("y",)
    assert not values(found.subgraph, "piecewise")


def test_a_concat_of_unequal_parts_is_bounded_by_their_axes() -> None:
    b = GraphBuilder()
    x, y = b.input("x", F, (3, 4)), b.input("y", F, (3, 5))
    sub = canonical(b, b.op("exp", b.op("concat", x, b.op("neg", y), axis=1))).subgraph
    (piecewise,) = values(sub, "piecewise")
    assert [read.where[0].index == read.index[1] for read in piecewise.reads] == [True, True]


def test_a_concat_of_nothing_is_nothing() -> None:
    b = GraphBuilder()
    x, y = b.input("x", F, (0, 4)), b.input("y", F, (0, 4))
    canonical(b, b.op("concat", x, b.op("neg", y), axis=0))


def test_padding_composes_or_is_computed_where_fills_differ() -> None:
    b = GraphBuilder()
    e = b.op("exp", b.input("x", F, (4, 5)))
    once = b.op("pad", e, before=(1, 0), after=(0, 2), value=0.0)
    same = b.op("pad", once, before=(0, 1), after=(0, 0), value=0.0)
    other = b.op("pad", once, before=(0, 1), after=(0, 0), value=1.0)
    sub = canonical(b, b.op("neg", same), b.op("sqrt", other)).subgraph
    assert len(values(sub, "copy")) == 1
    assert len(values(sub, "neg")[0].reads[0].where) == 3


def test_gathers_are_lookups_and_scalar_indices_slots() -> None:
    b = GraphBuilder()
    table, ids = b.input("t", F, (7, 4)), b.input("ids", DType.I64, (2, 3))
    row = b.op("gather", table, b.constant(np.asarray(-2, np.int64)), axis=0)
    sub = canonical(b, b.elementwise("mul", b.op("gather", table, ids, axis=0), row)).subgraph
    (product,) = values(sub, "mul")
    kinds = sorted(type(read.index[0]).__name__ for read in product.reads)
    assert kinds == ["Lookup", "Slot"]
    assert sub.slots == (5,)
    lookup = next(r.index[0] for r in product.reads if isinstance(r.index[0], Lookup))
    assert lookup.extent == sub.values[next(v for v in sub.inputs if sub.values[v].dtype is F)].axes[0]


def test_a_gather_at_positions_is_no_gather() -> None:
    b = GraphBuilder()
    places = b.op("iota", dtype=DType.I64, sizes=(3,), axis=0)
    sub = canonical(b, b.op("exp", b.op("gather", b.input("t", F, (7, 4)), places, axis=0))).subgraph
    assert values(sub, "exp")[0].reads[0].is_plain


def test_views_are_no_values() -> None:
    b = GraphBuilder()
    x = b.input("x", F, (3, 1, 4))
    e = b.op("exp", x)
    found = canonical(b, e, b.transpose(e, (1, 0, 2)), b.reshape(x, (12,)), b.transpose(x, (2, 1, 0)))
    assert dict(found.views) == {"transpose_2": e, "reshape_3": "x"}
    assert len(found.outputs) == 2


@pytest.mark.parametrize("shape", [(3, 0, 5), (0, 5), (1, 1), (1, 1, 4), ()])
def test_sizes_of_zero_and_one(shape: tuple[int, ...]) -> None:
    b = GraphBuilder()
    e = b.op("exp", b.input("x", F, shape))
    outputs = [b.reshape(e, (*shape, 1))]
    for axis in range(len(shape)):
        outputs.append(b.elementwise("add", e, b.reduce("sum", e, [axis], True)))
    sub = canonical(b, *outputs).subgraph
    assert all(1 not in sub.shape(v) for v in range(len(sub.values)))


def test_arg_max_over_merged_axes() -> None:
    b = GraphBuilder()
    e = b.op("tanh", b.input("x", F, (3, 4, 5)))
    sub = canonical(b, b.op("argmax", e, axes=(1, 2), select_last=False)).subgraph
    assert [len(values(sub, "argmax")[0].reduce), sub.extents[:2]] == [1, (3, 20)]


# --- narrowing and sharing


def test_what_does_not_depend_on_an_axis_is_computed_without_it() -> None:
    subs = []
    for early in (True, False):
        b = GraphBuilder()
        x, m = b.input("x", F, (4, 5, 6)), b.input("m", F, (4, 1, 6))
        wide = b.broadcast(m, (4, 5, 6), (0, 1, 2)) if early else m
        scaled = b.elementwise("mul", wide, b.scalar(-3, F))
        subs.append(canonical(b, b.elementwise("add", x, scaled)).subgraph)
    assert subs[0] == subs[1]


def test_positions_tie_no_axes_together() -> None:
    b = GraphBuilder()
    x = b.input("x", F, (6, 6))
    i = b.op("iota", dtype=DType.I64, sizes=(6, 6), axis=0)
    j = b.op("iota", dtype=DType.I64, sizes=(6, 6), axis=1)
    masked = b.op("where", b.op("ge", i, j), x, b.full(0, F, (6, 6)))
    sub = canonical(b, masked).subgraph
    assert len(values(sub, "iota")) == 2
    assert {a for v in sub.computed for a in sub.values[v].domain} == {0, 1}


def test_equal_values_are_one() -> None:
    b = GraphBuilder()
    x, y = b.input("x", F, (4, 6)), b.input("y", F, (4, 6))
    a, c = b.op("add", x, y), b.op("add", y, x)
    flat = b.reshape(b.op("add", b.reshape(x, (24,)), b.reshape(y, (24,))), (4, 6))
    sub = canonical(b, b.op("mul", b.op("exp", a), b.op("mul", c, flat))).subgraph
    assert len(values(sub, "add")) == 1


# --- spelling


def spell(build: Callable[[GraphBuilder, str], str]) -> Subgraph:
    b = GraphBuilder()
    return canonical(b, build(b, b.input("x", F, (4, 6, 8)))).subgraph


SPELLINGS: dict[str, list[Callable[[GraphBuilder, str], str]]] = {
    "layer norm": [
        lambda b, x: layer_norm(b, x),
        lambda b, x: layer_norm(b, x, power=True),
        lambda b, x: layer_norm(b, x, keepdims=False),
        lambda b, x: b.reshape(layer_norm(b, b.reshape(x, (24, 8))), (4, 6, 8)),
        lambda b, x: b.transpose(b.transpose(layer_norm(b, x), (1, 0, 2)), (1, 0, 2)),
    ],
    "split": [
        lambda b, x: b.op("mul", b.op("exp", b.slice(x, 2, 0, 4)), b.slice(x, 2, 4, 4)),
        lambda b, x: b.op(
            "mul",
            b.op("exp", b.slice(b.reshape(x, (4, 6, 2, 4)), 2, 0, 1)),
            b.slice(b.reshape(x, (4, 6, 2, 4)), 2, 1, 1),
        ),
        lambda b, x: b.op("mul", b.slice(x, 2, 4, 4), b.slice(b.op("exp", x), 2, 0, 4)),
    ],
    "comparison": [
        lambda b, x: b.elementwise("where", b.op("gt", x, b.op("exp", x)), x, b.scalar(0, F)),
        lambda b, x: b.elementwise("where", b.op("lt", b.op("exp", x), x), x, b.scalar(0, F)),
    ],
    "no movement": [
        lambda b, x: b.op("exp", x),
        lambda b, x: b.op("exp", b.op("copy", b.cast(x, F))),
        lambda b, x: b.reshape(b.op("exp", b.reshape(x, (1, 192, 1))), (4, 6, 8)),
        lambda b, x: b.transpose(b.op("exp", b.transpose(x, (2, 0, 1))), (1, 2, 0)),
    ],
}


@pytest.mark.parametrize("name", [*SPELLINGS])
def test_spellings_have_one_form(name: str) -> None:
    forms = [spell(build) for build in SPELLINGS[name]]
    for form in forms[1:]:
        assert describe(form) == describe(forms[0])


def test_long_chains_do_not_recurse() -> None:
    b = GraphBuilder()
    x = b.input("x", F, (2, 3))
    for _ in range(3000):
        x = b.op("neg", x)
    b.output(x)
    graph = b.build()
    assert len(canonicalise(graph, [x], {"x"}).subgraph.values) == 3001
