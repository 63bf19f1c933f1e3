"""Our own kernels, by the plan in the task: the stitched one or the unfused one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graphs.partition import Component
from ...kernels.build import BuiltPlan, build_plans
from ...kernels.compile import BuildFailure
from ...kernels.executor import compile_graph
from ...kernels.launch import Bound, Launcher
from ...kernels.team import build_runtime, shared_team
from ...pipeline import read
from ..task import Contestant, Task


class Ours:
    """Kernel times are launches of the bound plan, repeated in C; calls go through the executor, as a model's do."""

    def __init__(self, task: Task) -> None:
        cache = Path(task.cache)
        parted = task.partition or read(Path(task.path), dict(task.dims))[1]
        self.model = compile_graph(parted, task.plans, task.target, cache=cache, jobs=1, threads=task.threads)
        if self.model.stats().interpreted:
            raise RuntimeError("a plan does not compile")
        self.feeds = dict(zip(parted.graph.inputs, task.feeds, strict=True))
        self.results = self.model(self.feeds)
        self.bound = _bind(parted.components[0], task) if task.partition else None

    def outputs(self) -> list[NDArray[Any]]:
        return list(self.results.values())

    def kernel(self, times: int) -> float:
        if self.bound is not None:
            return self.bound.time(1, batch=times)[0] * 1e-9
        started = time.perf_counter()
        for _ in range(times):
            self.model(self.feeds, self.results)
        return time.perf_counter() - started

    def call(self, times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            self.model(self.feeds)
        return time.perf_counter() - started


def _bind(component: Component, task: Task) -> Bound:
    """The only component of a subgraph's task, bound to its arrays."""
    cache, sub = Path(task.cache), component.subgraph
    runtime = build_runtime(cache)
    [built] = build_plans([(sub, task.plans[0])], task.target, cache=cache, jobs=1)
    assert not isinstance(runtime, BuildFailure)
    assert isinstance(built, BuiltPlan)
    inputs = [array.reshape(sub.shape(v)) for array, v in zip(task.feeds, sub.inputs, strict=True)]
    outputs = [np.empty(sub.shape(v), sub.values[v].dtype.numpy) for v in sub.outputs]
    return Launcher(built, shared_team(runtime, task.threads)).bind(inputs, outputs)


def prepare(task: Task) -> Contestant:
    return Ours(task)
