"""Bad models: one line that names file, node and reason, before any memory is taken."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from stitchtune.graphs.errors import GraphError
from stitchtune.graphs.onnx_reader import exported_dims, load

from tests.graphs.onnx_models import F32, make_model, save, single, symbolic, with_external

X = np.zeros((2, 3), F32)


def refusal(path: Path, dims: dict[str, int] | None = None) -> str:
    """The message that loading gives; always one line that names the file."""
    with pytest.raises(GraphError) as caught:
        load(path, dims or {})
    message = str(caught.value)
    assert "\n" not in message
    assert path.name in message
    assert len(message) < 400
    return message


def two_nodes(
    first: tuple[str, list[str], str], second: tuple[str, list[str], str], **constants: Any
) -> onnx.ModelProto:
    nodes = [helper.make_node(op, inputs, [out], name=f"{op}_node") for op, inputs, out in (first, second)]
    return make_model(nodes, {"x": X}, ["y"], constants)


def test_missing_file(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "nothing.onnx")
    assert "not a file" in refusal(tmp_path)
    with pytest.raises(GraphError, match="no such file"):
        exported_dims(tmp_path / "nothing.onnx")


def test_truncated_at_any_byte(tmp_path: Path) -> None:
    whole = two_nodes(("Exp", ["x"], "a"), ("Neg", ["a"], "y"), w=np.ones(5, F32)).SerializeToString()
    path = tmp_path / "cut.onnx"
    for length in range(0, len(whole) - 1, 3):
        path.write_bytes(whole[:length])
        assert "truncated" in refusal(path)


@pytest.mark.parametrize("content", [b"", b"hello, world\n" * 9, b"\x89PNG\r\n\x1a\n" + bytes(99), b"{}"])
def test_not_onnx(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "some.onnx"
    path.write_bytes(content)
    assert "not an ONNX model" in refusal(path)


def test_random_bytes_never_escape(tmp_path: Path) -> None:
    """Flipped bytes give a graph or a GraphError, nothing else."""
    model = two_nodes(("Exp", ["x"], "a"), ("MatMul", ["a", "w"], "y"), w=np.ones((3, 2), F32))
    whole = model.SerializeToString()
    random = np.random.default_rng(0)
    path = tmp_path / "flipped.onnx"
    for _ in range(600):
        broken = bytearray(whole)
        for at in random.integers(0, len(whole), 2):
            broken[at] = int(random.integers(0, 256))
        path.write_bytes(broken)
        with contextlib.suppress(GraphError):
            load(path)


def test_undefined_input(tmp_path: Path) -> None:
    model = two_nodes(("Exp", ["x"], "a"), ("Add", ["a", "ghost"], "y"))
    assert "node 'Add_node' (Add): input 'ghost' is not defined" in refusal(save(model, tmp_path))


def test_undefined_output(tmp_path: Path) -> None:
    model = two_nodes(("Exp", ["x"], "a"), ("Neg", ["a"], "b"))
    assert "output 'y' is not defined" in refusal(save(model, tmp_path))


def test_cycle(tmp_path: Path) -> None:
    model = two_nodes(("Add", ["x", "y"], "a"), ("Neg", ["a"], "y"))
    message = refusal(save(model, tmp_path))
    assert "depends on itself" in message
    assert "_node'" in message


def test_written_twice(tmp_path: Path) -> None:
    assert "'y' is written twice" in refusal(save(two_nodes(("Exp", ["x"], "y"), ("Neg", ["x"], "y")), tmp_path))
    assert "'x' is written twice" in refusal(save(two_nodes(("Exp", ["x"], "x"), ("Neg", ["x"], "y")), tmp_path))


@pytest.mark.parametrize(
    ("op", "other", "reason"),
    [
        ("Add", np.zeros((2, 3), np.int64), "operands of types f32 and i64"),
        ("Add", np.zeros((2, 4), F32), "do not broadcast"),
        ("And", np.zeros((2, 3), F32), "no meaning on f32"),
        ("MatMul", np.zeros((2, 3), F32), "MatMul of shapes"),
        ("MatMul", np.zeros((3, 3), np.float64), "operands of types"),
        ("Gemm", np.zeros((2, 3), F32), "Gemm of shapes"),
        ("Conv", np.zeros((2, 3), np.int64), ""),
        ("Reshape", np.array([4, 4]), "elements"),
        ("Reshape", np.array([-1, 4]), "Reshape of"),
        ("Gather", np.zeros(2, F32), "indices of type f32"),
    ],
)
def test_type_error_between_nodes(op: str, other: Any, reason: str, tmp_path: Path) -> None:
    model = two_nodes(("Exp", ["x"], "a"), (op, ["a", "w"], "y"), w=other)
    message = refusal(save(model, tmp_path))
    assert f"node '{op}_node' ({op}): " in message
    assert reason in message


def test_declared_type_differs(tmp_path: Path) -> None:
    model = two_nodes(("Exp", ["x"], "a"), ("Neg", ["a"], "y"))
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.INT64, [2, 3]))
    assert "node 'Exp_node' (Exp): its output 'a' is f32, but the model declares i64" in refusal(save(model, tmp_path))


@pytest.mark.parametrize("size", [-1, -(1 << 40), 0x7FFFFFFF, 1 << 62])
def test_absurd_dimension(size: int, tmp_path: Path) -> None:
    assert str(size) in refusal(save(symbolic([size, 3]), tmp_path))
    assert str(size) in refusal(save(symbolic(["N", 3]), tmp_path), {"N": size})


def test_unbound_dimension(tmp_path: Path) -> None:
    assert "--dim N=N" in refusal(save(symbolic(["N", 3]), tmp_path))
    assert "--dim x.0=N" in refusal(save(symbolic([None, 3]), tmp_path))
    assert "no dimension 'M'" in refusal(save(symbolic(["N", 3]), tmp_path), {"N": 2, "M": 3})
    assert "no dimension 'M'" in refusal(save(symbolic([2, 3]), tmp_path), {"M": 3})


def test_absurd_product_of_dimensions(tmp_path: Path) -> None:
    assert "input 'x'" in refusal(save(symbolic([1 << 20, 1 << 20, 1 << 20]), tmp_path))
    model = two_nodes(("Exp", ["x"], "a"), ("Expand", ["a", "shape"], "y"), shape=np.array([1 << 30, 1 << 20, 2, 3]))
    assert "node 'Expand_node' (Expand)" in refusal(save(model, tmp_path))


def test_input_without_shape_or_tensor(tmp_path: Path) -> None:
    model = symbolic([2])
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert "input 'x' has no shape" in refusal(save(model, tmp_path))
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    assert "input 'x': element type string is not supported" in refusal(save(model, tmp_path))
    model.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [2])))
    assert "input 'x' is no tensor" in refusal(save(model, tmp_path))


def changed(entry: str, value: str) -> Callable[[Path, onnx.TensorProto], None]:
    """Sets one entry of the external data."""

    def change(folder: Path, tensor: onnx.TensorProto) -> None:
        for data in tensor.external_data:
            if data.key == entry:
                data.value = value

    return change


def _delete(folder: Path, tensor: onnx.TensorProto) -> None:
    (folder / "w.bin").unlink()


def _shorten(folder: Path, tensor: onnx.TensorProto) -> None:
    os.truncate(folder / "w.bin", 20)


def _link_outside(folder: Path, tensor: onnx.TensorProto) -> None:
    outside = folder.parent / "outside.bin"
    outside.write_bytes(bytes(48))
    (folder / "w.bin").unlink()
    (folder / "w.bin").symlink_to(outside)


def _loop(folder: Path, tensor: onnx.TensorProto) -> None:
    (folder / "w.bin").unlink()
    (folder / "w.bin").symlink_to(folder / "w.bin")


def _grow(folder: Path, tensor: onnx.TensorProto) -> None:
    tensor.dims[0] = 1 << 60


def _negative(folder: Path, tensor: onnx.TensorProto) -> None:
    tensor.dims[0] = -3


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (_delete, "'w.bin' is missing"),
        (_shorten, "has 20 bytes, 48 are needed"),
        (changed("location", "../outside.bin"), "outside the model's folder"),
        (changed("location", "/etc/passwd"), "outside the model's folder"),
        (changed("location", "inner/../../x"), "outside the model's folder"),
        (changed("location", "."), "is missing"),
        (changed("location", ""), "without a location"),
        (changed("location", "w.bin\0"), "without a location"),
        (changed("location", "w" * 5000), "cannot be resolved"),
        (_link_outside, "outside the model's folder"),
        (_loop, "w.bin"),
        (changed("offset", "-8"), "offset '-8'"),
        (changed("offset", "9" * 19), "are needed"),
        (changed("offset", "4"), "are needed"),
        (changed("length", "47"), "47 bytes of external data"),
        (changed("length", "many"), "length 'many'"),
        (_grow, "bytes of external data for shape"),
        (_negative, "negative dimension"),
    ],
)
def test_external_data(spoil: Callable[[Path, onnx.TensorProto], None], reason: str, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    model = with_external(folder, np.arange(12, dtype=F32).reshape(3, 4))
    spoil(folder, model.graph.initializer[0])
    message = refusal(save(model, folder))
    assert "tensor 'w'" in message
    assert reason in message


@pytest.mark.parametrize("raw", [True, False])
def test_initializer_of_another_length(raw: bool, tmp_path: Path) -> None:
    model = two_nodes(("Exp", ["x"], "a"), ("Add", ["a", "w"], "y"), w=np.ones(3, F32))
    tensor = model.graph.initializer[0]
    if raw:
        tensor.raw_data = tensor.raw_data[:-1]
    else:
        tensor.ClearField("raw_data")
        tensor.float_data.extend([1.0, 2.0])
    assert "tensor 'w': " in refusal(save(model, tmp_path))


def test_initializer_of_huge_shape_takes_no_memory(tmp_path: Path) -> None:
    model = two_nodes(("Exp", ["x"], "a"), ("Add", ["a", "w"], "y"), w=np.ones(3, F32))
    model.graph.initializer[0].dims[0] = 1 << 50
    assert "12 bytes for shape" in refusal(save(model, tmp_path))


def test_initializer_of_unsupported_type(tmp_path: Path) -> None:
    model = two_nodes(("Exp", ["x"], "a"), ("Add", ["a", "w"], "y"), w=np.ones(3, F32))
    model.graph.initializer[0].data_type = TensorProto.COMPLEX64
    assert "element type complex64 is not supported" in refusal(save(model, tmp_path))


def test_old_opset(tmp_path: Path) -> None:
    model, _ = single("Exp", [X])
    model.opset_import[0].version = 6
    assert "opset 6 is older" in refusal(save(model, tmp_path))


@pytest.mark.parametrize(
    ("op", "operands", "attrs"),
    [
        ("Transpose", [X], {"perm": [0, 0]}),
        ("Concat", [X, np.zeros((3, 3), F32)], {"axis": 1}),
        ("Concat", [X], {}),
        ("Softmax", [X], {"axis": 5}),
        ("ReduceSum", [X, np.array([7])], {}),
        ("Split", [X, np.array([1, 1])], {"axis": 1}),
        ("Slice", [X, np.array([0]), np.array([1]), np.array([0]), np.array([0])], {}),
        ("Squeeze", [X, np.array([0])], {}),
        ("Gelu", [X], {"approximate": "magic"}),
        ("Clip", [X, np.zeros(2, F32)], {}),
        ("LayerNormalization", [X, np.zeros(4, F32)], {}),
        ("Cast", [X], {"to": 99}),
        ("Softmax", [X], {"axis": 0.5}),
        ("Gather", [X, np.int64(9)], {}),
        ("Gather", [X, F32(np.nan)], {}),
        ("OneHot", [np.zeros(2, np.int64), F32(np.inf), np.zeros(2, F32)], {}),
        ("Range", [F32(0), F32(np.inf), F32(1)], {}),
        ("Upsample", [X, np.array([1, np.inf], F32)], {"opset": 9}),
    ],
)
def test_malformed_attributes(op: str, operands: list[Any], attrs: dict[str, Any], tmp_path: Path) -> None:
    opset = attrs.pop("opset", 21)
    model, _ = single(op, operands, 1, opset, tuple(range(op != "Range", len(operands))), **attrs)
    assert f"node 'the_node' ({op})" in refusal(save(model, tmp_path))


def test_function_that_calls_itself(tmp_path: Path) -> None:
    model, _ = single("Again", [X], domain="local")
    node = helper.make_node("Again", ["a"], ["b"], domain="local")
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("local", 1)]
    model.functions.append(helper.make_function("local", "Again", ["a"], ["b"], [node], imports))
    model.opset_import.append(helper.make_opsetid("local", 1))
    assert "function 'Again' calls itself" in refusal(save(model, tmp_path))
