"""The eight subgraphs whose plans are written down as fixtures (DESIGN.md 3.3), as tensor-level graphs.

Sizes are small and mostly no multiples of a vector, so that every tail runs.
"""

from __future__ import annotations

from collections.abc import Callable

from stitchtune.graphs.builder import GraphBuilder
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.ir import Graph

F32 = DType.F32


def _mean(b: GraphBuilder, x: str, axes: tuple[int, ...], keepdims: bool = True) -> str:
    count = 1
    for axis in axes:
        count *= b.shape(x)[axis]
    return b.elementwise("div", b.reduce("sum", x, axes, keepdims), b.scalar(float(count), F32))


def layer_norm_backward() -> Graph:
    """dx [rows, columns], dgamma and dbeta [columns] of layer norm: reductions over rows and over columns at once."""
    rows, columns = 1031, 200
    b = GraphBuilder("layer_norm_backward")
    dy, xhat = b.input("dy", F32, (rows, columns)), b.input("xhat", F32, (rows, columns))
    gamma, rstd = b.input("gamma", F32, (columns,)), b.input("rstd", F32, (rows, 1))
    scaled = b.elementwise("mul", dy, gamma)
    first = _mean(b, scaled, (1,))
    second = _mean(b, b.elementwise("mul", scaled, xhat), (1,))
    centred = b.elementwise("sub", scaled, first)
    dx = b.elementwise("mul", b.elementwise("sub", centred, b.elementwise("mul", xhat, second)), rstd)
    b.output(dx)
    b.output(b.reduce("sum", b.elementwise("mul", dy, xhat), (0,)))
    b.output(b.reduce("sum", dy, (0,)))
    return b.build()


def split_softmax() -> Graph:
    """Softmax of two rows, each so long that it is split over tasks."""
    b = GraphBuilder("split_softmax")
    x = b.input("x", F32, (2, 100_003))
    shifted = b.elementwise("sub", x, b.reduce("max", x, (1,), keepdims=True))
    e = b.elementwise("exp", shifted)
    b.output(b.elementwise("div", e, b.reduce("sum", e, (1,), keepdims=True)))
    return b.build()


def batch_norm_training() -> Graph:
    """Batch norm in training mode on NCHW, with the running statistics updated."""
    n, c, h, w = 4, 10, 7, 9
    b = GraphBuilder("batch_norm_training")
    x = b.input("x", F32, (n, c, h, w))
    scale, bias = b.input("scale", F32, (c,)), b.input("bias", F32, (c,))
    old = b.input("running_mean", F32, (c,)), b.input("running_var", F32, (c,))
    axes = (0, 2, 3)
    mean = _mean(b, x, axes)
    centred = b.elementwise("sub", x, mean)
    variance = _mean(b, b.elementwise("mul", centred, centred), axes)
    root = b.elementwise("sqrt", b.elementwise("add", variance, b.scalar(1e-5, F32)))
    normal = b.elementwise("div", centred, root)
    wide = (1, c, 1, 1)
    y = b.elementwise("add", b.elementwise("mul", normal, b.reshape(scale, wide)), b.reshape(bias, wide))
    b.output(y)
    for before, now in zip(old, (mean, variance), strict=True):
        kept = b.elementwise("mul", before, b.scalar(0.9, F32))
        b.output(b.elementwise("add", kept, b.elementwise("mul", b.reshape(now, (c,)), b.scalar(0.1, F32))))
    return b.build()


def cross_entropy() -> Graph:
    """Mean cross-entropy of logits [rows, classes] with integer labels, and its gradient by the logits."""
    rows, classes = 96, 1031
    b = GraphBuilder("cross_entropy")
    logits, labels = b.input("logits", F32, (rows, classes)), b.input("labels", DType.I64, (rows,))
    shifted = b.elementwise("sub", logits, b.reduce("max", logits, (1,), keepdims=True))
    e = b.elementwise("exp", shifted)
    total = b.reduce("sum", e, (1,), keepdims=True)
    log_probability = b.elementwise("sub", shifted, b.elementwise("log", total))
    picked = b.op("gather_elements", log_probability, b.reshape(labels, (rows, 1)), axis=1)
    b.output(b.elementwise("neg", _mean(b, picked, (0, 1), keepdims=False)))
    hot = b.elementwise("eq", b.reshape(labels, (rows, 1)), b.op("iota", axis=1, sizes=(1, classes), dtype=DType.I64))
    gradient = b.elementwise("sub", b.elementwise("div", e, total), b.cast(hot, F32))
    b.output(b.elementwise("div", gradient, b.scalar(float(rows), F32)))
    return b.build()


