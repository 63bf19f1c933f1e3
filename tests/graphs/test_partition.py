"""Partition: the whole graph in steps gives what the graph gives, in as few components as its depth asks for."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from stitchtune.graphs.builder import GraphBuilder
from stitchtune.graphs.digest import structural_digest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.errors import VerifyError
from stitchtune.graphs.interpret import run_graph
from stitchtune.graphs.ir import Graph, TensorType
from stitchtune.graphs.onnx_reader import load
from stitchtune.graphs.partition import Component, LibraryStep, Partition, ViewStep, partition, verify_partition
from stitchtune.graphs.simplify import simplify
from stitchtune.graphs.verify_subgraph import verify_subgraph

from tests.graphs.partitioned import run_partition
from tests.graphs.variants import cut, run_cut
from tests.random_graphs import random_feeds, random_graph

F = DType.F32


def verified(graph: Graph, join: bool = True) -> Partition:
    part = partition(graph, join)
    verify_partition(part)
    for component in part.components:
        verify_subgraph(component.subgraph)
    return part


def library(b: GraphBuilder, *inputs: str, shape: tuple[int, ...] = (4, 6)) -> str:
    """A library operator that cannot run."""
    name = f"lib{len(b.types)}"
    return b.library(inputs, [(name, TensorType(F, shape))], "test")[0]


def steps(part: Partition) -> list[str]:
    """What each step is: the operators' outputs, `C` for components, `V` for views."""
    kinds = {Component: "C", LibraryStep: "L", ViewStep: "V"}
    return [kinds[type(step)] for step in part.steps]


@pytest.mark.parametrize("join", [True, False])
@pytest.mark.parametrize("seed", range(120))
def test_random_graphs_give_the_same_in_parts(seed: int, join: bool) -> None:
    whole = random_graph(seed)
    graph = cut(whole, seed, 0.15)
    feeds = random_feeds(whole, seed)
    expected = run_graph(graph, feeds, run_cut)
    found = run_partition(verified(graph, join), feeds, run_cut)
    for name in graph.outputs:
        assert found[name].dtype == expected[name].dtype
        assert found[name].shape == expected[name].shape
        low = graph.types[name].dtype.is_low_precision
        with np.errstate(all="ignore"):
            wanted = expected[name].astype(np.float64)
            np.testing.assert_allclose(found[name].astype(np.float64), wanted, rtol=2e-3 if low else 1e-6, atol=1e-6)


def test_a_chain_of_thousands_becomes_components_that_compile() -> None:
    b = GraphBuilder()
    x = b.input("x", DType.F32, (3, 5))
    for _ in range(2000):
        x = b.elementwise("tanh", x)
    b.output(x)
    graph = b.build()
    part = partition(graph)
    verify_partition(part)
    assert [len(c.subgraph.computed) for c in part.components] == [600, 600, 600, 200]


def test_one_component_a_depth_when_joined_and_one_a_part_otherwise() -> None:
    b = GraphBuilder()
    x, y = b.input("x", F, (4, 6)), b.input("y", F, (6,))
    a, c, d = library(b, x), library(b, x), library(b, x)
    for source in (b.op("exp", a), b.elementwise("add", c, y), b.op("add", d, d)):
        b.output(library(b, source))
    graph = b.build()
    assert [c.depth for c in verified(graph).components] == [1]
    assert [c.depth for c in verified(graph, join=False).components] == [1, 1, 1]


def test_parts_that_share_a_computed_value_are_connected() -> None:
    b = GraphBuilder()
    e = b.op("exp", library(b, b.input("x", F, (4, 6))))
    b.output(library(b, b.op("neg", e)))
    b.output(library(b, b.op("sqrt", e)))
    assert len(verified(b.build(), join=False).components) == 1


def test_views_need_no_component() -> None:
    b = GraphBuilder()
    x = b.input("x", F, (4, 6))
    made = library(b, b.reshape(x, (24,)), b.constant(np.zeros((2, 2), np.float32), "w"))
    b.output(b.reshape(made, (6, 4)))
    b.output(x)
    b.output("w")
    assert steps(verified(b.build())) == ["V", "L", "V"]


def test_a_reshape_of_a_computed_value_is_a_view_of_it() -> None:
    b = GraphBuilder()
    e = b.op("exp", b.input("x", F, (4, 6)))
    b.output(library(b, b.reshape(e, (2, 12))))
    b.output(b.reshape(e, (24,)))
    part = verified(b.build())
    assert steps(part)[0] == "C"
    assert len(part.components[0].outputs) == 1


