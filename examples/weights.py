"""Writes the weight file that an exported graph without weights refers to, and a copy of the graph beside it.

usage: weights.py GRAPH.onnx OUT_DIR [--seed N]      needs: numpy, onnx

The values are random: matrices as BERT is initialised (normal, deviation 0.02), vectors near 1 where the name says
that they scale a norm, else near 0. They are for tuning and comparing, not for accuracy.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

import numpy as np
import onnx


def write_weights(graph: Path, folder: Path, seed: int = 0) -> Path:
    """The path of the copied graph, usable once this returns. Files that stand already are written anew, the same."""
    model = onnx.load(graph, load_external_data=False)
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for tensor in model.graph.initializer:
        place = {entry.key: entry.value for entry in tensor.external_data}
        if not place:
            continue
        values = 0.02 * rng.standard_normal(tuple(tensor.dims), dtype=np.float32)
        if len(tensor.dims) == 1 and "norm" in tensor.name and tensor.name.endswith("weight"):
            values += 1
        file = folder / place["location"]
        with file.open("r+b" if file.exists() else "w+b") as stream:
            stream.seek(int(place["offset"]))
            stream.write(values.tobytes())
    return Path(shutil.copy(graph, folder / graph.name))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("graph", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    print(write_weights(given.graph, given.folder, given.seed))
