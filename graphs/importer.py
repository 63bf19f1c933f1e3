"""A checked ONNX model as a Graph: binds sizes, decomposes what the rules know, keeps the rest as library nodes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .constants import ValueBuilder
from .decompose import NEWEST, Call, NotLowered, decompose
from .errors import GraphError
from .exported import ExportedOp
from .external_data import TensorReader
from .ir import Graph, TensorType
from .library_types import library_types, since_version, tensor_type
from .onnx_model import all_nodes, captured, domain_of, label, opsets, ordered, reads
from .onnx_types import BY_NUMBER, OTHERS
from .rewrite import renamed
from .shapes import TypeMismatch

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

HUGE = 1 << 31
"""A dimension from this size on is taken for a mistake."""


def import_model(model: ModelProto, path: Path, dims: Mapping[str, int]) -> Graph:
    """The Graph of a model that `onnx_model.read_model` gave, read from `path`, with symbolic dimensions bound.

    Raises GraphError, without the file's name, for anything in the model that does not fit together.
    """
    return _Importer(model, path, dims).run()


def input_shapes(graph: GraphProto) -> dict[str, tuple[int | str, ...]]:
    """The shape of each input of a graph, symbolic dimensions by name. One without a name is called INPUT.AXIS."""
    initialized = {i.name for i in graph.initializer}
    return {
        info.name: tuple(
            dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"{info.name}.{axis}"
            for axis, dim in enumerate(info.type.tensor_type.shape.dim)
        )
        for info in graph.input
        if info.name not in initialized
    }


def dimension_names(graph: GraphProto) -> tuple[str, ...]:
    """The symbolic dimensions of a graph's inputs, in order."""
    return tuple(dict.fromkeys(d for shape in input_shapes(graph).values() for d in shape if isinstance(d, str)))


