"""The stated cases on the reference interpreter: tensor by tensor, and through the canonical form."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from stitchtune.graphs.interpret import run_graph
from stitchtune.graphs.ir import Graph
from stitchtune.graphs.onnx_reader import load
from stitchtune.graphs.partition import partition
from stitchtune.graphs.simplify import simplify

from tests.cases import CASES, Case, Setup
from tests.compare import assert_agree
from tests.graphs.partitioned import run_partition

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
    assert_agree(run_partition(partition(graph), setup.feeds), setup.wanted)
