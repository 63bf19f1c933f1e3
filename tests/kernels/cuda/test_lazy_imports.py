"""The target cpu imports nothing of CUDA, whatever is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx

from tests.kernels.test_executor import block

CODE = """
import sys
import numpy as np
import stitchtune as st

model = st.compile(sys.argv[1], target="cpu", db=sys.argv[2])
model({"x": np.zeros((2, 16, 64), np.float32)})
print([name for name in sys.modules if name.split(".")[0] in ("cupy", "cuda", "pynvml", "torch", "jax")])
"""


def test_the_cpu_needs_nothing_of_cuda(tmp_path: Path) -> None:
    model, _ = block()
    onnx.save(model, tmp_path / "block.onnx")
    arguments = [str(tmp_path / "block.onnx"), str(tmp_path / "plans.db")]
    done = subprocess.run([sys.executable, "-c", CODE, *arguments], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
