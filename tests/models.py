"""Small ONNX models written in a line per node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

NodeText = tuple[Any, ...]
"""(operator, inputs separated by blanks, outputs separated by blanks) and perhaps a dict of attributes."""


def model(
    inputs: Mapping[str, NDArray[Any]],
    nodes: Sequence[NodeText],
    outputs: str,
    constants: Mapping[str, Any] | None = None,
    opset: int = 21,
) -> onnx.ModelProto:
    """A model with inputs like the given arrays; outputs are names separated by blanks, their types inferred.

    An input called "-" is absent. Constants become initializers.
    """
    made = []
    for op, reads, writes, *more in nodes:
        names = ["" if n == "-" else n for n in reads.split()]
        made.append(helper.make_node(op, names, writes.split(), name=f"{op}_{len(made)}", **(more[0] if more else {})))
    arrays = {name: np.asarray(value) for name, value in (constants or {}).items()}
    graph = helper.make_graph(
        made,
        "case",
        [_info(name, array) for name, array in inputs.items()],
        [_info(n, arrays[n]) if n in arrays else onnx.ValueInfoProto(name=n) for n in outputs.split()],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    built = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8 if opset < 20 else 10)
    return onnx.shape_inference.infer_shapes(built)


def _info(name: str, array: NDArray[Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
