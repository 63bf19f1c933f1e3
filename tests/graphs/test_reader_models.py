"""The five exported models: what stays a library op, and that the rest means what it meant."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.interpret.tensors import run_graph
from stitchtune.graphs.ir import Graph
from stitchtune.graphs.onnx_reader import load
from stitchtune.graphs.simplify import simplify
from stitchtune.graphs.verify import verify_graph

from tests.graphs.onnx_models import Array, run_library

SHARED = Path(os.environ.get("STITCHTUNE_SHARED", Path(__file__).resolve().parents[3] / "shared"))
GRAPHS = SHARED / "graphs"

pytestmark = pytest.mark.skipif(not GRAPHS.is_dir(), reason="the five graphs are not here (set STITCHTUNE_SHARED)")

LIBRARY = {
    "bert": {"MatMul": 96, "Gemm": 1},
    "dien": {"MatMul": 5, "Gemm": 64},
    "crnn": {"MatMul": 6, "Gemm": 100, "Conv": 7, "MaxPool": 4},
    "transformer": {"MatMul": 133},
    "asr": {"MatMul": 50, "Conv": 19},
}


def with_empty_weights(name: str, folder: Path) -> Path:
    """The model beside a sparse file of zeros as long as its weights."""
    shutil.copy(GRAPHS / f"{name}.onnx", folder)
    ends = [0]
    for tensor in onnx.load(GRAPHS / f"{name}.onnx", load_external_data=False).graph.initializer:
        entries = {e.key: e.value for e in tensor.external_data}
        if entries:
            ends.append(int(entries["offset"]) + int(entries["length"]))
    with (folder / f"{name}.weights").open("wb") as file:
        file.truncate(max(ends))
    return folder / f"{name}.onnx"


@pytest.mark.parametrize("name", LIBRARY)
def test_library_ops(name: str, tmp_path: Path) -> None:
    graph = load(with_empty_weights(name, tmp_path))
    verify_graph(graph)
    small = simplify(graph)
    verify_graph(small)
    for g in (graph, small):
        assert Counter(n.payload.op_type for n in g.nodes if n.op == "library") == LIBRARY[name]
    assert len(small.nodes) < len(graph.nodes)
    assert simplify(small).nodes == small.nodes
    assert (small.inputs, small.outputs) == (graph.inputs, graph.outputs)


def feeds_of(graph: Graph, table: int) -> dict[str, Array]:
    """Seeded inputs: indices within `table` rows, masks of ones, floats."""
    random = np.random.default_rng(0)
    feeds: dict[str, Array] = {}
    for name in graph.inputs:
        kind = graph.types[name]
        if kind.dtype is DType.I64:
            feeds[name] = random.integers(0, table, kind.shape)
        else:
            values = np.ones(kind.shape) if "mask" in name else random.standard_normal(kind.shape)
            feeds[name] = values.astype(kind.dtype.numpy)
    return feeds


@pytest.mark.parametrize("name", ["dien", "asr"])
def test_results(name: str, tmp_path: Path) -> None:
    """Before and after simplification as ONNX Runtime has it, with library nodes run by themselves."""
    import onnxruntime

    subprocess.run([sys.executable, GRAPHS / "materialize.py", tmp_path, name], check=True, stdout=subprocess.DEVNULL)
    graph = load(tmp_path / f"{name}.onnx")
    feeds = feeds_of(graph, 2)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(tmp_path / f"{name}.onnx", options, ["CPUExecutionProvider"])
    expected = session.run(None, feeds)
    for found in (run_graph(graph, feeds, run_library), run_graph(simplify(graph), feeds, run_library)):
        for output, want in zip(graph.outputs, expected, strict=True):
            assert np.linalg.norm(found[output] - want) <= 1e-4 * np.linalg.norm(want)
