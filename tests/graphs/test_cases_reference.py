"""The stated cases on the reference interpreter: tensor by tensor, and through the canonical form."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from stitchtune.graphs.interpret import run_graph, run_subgraph
from stitchtune.graphs.ir import Graph
from stitchtune.graphs.onnx_reader import load
from stitchtune.graphs.partition import Component, ViewStep, partition
from stitchtune.graphs.simplify import simplify

from tests.cases import CASES, Array, Case, Setup
from tests.compare import assert_agree

WORTH = ("10b long sum", "11 softmax 2x2097152")
"""The large cases that run here; the rest of them differ in nothing that an interpreter could get wrong."""
CHOSEN = [case for case in CASES if not case.large or case.name in WORTH]


def loaded(setup: Setup, folder: Path) -> Graph:
    path = folder / "case.onnx"
    onnx.save(setup.model, path)
    return load(path)


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)
def test_tensor_by_tensor(case: Case, tmp_path: Path) -> None:
    setup = case.make()
    graph = loaded(setup, tmp_path)
    assert_agree(run_graph(graph, setup.feeds), setup.wanted)


@pytest.mark.parametrize("case", CHOSEN, ids=lambda case: case.name)
def test_through_the_canonical_form(case: Case, tmp_path: Path) -> None:
    setup = case.make()
    graph = simplify(loaded(setup, tmp_path))
    assert_agree(run_partition(graph, dict(setup.feeds)), setup.wanted)


def run_partition(graph: Graph, feeds: dict[str, Array]) -> dict[str, Array]:
    """The outputs of a graph without library ops, by the reference of its subgraphs."""
    arrays = {**graph.constants, **feeds}
    for step in partition(graph).steps:
        if isinstance(step, ViewStep):
            arrays[step.output] = arrays[step.source].reshape(graph.types[step.output].shape)
            continue
        assert isinstance(step, Component)
        sub = step.subgraph
        inputs = [arrays[n].reshape(sub.shape(v)) for n, v in zip(step.inputs, sub.inputs, strict=True)]
        for name, array in zip(step.outputs, run_subgraph(sub, inputs), strict=True):
            arrays[name] = np.ascontiguousarray(array).reshape(graph.types[name].shape)
    return {name: arrays[name] for name in graph.outputs}
