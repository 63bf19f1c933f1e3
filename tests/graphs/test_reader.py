"""Reading models: sizes, shapes computed by the graph, what stays a library op and why, external data."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.errors import GraphError
from stitchtune.graphs.exported import ExportedOp
from stitchtune.graphs.interpret.tensors import run_graph
from stitchtune.graphs.ir import TensorType
from stitchtune.graphs.onnx_reader import exported_dims, load
from stitchtune.graphs.simplify import simplify

from tests.graphs.onnx_models import (
    F32,
    library_ops,
    make_model,
    ours,
    read,
    run_library,
    save,
    single,
    symbolic,
    with_external,
)


def test_symbolic_dimensions_are_bound(tmp_path: Path) -> None:
    path = save(symbolic(["N", 3, None]), tmp_path)
    assert exported_dims(path) == ("N", "x.2")
    graph = load(path, {"N": 4, "x.2": 0})
    assert graph.types["y"] == TensorType(DType.F32, (4, 3, 0))
    assert graph.sizes == (("N", 4), ("x.2", 0))
    with pytest.raises(GraphError, match=r"model.onnx: input 'x': dimension 0 is not bound.*--dim N=N"):
        load(path)


def test_names_of_the_model_are_kept(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Softmax", ["x"], ["p"], name="soft"),
        helper.make_node("MatMul", ["p", "w"], ["y"], name="mm"),
    ]
    x = np.zeros((2, 3), F32)
    graph = read(make_model(nodes, {"x": x}, ["y"], {"w": np.zeros((3, 4), F32)}), tmp_path)
    assert {"x", "p", "w", "y"} <= set(graph.types)
    assert graph.producers()["p"].origin == "Softmax soft"
    (library,) = (n for n in graph.nodes if n.op == "library")
    assert (library.inputs, library.outputs, library.reason) == (("p", "w"), ("y",), "contraction")
    payload = library.payload
    assert isinstance(payload, ExportedOp)
    assert onnx.NodeProto.FromString(payload.nodes[0]).op_type == payload.op_type == "MatMul"
    assert (payload.inputs, payload.outputs) == (("p", "w"), ("y",))
    assert dict(payload.opsets) == {"": 21}


def test_origins_tell_nodes_apart(tmp_path: Path) -> None:
    nodes = [helper.make_node("Exp", ["x"], ["a"], name="same"), helper.make_node("Exp", ["a"], ["y"], name="same")]
    graph = read(make_model(nodes, {"x": np.zeros(2, F32)}, ["y"]), tmp_path)
    assert [node.origin for node in graph.nodes] == ["Exp a", "Exp y"]


def test_nodes_in_any_order(tmp_path: Path) -> None:
    nodes = [helper.make_node("Exp", ["a"], ["y"]), helper.make_node("Neg", ["x"], ["a"])]
    x = np.ones(2, F32)
    (y,) = ours(make_model(nodes, {"x": x}, ["y"]), {"x": x}, tmp_path)
    np.testing.assert_allclose(y, np.exp(-x), rtol=1e-6)


def test_computed_shapes_are_constants(tmp_path: Path) -> None:
    """Shape, Gather, arithmetic, Concat, Reshape, Expand, Range: what exporters write around dynamic sizes."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Gather", ["s", "one"], ["m"]),
        helper.make_node("Mul", ["n", "m"], ["nm"]),
        helper.make_node("Unsqueeze", ["nm", "axes"], ["nm1"]),
        helper.make_node("Concat", ["nm1", "minus"], ["flat"], axis=0),
        helper.make_node("Reshape", ["x", "flat"], ["r"]),
        helper.make_node("Range", ["zero", "nm", "one"], ["position"]),
        helper.make_node("Unsqueeze", ["position", "last"], ["column"]),
        helper.make_node("Cast", ["column"], ["offset"], to=TensorProto.FLOAT),
        helper.make_node("ConstantOfShape", ["flat_size"], ["ones"], value=numpy_helper.from_array(np.array([1], F32))),
        helper.make_node("Shape", ["r"], ["flat_size"]),
        helper.make_node("Expand", ["offset", "flat_size"], ["wide"]),
        helper.make_node("Add", ["r", "wide"], ["added"]),
        helper.make_node("Mul", ["added", "ones"], ["y"]),
    ]
    constants = {
        "zero": np.int64(0),
        "one": np.int64(1),
        "axes": np.array([0]),
        "minus": np.array([-1]),
        "last": np.array([-1]),
    }
    x = np.arange(24, dtype=F32).reshape(2, 3, 4)
    (y,) = ours(make_model(nodes, {"x": x}, ["y"], constants), {"x": x}, tmp_path)
    np.testing.assert_array_equal(y, x.reshape(6, 4) + np.arange(6, dtype=F32)[:, None])


