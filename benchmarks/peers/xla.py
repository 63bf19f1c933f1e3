"""XLA on the CPU through jax.jit, its inputs in JAX's own arrays."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..task import Contestant, Task
from .numpy_like import evaluate, table


class Xla:
    """Calls are dispatched back to back; the last one's result is waited for."""

    def __init__(self, task: Task) -> None:
        import jax
        import jax.numpy as jnp

        jax.config.update("jax_enable_x64", True)
        operations = table(jnp, jax.scipy.special.erf)
        operations["div"] = lambda node, kind, a, b: jax.lax.div(a, b)  # truncates for integers
        operations["gather"] = lambda node, kind, x, i: jnp.take(x, i, axis=node.attr("axis"), mode="wrap")
        graph, constants = task.graph, {k: jnp.asarray(v) for k, v in task.graph.constants.items()}

        def compute(*arrays: Any) -> list[Any]:
            return evaluate(graph, {**constants, **dict(zip(graph.inputs, arrays, strict=True))}, operations)

        self.host = task.feeds
        self.device = [jnp.asarray(a) for a in task.feeds]
        self.compiled = jax.jit(compute).lower(*self.device).compile()
        self.put, self.wait = jax.device_put, jax.block_until_ready

    def outputs(self) -> list[NDArray[Any]]:
        return [np.asarray(a) for a in self.compiled(*self.device)]

    def kernel(self, times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            result = self.compiled(*self.device)
        self.wait(result)
        return time.perf_counter() - started

    def call(self, times: int) -> float:
        started = time.perf_counter()
        for _ in range(times):
            [np.asarray(a) for a in self.compiled(*self.put(self.host))]
        return time.perf_counter() - started


def prepare(task: Task) -> Contestant:
    return Xla(task)
