"""Tunes an exported graph through the Python API, then runs it, tuned and untuned.

usage: use_api.py GRAPH.onnx [SECONDS]      for example out/demo/bert_block.onnx after `make demo`
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import stitchtune as st
from stitchtune.feeds import synthetic
from stitchtune.graphs.onnx_reader import load


def main(path: Path, budget: float) -> None:
    feeds = synthetic(load(path)).arrays  # or your own: a dict of arrays by input name

    before = st.compile(path)
    first = before(feeds)
    result = st.tune(path, budget=budget, inputs=feeds)
    print(f"{result.measured} plans measured in {result.seconds:.0f} s")
    after = st.compile(path)
    second = after(feeds)

    for name in first:
        error = np.abs(first[name] - second[name]).max()
        print(f"{name}: largest difference between the two {error:.1e}")
    for label, model in (("heuristic plans", before), ("tuned plans", after)):
        started = time.perf_counter()
        for _ in range(10):
            model(feeds)
        print(f"{label}: {(time.perf_counter() - started) * 100:.2f} ms a call")
    print(after.report())


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 30.0)
