"""One subgraph taken out of its graph: as primitives, and as a model of the exported operators."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..graphs.ir import Graph, Node
from ..graphs.partition import Component, Partition, ViewStep

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto


def alone(partition: Partition, component: Component) -> Partition:
    """The component as a graph of its own: what computes its outputs from its inputs, as primitives."""
    graph = partition.graph
    stop = _aliases(partition, component)
    needed = _behind(component.outputs, stop, {name: node.inputs for name, node in graph.producers().items()})
    nodes = [
        Node("reshape", (source,), (name,), (("shape", graph.types[name].shape),))
        for name, source in stop.items()
        if name != source and name in needed
    ]
    nodes += [n for n in graph.nodes if any(o in needed and o not in stop for o in n.outputs)]
    constants = {k: v for k, v in graph.constants.items() if k in needed and k not in stop}
    types = {k: v for k, v in graph.types.items() if k in needed or k in stop}
    part = Graph(graph.name, component.inputs, component.outputs, tuple(nodes), types, constants, graph.opset)
    return Partition(part, (component,))


def _aliases(partition: Partition, component: Component) -> dict[str, str]:
    """Every tensor with the bytes of an input of the component, itself included -> that input."""
    roots: dict[str, str] = {}
    for step in partition.steps:
        if isinstance(step, ViewStep):
            roots[step.output] = roots.get(step.source, step.source)
    inputs = {roots.get(name, name): name for name in component.inputs}
    found = {name: inputs[root] for name, root in roots.items() if root in inputs}
    return {**inputs, **found, **{name: name for name in component.inputs}}


def exported(path: Path, partition: Partition, component: Component) -> bytes:
    """The component as an ONNX model of exported operators; b"" when its tensors are not all tensors of the model, or
    when it would need a library op or an input of the model that are not among its inputs."""
    import onnx
    from onnx import helper, numpy_helper

    graph = partition.graph
    model = onnx.load(path, load_external_data=False)
    producers = {name: node for node in model.graph.node for name in node.output if name}
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    stop = _aliases(partition, component)
    known = {*producers, *weights, *(i.name for i in model.graph.input)}
    needed = _behind(component.outputs, stop, {name: tuple(node.input) for name, node in producers.items()})
    free = needed - stop.keys() - producers.keys() - weights.keys()
    library = {name for node in graph.nodes if node.op == "library" for name in node.outputs}
    if free or library & (needed - stop.keys()) or not {*component.inputs, *component.outputs} <= known:
        return b""
    views = {name: source for name, source in stop.items() if name != source and name in needed}
    shapes = {name: np.array(graph.types[name].shape, np.int64) for name in views}
    nodes = [helper.make_node("Reshape", [source, f"{name}.shape"], [name]) for name, source in views.items()]
    nodes += _inside(model, needed - stop.keys())
    kept = [numpy_helper.from_array(shape, f"{name}.shape") for name, shape in shapes.items()]
    kept += [tensor for name, tensor in weights.items() if name in needed and name not in stop]
    for tensor in kept:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            onnx.external_data_helper.load_external_data_for_tensor(tensor, str(path.parent))
            tensor.ClearField("external_data")
            tensor.data_location = onnx.TensorProto.DEFAULT

    def info(name: str) -> onnx.ValueInfoProto:
        kind = graph.types[name]
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(kind.dtype.numpy), kind.shape)

    inputs, outputs = [info(n) for n in component.inputs], [info(n) for n in component.outputs]
    body = helper.make_graph(nodes, "subgraph", inputs, outputs, kept)
    made = helper.make_model(body, opset_imports=list(model.opset_import), ir_version=model.ir_version)
    return bytes(made.SerializeToString())


def _inside(model: ModelProto, tensors: Collection[str]) -> list[NodeProto]:
    return [node for node in model.graph.node if any(name in tensors for name in node.output)]


def _behind(outputs: Sequence[str], stop: Collection[str], producers: Mapping[str, Sequence[str]]) -> set[str]:
    """Every tensor that `outputs` need, up to those in `stop`."""
    found: set[str] = set()
    waiting = list(outputs)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        if name not in stop:
            waiting += [i for i in producers.get(name, ()) if i]
    return found
