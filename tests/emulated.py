"""Graphs on emulated CUDA: every component by its plan's kernels, nothing allowed to be found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stitchtune.graphs.partition import Component, LibraryStep, Partition, ViewStep
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.emulator import emulate

Arrays = dict[str, NDArray[Any]]


def run_component(built: BuiltCuda, inputs: Sequence[NDArray[Any]], **settings: Any) -> list[NDArray[Any]]:
    """One plan's outputs. Fails when the emulator finds anything, or an input was changed."""
    sub = built.sub
    outputs: list[NDArray[Any]] = [np.empty(sub.shape(v), sub.values[v].dtype.numpy) for v in sub.outputs]
    before = [a.tobytes() for a in inputs]
    ran = emulate.run(built, inputs, outputs, **settings)
    assert not ran.findings, "\n".join(f"{f.kind} in {f.kernel}: {f.where}" for f in ran.findings)
    assert [a.tobytes() for a in inputs] == before, "inputs were changed"
    return outputs


def run_graph(
    parts: Partition, built: Sequence[BuiltCuda], feeds: Mapping[str, NDArray[Any]], **settings: Any
) -> Arrays:
    """The graph's outputs by name; `built` has its components in order. Library operators are not expected."""
    graph = parts.graph
    memory: Arrays = {**graph.constants, **feeds}
    waiting = iter(built)
    for step in parts.steps:
        match step:
            case Component():
                sub = step.subgraph
                arrays = [memory[n] for n in step.inputs]
                inputs = [np.array(a, order="C").reshape(sub.shape(v)) for a, v in zip(arrays, sub.inputs, strict=True)]
                for name, array in zip(step.outputs, run_component(next(waiting), inputs, **settings), strict=True):
                    memory[name] = array.reshape(graph.types[name].shape)
            case ViewStep():
                memory[step.output] = np.ascontiguousarray(memory[step.source]).reshape(graph.types[step.output].shape)
            case LibraryStep():
                raise AssertionError(f"a library operator: {step.node.reason}")
    return {name: memory[name] for name in graph.outputs}
