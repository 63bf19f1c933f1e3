"""What Stitchtune costs before and around kernels: import, one small call, looking up all plans of a graph.

Each figure comes from processes of its own; the limits are those of the project's promises.

usage: python benchmarks/overheads.py GRAPH.onnx [--db DATABASE] [--json]      GRAPH: its keys are looked up
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

IMPORT = """
import time
start = time.perf_counter()
import stitchtune
print(time.perf_counter() - start)
"""

CALL = """
import sys, time
from pathlib import Path
import numpy as np
from onnx import TensorProto, helper, save
import stitchtune as st
folder = Path(sys.argv[1])
kind = lambda name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 64])
nodes = [helper.make_node("Tanh", ["x"], ["t"]), helper.make_node("Mul", ["t", "x"], ["y"])]
graph = helper.make_graph(nodes, "small", [kind("x")], [kind("y")])
save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), folder / "small.onnx")
model = st.compile(folder / "small.onnx", db=str(folder / "none.db"))
feeds = {"x": np.ones((8, 64), np.float32)}
for _ in range(2000):
    model(feeds)
taken = []
for _ in range(20000):
    start = time.perf_counter_ns()
    model(feeds)
    taken.append(time.perf_counter_ns() - start)
taken.sort()
print(taken[len(taken) // 2] / 1e9, taken[int(len(taken) * 0.99)] / 1e9)
"""

LOOKUP = """
import sys, time
from pathlib import Path
from stitchtune import pipeline
from stitchtune.results.database import Database
from stitchtune.results.lookup import find_all
from stitchtune.devices import resolve_target
from stitchtune.settings import Settings, cache_folder
settings = Settings(resolve_target(None), sys.argv[2], cache_folder())
_, parted = pipeline.read(Path(sys.argv[1]), {})
import sqlalchemy.dialects.sqlite, stitchtune.results.engine, stitchtune.results.queries, stitchtune.results.rows
from stitchtune.kernels import compile
from stitchtune.results import generator
start = time.perf_counter()
keys = [pipeline.make_key(part.subgraph, settings) for part in parted.components]
made = time.perf_counter()
found = find_all(Database.open(sys.argv[2]), keys, lambda wanted, plan, source: plan)
print(time.perf_counter() - start, made - start, len(found), sum(f.how == 'exact' for f in found))
"""


def run(code: str, *arguments: str) -> list[float]:
    """The numbers that `code` prints in a fresh process."""
    command = [sys.executable, "-c", code, *arguments]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT.parent).stdout
    return [float(word) for word in printed.split()]


def measure(graph: Path, database: str) -> dict[str, dict[str, float]]:
    """Seconds by figure, with the limit beside each."""
    imports = statistics.median(run(IMPORT)[0] for _ in range(7))
    with tempfile.TemporaryDirectory() as folder:
        calls = [run(CALL, folder) for _ in range(5)]
    lookups = [run(LOOKUP, str(graph), database) for _ in range(5)]
    return {
        "import stitchtune": {"seconds": imports, "limit": 0.3},
        "small call, median": {"seconds": statistics.median(c[0] for c in calls), "limit": 10e-6},
        "small call, 99th percentile": {"seconds": statistics.median(c[1] for c in calls), "limit": 10e-6},
        f"lookup of {int(lookups[0][2])} keys, {int(lookups[0][3])} found": {
            "seconds": statistics.median(x[0] for x in lookups),
            "limit": 0.05,
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("graph", type=Path)
    parser.add_argument("--db", default="")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    figures = measure(options.graph.resolve(), options.db or str(Path(tempfile.gettempdir()) / "stitchtune-none.db"))
    if options.json:
        print(json.dumps(figures))
        return
    for name, figure in figures.items():
        print(f"{name:30} {figure['seconds'] * 1e6:12.1f} us   (limit {figure['limit'] * 1e6:.0f} us)")


if __name__ == "__main__":
    main()
