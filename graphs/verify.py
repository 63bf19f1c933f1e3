"""The verifier of tensor-level graphs: what every stage may rely on and every pass must leave true."""

from __future__ import annotations

from .dtypes import from_numpy
from .errors import VerifyError
from .ir import Graph, Node, TensorType
from .primitives import PRIMITIVES
from .shapes import TypeMismatch, infer


def verify_graph(graph: Graph) -> None:
    """Raises VerifyError unless:

    1. every tensor is written once: by an input, a constant or one node;
    2. nodes stand in topological order and read only written tensors; outputs are written tensors;
    3. every tensor has a type with non-negative dimensions, and nothing else has one;
    4. constants are read-only arrays of their type in C order, aligned to their elements;
    5. every primitive has one output, of the type that `shapes.infer` gives, no reason and no payload;
    6. every library node has a reason and at least one named output.
    """
    written: set[str] = set()
    for name in graph.inputs:
        _write(graph, written, name, "input")
    for name in graph.constants:
        _write(graph, written, name, "constant")
        _verify_constant(graph, name)
    for node in graph.nodes:
        where = f"{node.op} {' '.join(node.outputs)} ({node.origin})"
        for name in node.inputs:
            if name not in written and not (name == "" and node.op == "library"):
                raise VerifyError(f"{where} reads {name!r}, which nothing before it writes")
        if node.op == "library":
            if not node.reason or not any(node.outputs):
                raise VerifyError(f"{where} has no reason or no output")
        else:
            _verify_primitive(graph, node, where)
        for name in node.outputs:
            if name or node.op != "library":
                _write(graph, written, name, where)
    for name in graph.outputs:
        if name not in written:
            raise VerifyError(f"output {name!r} is not written")
    if stale := set(graph.types) - written:
        raise VerifyError(f"types of tensors that do not exist: {', '.join(sorted(stale)[:5])}")


def _write(graph: Graph, written: set[str], name: str, by: str) -> None:
    if not name or name in written:
        raise VerifyError(f"{by}: tensor {name!r} is written twice or has no name")
    written.add(name)
    kind = graph.types.get(name)
    if kind is None:
        raise VerifyError(f"{by}: tensor {name!r} has no type")
    if any(type(d) is not int or d < 0 for d in kind.shape):
        raise VerifyError(f"{by}: tensor {name!r} has shape {kind.shape}")


def _verify_constant(graph: Graph, name: str) -> None:
    value = graph.constants[name]
    if TensorType(from_numpy(value.dtype), value.shape) != graph.types[name]:
        raise VerifyError(f"constant {name!r} is {value.dtype}{value.shape}, not {graph.types[name]}")
    if value.flags.writeable or not value.flags.c_contiguous or not value.flags.aligned:
        raise VerifyError(f"constant {name!r} is writeable, strided or not aligned")


def _verify_primitive(graph: Graph, node: Node, where: str) -> None:
    if node.op not in PRIMITIVES or len(node.outputs) != 1 or node.reason or node.payload is not None:
        raise VerifyError(f"{where} is no primitive with one output, no reason and no payload")
    attrs = dict(node.attrs)
    if len(attrs) != len(node.attrs) or list(attrs) != sorted(attrs):
        raise VerifyError(f"{where} has attributes twice or out of order")
    wanted = graph.types.get(node.outputs[0])
    if wanted is None:
        raise VerifyError(f"{where} has no type")
    try:
        found = infer(node.op, [graph.types[name] for name in node.inputs], attrs, wanted)
    except TypeMismatch as error:
        raise VerifyError(f"{where}: {error}") from error
    if found != wanted:
        raise VerifyError(f"{where} is {found}, declared as {wanted}")
