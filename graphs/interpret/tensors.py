"""The reference for tensor-level graphs: one NumPy array per tensor, floats in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from ..dtypes import DType, from_numpy
from ..errors import GraphError, InputError
from ..ir import Graph, Node, TensorType
from ..primitives import PRIMITIVES
from ..rounding import Array, Precision, narrow, settle_edge, widen
from .elementwise import apply
from .movement import move
from .reductions import reduce

Library = Callable[[Node, list[Array]], list[Array]]
"""Runs a library node: arrays of the tensors' own types in (an absent input is an empty array) and out."""


def eval_node(node: Node, args: list[Array], out_type: TensorType, precision: Precision = "strict") -> Array:
    """The result of one primitive: a wide array of `out_type.shape` (`rounding.narrow` gives it its own type).

    `args` have their tensors' types or are wide. float32 and float64 results keep float64 precision, low-precision ones
    are rounded when `precision` is strict or the node is a cast. Raises InputError for a gathered index out of range.
    """
    wides = [widen(a, from_numpy(a.dtype)) for a in args]
    kind = PRIMITIVES[node.op].kind
    if kind in ("movement", "source"):
        return move(node, wides, out_type)
    if kind == "elementwise":
        result = apply(node.op, wides, out_type.dtype)
    else:
        last = node.op in ("argmax", "argmin") and node.attr("select_last")
        operand = DType.F64 if wides[0].dtype == np.float64 else from_numpy(wides[0].dtype)
        result = reduce(node.op, wides[0], node.attr("axes"), operand, last)
    return settle_edge(result, out_type.dtype, precision)


def run_graph(
    graph: Graph,
    feeds: Mapping[str, Array],
    library: Library | None = None,
    precision: Precision = "strict",
) -> dict[str, Array]:
    """The outputs of `graph` by name, each of its tensor's type, for arrays of its inputs.

    Raises InputError when feeds do not fit or a gathered index is out of range, GraphError when a library node is met
    and `library` is None.
    """
    arrays = {name: widen(value, graph.types[name].dtype) for name, value in graph.constants.items()}
    for name in graph.inputs:
        arrays[name] = _fed(graph, feeds, name)
    last = {name: i for i, node in enumerate(graph.nodes) for name in node.inputs}
    kept = set(graph.outputs)
    for i, node in enumerate(graph.nodes):
        if node.op == "library":
            _run_library(graph, node, arrays, library)
        else:
            out = node.outputs[0]
            arrays[out] = eval_node(node, [arrays[n] for n in node.inputs], graph.types[out], precision)
        for name in set(node.inputs) - kept:
            if last[name] == i and name:
                del arrays[name]
    return {name: narrow(arrays[name], graph.types[name].dtype) for name in graph.outputs}


def _fed(graph: Graph, feeds: Mapping[str, Array], name: str) -> Array:
    if name not in feeds:
        raise InputError(f"no value is given for input {name!r} of {graph.name}")
    kind, array = graph.types[name], np.asarray(feeds[name])
    if array.dtype != kind.dtype.numpy or array.shape != kind.shape:
        want = f"{kind.dtype.value}{list(kind.shape)}"
        raise InputError(f"input {name!r} of {graph.name} is {array.dtype}{list(array.shape)}, not {want}")
    return widen(array, kind.dtype)


def _run_library(graph: Graph, node: Node, arrays: dict[str, Array], library: Library | None) -> None:
    if library is None:
        raise GraphError(f"{graph.name}: {node.origin or node.outputs[0]} needs a library ({node.reason})")
    own = [narrow(arrays[n], graph.types[n].dtype) if n else np.empty(0) for n in node.inputs]
    for name, result in zip(node.outputs, library(node, own), strict=True):
        if name:
            arrays[name] = widen(np.asarray(result), graph.types[name].dtype)
