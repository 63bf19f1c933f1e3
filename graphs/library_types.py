"""Output types of operators that stay library ops: own rules for the commonest, onnx's for one node at a time else."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .dtypes import DType
from .ir import TensorType
from .onnx_model import domain_of, first_line
from .onnx_types import BY_NUMBER, NUMBER
from .shapes import TypeMismatch, broadcast_shapes

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TypeProto

VALUES = 1024
"""Elements up to which a known operand is shown to shape inference as a value."""


@dataclass(frozen=True)
class LibraryTypes:
    """Types of a library operator's outputs, None where unknown, and why no library can run it ("": one can)."""

    outputs: tuple[TensorType | None, ...]
    missing: str = ""


def library_types(
    node: NodeProto,
    names: Sequence[str],
    types: Sequence[TensorType],
    values: Mapping[str, NDArray[Any]],
    opsets: Mapping[str, int],
    ir_version: int,
) -> LibraryTypes:
    """The output types of `node`, which reads tensors `names` (operands and captured ones) of `types`.

    `values` are operands whose value is known. Raises TypeMismatch when the operands do not fit the operator.
    """
    known = dict(zip(names, types, strict=True))
    domain = domain_of(node.domain)
    if domain == "" and node.op_type in _OWN and all(node.input):
        return LibraryTypes((_OWN[node.op_type](node, [known[i] for i in node.input]),))
    model = single_node_model([node], known, values, opsets, ir_version)
    if not _is_defined(node, domain, opsets):
        if domain == "":
            return _unknown(node, f"ONNX opset {opsets.get('', 0)} has no operator {node.op_type}")
        return _asked(node, domain, model)
    return _inferred(node, model)


def _unknown(node: NodeProto, missing: str) -> LibraryTypes:
    return LibraryTypes((None,) * len(node.output), missing)


def _is_defined(node: NodeProto, domain: str, opsets: Mapping[str, int]) -> bool:
    import onnx

    try:
        onnx.defs.get_schema(node.op_type, opsets.get(domain, 0), domain)
    except onnx.defs.SchemaError:
        return False
    return True


def since_version(op: str, opset: int) -> int:
    """The opset in which the meaning of an ONNX operator as of `opset` was fixed; 0 when there is no such operator."""
    import onnx

    try:
        return int(onnx.defs.get_schema(op, opset, "").since_version)
    except onnx.defs.SchemaError:
        return 0


# --- own rules


def _matmul(node: NodeProto, operands: Sequence[TensorType]) -> TensorType:
    if len(operands) != 2:
        raise TypeMismatch(f"MatMul of {len(operands)} operands")
    a, b = operands
    if a.dtype is not b.dtype:
        raise TypeMismatch(f"operands of types {a.dtype.value} and {b.dtype.value}")
    if not a.shape or not b.shape:
        raise TypeMismatch("MatMul of a scalar")
    left, right = (1, *a.shape) if len(a.shape) == 1 else a.shape, (*b.shape, 1) if len(b.shape) == 1 else b.shape
    if left[-1] != right[-2]:
        raise TypeMismatch(f"MatMul of shapes {list(a.shape)} and {list(b.shape)}")
    shape = broadcast_shapes([left[:-2], right[:-2]])
    shape += (left[-2],) * (len(a.shape) > 1) + (right[-1],) * (len(b.shape) > 1)
    return TensorType(a.dtype, shape)


def _gemm(node: NodeProto, operands: Sequence[TensorType]) -> TensorType:
    flags = {a.name: a.i for a in node.attribute}
    a, b = operands[:2]
    if len({t.dtype for t in operands}) != 1:
        raise TypeMismatch(f"operands of types {', '.join(t.dtype.value for t in operands)}")
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise TypeMismatch(f"Gemm of shapes {list(a.shape)} and {list(b.shape)}")
    left = a.shape[::-1] if flags.get("transA") else a.shape
    right = b.shape[::-1] if flags.get("transB") else b.shape
    shape = (left[0], right[1])
    if left[1] != right[0]:
        raise TypeMismatch(f"Gemm of shapes {list(left)} and {list(right)}")
    if len(operands) > 2 and broadcast_shapes([shape, operands[2].shape]) != shape:
        raise TypeMismatch(f"Gemm adds shape {list(operands[2].shape)} to {list(shape)}")
    return TensorType(a.dtype, shape)


_OWN = {"MatMul": _matmul, "Gemm": _gemm}


# --- inference by libraries


def single_node_model(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, TensorType],
    values: Mapping[str, NDArray[Any]],
    opsets: Mapping[str, int],
    ir_version: int,
) -> ModelProto:
    """A model of these nodes alone, small known operands as initializers."""
    from onnx import helper, numpy_helper

    shown = {n: v for n, v in values.items() if n in inputs and v.size <= VALUES}
    infos = [
        helper.make_tensor_value_info(name, NUMBER[kind.dtype], list(kind.shape))
        for name, kind in inputs.items()
        if name not in shown
    ]
    outputs = [helper.make_empty_tensor_value_info(o) for n in nodes for o in n.output if o]
    initializers = [numpy_helper.from_array(np.asarray(v, order="C"), n) for n, v in shown.items()]
    graph = helper.make_graph(list(nodes), "single", infos, outputs, initializers)
    imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir_version)


def _inferred(node: NodeProto, model: ModelProto) -> LibraryTypes:
    """By onnx's own inference, which also checks operand types."""
    from onnx import shape_inference

    try:
        model = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError as error:
        raise TypeMismatch(_reason(error)) from error
    found = {o.name: o.type for o in (*model.graph.output, *model.graph.value_info)}
    return LibraryTypes(tuple(tensor_type(found[o]) if o in found else None for o in node.output))


def _reason(error: Exception) -> str:
    """What onnx's message says, without its prefixes."""
    return " ".join(re.sub(r"\[\w+Error\]|Inference error\(s\):|\(op_type:[^)]*\):", "", first_line(error)).split())


def tensor_type(proto: TypeProto) -> TensorType | None:
    """The type that a TypeProto states in full, else None."""
    if not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return None
    dtype = BY_NUMBER.get(proto.tensor_type.elem_type)
    sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in proto.tensor_type.shape.dim]
    return None if dtype is None or min(sizes, default=0) < 0 else TensorType(dtype, tuple(sizes))


def _asked(node: NodeProto, domain: str, model: ModelProto) -> LibraryTypes:
    """By ONNX Runtime, which knows more domains. Nothing is run."""
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidGraph, NotImplemented, RuntimeException

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except (Fail, InvalidGraph, NotImplemented, RuntimeException) as error:
        return _unknown(node, f"no library here knows operator {domain}.{node.op_type}: {first_line(error)}")
    found = {o.name: o for o in session.get_outputs()}
    return LibraryTypes(tuple(_runtime_type(found[o]) if o in found else None for o in node.output))


def _runtime_type(output: Any) -> TensorType | None:
    dtype = _RUNTIME.get(output.type)
    if dtype is None or not all(isinstance(d, int) and d >= 0 for d in output.shape):
        return None
    return TensorType(dtype, tuple(output.shape))


_RUNTIME = {
    f"tensor({name})": dtype
    for name, dtype in {
        "float": DType.F32,
        "double": DType.F64,
        "float16": DType.F16,
        "bfloat16": DType.BF16,
        "int8": DType.I8,
        "int16": DType.I16,
        "int32": DType.I32,
        "int64": DType.I64,
        "uint8": DType.U8,
        "uint16": DType.U16,
        "uint32": DType.U32,
        "uint64": DType.U64,
        "bool": DType.BOOL,
    }.items()
}