@pytest.mark.parametrize(
    ("op", "operands", "attrs", "reason"),
    [
        ("MatMul", [np.zeros((2, 3), F32), np.zeros(3, F32)], {}, "contraction"),
        ("Gemm", [np.zeros((3, 2), F32), np.zeros((4, 3), F32)], {"transA": 1, "transB": 1}, "contraction"),
        ("Einsum", [np.zeros((2, 3), F32), np.zeros((3, 4), F32)], {"equation": "ab,bc->ac"}, "contraction"),
        ("Conv", [np.zeros((1, 2, 5, 5), F32), np.zeros((3, 2, 3, 3), F32)], {}, "convolution"),
        ("MaxPool", [np.zeros((1, 2, 5, 5), F32)], {"kernel_shape": [2, 2]}, "pooling"),
        ("CumSum", [np.zeros((2, 3), F32), np.int64(0)], {}, "scan"),
        ("ScatterND", [np.zeros(4, F32), np.zeros((2, 1), np.int64), np.zeros(2, F32)], {}, "scatter"),
        ("Pad", [np.zeros(3, F32), np.array([1, 1])], {"mode": "wrap"}, "pad-mode"),
        ("Resize", [np.zeros((1, 1, 4), F32), None, np.array([1, 1, 1.5], F32)], {"mode": "linear"}, "resampling"),
        ("Dropout", [np.zeros(3, F32), np.float32(0.5), np.array(True)], {}, "random"),
    ],
)
def test_reasons(op: str, operands: list[Any], attrs: dict[str, Any], reason: str, tmp_path: Path) -> None:
    known = tuple(i for i, a in enumerate(operands) if i and a is not None and op not in ("ScatterND", "Conv"))
    model, _ = single(op, operands, constants=known, **attrs)
    graph = read(model, tmp_path)
    assert library_ops(graph) == [(op, reason)]
    (output,) = graph.outputs
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph.output[0].type.tensor_type.shape
    assert graph.types[output].shape == tuple(d.dim_value for d in inferred.dim)


def test_control_flow_names_what_its_bodies_capture(tmp_path: Path) -> None:
    def branch(op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info(f"{op}_out", TensorProto.FLOAT, [2])
        return helper.make_graph([helper.make_node(op, ["e"], [f"{op}_out"])], op, [], [out])

    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("If", ["c"], ["y"], then_branch=branch("Neg"), else_branch=branch("Abs")),
    ]
    feeds = {"x": np.zeros(2, F32), "c": np.array(True)}
    graph = read(make_model(nodes, feeds, ["y"]), tmp_path)
    (library,) = (n for n in graph.nodes if n.op == "library")
    assert (library.reason, library.inputs, library.payload.inputs) == ("control-flow", ("c", "e"), ("c", "e"))
    assert graph.types["y"] == TensorType(DType.F32, (2,))


