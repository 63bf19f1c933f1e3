"""What alternating a library op with a stitched kernel costs over running each alone.

MatMul [rows, 512] x [512, 512], then bias + GELU, as one model; against the MatMul alone and bias + GELU alone, each in
a loop of its own. The three take turns in short bursts in one process of its own; the ratio is formed burst by burst.

usage: python benchmarks/alternate.py [--bursts N] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

ROWS = (128, 1024)
WIDTH = 512
BURST_S = 0.04
LIMIT = 1.15


def model(path: Path, rows: int, matmul: bool, gelu: bool) -> None:
    """Writes the model x -> [MatMul] -> [bias + GELU] -> y to `path`."""
    import onnx
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    constants: dict[str, Array] = {
        "half": np.array(0.5, np.float32),
        "one": np.array(1.0, np.float32),
        "root": np.array(2**-0.5, np.float32),
        "bias": rng.standard_normal(WIDTH, np.float32),
        "weight": rng.standard_normal((WIDTH, WIDTH), np.float32) / np.float32(WIDTH**0.5),
    }
    nodes = []
    name = "x"
    if matmul:
        nodes.append(helper.make_node("MatMul", [name, "weight"], ["product"]))
        name = "product"
    if gelu:
        nodes += [
            helper.make_node("Add", [name, "bias"], ["h"]),
            helper.make_node("Mul", ["h", "root"], ["scaled"]),
            helper.make_node("Erf", ["scaled"], ["erf"]),
            helper.make_node("Add", ["erf", "one"], ["plus"]),
            helper.make_node("Mul", ["h", "half"], ["halved"]),
            helper.make_node("Mul", ["halved", "plus"], ["gelu"]),
        ]
        name = "gelu"
    used = {i for node in nodes for i in node.input}
    graph = helper.make_graph(
        nodes,
        "alternate",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [rows, WIDTH])],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [rows, WIDTH])],
        [numpy_helper.from_array(value, key) for key, value in constants.items() if key in used],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def stitched(path: Path, cache: Path) -> Callable[[Array, Array], object]:
    """A function that runs the model at `path` on x into y."""
    from stitchtune.graphs.onnx_reader import load
    from stitchtune.graphs.partition import Component, partition
    from stitchtune.graphs.simplify import simplify
    from stitchtune.kernels.executor import compile_graph
    from stitchtune.kernels.host import host_target
    from stitchtune.search_space.stitch import heuristic

    target = host_target()
    graph = partition(simplify(load(path)))
    plans = [heuristic(step.subgraph, target) for step in graph.steps if isinstance(step, Component)]
    executor = compile_graph(graph, plans, target, cache=cache)
    [output] = graph.graph.outputs
    return lambda x, y: executor({"x": x}, {output: y})


def burst(run: Callable[[Array, Array], object], x: Array, y: Array) -> float:
    """Median seconds of a call, over a burst."""
    samples: list[float] = []
    end = time.perf_counter() + BURST_S
    while not samples or time.perf_counter() < end:
        begin = time.perf_counter()
        run(x, y)
        samples.append(time.perf_counter() - begin)
    return statistics.median(samples)


def measure(rows: int, bursts: int) -> dict[str, float]:
    """Medians in microseconds and the ratio, with the quartiles of the ratio over the bursts."""
    with tempfile.TemporaryDirectory() as folder:
        runs = {}
        for name, matmul, gelu in (("both", True, True), ("matmul", True, False), ("gelu", False, True)):
            path = Path(folder) / f"{name}.onnx"
            model(path, rows, matmul, gelu)
            runs[name] = stitched(path, Path(folder) / "cache")
        x = np.random.default_rng(1).standard_normal((rows, WIDTH), np.float32)
        y = np.empty((rows, WIDTH), np.float32)
        found: dict[str, list[float]] = {name: [] for name in runs}
        for i in range(bursts + 1):
            for name, run in runs.items():
                seconds = burst(run, x, y)
                if i:  # the first round warms up
                    found[name].append(seconds)
                time.sleep(0.005)
    ratios = [b / (m + g) for b, m, g in zip(found["both"], found["matmul"], found["gelu"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    medians = {f"{name}_us": round(statistics.median(times) * 1e6, 1) for name, times in found.items()}
    return {"rows": rows, **medians, "ratio": round(middle, 3), "low": round(low, 3), "high": round(high, 3)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bursts", type=int, default=25)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rows", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rows:
        print(json.dumps(measure(options.rows, options.bursts)))
        return 0
    # what a user may have set for NumPy's BLAS is no part of the measurement
    environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    results = []
    for rows in ROWS:
        command = [sys.executable, __file__, "--rows", str(rows), "--bursts", str(options.bursts)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        results.append(json.loads(done.stdout))
    if options.json:
        print(json.dumps({"limit": LIMIT, "results": results}))
    else:
        for r in results:
            print(
                f"MatMul [{r['rows']},{WIDTH}]x[{WIDTH},{WIDTH}] {r['matmul_us']} us, bias + GELU {r['gelu_us']} us, "
                f"both {r['both_us']} us: {r['ratio']} of the sum ({r['low']} to {r['high']}; limit {LIMIT})"
            )
    return 0 if all(r["ratio"] <= LIMIT for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
