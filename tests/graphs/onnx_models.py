"""Small ONNX models, and their results by our decomposition and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from stitchtune.graphs.interpret.tensors import run_graph
from stitchtune.graphs.ir import Graph, Node
from stitchtune.graphs.onnx_reader import load
from stitchtune.graphs.simplify import PASSES
from stitchtune.graphs.verify import verify_graph

Array = NDArray[Any]
F32 = np.float32


def make_model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    constants: Mapping[str, Any] | None = None,
    opset: int = 21,
) -> onnx.ModelProto:
    """A model with inputs of the types of these arrays, and outputs whose types are left to be inferred."""
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()
    ]
    initializers = [numpy_helper.from_array(np.asarray(a), n) for n, a in (constants or {}).items()]
    results = [helper.make_empty_tensor_value_info(n) for n in outputs]
    graph = helper.make_graph(list(nodes), "test", infos, results, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def single(
    op: str,
    operands: Sequence[Any],
    outputs: int = 1,
    opset: int = 21,
    constants: Sequence[int] = (),
    domain: str = "",
    **attrs: Any,
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one operator and its feeds; operands listed in `constants` become initializers, None is absent."""
    names = ["" if a is None else f"x{i}" for i, a in enumerate(operands)]
    feeds = {n: np.asarray(a) for n, a in zip(names, operands, strict=True) if a is not None}
    fixed = {f"x{i}": feeds.pop(f"x{i}") for i in constants}
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, names, results, name="the_node", domain=domain, **attrs)
    return make_model([node], feeds, results, fixed, opset), feeds


def symbolic(shape: list[Any]) -> onnx.ModelProto:
    """y = exp(x) for an input of this declared shape."""
    graph = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_empty_tensor_value_info("y")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def with_external(folder: Path, array: Array, offset: int = 0, location: str = "w.bin") -> onnx.ModelProto:
    """y = x + w with w in a file beside the model."""
    model = make_model(
        [helper.make_node("Add", ["x", "w"], ["y"])], {"x": np.zeros(array.shape, F32)}, ["y"], {"w": array}
    )
    tensor = model.graph.initializer[0]
    (folder / "w.bin").write_bytes(b"\0" * offset + array.tobytes())
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(array.nbytes))):
        tensor.external_data.add(key=key, value=value)
    return model


def save(model: onnx.ModelProto, folder: Path, name: str = "model.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def read(model: onnx.ModelProto, folder: Path, dims: Mapping[str, int] | None = None) -> Graph:
    """The model as a verified graph."""
    graph = load(save(model, folder), dims or {})
    verify_graph(graph)
    return graph


def ours(model: onnx.ModelProto, feeds: Mapping[str, Array], folder: Path) -> list[Array]:
    """The model's outputs by our primitives alone; every pass of the simplification must leave them as they are."""
    graph = read(model, folder)
    assert not library_ops(graph), library_ops(graph)
    expected = run_graph(graph, feeds)
    for run in PASSES:
        graph = run(graph)
        verify_graph(graph)
        found = run_graph(graph, feeds)
        for name in graph.outputs:
            near = {"rtol": 1e-6, "atol": 1e-6} if expected[name].dtype.kind == "f" else {"rtol": 0}
            np.testing.assert_allclose(found[name], expected[name], err_msg=run.__name__, **near)
    assert [o.name for o in model.graph.output] == list(graph.outputs)
    return [expected[name] for name in graph.outputs]


def runtimes(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> list[Array]:
    """The model's outputs by ONNX Runtime, unoptimised."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def library_ops(graph: Graph) -> list[tuple[str, str]]:
    """(operator, reason) of each library node."""
    return [(node.payload.op_type, node.reason) for node in graph.nodes if node.op == "library"]


def run_library(node: Node, arrays: list[Array]) -> list[Array]:
    """A library node by ONNX Runtime, for `run_graph`."""
    payload = node.payload
    given = {name: array for name, array in zip(payload.inputs, arrays, strict=True) if name}
    nodes = [onnx.NodeProto.FromString(data) for data in payload.nodes]
    model = make_model(nodes, given, [name for name in payload.outputs if name])
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(*pair) for pair in payload.opsets)
    results = iter(runtimes(model, given))
    return [next(results) if name else np.empty(0) for name in payload.outputs]