@pytest.mark.parametrize("condition", [True, False])
def test_branch_with_a_known_condition_is_inlined(condition: bool, tmp_path: Path) -> None:
    """What exporters write for a squeeze of a dimension that may be 1."""

    def branch(op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
        nodes = [helper.make_node(op, ["e"], ["t"]), helper.make_node("Add", ["t", "w"], ["inner"])]
        return helper.make_graph(nodes, op, [], [out], [numpy_helper.from_array(np.full(2, 3, F32), "w")])

    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Size", ["e"], ["n"]),
        helper.make_node("Equal", ["n", "two"], ["c"]),
        helper.make_node("If", ["c"], ["a"], then_branch=branch("Neg"), else_branch=branch("Abs")),
        helper.make_node("If", ["c"], ["b"], then_branch=branch("Neg"), else_branch=branch("Abs")),
        helper.make_node("Mul", ["a", "b"], ["y"]),
    ]
    x = np.array([0, 1], F32)
    model = make_model(nodes, {"x": x}, ["y"], {"two": np.int64(2 if condition else 3)})
    (y,) = ours(model, {"x": x}, tmp_path)
    np.testing.assert_allclose(y, (3 + (-1 if condition else 1) * np.exp(x)) ** 2, rtol=1e-5)


def test_branch_of_unknown_shape_stays_whole(tmp_path: Path) -> None:
    out = helper.make_tensor_value_info("inner", TensorProto.INT64, None)
    nodes = [helper.make_node("Neg", ["x"], ["t"]), helper.make_node("NonZero", ["t"], ["inner"])]
    body = helper.make_graph(nodes, "body", [], [out])
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    model = make_model([node], {"x": np.zeros(3, F32)}, ["y"], {"c": np.array(True)})
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.INT64, [1, None]))
    graph = read(model, tmp_path)
    assert library_ops(graph) == [("If", "control-flow")]
    assert (graph.types["y"].shape, len(graph.nodes)) == ((1, 0), 1)


def test_positions_of_a_constant_are_a_constant(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["mask"], ["at"]),
        helper.make_node("Squeeze", ["at"], ["rows"]),
        helper.make_node("Gather", ["x", "rows"], ["y"]),
    ]
    x = np.arange(4, dtype=F32)
    model = make_model(nodes, {"x": x}, ["y"], {"mask": np.array([True, False, True, True])})
    np.testing.assert_array_equal(ours(model, {"x": x}, tmp_path)[0], [0, 2, 3])


def test_data_dependent_shape(tmp_path: Path) -> None:
    """What follows a shape that only a run tells is one library op; what comes before is lowered."""
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("NonZero", ["e"], ["at"]),
        helper.make_node("Transpose", ["at"], ["rows"]),
        helper.make_node("GatherND", ["e", "rows"], ["y"]),
        helper.make_node("Neg", ["e"], ["z"]),
    ]
    model = make_model(nodes, {"x": np.zeros((2, 3), F32)}, ["y", "z"])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["found"]))
    graph = read(model, tmp_path)
    assert library_ops(graph) == [("NonZero", "data-dependent-shape")]
    (library,) = (n for n in graph.nodes if n.op == "library")
    assert library.payload.dynamic
    assert len(library.payload.nodes) == 3
    assert (library.inputs, library.outputs) == (("e",), ("y",))
    assert graph.types["y"].shape == (0,)


def test_unknown_domain_loads(tmp_path: Path) -> None:
    model, _ = single("Fancy", [np.zeros((2, 3), F32)], domain="com.example.acme")
    model.opset_import.append(helper.make_opsetid("com.example.acme", 1))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y0", TensorProto.FLOAT, [2, 3]))
    graph = read(model, tmp_path)
    assert library_ops(graph) == [("com.example.acme.Fancy", "unknown-domain")]
    (library,) = graph.nodes
    assert "com.example.acme.Fancy" in library.payload.missing
    assert graph.types["y0"].shape == (2, 3)
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert read(model, tmp_path).nodes[0].payload.dynamic


def test_unknown_operator_of_the_standard_domain_loads(tmp_path: Path) -> None:
    model, _ = single("Fancy", [np.zeros((2, 3), F32)])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y0", TensorProto.FLOAT, [2, 3]))
    graph = read(model, tmp_path)
    assert library_ops(graph) == [("Fancy", "unknown-operator")]
    assert graph.nodes[0].payload.missing


