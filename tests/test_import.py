"""`import stitchtune` is cheap, and pulls in no heavy library."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("onnx", "onnxruntime", "optuna", "matplotlib", "pandas", "sqlalchemy", "rich", "torch", "jax", "cupy", "numpy")


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout


def test_import_pulls_in_nothing_heavy() -> None:
    loaded = run("import sys, stitchtune; print(*sys.modules)").split()
    assert not [name for name in HEAVY if name in loaded]


def test_import_takes_under_300_ms() -> None:
    code = "import time; t = time.perf_counter(); import stitchtune; print(time.perf_counter() - t)"
    assert min(float(run(code)) for _ in range(3)) < 0.3