def _sigmoid(b: GraphBuilder, x: str) -> str:
    return b.elementwise(
        "recip", b.elementwise("add", b.elementwise("exp", b.elementwise("neg", x)), b.scalar(1.0, F32))
    )


def lstm_cell() -> Graph:
    """The pointwise part of an LSTM cell: gates split in four, new cell and hidden state."""
    batch, hidden = 24, 100
    b = GraphBuilder("lstm_cell")
    gates = b.elementwise(
        "add", b.input("x_gates", F32, (batch, 4 * hidden)), b.input("h_gates", F32, (batch, 4 * hidden))
    )
    cell = b.input("cell", F32, (batch, hidden))
    i, o, f, g = (b.slice(gates, 1, k * hidden, hidden) for k in range(4))
    kept = b.elementwise("mul", _sigmoid(b, f), cell)
    new = b.elementwise("add", kept, b.elementwise("mul", _sigmoid(b, i), b.elementwise("tanh", g)))
    b.output(new)
    b.output(b.elementwise("mul", _sigmoid(b, o), b.elementwise("tanh", new)))
    return b.build()


def rotary() -> Graph:
    """Rotary embedding of [batch, heads, length, size]: halves rotated against each other, then joined."""
    batch, heads, length, size = 2, 3, 33, 32
    b = GraphBuilder("rotary")
    x = b.input("x", F32, (batch, heads, length, size))
    cos, sin = b.input("cos", F32, (length, size // 2)), b.input("sin", F32, (length, size // 2))
    low, high = b.slice(x, 3, 0, size // 2), b.slice(x, 3, size // 2, size // 2)
    first = b.elementwise("sub", b.elementwise("mul", low, cos), b.elementwise("mul", high, sin))
    second = b.elementwise("add", b.elementwise("mul", high, cos), b.elementwise("mul", low, sin))
    b.output(b.op("concat", first, second, axis=3))
    return b.build()


def rms_norm() -> Graph:
    """Residual sum, then RMSNorm; both are outputs."""
    rows, columns = 129, 320
    b = GraphBuilder("rms_norm")
    total = b.elementwise("add", b.input("x", F32, (rows, columns)), b.input("residual", F32, (rows, columns)))
    square = _mean(b, b.elementwise("mul", total, total), (1,))
    root = b.elementwise("sqrt", b.elementwise("add", square, b.scalar(1e-6, F32)))
    b.output(total)
    b.output(b.elementwise("mul", b.elementwise("div", total, root), b.input("weight", F32, (columns,))))
    return b.build()


def bias_transposes() -> Graph:
    """Three independent bias + transpose of different shapes: one kernel by the independent scheme."""
    b = GraphBuilder("bias_transposes")
    for k, (length, heads, size) in enumerate(((33, 4, 16), (17, 2, 24), (65, 3, 8))):
        x = b.input(f"x{k}", F32, (length, heads * size))
        y = b.elementwise("add", x, b.input(f"b{k}", F32, (heads * size,)))
        perm = (1, 2, 0) if k == 1 else (1, 0, 2)
        b.output(b.transpose(b.reshape(y, (length, heads, size)), perm))
    return b.build()


SUBJECTS: dict[str, Callable[[], Graph]] = {
    make.__name__: make
    for make in (
        layer_norm_backward,
        split_softmax,
        batch_norm_training,
        cross_entropy,
        lstm_cell,
        rotary,
        rms_norm,
        bias_transposes,
    )
}