def test_local_functions_are_inlined(tmp_path: Path) -> None:
    function = helper.make_function(
        "local", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 21)]
    )
    model, feeds = single("Twice", [np.ones(3, F32)], domain="local")
    model.opset_import.append(helper.make_opsetid("local", 1))
    model.functions.append(function)
    np.testing.assert_array_equal(ours(model, feeds, tmp_path)[0], [2, 2, 2])


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BOOL], ids=lambda d: d.value)
@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
def test_initializers_of_every_type(dtype: DType, raw: bool, tmp_path: Path) -> None:
    values = np.arange(6).reshape(2, 3).astype(dtype.numpy)
    model = make_model([helper.make_node("Identity", ["w"], ["y"])], {}, ["y"], {"w": values})
    if not raw:
        tensor = model.graph.initializer[0]
        tensor.CopyFrom(helper.make_tensor("w", tensor.data_type, [2, 3], values.ravel().tolist()))
        assert not tensor.HasField("raw_data")
    graph = read(model, tmp_path)
    assert graph.types["w"] == TensorType(dtype, (2, 3))
    np.testing.assert_array_equal(run_graph(graph, {})["y"].astype(np.float64), values.astype(np.float64))


@pytest.mark.parametrize("offset", [0, 8, 4096, 3])
def test_external_data(offset: int, tmp_path: Path) -> None:
    array = np.arange(12, dtype=F32).reshape(3, 4)
    graph = read(with_external(tmp_path, array, offset), tmp_path)
    np.testing.assert_array_equal(graph.constants["w"], array)
    # Mapped, not copied, wherever the file aligns the elements.
    root: Any = graph.constants["w"]
    while isinstance(root, np.ndarray) and root.base is not None:
        root = root.base
    assert isinstance(root, np.ndarray) == (offset % 4 != 0)


def test_external_data_over_two_gigabytes(tmp_path: Path) -> None:
    model = with_external(tmp_path, np.zeros(3, F32))
    size = 3 << 28
    model.graph.initializer[0].dims[0] = model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = size
    for entry in model.graph.initializer[0].external_data:
        entry.value = {"length": str(4 * size)}.get(entry.key, entry.value)
    os.truncate(tmp_path / "w.bin", 4 * size)
    graph = read(model, tmp_path)
    assert graph.types["y"].bytes == 4 * size > 1 << 31
    assert simplify(graph).constants["w"][-1] == 0


def test_external_data_of_an_attribute(tmp_path: Path) -> None:
    """A tensor inside the body of control flow goes with its node."""
    stored = with_external(tmp_path, np.full(2, 3, F32)).graph.initializer[0]
    constant = helper.make_node("Constant", [], ["k"])
    constant.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(stored)
    out = helper.make_tensor_value_info("o", TensorProto.FLOAT, [2])
    body = helper.make_graph([constant, helper.make_node("Add", ["x", "k"], ["o"])], "body", [], [out])
    node = helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body)
    feeds = {"x": np.ones(2, F32), "c": np.array(True)}
    graph = read(make_model([node], feeds, ["y"]), tmp_path)
    np.testing.assert_array_equal(run_graph(graph, feeds, run_library)["y"], [4, 4])


def test_external_data_in_a_subfolder_through_a_link(tmp_path: Path) -> None:
    array = np.arange(12, dtype=F32).reshape(3, 4)
    model = with_external(tmp_path, array, location="inner/linked.bin")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "linked.bin").symlink_to(tmp_path / "w.bin")
    np.testing.assert_array_equal(read(model, tmp_path).constants["w"], array)


def test_old_inputs_that_are_initializers_are_constants(tmp_path: Path) -> None:
    model = make_model([helper.make_node("Neg", ["w"], ["y"])], {"w": np.zeros(2, F32)}, ["y"], {"w": np.ones(2, F32)})
    graph = read(model, tmp_path)
    assert graph.inputs == ()
    np.testing.assert_array_equal(run_graph(graph, {})["y"], [-1, -1])


def test_newer_opset_with_unchanged_operators(tmp_path: Path) -> None:
    model, feeds = single("Erf", [np.zeros(3, F32)])
    model.opset_import[0].version = onnx.defs.onnx_opset_version()
    assert ours(model, feeds, tmp_path)[0].shape == (3,)