def test_a_transpose_for_a_library_operator_is_computed() -> None:
    b = GraphBuilder()
    b.output(library(b, b.transpose(library(b, b.input("x", F, (4, 6))), (1, 0))))
    part = verified(b.build())
    assert steps(part) == ["L", "C", "L"]
    assert [v.op for v in part.components[0].subgraph.values] == ["input", "copy"]


def test_what_only_a_deeper_level_reads_is_computed_there() -> None:
    b = GraphBuilder()
    x, mask = b.input("x", F, (4, 6)), b.input("mask", F, (6,))
    scaled = b.elementwise("mul", mask, b.scalar(-10, F))
    made = library(b, x)
    b.output(b.elementwise("add", made, scaled))
    part = verified(b.build())
    assert [c.depth for c in part.components] == [1]
    assert set(part.components[0].inputs) == {made, "mask"}


def test_costly_values_for_many_levels_are_computed_once() -> None:
    b = GraphBuilder()
    x, mask = b.input("x", F, (4, 6)), b.input("mask", F, (6,))
    costly = b.op("exp", mask)
    for _ in range(3):
        x = b.elementwise("add", library(b, x), costly)
    b.output(x)
    part = verified(b.build())
    assert part.components[0].outputs == (costly,)
    assert [c.depth for c in part.components] == [0, 1, 2, 3]


def test_long_chains_of_doubling_are_placed_in_no_time() -> None:
    b = GraphBuilder()
    x = b.input("x", F, (4, 6))
    y = x
    for _ in range(2000):
        y = b.op("add", y, y)
    b.output(b.op("add", library(b, x), y))
    assert [c.depth for c in verified(b.build()).components] == [0, 1, 2, 3]


def test_dead_nodes_are_not_computed() -> None:
    b = GraphBuilder()
    x = b.input("x", F, (4, 6))
    e = b.op("exp", x)
    b.op("tanh", b.op("add", library(b, x), e))
    b.output(library(b, x))
    assert not verified(b.build()).components


def test_many_slices_read_deeper_are_one_tensor_in_memory() -> None:
    b = GraphBuilder()
    x = b.input("x", F, (4, 6))
    e = b.reduce("sum", b.op("exp", b.input("y", F, (4, 6, 3))), [2])
    for k in range(5):
        x = b.elementwise("add", library(b, x), b.slice(e, 1, k, 1))
    b.output(x)
    assert verified(b.build()).components[0].outputs == (e,)


def test_a_small_slice_read_deeper_is_written_alone() -> None:
    b = GraphBuilder()
    e = b.reduce("sum", b.op("exp", b.input("y", F, (4, 6, 3))), [2])
    part_of = b.slice(e, 1, 2, 1)
    b.output(b.elementwise("add", library(b, b.input("x", F, (4, 6))), part_of))
    assert verified(b.build()).components[0].outputs == (part_of,)


def test_components_are_convex() -> None:
    """No path leads from a component through another step back into it: every step reads only what comes before."""
    for seed, join in itertools.product(range(40), (True, False)):
        part = verified(cut(random_graph(seed), seed, 0.3), join)
        depths = [step.depth for step in part.steps if not isinstance(step, ViewStep)]
        assert depths == sorted(depths)


EXPORTED = Path(__file__).parents[3] / "shared" / "graphs"
"""Graphs that are no part of the package; their weights, zeros here, decide nothing."""


@pytest.mark.skipif(not EXPORTED.is_dir(), reason="the exported graphs are not beside the repository")
@pytest.mark.parametrize(
    ("name", "operators", "components", "structures"),
    [
        ("bert", 97, 74, 8),
        ("dien", 69, 66, 10),
        ("crnn", 117, 60, 9),
        ("transformer", 133, 94, 16),
        ("asr", 69, 54, 17),
    ],
)
def test_exported_graphs_need_few_components(
    tmp_path: Path, name: str, operators: int, components: int, structures: int
) -> None:
    (tmp_path / f"{name}.onnx").write_bytes((EXPORTED / f"{name}.onnx").read_bytes())
    with open(tmp_path / f"{name}.weights", "wb") as weights:
        weights.truncate(1 << 29)
    part = verified(simplify(load(tmp_path / f"{name}.onnx")))
    assert sum(isinstance(step, LibraryStep) for step in part.steps) <= operators
    assert len(part.components) <= components
    assert len({structural_digest(c.subgraph) for c in part.components}) <= structures


def test_a_missing_step_is_found() -> None:
    b = GraphBuilder()
    b.output(library(b, b.op("exp", b.input("x", F, (4, 6)))))
    part = partition(b.build())
    for k in range(len(part.steps)):
        with pytest.raises(VerifyError):
            verify_partition(Partition(part.graph, part.steps[:k] + part.steps[k + 1 :]))
