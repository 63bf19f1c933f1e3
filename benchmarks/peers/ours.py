"""Our own kernels, by the plan in the task: the stitched one or the unfused one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graphs.partition import Component, Partition
from ...kernels.build import build_plans
from ...kernels.compile import BuildFailure
from ...kernels.executor import compile_graph
from ...kernels.launch import Launcher
from ...kernels.team import build_runtime, shared_team
from ..task import Contestant, Task


class Ours:
    """Kernel times are launches of the bound plan, repeated in C; calls go through the executor, as a model's do."""

    def __init__(self, task: Task) -> None:
        assert task.plan is not None
        cache, sub = Path(task.cache), task.subgraph
        runtime = build_runtime(cache)
        [built] = build_plans([(sub, task.plan)], task.target, cache=cache, jobs=1)
        if isinstance(runtime, BuildFailure) or isinstance(built, BuildFailure):
            raise RuntimeError("the plan does not compile")
        inputs = [array.reshape(sub.shape(v)) for array, v in zip(task.feeds, sub.inputs, strict=True)]
        outputs = [np.empty(sub.shape(v), sub.values[v].dtype.numpy) for v in sub.outputs]
        self.bound = Launcher(built, shared_team(runtime, task.threads)).bind(inputs, outputs)
        component = Component(sub, task.graph.inputs, task.graph.outputs, (), 0)
        alone = Partition(task.graph, (component,))
        self.model = compile_graph(alone, [task.plan], task.target, cache=cache, jobs=1, threads=task.threads)
        self.feeds = dict(zip(task.graph.inputs, task.feeds, strict=True))
        self.names = task.graph.outputs

    def outputs(self) -> list[NDArray[Any]]:
        found = self.model(self.feeds)
        return [found[name] for name in self.names]

    def kernel(self, times: int) -> float:
        return self.bound.time(1, batch=times)[0] * 1e-9

    def call(self, times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            self.model(self.feeds)
        return time.perf_counter() - started


def prepare(task: Task) -> Contestant:
    return Ours(task)
