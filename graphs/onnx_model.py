"""An ONNX file as a checked ModelProto: readable, of an opset we know, its nodes in topological order."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import GraphError

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto

PROTOBUF_LIMIT = (1 << 31) - 1
"""Bytes of the largest message that protobuf reads."""


def read_model(path: Path) -> ModelProto:
    """The model in a file, weights in other files left there, local functions inlined.

    Raises GraphError, without the file's name, when it cannot be read or is no ONNX model.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        if not path.is_file():
            raise GraphError("not a file" if path.exists() else "no such file")
        if path.stat().st_size > PROTOBUF_LIMIT:
            raise GraphError("larger than 2 GB, which protobuf cannot read: store its weights as external data")
        model = onnx.ModelProto.FromString(path.read_bytes())
    except OSError as error:
        raise GraphError(f"cannot be read: {error.strerror}") from error
    except DecodeError as error:
        raise GraphError("not an ONNX model, or a truncated one") from error
    if not model.HasField("graph") or not model.opset_import or not model.graph.output:
        raise GraphError("not an ONNX model, or a truncated one: it has no graph, no outputs or no operator set")
    if any(not isinstance(text, str) for text in _texts(model)):
        raise GraphError("not an ONNX model, or a damaged one: a name in it is no text")
    if model.graph.sparse_initializer:
        raise GraphError(
            f"initializer {model.graph.sparse_initializer[0].values.name!r} is sparse, which is not supported"
        )
    return _inlined(model) if model.functions else model


def _texts(model: ModelProto) -> Iterator[object]:
    """Every name that a model is read by. Protobuf gives bytes for one that is not UTF-8."""
    for entry in model.opset_import:
        yield entry.domain
    for function in model.functions:
        yield from (function.name, function.domain, *function.input, *function.output)
    nodes = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    bodies = [model.graph, *(body for node in all_nodes(nodes) for body in subgraphs(node))]
    for node in all_nodes(nodes):
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)
    for body in bodies:
        for info in (*body.input, *body.output, *body.value_info):
            yield info.name
            yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)
        for tensor in body.initializer:
            yield tensor.name
            yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))


def opsets(model: ModelProto) -> dict[str, int]:
    """The version of each operator domain that the model imports; the ONNX domain is ""."""
    return {domain_of(entry.domain): entry.version for entry in model.opset_import}


def domain_of(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def label(node: NodeProto) -> str:
    """How messages name a node: by its name, else by its first output."""
    name = node.name or next((o for o in node.output if o), "")
    return f"node {name!r} ({node.op_type})"


def _inlined(model: ModelProto) -> ModelProto:
    """The model with calls of its own functions replaced by their bodies."""
    import onnx
    from onnx.inliner import inline_local_functions

    known = {(domain_of(f.domain), f.name): f for f in model.functions}
    calls = {
        key: [call for call in ((domain_of(n.domain), n.op_type) for n in all_nodes(f.node)) if call in known]
        for key, f in known.items()
    }
    if (cyclic := find_cycle(calls)) is not None:
        raise GraphError(f"function {cyclic[1]!r} calls itself")
    try:
        return inline_local_functions(model)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise GraphError(f"its local functions cannot be inlined: {first_line(error)}") from error


def first_line(error: BaseException) -> str:
    """The first line of a message that says something."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def find_cycle(edges: dict[Any, list[Any]]) -> Any:
    """A key on a cycle of `edges` (from a key to keys), or None."""
    waiting = {key: set(targets) & set(edges) for key, targets in edges.items()}
    ready = [key for key, targets in waiting.items() if not targets]
    back: dict[Any, list[Any]] = {}
    for key, targets in waiting.items():
        for target in targets:
            back.setdefault(target, []).append(key)
    while ready:
        done = ready.pop()
        for key in back.get(done, ()):
            waiting[key].discard(done)
            if not waiting[key]:
                ready.append(key)
    return next((key for key, targets in waiting.items() if targets and _reaches(waiting, key)), None)


def _reaches(edges: dict[Any, set[Any]], start: Any) -> bool:
    """Whether `start` can be reached from itself."""
    seen: set[Any] = set()
    stack = list(edges[start])
    while stack:
        key = stack.pop()
        if key == start:
            return True
        if key not in seen:
            seen.add(key)
            stack += edges[key]
    return False


# --- order


def subgraphs(node: NodeProto) -> Iterator[GraphProto]:
    """The bodies of a control-flow node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(nodes: Sequence[NodeProto]) -> Iterator[NodeProto]:
    """The nodes, and those in their bodies."""
    for node in nodes:
        yield node
        for body in subgraphs(node):
            yield from all_nodes(body.node)


def captured(node: NodeProto) -> tuple[str, ...]:
    """Names that the bodies of a node take from outside, each once."""
    found: dict[str, None] = {}
    for body in subgraphs(node):
        own = (
            {i.name for i in body.input} | {i.name for i in body.initializer} | {o for n in body.node for o in n.output}
        )
        for inner in body.node:
            found.update(dict.fromkeys(i for i in (*inner.input, *captured(inner)) if i and i not in own))
        found.update(dict.fromkeys(o.name for o in body.output if o.name not in own))
    return tuple(found)


def reads(node: NodeProto) -> tuple[str, ...]:
    """Every tensor that a node needs: its operands and what its bodies capture."""
    return tuple(dict.fromkeys(i for i in (*node.input, *captured(node)) if i))


def ordered(graph: GraphProto, outside: set[str]) -> list[NodeProto]:
    """The nodes in topological order, otherwise as they stand. `outside` are tensors that exist before any node.

    Raises GraphError for a tensor that is written twice or by nobody, and for a cycle.
    """
    nodes = list(graph.node)
    producer: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in node.output:
            if name and (name in producer or name in outside):
                raise GraphError(f"{label(node)}: tensor {name!r} is written twice")
            if name:
                producer[name] = i
    missing: list[int] = []
    readers: dict[int, list[int]] = {}
    for i, node in enumerate(nodes):
        sources = set()
        for name in reads(node):
            if name in producer:
                sources.add(producer[name])
            elif name not in outside:
                raise GraphError(f"{label(node)}: input {name!r} is not defined")
        missing.append(len(sources))
        for source in sources:
            readers.setdefault(source, []).append(i)
    for output in graph.output:
        if output.name not in producer and output.name not in outside:
            raise GraphError(f"output {output.name!r} is not defined")
    ready = [i for i, count in enumerate(missing) if count == 0]
    result = []
    while ready:
        i = heapq.heappop(ready)
        result.append(nodes[i])
        for reader in readers.get(i, ()):
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    if len(result) < len(nodes):
        edges = {i: readers.get(i, []) for i, count in enumerate(missing) if count}
        raise GraphError(f"{label(nodes[find_cycle(edges)])}: depends on itself")
    return result
