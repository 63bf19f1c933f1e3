"""Whether a kernel's outputs are right: compared with the reference under a bound computed for every element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .dtypes import DType
from .interpret.blocks import blocks, piece
from .interpret.bounded import Bounded, bounded_values
from .interpret.propagate import distance
from .rounding import Array, Precision, widen
from .subgraph import Subgraph

EXCLUDED_LIMIT = 1e-3
"""Largest part of all output elements that may be left out of the comparison."""


@dataclass(frozen=True)
class CheckResult:
    """The outcome of one comparison.

    ok          every compared element of every output lies within its bound, and not too many were left out
    worst       largest error over its bound (infinite where an exact result differs, or NaN or infinity is elsewhere)
    excluded    elements left out because a comparison, a cast to an integer or an ArgMax lies within error of flipping
    elements    elements of all outputs
    comparable  False when more than 0.1 % (and more than one) were left out: the inputs' doing, not the kernel's
    message   one line on the worst element, or "" when ok
    """

    ok: bool
    worst: float
    excluded: int
    elements: int
    comparable: bool
    message: str = ""


def check_outputs(
    sub: Subgraph, inputs: Sequence[Array], outputs: Sequence[Array], precision: Precision = "strict"
) -> CheckResult:
    """Compares `outputs`, in `sub.outputs` order and of their own types, with the reference on the same `inputs`.

    Raises InputError when inputs do not fit; an output of another shape or type is a failed check.
    """
    return compare(expect(sub, inputs, precision), outputs)


@dataclass(frozen=True, eq=False)
class Expected:
    """The right outputs of a subgraph at some inputs, by value number, each element with its bound.

    undefined  a cast met a number that its integer type cannot hold
    """

    sub: Subgraph
    outputs: Mapping[int, Bounded]
    undefined: bool


def expect(sub: Subgraph, inputs: Sequence[Array], precision: Precision = "strict") -> Expected:
    """What many kernels of one subgraph are compared with. Raises InputError when inputs do not fit."""
    outputs, undefined = bounded_values(sub, inputs, precision)
    return Expected(sub, outputs, undefined.seen)


def compare(expected: Expected, outputs: Sequence[Array]) -> CheckResult:
    """Compares `outputs`, in `sub.outputs` order and of their own types; another shape or type is a failed check."""
    sub = expected.sub
    worst, message, excluded, elements = 0.0, "", 0, 0
    for i, (number, got) in enumerate(zip(sub.outputs, outputs, strict=True)):
        dtype, shape = sub.values[number].dtype, sub.shape(number)
        if got.shape != shape or got.dtype != dtype.numpy:
            wrong = f"output {i} is {got.dtype}{list(got.shape)}, not {dtype.value}{list(shape)}"
            return CheckResult(False, np.inf, excluded, elements, True, wrong)
        ratio, at, left_out = _worst(expected.outputs[number], got, dtype)
        excluded += left_out
        elements += got.size
        if ratio > worst:
            worst = ratio
            if worst > 1.0:
                want = np.broadcast_to(expected.outputs[number].data, shape)[at]
                place = ",".join(str(p) for p in at)
                message = f"output {i}[{place}] is {got[at]}, not {want} ({worst:.3g} times the allowed error)"
    comparable = expected.undefined or not excluded or (excluded <= max(EXCLUDED_LIMIT * elements, 1) and elements > 1)
    if worst <= 1.0 and not comparable:
        message = f"{excluded} of {elements} elements lie too close to a flip to be compared"
    return CheckResult(not message, worst, excluded, elements, comparable, message)


def error_ratio(expected: Bounded, got: Array) -> tuple[Array, int]:
    """Error over bound for every element of a wide array, 0 where not comparable; and how many are not."""
    gap = distance(got, np.broadcast_to(expected.data, got.shape))
    if expected.error is None:
        return np.where(gap > 0, np.inf, 0.0), 0
    bound = np.broadcast_to(expected.error, got.shape)
    with np.errstate(all="ignore"):
        ratio = gap / bound
    comparable = bound < np.inf
    count = int(np.count_nonzero(comparable))
    if count == got.size and bound.all():
        return ratio, 0
    return np.where(comparable & (gap > 0), ratio, 0.0), got.size - count


def _worst(expected: Bounded, got: Array, dtype: DType) -> tuple[float, tuple[int, ...], int]:
    """The largest `error_ratio` of an output of type `dtype`, its index, and how many elements are not comparable."""
    worst, excluded = 0.0, 0
    at: tuple[int, ...] = ()
    for cut in blocks(got.shape):
        error = None if expected.error is None else piece(expected.error, cut)
        ratio, left_out = error_ratio(Bounded(piece(expected.data, cut), error), widen(got[cut], dtype))
        excluded += left_out
        if ratio.size and ratio.max() > worst:
            inside = np.unravel_index(int(ratio.argmax()), ratio.shape)
            worst = float(ratio[inside])
            at = tuple((c.start or 0) + int(i) for c, i in zip(cut, inside, strict=True))
    return worst, at, excluded
