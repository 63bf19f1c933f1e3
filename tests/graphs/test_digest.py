"""The digest: the same for every spelling and size of a structure, another for every other structure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from stitchtune.graphs.builder import GraphBuilder
from stitchtune.graphs.canonical import canonicalise
from stitchtune.graphs.digest import structural_digest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.ir import Graph
from stitchtune.graphs.partition import partition
from stitchtune.graphs.subgraph import Subgraph

from tests.graphs.variants import cut, renamed, shuffled
from tests.random_graphs import random_graph

F = DType.F32


def forms(graph: Graph, join: bool) -> list[str]:
    """Digests, extents and slots of all components, in no order."""
    found = [c.subgraph for c in partition(graph, join).components]
    return sorted(f"{structural_digest(s)} {s.extents} {s.slots} {s.values}" for s in found)


@pytest.mark.parametrize("seed", range(60))
def test_names_node_order_and_commuting_operands_do_not_matter(seed: int) -> None:
    graph = cut(random_graph(seed), seed, 0.15)
    other = shuffled(renamed(graph, seed), seed)
    for join in (True, False):
        assert forms(other, join) == forms(graph, join)


def softmax(b: GraphBuilder, x: str, scale: float = 0.5, op: str = "exp", axis: int = 2) -> str:
    s = b.elementwise("mul", x, b.scalar(scale, F))
    e = b.op(op, b.elementwise("sub", s, b.reduce("max", s, [axis], True)))
    return b.elementwise("div", e, b.reduce("sum", e, [axis], True))


def subgraph(build: Callable[[GraphBuilder], str]) -> Subgraph:
    b = GraphBuilder()
    out = build(b)
    b.output(out)
    graph = b.build()
    return canonicalise(graph, [out], {*graph.inputs, *graph.constants}).subgraph


def test_extents_stand_beside_the_digest() -> None:
    small, large = (subgraph(lambda b, n=n: softmax(b, b.input("x", F, (2, n, 5 * n)))) for n in (3, 11))
    assert small.values == large.values
    assert small.extents != large.extents
    assert structural_digest(small) == structural_digest(large)


def test_slots_stand_beside_the_digest() -> None:
    first, last = (subgraph(lambda b, k=k: b.op("exp", b.slice(b.input("x", F, (4, 9)), 1, k, 1))) for k in (0, 8))
    assert first.slots != last.slots
    assert structural_digest(first) == structural_digest(last)


def test_other_structures_have_other_digests() -> None:
    builds: list[Callable[[GraphBuilder], str]] = [
        lambda b: softmax(b, b.input("x", F, (2, 3, 5))),
        lambda b: softmax(b, b.input("x", DType.F32, (2, 3, 5)), axis=1),
        lambda b: softmax(b, b.input("x", F, (2, 3, 5)), scale=0.25),
        lambda b: softmax(b, b.input("x", F, (2, 3, 5)), op="tanh"),
        lambda b: b.reshape(softmax(b, b.reshape(b.input("x", F, (2, 15)), (1, 2, 15)), axis=1), (2, 15)),
        lambda b: b.op("sub", b.input("x", F, (3,)), b.input("y", F, (3,))),
        lambda b: b.op("sub", b.input("x", F, (3,)), "x"),
        lambda b: b.op("sub", b.op("exp", b.input("x", F, (3,))), "x"),
        lambda b: b.op("sub", b.input("x", F, (3,)), b.op("exp", "x")),
        lambda b: b.cast(b.input("x", F, (3,)), DType.F16),
        lambda b: b.cast(b.input("x", F, (3,)), DType.F64),
        lambda b: b.op("exp", b.transpose(b.input("x", F, (3, 4)), (1, 0))),
        lambda b: b.op("exp", b.input("x", F, (3, 4))),
        lambda b: b.op("exp", b.slice(b.input("x", F, (3, 9)), 1, 0, 2)),
        lambda b: b.op("exp", b.slice(b.input("x", F, (3, 9)), 1, 0, 2, 3)),
        lambda b: b.op("exp", b.slice(b.input("x", F, (3, 9)), 1, 8, 9, -1)),
    ]
    digests = [structural_digest(subgraph(build)) for build in builds]
    assert len(set(digests)) == len(builds)


def test_the_digest_sees_every_part_of_a_value() -> None:
    sub = subgraph(lambda b: softmax(b, b.input("x", F, (2, 3, 5))))
    known = {structural_digest(sub)}
    for number, value in enumerate(sub.values):
        others = [
            replace(value, op="other"),
            replace(value, dtype=DType.F16),
            replace(value, axes=(*value.axes, 99)),
            replace(value, reduce=(*value.reduce, 99)),
            replace(value, attrs=(("value", 7.0),)),
            replace(value, reads=value.reads * 2 + (sub.values[-1].reads[0],)),
        ]
        for other in others:
            values = (*sub.values[:number], other, *sub.values[number + 1 :])
            known.add(structural_digest(replace(sub, values=values)))
    known.add(structural_digest(replace(sub, outputs=())))
    assert len(known) == 6 * len(sub.values) + 2


def test_the_digest_is_that_of_other_processes() -> None:
    """A database outlives processes: hashes must not come from Python's randomised ones."""
    sub = subgraph(lambda b: b.op("exp", b.input("x", F, (3,))))
    assert structural_digest(sub) == "395741e9aa8c0b509dc280c901d598ae"