class _Importer:
    def __init__(self, model: ModelProto, path: Path, dims: Mapping[str, int]) -> None:
        self.model = model
        self.graph = model.graph
        self.opsets = opsets(model)
        self.opset = self.opsets.get("", NEWEST)
        self.dims = dims
        self.tensors = TensorReader(path.parent)
        exported = {name for node in self.graph.node for name in (*node.input, *node.output)}
        exported |= {i.name for i in (*self.graph.input, *self.graph.initializer)}
        self.b = ValueBuilder(os.fsencode(path.stem).decode("utf-8", "backslashreplace"), self.opset, reserved=exported)
        self.names = Counter(node.name for node in all_nodes(self.graph.node) if node.name)
        self.env: dict[str, str] = {}
        """The tensor that each exported name is."""
        self.declared: dict[str, ValueInfoProto] = {i.name: i for i in (*self.graph.value_info, *self.graph.output)}
        self.tail: list[tuple[NodeProto, str, str]] = []
        """Nodes behind an output of unknown type, with why: (node, reason, what is missing)."""
        self.unknown: set[str] = set()

    def run(self) -> Graph:
        for initializer in self.graph.initializer:
            if initializer.name in self.env:
                raise GraphError(f"initializer {initializer.name!r} is there twice")
            self.env[initializer.name] = self.b.constant(self.tensors.read(initializer), initializer.name)
        for info in self.graph.input:
            if info.name not in self.env:
                kind = self._input_type(info)
                with _about(f"input {info.name!r}"):
                    self.env[info.name] = self.b.input(info.name, kind.dtype, kind.shape)
        self._check_dims()
        nodes = ordered(self.graph, set(self.env))
        used = {name for node in nodes for name in reads(node)} | {o.name for o in self.graph.output}
        for node in nodes:
            with _about(label(node)):
                self._import(node, used)
        self._add_tail()
        return self._finish()

    # --- inputs

    def _input_type(self, info: ValueInfoProto) -> TensorType:
        what = f"input {info.name!r}"
        if not info.type.HasField("tensor_type"):
            raise GraphError(f"{what} is no tensor")
        number = info.type.tensor_type.elem_type
        if number not in BY_NUMBER:
            raise GraphError(f"{what}: element type {OTHERS.get(number, f'number {number}')} is not supported")
        if not info.type.tensor_type.HasField("shape"):
            raise GraphError(f"{what} has no shape")
        sizes = []
        for axis, dim in enumerate(info.type.tensor_type.shape.dim):
            if dim.HasField("dim_value"):
                sizes.append(_size(dim.dim_value, f"{what}: dimension {axis}"))
                continue
            name = dim.dim_param or f"{info.name}.{axis}"
            if name not in self.dims:
                raise GraphError(f"{what}: dimension {axis} is not bound: give its size with --dim {name}=N")
            sizes.append(_size(self.dims[name], f"{what}: dimension {name}"))
        return TensorType(BY_NUMBER[number], tuple(sizes))

    def _check_dims(self) -> None:
        names = dimension_names(self.graph)
        if unknown := [name for name in self.dims if name not in names]:
            has = f"it has {', '.join(names)}" if names else "all its sizes are fixed"
            raise GraphError(f"there is no dimension {unknown[0]!r} to bind: {has}")

    # --- nodes

    def _import(self, node: NodeProto, used: set[str]) -> None:
        """Adds one exported node. A node whose outputs nobody uses is left out."""
        wanted = tuple(bool(name) and name in used for name in node.output)
        if not any(wanted):
            return
        if self.unknown & set(reads(node)):
            self._defer(node, "unknown-shape")
            return
        if (body := self._chosen_body(node)) is not None and self._inline(node, wanted, body):
            return
        self.b.origin = self._origin(node)
        reason = self._unlowered(node)
        if not reason:
            mark = self.b.mark()
            try:
                self._bind(node, wanted, decompose(self._call(node, wanted)))
            except NotLowered as refusal:
                self.b.rollback(mark)
                reason = refusal.reason
        if reason:
            self._library(node, wanted, reason)
        self._check_declared(node)

    def _origin(self, node: NodeProto) -> str:
        """The operator and the name of a node, or its first output where it has no name of its own."""
        own = self.names[node.name] == 1
        return f"{node.op_type} {node.name if own else next(o for o in node.output if o)}"

    def _unlowered(self, node: NodeProto) -> str:
        """Why the rules do not apply to this operator at all, or ""."""
        if domain_of(node.domain):
            return "unknown-domain"
        since = since_version(node.op_type, self.opset)
        if since == 0:
            return "unknown-operator"
        return "newer-operator" if since > NEWEST else ""

    def _call(self, node: NodeProto, wanted: tuple[bool, ...]) -> Call:
        inputs = tuple(self.env[i] if i else "" for i in node.input)
        attrs = {a.name: self._attribute(a) for a in node.attribute}
        return Call(self.b, node.op_type, self.opset, inputs, wanted, attrs)

    def _attribute(self, attribute: AttributeProto) -> Any:
        """An attribute as a Python value; None for a graph or another kind that no rule reads."""
        from onnx import AttributeProto as Kind

        match attribute.type:
            case Kind.INT:
                return int(attribute.i)
            case Kind.FLOAT:
                return float(attribute.f)
            case Kind.STRING:
                return attribute.s.decode("utf-8", "replace")
            case Kind.TENSOR:
                return self.tensors.read(attribute.t)
            case Kind.INTS:
                return tuple(attribute.ints)
            case Kind.FLOATS:
                return tuple(attribute.floats)
            case _:
                return None

    def _bind(self, node: NodeProto, wanted: Sequence[bool], results: Sequence[str]) -> None:
        for i, name in enumerate(node.output):
            if not wanted[i]:
                continue
            if i >= len(results) or not results[i]:
                raise TypeMismatch(f"it has no output {i}")
            self.env[name] = results[i]

    def _check_declared(self, node: NodeProto) -> None:
        for name in node.output:
            info = self.declared.get(name)
            if info is None or name not in self.env or not info.type.tensor_type.elem_type:
                continue
            declared, found = BY_NUMBER.get(info.type.tensor_type.elem_type), self.b.dtype(self.env[name])
            if declared is not found:
                stated = declared.value if declared else "another type"
                raise GraphError(f"its output {name!r} is {found.value}, but the model declares {stated}")

    # --- branches known while importing

    def _chosen_body(self, node: NodeProto) -> GraphProto | None:
        """The branch that an If with a known condition takes, or None."""
        if node.op_type != "If" or domain_of(node.domain) or len(node.input) != 1:
            return None
        condition = self.b.value(self.env[node.input[0]])
        if condition is None or condition.size != 1:
            return None
        name = "then_branch" if condition.reshape(()) else "else_branch"
        return next((a.g for a in node.attribute if a.name == name), None)

    def _inline(self, node: NodeProto, wanted: Sequence[bool], body: GraphProto) -> bool:
        """Adds the nodes of a branch in place of the If. Not when a type in it is unknown: then nothing is added."""
        if len(body.output) != len(node.output):
            raise TypeMismatch(f"its branch has {len(body.output)} outputs")
        outer, mark, deferred, unknown = dict(self.env), self.b.mark(), len(self.tail), set(self.unknown)
        for initializer in body.initializer:
            value = self.tensors.read(initializer)
            self.env[initializer.name] = self.b.constant(value, self.b.unused(initializer.name))
        nodes = ordered(body, set(self.env))
        used = {name for inner in nodes for name in reads(inner)} | {o.name for o in body.output}
        for inner in nodes:
            with _about(label(inner)):
                self._import(inner, used)
        inner_env, self.env = self.env, outer
        if len(self.tail) > deferred:
            self.b.rollback(mark)
            del self.tail[deferred:]
            self.unknown = unknown
            return False
        for result, name, want in zip(body.output, node.output, wanted, strict=True):
            if want:
                self.env[name] = inner_env[result.name]
        return True

    # --- library nodes

    def _library(self, node: NodeProto, wanted: Sequence[bool], reason: str) -> None:
        names = [*node.input, *captured(node)]
        present = list(dict.fromkeys(name for name in names if name))
        known = [self.b.types[self.env[name]] for name in present]
        values = {name: value for name in present if (value := self.b.value(self.env[name])) is not None}
        types = library_types(node, present, known, values, self.opsets, self.model.ir_version)
        outputs = [
            (kind or self._declared_type(name)) if want else None
            for name, kind, want in zip(node.output, types.outputs, wanted, strict=True)
        ]
        if any(want and kind is None for want, kind in zip(wanted, outputs, strict=True)):
            self._defer(node, reason, types.missing)
            return
        pairs = [
            None if kind is None else (self.b.unused(name), kind)
            for name, kind in zip(node.output, outputs, strict=True)
        ]
        given = [name if pair else "" for name, pair in zip(node.output, pairs, strict=True)]
        payload = self._exported([node], names, given, missing=types.missing)
        self.b.library([self.env[n] if n else "" for n in names], pairs, reason, payload)
        self.env.update({name: pair[0] for name, pair in zip(node.output, pairs, strict=True) if pair is not None})

    def _exported(
        self,
        nodes: Sequence[NodeProto],
        inputs: Sequence[str],
        outputs: Sequence[str],
        dynamic: bool = False,
        missing: str = "",
    ) -> ExportedOp:
        first = nodes[0]
        domain = domain_of(first.domain)
        return ExportedOp(
            nodes=tuple(self.tensors.embedded(node).SerializeToString(deterministic=True) for node in nodes),
            inputs=tuple(inputs),
            outputs=tuple(outputs),
            opsets=tuple(sorted(self.opsets.items())),
            ir_version=self.model.ir_version,
            op_type=f"{domain}.{first.op_type}" if domain else first.op_type,
            dynamic=dynamic,
            missing=missing,
        )

    def _declared_type(self, name: str) -> TensorType | None:
        """The type that the model states for a tensor, symbolic dimensions bound, or None."""
        info = self.declared.get(name)
        if info is None:
            return None
        bound = type(info.type).FromString(info.type.SerializeToString())
        for dim in bound.tensor_type.shape.dim:
            if dim.dim_param in self.dims:
                dim.dim_value = self.dims[dim.dim_param]
        return tensor_type(bound)

    # --- what no shape is known of

    def _defer(self, node: NodeProto, reason: str, missing: str = "") -> None:
        """Leaves a node with outputs of unknown type, and by and by all that depends on it, to one library node."""
        self.tail.append((node, reason, missing))
        self.unknown.update(name for name in node.output if name)

    def _add_tail(self) -> None:
        """One library node of everything behind an unknown type: a library finds the shapes when it runs."""
        outputs = list(dict.fromkeys(o.name for o in self.graph.output if o.name in self.unknown))
        if not outputs:
            return
        nodes = [node for node, _, _ in self.tail]
        names = list(dict.fromkeys(name for node in nodes for name in reads(node) if name not in self.unknown))
        missing = next((missing for _, _, missing in self.tail if missing), "")
        self.b.origin = self._origin(nodes[0])
        pairs = [(name, self._placeholder(name)) for name in outputs]
        payload = self._exported(nodes, names, outputs, dynamic=True, missing=missing)
        self.b.library([self.env[n] for n in names], pairs, self.tail[0][1], payload)
        self.env.update({name: name for name in outputs})

    def _placeholder(self, name: str) -> TensorType:
        """What stands for an unknown type: the declared element type and rank, 0 for each unknown size."""
        declared = self.declared[name].type.tensor_type
        dtype = BY_NUMBER.get(declared.elem_type)
        if dtype is None:
            raise GraphError(f"output {name!r} is no tensor of a supported element type")
        if not declared.HasField("shape"):
            return TensorType(dtype, (0,))
        return TensorType(dtype, tuple(max(0, d.dim_value) for d in declared.shape.dim))

    # --- outputs

    def _finish(self) -> Graph:
        """The graph with tensors called what the model calls them; an output that is another tensor is a copy of it."""
        self.b.origin = ""
        own = {name for name, tensor in self.env.items() if name == tensor}
        outputs = list(dict.fromkeys(o.name for o in self.graph.output))
        names: dict[str, str] = {}
        for output in outputs:
            tensor = self.env[output]
            if output not in own:
                if tensor in own or tensor in names or tensor in self.b.constants:
                    tensor = self.env[output] = self.b.op("copy", tensor)
                names[tensor] = output
        for name, tensor in self.env.items():
            if name not in outputs and tensor not in own and tensor not in self.b.constants:
                names.setdefault(tensor, name)
        for exported in self.graph.output:
            self.b.output(self.env[exported.name])
        sizes = tuple((name, int(self.dims[name])) for name in dimension_names(self.graph))
        return renamed(self.b.build(sizes), names)


def _size(value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < HUGE - 1:
        raise GraphError(f"{what} is {value}: it must be a number from 0 to {HUGE - 2}")
    return value


@contextmanager
def _about(what: str) -> Iterator[None]:
    """Errors raised inside name what they are about."""
    try:
        yield
    except TypeMismatch as error:
        raise GraphError(f"{what}: {error}") from error
    except GraphError as error:
        if str(error).startswith(what):
            raise
        raise GraphError(f"{what}: {error}") from error
