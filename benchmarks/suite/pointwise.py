"""Elementwise subjects: activations, gates of recurrent cells, an optimiser's step."""

from __future__ import annotations

from ...graphs.builder import GraphBuilder
from ...graphs.dtypes import DType
from ...graphs.ir import Graph
from .parts import F32, number, sigmoid


def bias_gelu(dtype: DType, rows: int, columns: int) -> Graph:
    """GELU of x + bias, by the error function."""
    b = GraphBuilder("bias_gelu")
    x = b.elementwise("add", b.input("x", dtype, (rows, columns)), b.input("bias", dtype, (columns,)))
    error = b.elementwise("erf", b.elementwise("mul", x, number(b, 0.7071067811865476, x)))
    share = b.elementwise("mul", b.elementwise("add", error, number(b, 1.0, x)), number(b, 0.5, x))
    b.output(b.elementwise("mul", x, share))
    return b.build()


def swiglu(dtype: DType, rows: int, columns: int) -> Graph:
    """SiLU of the first half of each row times the second half."""
    b = GraphBuilder("swiglu")
    x = b.cast(b.input("x", dtype, (rows, 2 * columns)), F32)
    gate, up = b.slice(x, 1, 0, columns), b.slice(x, 1, columns, columns)
    b.output(b.cast(b.elementwise("mul", b.elementwise("mul", gate, sigmoid(b, gate)), up), dtype))
    return b.build()


def adam(dtype: DType, size: int) -> Graph:
    """One step of Adam (Kingma and Ba 2015, algorithm 1): new parameters and both moments."""
    b = GraphBuilder("adam")
    p, g, m, v = (b.input(name, dtype, (size,)) for name in ("parameters", "gradient", "first", "second"))
    rate, correction = b.input("rate", dtype, ()), b.input("correction", dtype, ())
    first = b.elementwise("add", _times(b, m, 0.9), _times(b, g, 0.1))
    second = b.elementwise("add", _times(b, v, 0.999), _times(b, b.elementwise("mul", g, g), 0.001))
    root = b.elementwise("add", b.elementwise("sqrt", b.elementwise("mul", second, correction)), number(b, 1e-8, p))
    b.output(b.elementwise("sub", p, b.elementwise("div", b.elementwise("mul", rate, first), root)))
    b.output(first)
    b.output(second)
    return b.build()


def _times(b: GraphBuilder, x: str, factor: float) -> str:
    return b.elementwise("mul", x, number(b, factor, x))


def lstm_gates(dtype: DType, batch: int, hidden: int) -> Graph:
    """The pointwise part of an LSTM cell: gates split in four, new cell and hidden state."""
    b = GraphBuilder("lstm_gates")
    shape = (batch, 4 * hidden)
    gates = b.elementwise("add", b.input("x_gates", dtype, shape), b.input("h_gates", dtype, shape))
    cell = b.input("cell", dtype, (batch, hidden))
    i, o, f, g = (b.slice(gates, 1, k * hidden, hidden) for k in range(4))
    kept = b.elementwise("mul", sigmoid(b, f), cell)
    new = b.elementwise("add", kept, b.elementwise("mul", sigmoid(b, i), b.elementwise("tanh", g)))
    b.output(new)
    b.output(b.elementwise("mul", sigmoid(b, o), b.elementwise("tanh", new)))
    return b.build()


def gru_gates(dtype: DType, batch: int, hidden: int) -> Graph:
    """The pointwise part of a GRU cell (Cho et al. 2014; the reset gate behind the product, as cuDNN has it)."""
    b = GraphBuilder("gru_gates")
    shape = (batch, 3 * hidden)
    x, h = b.input("x_gates", dtype, shape), b.input("h_gates", dtype, shape)
    state = b.input("state", dtype, (batch, hidden))
    (xr, xz, xn), (hr, hz, hn) = ([b.slice(t, 1, k * hidden, hidden) for k in range(3)] for t in (x, h))
    reset = sigmoid(b, b.elementwise("add", xr, hr))
    update = sigmoid(b, b.elementwise("add", xz, hz))
    new = b.elementwise("tanh", b.elementwise("add", xn, b.elementwise("mul", reset, hn)))
    b.output(b.elementwise("add", new, b.elementwise("mul", update, b.elementwise("sub", state, new))))
    return b.build()
