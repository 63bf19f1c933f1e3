"""Rules for losses."""

from __future__ import annotations

import math

from ..shapes import TypeMismatch
from .activation import log_softmax
from .call import Call, Rule


def _likelihood(c: Call, log_probabilities: str) -> str:
    """The negative log likelihood of the labels (operand 1) under [n, classes, ...] log probabilities.

    Weights per class (operand 2), an ignored label and the reduction as ONNX NegativeLogLikelihoodLoss defines them.
    """
    labels = c.input(1)
    shape = c.b.shape(labels)
    if len(c.shape()) < 2 or (c.shape()[0], *c.shape()[2:]) != shape:
        raise TypeMismatch(f"labels of shape {list(shape)} for scores of shape {list(c.shape())}")
    counted = ""
    if "ignore_index" in c.attrs:
        ignored = c.int_attr("ignore_index")
        counted = c.with_scalar("ne", labels, ignored)
        # An ignored label may lie outside the classes; nothing may be read there.
        labels = c.do("where", counted, labels, c.scalar(0, labels))
    at = c.b.reshape(labels, (shape[0], 1, *shape[1:]))
    picked = c.b.reshape(c.b.op("gather_elements", log_probabilities, at, axis=1), shape)
    loss = c.do("neg", picked)
    weight = c.b.op("gather", c.wide(c.input(2)), labels, axis=0) if c.has(2) else ""
    if weight:
        loss = c.do("mul", loss, weight)
    if counted:
        # By selection, not by a product: the loss at an ignored label may be infinite.
        loss = c.do("where", counted, loss, c.scalar(0, loss))
        weight = c.do("where", counted, weight or c.scalar(1, loss), c.scalar(0, loss))
    return _reduced(c, loss, weight)


def _reduced(c: Call, loss: str, weight: str) -> str:
    """The losses as they are, their sum, or their sum over the sum of the weights ("": each counts one)."""
    axes = tuple(range(len(c.b.shape(loss))))
    count = math.prod(c.b.shape(loss))
    match c.str_attr("reduction", "mean"):
        case "none":
            return loss
        case "sum":
            return c.b.reduce("sum", loss, axes)
        case "mean":
            total = c.b.reduce("sum", loss, axes)
            return c.do("div", total, c.b.reduce("sum", weight, axes) if weight else c.scalar(count, loss))
        case other:
            raise TypeMismatch(f"attribute reduction is {other!r}, not none, sum or mean")


def _negative_log_likelihood(c: Call) -> str:
    return c.b.cast(_likelihood(c, c.wide(c.input(0))), c.dtype())


def _softmax_cross_entropy(c: Call) -> tuple[str, ...]:
    log_probabilities = log_softmax(c, c.wide(c.input(0)), (1,))
    loss = c.b.cast(_likelihood(c, log_probabilities), c.dtype())
    return loss, c.b.cast(log_probabilities, c.dtype()) if c.wants(1) else ""


RULES: dict[str, Rule] = {
    "NegativeLogLikelihoodLoss": _negative_log_likelihood,
    "SoftmaxCrossEntropyLoss": _softmax_cross_entropy,
}
