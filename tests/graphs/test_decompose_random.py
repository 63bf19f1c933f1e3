"""Operators with many forms of parameters, drawn at random, against ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.graphs.onnx_models import ours, runtimes, single

Random = np.random.Generator
Drawn = tuple[str, list[Any], dict[str, Any]]
"""Operator, operands (all but the first become initializers), attributes (`outputs` and `opset` among them)."""


def shape_of(r: Random, low: int = 1, rank: int | None = None) -> tuple[int, ...]:
    return tuple(int(d) for d in r.integers(low, 6, rank or int(r.integers(1, 5))))


def data(r: Random, shape: tuple[int, ...]) -> Any:
    return r.integers(-50, 50, shape).astype(np.float32)


def i64(values: Any) -> Any:
    return np.array(values, np.int64)


def some_axes(r: Random, rank: int) -> list[int]:
    """Distinct axes in any order, some counted from the end."""
    axes = r.permutation(rank)[: int(r.integers(1, rank + 1))]
    return [int(a) - (rank if r.random() < 0.5 else 0) for a in axes]


def slices(r: Random) -> Drawn:
    x = data(r, shape_of(r))
    axes = some_axes(r, x.ndim)
    starts, ends = (i64(r.integers(-8, 9, len(axes))) for _ in range(2))
    steps = i64(r.choice([-3, -2, -1, 1, 2, 3], len(axes)))
    return "Slice", [x, starts, ends, i64(axes), steps], {}


def pads(r: Random) -> Drawn:
    x = data(r, shape_of(r, low=3))
    mode = str(r.choice(["constant", "edge", "reflect"]))
    least = 0 if mode == "reflect" else -1
    amounts = r.integers(least, 2, 2 * x.ndim)
    return "Pad", [x, i64(amounts)], {"mode": mode}


def splits(r: Random) -> Drawn:
    x = data(r, shape_of(r, low=2))
    axis = int(r.integers(-x.ndim, x.ndim))
    first = int(r.integers(0, x.shape[axis] + 1))
    return "Split", [x, i64([first, x.shape[axis] - first])], {"axis": axis, "outputs": 2}


def even_splits(r: Random) -> Drawn:
    x = data(r, shape_of(r, low=3))
    axis = int(r.integers(-x.ndim, x.ndim))
    count = int(r.integers(1, 4))
    # An empty last part is an error in ONNX Runtime.
    count = count if math.ceil(x.shape[axis] / count) * (count - 1) < x.shape[axis] else 1
    return "Split", [x], {"axis": axis, "num_outputs": count, "outputs": count}


def reshapes(r: Random) -> Drawn:
    x = data(r, shape_of(r, rank=4))
    order = list(x.shape)
    at = int(r.integers(0, 4))
    merged = [*order[:at], *([order[at] * order[at + 1]] if at < 3 else order[at:]), *order[at + 2 :]]
    target = [0 if i < at and r.random() < 0.5 else d for i, d in enumerate(merged)]
    if r.random() < 0.7:
        target[int(r.integers(at, len(target)))] = -1
    return "Reshape", [x, i64(target)], {}


def expands(r: Random) -> Drawn:
    x = data(r, tuple(d if r.random() < 0.5 else 1 for d in shape_of(r)))
    target = [d if d > 1 else int(r.integers(1, 5)) for d in x.shape]
    target = [d if r.random() < 0.7 else 1 for d in target]
    return "Expand", [x, i64([3, *target] if r.random() < 0.5 else target)], {}


def tiles(r: Random) -> Drawn:
    x = data(r, shape_of(r))
    return "Tile", [x, i64(r.integers(1, 4, x.ndim))], {}


def transposes(r: Random) -> Drawn:
    x = data(r, shape_of(r))
    return "Transpose", [x], {"perm": [int(p) for p in r.permutation(x.ndim)]}


def reductions(r: Random) -> Drawn:
    x = data(r, shape_of(r)) / 8
    op = str(r.choice(["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp"]))
    return op, [x, i64(some_axes(r, x.ndim))], {"keepdims": int(r.integers(0, 2))}


def squeezes(r: Random) -> Drawn:
    shape = list(shape_of(r, rank=4))
    ones = some_axes(r, 4)
    for axis in ones:
        shape[axis] = 1
    return "Squeeze", [data(r, tuple(shape)), i64(ones)], {}


def unsqueezes(r: Random) -> Drawn:
    ones = some_axes(r, 4)
    return "Unsqueeze", [data(r, shape_of(r, rank=4)[len(ones) :]), i64(ones)], {}


def gathers(r: Random) -> Drawn:
    x = data(r, shape_of(r))
    axis = int(r.integers(-x.ndim, x.ndim))
    size = x.shape[axis]
    return "Gather", [x, r.integers(-size, size, shape_of(r)[: int(r.integers(0, 3))])], {"axis": axis}


def softmaxes(r: Random) -> Drawn:
    x = data(r, shape_of(r)) / 4
    opset = int(r.choice([11, 13]))
    return str(r.choice(["Softmax", "LogSoftmax"])), [x], {"axis": int(r.integers(-x.ndim, x.ndim)), "opset": opset}


def layer_norms(r: Random) -> Drawn:
    x = data(r, shape_of(r, low=2))
    axis = int(r.integers(-x.ndim, x.ndim))
    return "LayerNormalization", [x, data(r, x.shape[axis:]), data(r, x.shape[axis:])], {"axis": axis}


DRAWS = [
    slices,
    pads,
    splits,
    even_splits,
    reshapes,
    expands,
    tiles,
    transposes,
    reductions,
    squeezes,
    unsqueezes,
    gathers,
    softmaxes,
    layer_norms,
]


@pytest.mark.parametrize("draw", DRAWS, ids=lambda draw: draw.__name__)
def test_random_parameters(draw: Callable[[Random], Drawn], tmp_path: Path) -> None:
    for seed in range(12):
        op, operands, attrs = draw(np.random.default_rng(seed))
        outputs, opset = attrs.pop("outputs", 1), attrs.pop("opset", 21)
        model, feeds = single(op, operands, outputs, opset, tuple(range(1, len(operands))), **attrs)
        for found, expected in zip(ours(model, feeds, tmp_path), runtimes(model, feeds), strict=True):
            assert found.shape == expected.shape, (seed, operands, attrs)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=f"{seed} {operands} {attrs}")
