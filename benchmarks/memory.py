"""Peak memory of running a whole graph, beyond what imports take: Stitchtune against ONNX Runtime.

A process of its own for each: it runs a model of one MatMul, so that every library is loaded (imports are lazy), notes
its peak (VmHWM), then loads, compiles and runs the graph three times, and notes the peak again.

usage: python benchmarks/memory.py GRAPH.onnx [...]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FACTOR, SLACK = 1.2, 16e6

COMMON = """
import sys
from pathlib import Path
import numpy as np
import stitchtune.pipeline
from stitchtune import feeds as inputs_of
from stitchtune.graphs.onnx_reader import load

def peak():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM"):
            return 1024 * int(line.split()[1])

def inputs(path):
    return dict(np.load(path))
"""

FEEDS = (
    COMMON
    + """
from onnx import TensorProto, helper, save
kind = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4]) for name in "xy"]
graph = helper.make_graph([helper.make_node("MatMul", ["x", "x"], ["y"])], "matmul", kind[:1], kind[1:])
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), sys.argv[3])
made = inputs_of.synthetic(load(sys.argv[1]), 0)
np.savez(sys.argv[2], **made.arrays)
"""
)

OURS = (
    COMMON
    + """
import stitchtune as st
st.compile(sys.argv[3])({"x": np.ones((4, 4), np.float32)})
before = peak()
model = st.compile(sys.argv[1])
given = inputs(sys.argv[2])
for _ in range(3):
    model(given)
print(peak() - before)
"""
)

THEIRS = (
    COMMON
    + """
import onnxruntime
onnxruntime.InferenceSession(sys.argv[3]).run(None, {"x": np.ones((4, 4), np.float32)})
before = peak()
session = onnxruntime.InferenceSession(sys.argv[1])
given = inputs(sys.argv[2])
for _ in range(3):
    session.run(None, given)
print(peak() - before)
"""
)


def run(code: str, *arguments: str) -> str:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT.parent).stdout


def measure(graph: Path) -> tuple[float, float]:
    """Bytes that (Stitchtune, ONNX Runtime) need at most."""
    with tempfile.TemporaryDirectory() as folder:
        given, small = str(Path(folder) / "inputs.npz"), str(Path(folder) / "matmul.onnx")
        run(FEEDS, str(graph), given, small)
        return float(run(OURS, str(graph), given, small)), float(run(THEIRS, str(graph), given, small))


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    print(f"{'graph':16} {'stitchtune':>12} {'onnxruntime':>12} {'limit':>12}")
    for name in sys.argv[1:]:
        ours, theirs = measure(Path(name).resolve())
        limit = FACTOR * theirs + SLACK
        verdict = "" if ours <= limit else "  over"
        print(f"{Path(name).stem:16} {ours / 1e6:9.1f} MB {theirs / 1e6:9.1f} MB {limit / 1e6:9.1f} MB{verdict}")


if __name__ == "__main__":
    main()
