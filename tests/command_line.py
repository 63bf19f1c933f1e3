"""Small exported models, and the command line as a user calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[1]


def block(folder: Path, rows: int | str = 24, width: int = 32) -> Path:
    """MatMul, bias, masked softmax, gathered rows, MatMul, layer norm: two library ops, three subgraphs or so."""
    rng = np.random.default_rng(0)
    weights = {
        name: rng.standard_normal(shape).astype(np.float32) * 0.1
        for name, shape in {"w": (width, width), "b": (width,), "table": (50, width), "g": (width,)}.items()
    }
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], "embed"),
        helper.make_node("Add", ["x", "e"], ["xe"], "enter"),
        helper.make_node("MatMul", ["xe", "w"], ["h"], "project"),
        helper.make_node("Add", ["h", "b"], ["hb"], "bias"),
        helper.make_node("Sub", ["one", "mask"], ["off"], "invert"),
        helper.make_node("Mul", ["off", "large"], ["additive"], "scale"),
        helper.make_node("Add", ["hb", "additive"], ["masked"], "apply_mask"),
        helper.make_node("Softmax", ["masked"], ["p"], "softmax", axis=-1),
        helper.make_node("MatMul", ["p", "w"], ["o"], "mix"),
        helper.make_node("LayerNormalization", ["o", "g", "b"], ["y"], "norm"),
    ]
    constants = {**weights, "one": np.float32(1), "large": np.float32(-1e4)}
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, width]),
        helper.make_tensor_value_info("ids", TensorProto.INT64, [rows]),
        helper.make_tensor_value_info("mask", TensorProto.FLOAT, [rows, width]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [rows, width])]
    initializers = [numpy_helper.from_array(np.asarray(a), n) for n, a in constants.items()]
    graph = helper.make_graph(nodes, "block", inputs, outputs, initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    path = folder / "block.onnx"
    onnx.save(model, path)
    return path


@dataclass(frozen=True)
class Done:
    """What a call of the command line came to."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    """Calls with a database and a cache of their own; warm kernels make later calls quick."""

    home: Path

    def __call__(self, *arguments: object, env: Mapping[str, str] | None = None, timeout: float = 240) -> Done:
        done = subprocess.run(
            [sys.executable, str(ROOT / "tune.py"), *map(str, arguments)],
            capture_output=True,
            text=True,
            cwd=self.home,
            timeout=timeout,
            env={**self.environment(), **(env or {})},
            check=False,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("STITCHTUNE")}
        return {**kept, "XDG_DATA_HOME": str(self.home / "data"), "XDG_CACHE_HOME": str(self.home / "cache")}
