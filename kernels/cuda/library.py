"""Library ops on a CUDA device: matrix products by the device's library, others by ONNX Runtime.

ONNX Runtime works in device memory when it was built for CUDA, else on the host with copies there and back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ...graphs.dtypes import DType
from ...graphs.ir import Graph, Node, TensorType
from ..library import payload
from ..onnx_model import attributes
from ..session import CUDA, Session, cuda_provider, run_library
from .device import Device, DeviceArray, MatMul, Span, row_major

Array = NDArray[Any]

Run = Callable[[Mapping[str, Span], int], None]
"""Queues work on a stream; it gets where the tensors lie by name."""

Place = Callable[[Mapping[str, Span]], DeviceArray]
"""An operand, for where the tensors of a run lie."""

_MULTIPLIED = (DType.F16, DType.BF16, DType.F32, DType.F64)


@dataclass(frozen=True)
class DeviceOp:
    """A library op that works in device memory."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    run: Run


@dataclass(frozen=True)
class HostOp:
    """A library op that works on arrays of the host. `run` takes those of `inputs` and returns those of `outputs`.

    mend   the package with which it would run on the device, or ""
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    run: Callable[[Sequence[Array]], Sequence[Array]]
    mend: str = ""


def library_op(node: Node, graph: Graph, device: Device) -> DeviceOp | HostOp:
    """How `node` is run. Raises LibraryError when ONNX Runtime is needed and refuses it."""
    inputs = tuple(dict.fromkeys(name for name in node.inputs if name))
    outputs = tuple(name for name in node.outputs if name)
    op = payload(node)
    if op.dynamic:

        def run_anew(arrays: Sequence[Array]) -> Sequence[Array]:
            given = dict(zip(inputs, arrays, strict=True))
            return run_library(node, [given.get(name) for name in node.inputs])

        return HostOp(inputs, outputs, run_anew)
    product = _product(node, graph, device)
    if product is not None and device.multiplies:
        return DeviceOp(inputs, outputs, product)
    names = {tensor: name for tensor, name in zip(node.inputs, op.inputs, strict=True) if tensor}
    results = {tensor: name for tensor, name in zip(node.outputs, op.outputs, strict=True) if tensor}
    given = {name: graph.types[tensor].dtype for tensor, name in names.items()}
    if device.real and cuda_provider():
        session = Session(node, given, CUDA)

        def run_there(spans: Mapping[str, Span], stream: int) -> None:
            device.synchronize(stream)  # the session works on a stream of its own, and waits for it
            session.run_in_place(
                {name: _bound(graph.types[tensor], spans[tensor]) for tensor, name in names.items()},
                {name: _bound(graph.types[tensor], spans[tensor]) for tensor, name in results.items()},
                device.index,
            )

        return DeviceOp(inputs, outputs, run_there)
    on_host = Session(node, given)

    def run_here(arrays: Sequence[Array]) -> Sequence[Array]:
        return on_host.run({names[tensor]: array for tensor, array in zip(inputs, arrays, strict=True)})

    return HostOp(inputs, outputs, run_here, "nvidia-cublas" if product is not None else "onnxruntime-gpu")


def _bound(kind: TensorType, span: Span) -> tuple[DType, tuple[int, ...], int]:
    return kind.dtype, kind.shape, span.address


def _product(node: Node, graph: Graph, device: Device) -> Run | None:
    """`node` as a matrix product; None when it is none."""
    op = payload(node)
    if op.op_type not in ("MatMul", "Gemm") or len(op.nodes) != 1:
        return None
    [output] = node.outputs
    a, b, *rest = node.inputs
    if graph.types[output].dtype not in _MULTIPLIED or not all(graph.types[name].elements for name in (a, b, output)):
        return None
    attrs = attributes(op) if op.op_type == "Gemm" else {}
    addend = rest[0] if rest and rest[0] else None
    alpha, beta = float(attrs.get("alpha", 1.0)), float(attrs.get("beta", 1.0))

    left, right, made = (graph.types[name].shape for name in (a, b, output))
    if len(left) == 1:  # a vector is a row on the left and a column on the right, and the product has no such axis
        left, made = (1, *left), (*made[:-1], 1, *made[-1:]) if len(right) > 1 else (1,)
    if len(right) == 1:
        right, made = (*right, 1), (*made, 1)

    def operand(name: str, whole: tuple[int, ...], transposed: bool = False) -> Place:
        dtype, turn = graph.types[name].dtype, -1 if transposed else 1
        shape, strides = whole[::turn], row_major(whole, dtype.size)[::turn]
        return lambda spans: DeviceArray(spans[name].address, shape, strides, dtype.numpy)

    to = operand(output, made)
    first, second = operand(a, left, bool(attrs.get("transA"))), operand(b, right, bool(attrs.get("transB")))
    third = operand(addend, graph.types[addend].shape) if addend else None

    def run(spans: Mapping[str, Span], stream: int) -> None:
        added = third(spans) if third is not None else None
        device.matmul(MatMul(to(spans), first(spans), second(spans), added, alpha, beta), stream)

    return run
