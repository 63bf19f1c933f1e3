"""A library op as a serialized ONNX model that a session can be made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..graphs.dtypes import DType
from ..graphs.exported import ExportedOp

_ELEMENT = {
    DType.F32: 1,
    DType.U8: 2,
    DType.I8: 3,
    DType.U16: 4,
    DType.I16: 5,
    DType.I32: 6,
    DType.I64: 7,
    DType.BOOL: 9,
    DType.F16: 10,
    DType.F64: 11,
    DType.U32: 12,
    DType.U64: 13,
    DType.BF16: 16,
}


def element_type(dtype: DType) -> int:
    """The number of a dtype in onnx.TensorProto.DataType."""
    return _ELEMENT[dtype]


@dataclass(frozen=True)
class Constant:
    """A constant operand: its bytes, or None when whoever makes the session gives the memory."""

    dtype: DType
    shape: tuple[int, ...]
    size: int
    content: bytes | None


def attributes(op: ExportedOp) -> dict[str, Any]:
    """The attributes of the op's first node; those it leaves at their defaults are absent."""
    import onnx

    node = onnx.NodeProto.FromString(op.nodes[0])
    return {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}


def canonical(op: ExportedOp) -> ExportedOp:
    """`op` with names that depend on positions alone, so that equal operators give equal models.

    Only for one node without a body: bodies refer to outer tensors by their names.
    """
    import onnx

    if len(op.nodes) != 1:
        return op
    node = onnx.NodeProto.FromString(op.nodes[0])
    if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
        return op
    inputs = tuple(f"x{i}" if name else "" for i, name in enumerate(op.inputs))
    outputs = tuple(f"y{i}" if name else "" for i, name in enumerate(op.outputs))
    node.name = node.doc_string = ""
    node.input[:] = inputs
    node.output[:] = outputs
    return ExportedOp(
        (node.SerializeToString(deterministic=True),), inputs, outputs, op.opsets, op.ir_version, op.op_type
    )


def model_bytes(op: ExportedOp, inputs: Mapping[str, DType], constants: Mapping[str, Constant]) -> bytes:
    """The model of `op` alone, with `inputs` fed at run time.

    Shapes stay open, so that equal ops of different shapes are one model.
    """
    import onnx

    model = onnx.ModelProto(ir_version=op.ir_version)
    for domain, version in op.opsets:
        model.opset_import.add(domain=domain, version=version)
    graph = model.graph
    graph.name = "library"
    for data in op.nodes:
        graph.node.append(onnx.NodeProto.FromString(data))
    for name, dtype in inputs.items():
        graph.input.add(name=name).type.tensor_type.elem_type = element_type(dtype)
    for name, constant in constants.items():
        tensor = graph.initializer.add(name=name, data_type=element_type(constant.dtype), dims=constant.shape)
        if constant.content is not None:
            tensor.raw_data = constant.content
            continue
        tensor.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", "memory"), ("offset", "0"), ("length", str(constant.size))):
            tensor.external_data.add(key=key, value=value)
    for name in op.outputs:
        if name:
            graph.output.add(name=name)
    return bytes(model.SerializeToString(deterministic=True))
