"""The peers on a GPU: the suite's primitives as functions of torch, JAX and CuPy, on the device's own arrays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graphs.ir import Graph
from ..peers import inductor, numpy_like

PEERS = ("torch", "xla", "cupy", "inductor")
"""TorchInductor last: it compiles for seconds, and the others should have been seen before time runs out."""


@dataclass(frozen=True)
class Contestant:
    """A computation on the device.

    run      queues one run; wait: until all that was queued is done
    outputs  of one run, on the host
    kernel   seconds of one run replayed from a recorded graph, where the peer can; None where it cannot
    """

    name: str
    run: Callable[[], Any]
    wait: Callable[[], None]
    outputs: Callable[[], list[NDArray[Any]]]
    kernel: Callable[[int], float] | None = None

    def burst(self, times: int) -> float:
        """Seconds a run when `times` of them are queued back to back."""
        started = time.perf_counter()
        for _ in range(times):
            self.run()
        self.wait()
        return (time.perf_counter() - started) / times


def make(name: str, graph: Graph, arrays: Sequence[NDArray[Any]]) -> Contestant:
    """A peer at work on arrays for the graph's inputs, in order. Raises ImportError when it is not installed."""
    match name:
        case "torch" | "inductor":
            return _torch(name, graph, arrays)
        case "xla":
            return _xla(graph, arrays)
        case _:
            return _cupy(graph, arrays)


def _torch(name: str, graph: Graph, arrays: Sequence[NDArray[Any]]) -> Contestant:
    import torch

    place = torch.device("cuda")
    table = inductor.table(torch)
    table["iota"] = lambda node, kind: inductor.table(torch)["iota"](node, kind).to(place)
    constants = {k: torch.from_numpy(np.array(v)).to(place) for k, v in graph.constants.items()}
    given = [torch.from_numpy(np.array(a)).to(place) for a in arrays]

    def compute(*inputs: Any) -> list[Any]:
        return numpy_like.evaluate(graph, {**constants, **dict(zip(graph.inputs, inputs, strict=True))}, table)

    function = torch.compile(compute, fullgraph=True, dynamic=False) if name == "inductor" else compute

    def run() -> Any:
        with torch.inference_mode():
            return function(*given)

    def kernel(batch: int) -> float:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):  # a recording must not meet lazy set-up
            for _ in range(3):
                run()
        torch.cuda.synchronize()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            for _ in range(batch):
                run()
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        recorded.replay()
        first.record()
        recorded.replay()
        last.record()
        torch.cuda.synchronize()
        elapsed: float = first.elapsed_time(last) * 1e-3 / batch
        return elapsed

    return Contestant(name, run, torch.cuda.synchronize, lambda: [a.cpu().numpy() for a in run()], kernel)


def _xla(graph: Graph, arrays: Sequence[NDArray[Any]]) -> Contestant:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    table = numpy_like.table(jnp, jax.scipy.special.erf)
    table["div"] = lambda node, kind, a, b: jax.lax.div(a, b)
    table["gather"] = lambda node, kind, x, i: jnp.take(x, i, axis=node.attr("axis"), mode="wrap")
    constants = {k: jnp.asarray(v) for k, v in graph.constants.items()}
    given = [jnp.asarray(a) for a in arrays]

    def compute(*inputs: Any) -> list[Any]:
        return numpy_like.evaluate(graph, {**constants, **dict(zip(graph.inputs, inputs, strict=True))}, table)

    function = jax.jit(compute).lower(*given).compile()
    last: list[Any] = []

    def run() -> Any:
        last[:] = function(*given)
        return last

    return Contestant("xla", run, lambda: jax.block_until_ready(last), lambda: [np.asarray(a) for a in run()])


def _cupy(graph: Graph, arrays: Sequence[NDArray[Any]]) -> Contestant:
    import cupy
    from cupyx.scipy.special import erf

    table = numpy_like.table(cupy, erf)
    constants = {k: cupy.asarray(v) for k, v in graph.constants.items()}
    given = [cupy.asarray(a) for a in arrays]

    def run() -> Any:
        return numpy_like.evaluate(graph, {**constants, **dict(zip(graph.inputs, given, strict=True))}, table)

    wait = cupy.cuda.get_current_stream().synchronize
    return Contestant("cupy", run, wait, lambda: [cupy.asnumpy(a) for a in run()])
