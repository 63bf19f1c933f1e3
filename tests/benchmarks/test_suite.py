"""The suite's subjects mean what their names say, and are one component each, the same at both sizes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from stitchtune.benchmarks.suite import SUITE, subject
from stitchtune.benchmarks.suite.subject import Sizes, Subject, canonical, component, inputs
from stitchtune.graphs.interpret import run_subgraph
from stitchtune.search_space.devices import device_target

Array = NDArray[Any]
NAMES = [s.name for s in SUITE]
H200, T4 = device_target("cuda:h200"), device_target("cuda:t4")


@pytest.mark.parametrize("name", NAMES)
def test_a_subject_is_one_component_with_one_structure(name: str) -> None:
    one = subject(name)
    whole, small = (canonical(one.graph(sizes)) for sizes in (one.sizes, one.small))
    shapes = [sorted((v.op, len(v.axes), len(v.reduce), len(v.reads)) for v in s.values) for s in (whole, small)]
    assert shapes[0] == shapes[1]


def test_every_row_is_as_long_when_emulated() -> None:
    assert [s.name for s in SUITE if any(s.sizes[i] != s.small[i] for i in s.row)] == []
    assert subject("SwiGLU").cut == "2048 -> 512"


def test_what_fits_on_chip() -> None:
    fits = {s.name: s.fits(s.sizes, H200) for s in SUITE}
    assert {n for n, fit in fits.items() if fit == "streams"} == {
        "bias + GELU",
        "Adam",
        "GRU gates",
        "LSTM gates",
        "SwiGLU",
        "column sum",
    }
    assert fits["softmax 2x2097152"] == "split row"
    assert fits["softmax 64x30000"] == "row"
    batch_norm = subject("batch norm training")
    assert batch_norm.row_bytes(batch_norm.sizes) == 32 * 28 * 28 * 4
    assert batch_norm.fits((256, 256, 56, 56), H200) == "no"
    assert subject("softmax 2x2097152").fits((2, 2_097_152), T4) == "no"


# --- what they compute, in NumPy


def normal(x: Array, axes: tuple[int, ...], eps: float) -> Array:
    return np.asarray((x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps))


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return np.asarray(e / e.sum(axis, keepdims=True))


def batch_norm(x: Array, scale: Array, bias: Array, mean: Array, variance: Array) -> list[Array]:
    axes, wide = (0, 2, 3), (1, -1, 1, 1)
    y = normal(x, axes, 1e-5) * scale.reshape(wide) + bias.reshape(wide)
    return [np.maximum(y, 0), 0.9 * mean + 0.1 * x.mean(axes), 0.9 * variance + 0.1 * x.var(axes)]


def layer_norm_backward(dy: Array, normal: Array, scale: Array, inverse: Array) -> list[Array]:
    g = dy * scale
    dx = (g - g.mean(1, keepdims=True) - normal * (g * normal).mean(1, keepdims=True)) * inverse
    return [dx, (dy * normal).sum(0), dy.sum(0)]


def cross_entropy(logits: Array, labels: Array) -> list[Array]:
    chosen = np.log(softmax(logits))[np.arange(len(labels)), labels]
    return [np.asarray(-chosen.mean())]


def cross_entropy_backward(logits: Array, labels: Array) -> list[Array]:
    gradient = softmax(logits) - (labels[:, None] == np.arange(logits.shape[1]))
    return [*cross_entropy(logits, labels), gradient / len(labels)]


def rms_norm_rotary(x: Array, weight: Array, cos: Array, sin: Array) -> list[Array]:
    y = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight
    (low, high), c, s = np.split(y, 2, -1), cos[:, None], sin[:, None]
    return [np.concatenate([low * c - high * s, high * c + low * s], -1)]


def group_norm(x: Array, scale: Array, bias: Array) -> list[Array]:
    y = normal(x.reshape(x.shape[0], 2, -1), (2,), 1e-5).reshape(x.shape)
    y = y * scale.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)
    return [y * sigmoid(y)]


def adam(p: Array, g: Array, m: Array, v: Array, rate: Array, correction: Array) -> list[Array]:
    first, second = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return [p - rate * first / (np.sqrt(second * correction) + 1e-8), first, second]


def lstm_gates(x: Array, h: Array, cell: Array) -> list[Array]:
    i, o, f, g = np.split(x + h, 4, -1)
    new = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
    return [new, sigmoid(o) * np.tanh(new)]


def gru_gates(x: Array, h: Array, state: Array) -> list[Array]:
    (xr, xz, xn), (hr, hz, hn) = np.split(x, 3, -1), np.split(h, 3, -1)
    new, update = np.tanh(xn + sigmoid(xr + hr) * hn), sigmoid(xz + hz)
    return [(1 - update) * new + update * state]


def dien_attention(query: Array, history: Array, mask: Array) -> list[Array]:
    scores = (query * history).sum(2, keepdims=True) - 10_000.0 * (1 - mask)
    return [(softmax(scores, 1) * history).sum(1)]


def bias_gelu(x: Array, bias: Array) -> list[Array]:
    erf = np.vectorize(math.erf, otypes=[float])
    return [0.5 * (x + bias) * (1 + erf((x + bias) / np.sqrt(2)))]


def swiglu(x: Array) -> list[Array]:
    gate, up = np.split(x, 2, -1)
    return [gate * sigmoid(gate) * up]


MEANINGS: dict[str, tuple[Sizes, Callable[..., list[Array]]]] = {
    "residual + layer norm": ((5, 24), lambda x, r, s, b: [normal(x + r, (1,), 1e-5) * s + b]),
    "masked softmax": ((2, 3, 4, 8), lambda x, mask: [softmax(0.125 * x - 10_000.0 * (1 - mask))]),
    "bias + GELU": ((4, 9), bias_gelu),
    "log-softmax": ((4, 33), lambda x: [np.log(softmax(x))]),
    "batch norm training": ((3, 4, 5, 2), batch_norm),
    "layer norm backward": ((7, 12), layer_norm_backward),
    "Adam": ((31,), adam),
    "cross-entropy": ((5, 17), cross_entropy),
    "cross-entropy backward": ((5, 17), cross_entropy_backward),
    "DIEN attention": ((3, 10, 6), dien_attention),
    "GRU gates": ((3, 8), gru_gates),
    "LSTM gates": ((3, 8), lstm_gates),
    "RMSNorm + rotary": ((2, 3, 2, 16), rms_norm_rotary),
    "SwiGLU": ((3, 20), swiglu),
    "group norm": ((2, 2, 3, 4, 5), group_norm),
    "column sum": ((9, 6), lambda x: [x.sum(0)]),
    "softmax 750000x32": ((6, 32), lambda x: [softmax(x)]),
    "softmax 64x30000": ((3, 300), lambda x: [softmax(x)]),
    "softmax 2x2097152": ((2, 2048), lambda x: [softmax(x)]),
}


def test_every_subject_has_its_meaning() -> None:
    assert list(MEANINGS) == NAMES


@pytest.mark.parametrize("name", MEANINGS)
def test_a_subject_computes_what_its_name_says(name: str) -> None:
    one: Subject = subject(name)
    sizes, meaning = MEANINGS[name]
    graph = one.graph(sizes)
    given, part = inputs(one, graph, seed=3), component(graph)
    named = {n: a.reshape(graph.types[n].shape) for n, a in zip(part.inputs, given, strict=True)}
    wide = [named[n].astype(np.float64) if named[n].dtype.kind == "f" else named[n] for n in graph.inputs]
    results = dict(zip(part.outputs, run_subgraph(part.subgraph, given), strict=True))
    near = (4e-3, 4e-3) if one.dtype.size == 2 else (2e-5, 2e-6)
    for output, want in zip(graph.outputs, meaning(*wide), strict=True):
        assert np.allclose(results[output].reshape(want.shape).astype(np.float64), want, *near), output
