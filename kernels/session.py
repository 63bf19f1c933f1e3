"""Library ops through ONNX Runtime's Python package: where no compiler is, and for results of unknown shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from ..graphs.dtypes import from_numpy
from ..graphs.ir import Node
from .library import LibraryError, one_line, payload
from .onnx_model import model_bytes

Array = NDArray[Any]


def run_library(node: Node, inputs: Sequence[Array | None]) -> list[Array]:
    """The outputs of a library node, absent ones left out. Raises LibraryError when ONNX Runtime cannot run it."""
    import onnxruntime
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    op = payload(node)
    given = {name: array for name, array in zip(op.inputs, inputs, strict=True) if array is not None}
    model = model_bytes(op, {name: from_numpy(array.dtype) for name, array in given.items()}, {})
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    failures = (state.Fail, state.InvalidGraph, state.InvalidArgument, state.NotImplemented, state.RuntimeException)
    try:
        session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
        found: list[Array] = session.run(None, given)
    except failures as error:
        raise LibraryError(f"{node.origin or op.op_type}: {one_line(str(error).encode())}") from error
    return found
