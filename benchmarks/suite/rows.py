"""Softmaxes and what is made of them, and a reduction over columns."""

from __future__ import annotations

from ...graphs.builder import GraphBuilder
from ...graphs.dtypes import DType
from ...graphs.ir import Graph
from .parts import exponentials, number


def softmax(dtype: DType, rows: int, columns: int) -> Graph:
    b = GraphBuilder("softmax")
    _, power, total = exponentials(b, b.input("x", dtype, (rows, columns)), 1)
    b.output(b.elementwise("div", power, total))
    return b.build()


def log_softmax(dtype: DType, rows: int, columns: int) -> Graph:
    b = GraphBuilder("log_softmax")
    shifted, _, total = exponentials(b, b.input("x", dtype, (rows, columns)), 1)
    b.output(b.elementwise("sub", shifted, b.elementwise("log", total)))
    return b.build()


def masked_softmax(dtype: DType, batch: int, heads: int, queries: int, keys: int) -> Graph:
    """Softmax of scaled scores, those of masked keys pushed far down: between the two products of attention."""
    b = GraphBuilder("masked_softmax")
    scores = b.input("scores", dtype, (batch, heads, queries, keys))
    mask = b.input("mask", dtype, (batch, 1, 1, keys))
    scaled = b.elementwise("mul", scores, number(b, 0.125, scores))
    away = b.elementwise("mul", b.elementwise("sub", number(b, 1.0, mask), mask), number(b, -10000.0, mask))
    _, power, total = exponentials(b, b.elementwise("add", scaled, away), 3)
    b.output(b.elementwise("div", power, total))
    return b.build()


def cross_entropy(dtype: DType, rows: int, classes: int) -> Graph:
    """Mean cross-entropy of logits with integer labels."""
    b = GraphBuilder("cross_entropy")
    _loss(b, dtype, rows, classes)
    return b.build()


def cross_entropy_backward(dtype: DType, rows: int, classes: int) -> Graph:
    """The same with the gradient by the logits."""
    b = GraphBuilder("cross_entropy_backward")
    labels, power, total = _loss(b, dtype, rows, classes)
    positions = b.op("iota", axis=1, sizes=(1, classes), dtype=DType.I64)
    hot = b.cast(b.elementwise("eq", labels, positions), dtype)
    gradient = b.elementwise("sub", b.elementwise("div", power, total), hot)
    b.output(b.elementwise("div", gradient, number(b, float(rows), gradient)))
    return b.build()


def _loss(b: GraphBuilder, dtype: DType, rows: int, classes: int) -> tuple[str, str, str]:
    """Adds the loss as an output; the labels as a column, exponentials and their sums."""
    logits, labels = b.input("logits", dtype, (rows, classes)), b.input("labels", DType.I64, (rows,))
    shifted, power, total = exponentials(b, logits, 1)
    column = b.reshape(labels, (rows, 1))
    picked = b.op("gather_elements", shifted, column, axis=1)
    losses = b.elementwise("sub", b.elementwise("log", total), picked)
    b.output(b.elementwise("div", b.reduce("sum", losses, (0, 1)), number(b, float(rows), losses)))
    return column, power, total


def dien_attention(dtype: DType, batch: int, length: int, size: int) -> Graph:
    """Attention of one query over a history: scores by products, masked softmax along the history, weighted sum."""
    b = GraphBuilder("dien_attention")
    query, history = b.input("query", dtype, (batch, 1, size)), b.input("history", dtype, (batch, length, size))
    mask = b.input("mask", dtype, (batch, length, 1))
    scores = b.reduce("sum", b.elementwise("mul", query, history), (2,), keepdims=True)
    away = b.elementwise("mul", b.elementwise("sub", mask, number(b, 1.0, mask)), number(b, 10000.0, mask))
    _, power, total = exponentials(b, b.elementwise("add", scores, away), 1)
    weighted = b.elementwise("mul", b.elementwise("div", power, total), history)
    b.output(b.reduce("sum", weighted, (1,)))
    return b.build()


def column_sum(dtype: DType, rows: int, columns: int) -> Graph:
    """Sums of columns: the gradient of a bias."""
    b = GraphBuilder("column_sum")
    b.output(b.reduce("sum", b.input("x", dtype, (rows, columns)), (0,)))
    return b.build()
