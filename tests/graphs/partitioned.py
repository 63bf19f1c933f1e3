"""Runs a partition on the interpreter: components one by one, library operators by a callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stitchtune.graphs.interpret import run_subgraph
from stitchtune.graphs.ir import Node
from stitchtune.graphs.partition import Component, LibraryStep, Partition, ViewStep

Arrays = dict[str, NDArray[Any]]
Library = Callable[[Node, list[NDArray[Any]]], list[NDArray[Any]]]


def run_partition(part: Partition, feeds: Mapping[str, NDArray[Any]], library: Library | None = None) -> Arrays:
    """The graph's outputs by name."""
    graph = part.graph
    memory: Arrays = {**graph.constants, **feeds}

    def read(name: str, shape: tuple[int, ...]) -> NDArray[Any]:
        return np.ascontiguousarray(memory[name]).reshape(shape)

    for step in part.steps:
        match step:
            case Component():
                sub = step.subgraph
                inputs = [read(n, sub.shape(v)) for n, v in zip(step.inputs, sub.inputs, strict=True)]
                for name, array in zip(step.outputs, run_subgraph(sub, inputs), strict=True):
                    memory[name] = np.ascontiguousarray(array).reshape(graph.types[name].shape)
            case ViewStep():
                memory[step.output] = read(step.source, graph.types[step.output].shape)
            case LibraryStep():
                assert library is not None
                operands = [read(n, graph.types[n].shape) for n in step.node.inputs]
                memory.update(zip(step.node.outputs, library(step.node, operands), strict=True))
    return {name: memory[name] for name in graph.outputs}
