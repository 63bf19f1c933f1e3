"""Random graphs: valid, the same for a seed, and with one meaning before and after the canonical form."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from stitchtune.graphs.interpret import run_graph
from stitchtune.graphs.partition import Component, partition
from stitchtune.graphs.simplify import simplify
from stitchtune.graphs.verify import verify_graph
from stitchtune.graphs.verify_subgraph import verify_subgraph

from tests.compare import Want, assert_agree
from tests.coverage import EVERY_PRIMITIVE, coverage
from tests.graphs.partitioned import run_partition
from tests.guards import COMPUTING, focus_of
from tests.random_graphs import random_feeds, random_graph
from tests.random_subgraphs import random_subgraph


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("seed", range(0, 80, 2))
def test_one_meaning_before_and_after_the_canonical_form(seed: int, special: bool) -> None:
    graph = random_graph(seed)
    verify_graph(graph)
    feeds = random_feeds(graph, seed, special)
    simple = simplify(graph)
    parts = partition(simple)
    for step in parts.steps:
        if isinstance(step, Component):
            verify_subgraph(step.subgraph)
    # What passes through memory between two subgraphs is rounded to float32.
    wanted = {name: Want(value, 1e-5, 1e-6) for name, value in run_graph(graph, feeds).items()}
    assert_agree(run_partition(parts, feeds), wanted)


def test_a_seed_gives_one_graph_and_one_set_of_feeds() -> None:
    for seed in (1, 2, 3):
        one, other = random_graph(seed), random_graph(seed)
        assert (one.nodes, one.types, one.outputs) == (other.nodes, other.types, other.outputs)
        for name, array in random_feeds(one, seed).items():
            np.testing.assert_array_equal(array, random_feeds(other, seed)[name])


def test_every_primitive_meets_every_type() -> None:
    graphs = sum((coverage(random_graph(seed)) for seed in range(200)), Counter())
    subgraphs = sum((coverage(random_subgraph(seed)) for seed in range(200)), Counter())
    for found in (graphs, subgraphs):
        assert min(found[feature] for feature in EVERY_PRIMITIVE) >= 2
        assert found["structure", "reductions over different axes"] >= 20
        assert found["structure", "non-identity read"] >= 100


def test_seeds_take_turns_with_the_primitives() -> None:
    count = 5
    seen = Counter(feature for seed in range(len(COMPUTING)) for feature in focus_of(seed, count))
    assert set(seen.values()) == {count}
