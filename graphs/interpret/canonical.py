"""The reference for canonical subgraphs: values over axes, read through access maps, in float64.

It shares nothing with the lowering to loops but the meaning of a primitive: every value is a NumPy array over its own
axes, every read a view or a gather.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import InputError
from ..primitives import REDUCTIONS
from ..rounding import Array, Precision, narrow, settle_edge, wide, wide_scalar, widen
from ..subgraph import Read, Subgraph, Value
from .access import Fetch, filler, load, positions, resolve
from .blocks import blocks, piece
from .elementwise import apply, cast
from .reductions import reduce


def run_subgraph(sub: Subgraph, inputs: Sequence[Array], precision: Precision = "strict") -> list[Array]:
    """The outputs of `sub`, in `sub.outputs` order, each of `sub.shape(v)` and its own dtype, for `sub.inputs` arrays.

    Raises InputError when an input has another dtype or shape than the subgraph says, or a gathered index is out of
    range.
    """
    arrays = wide_values(sub, inputs, precision)
    return [narrow(np.broadcast_to(arrays[v], sub.shape(v)), sub.values[v].dtype) for v in sub.outputs]


def wide_values(sub: Subgraph, inputs: Sequence[Array], precision: Precision) -> dict[int, Array]:
    """The outputs of `sub` by value number: wide, compact (broadcasting to their shape), not yet rounded by `fast`."""
    arrays = bind_inputs(sub, inputs)
    last = last_uses(sub)
    for number, value in enumerate(sub.values):
        if not value.is_input:
            arrays[number] = _evaluate(sub, value, arrays.__getitem__, precision)
        for done in last.get(number, ()):
            del arrays[done]
    return arrays


def bind_inputs(sub: Subgraph, inputs: Sequence[Array]) -> dict[int, Array]:
    """Input arrays, checked and widened, by value number."""
    if len(inputs) != len(sub.inputs):
        raise InputError(f"the subgraph takes {len(sub.inputs)} inputs, not {len(inputs)}")
    arrays = {}
    for number, array in zip(sub.inputs, inputs, strict=True):
        dtype = sub.values[number].dtype
        if array.dtype != dtype.numpy or array.shape != sub.shape(number):
            want = f"{dtype.value}{list(sub.shape(number))}"
            raise InputError(f"input value {number} is {array.dtype}{list(array.shape)}, not {want}")
        arrays[number] = widen(array, dtype)
    return arrays


def last_uses(sub: Subgraph) -> dict[int, list[int]]:
    """For each value, the values (no outputs) that nothing after it needs."""
    found: dict[int, list[int]] = {}
    for number, readers in sub.consumers().items():
        if number not in sub.outputs:
            found.setdefault(max(readers, default=number), []).append(number)
    return found


def operand(sub: Subgraph, value: Value, read: Read, fetch: Fetch) -> Array:
    """What `read` gives over the domain of `value`, compact."""
    return load(fetch(read.value), resolve(read, value.domain, sub, fetch), filler(sub, read))


def piecewise(sub: Subgraph, value: Value, fetch: Fetch) -> Array:
    """The first read whose bounds hold, over the axes of `value`."""
    chosen: Array | None = None
    for read in reversed(value.reads):
        access = resolve(read, value.domain, sub, fetch)
        found = load(fetch(read.value), access)
        chosen = found if chosen is None or access.valid is None else np.where(access.valid, found, chosen)
    assert chosen is not None
    return chosen


def scalar(value: Value) -> Array:
    """The wide array of a `const` value, of no dimensions."""
    number = value.attr("value")
    assert isinstance(number, (bool, int, float))
    return wide_scalar(number, value.dtype)


def is_reduction(value: Value) -> bool:
    """Whether `value` reduces; its group of axes may be empty all the same."""
    return value.op in REDUCTIONS


def over_domain(sub: Subgraph, value: Value, array: Array) -> Array:
    """`array` (compact over the domain) with the reduced dimensions at full size, for reducing over them."""
    kept = len(value.axes)
    return np.broadcast_to(array, array.shape[:kept] + tuple(sub.extents[a] for a in value.reduce))


def _evaluate(sub: Subgraph, value: Value, fetch: Fetch, precision: Precision) -> Array:
    match value.op:
        case "const":
            return scalar(value)
        case "iota":
            assert value.position is not None
            result = cast(positions(value.position, value.domain, sub, fetch), value.dtype)
        case "piecewise":
            result = piecewise(sub, value, fetch)
        case _ if is_reduction(value):
            source = sub.values[value.reads[0].value].dtype
            full = over_domain(sub, value, operand(sub, value, value.reads[0], fetch))
            places = tuple(range(len(value.axes), full.ndim))
            result = reduce(value.op, full, places, source, bool(value.attr("select_last", False)))
        case _:
            return _elementwise(value, [operand(sub, value, read, fetch) for read in value.reads], precision)
    return settle_edge(result, value.dtype, precision)


def _elementwise(value: Value, operands: list[Array], precision: Precision) -> Array:
    shape = np.broadcast_shapes(*(o.shape for o in operands))
    result = np.empty(shape, wide(value.dtype))
    for cut in blocks(shape):
        found = apply(value.op, [piece(o, cut) for o in operands], value.dtype)
        result[cut] = settle_edge(found, value.dtype, precision)
    return result
