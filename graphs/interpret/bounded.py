"""The reference for canonical subgraphs once more, with a bound on a kernel's error beside every value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..dtypes import DType
from ..primitives import COMPARISONS
from ..rounding import Array, Precision, round_to, settle, wide
from ..subgraph import Read, Subgraph, Value, all_reads
from .access import Access, load, positions, resolve
from .blocks import blocks, piece
from .canonical import bind_inputs, is_reduction, last_uses, operand, over_domain, scalar
from .elementwise import apply, cast
from .propagate import EXACT, Error, casting, either, out_of_range, rounded, roundoff, spread, spread_reduction
from .reductions import reduce


@dataclass(frozen=True)
class Bounded:
    """A wide, compact array and the bound on a kernel's absolute error (see propagate)."""

    data: Array
    error: Error = None


Lookup = Callable[[int], Bounded]


@dataclass
class Undefined:
    """Whether a cast met a number that the integer type cannot hold: its result has no right value."""

    seen: bool = False


def bounded_values(
    sub: Subgraph, inputs: Sequence[Array], precision: Precision
) -> tuple[dict[int, Bounded], Undefined]:
    """The outputs of `sub` by value number, rounded as stored. Inputs and errors as run_subgraph."""
    values = {v: Bounded(array) for v, array in bind_inputs(sub, inputs).items()}
    undefined = Undefined()
    outputs = {}
    last = last_uses(sub)
    for number, value in enumerate(sub.values):
        if not value.is_input:
            values[number] = _evaluate(sub, value, values.__getitem__, undefined, precision)
        if number in sub.outputs:
            outputs[number] = _stored(values[number], value.dtype)
            if precision == "fast" and value.dtype.is_low_precision:
                values[number] = _either_way(values[number], outputs[number])
        for done in last.get(number, ()):
            del values[done]
    return outputs, undefined


def _edge(raw: Bounded, value: Value, precision: Precision) -> Bounded:
    """A computed value as its readers see it."""
    if not value.dtype.is_float or (value.op in EXACT and not value.dtype.is_low_precision):
        return raw
    if value.dtype.is_low_precision and precision == "strict":
        return _stored(raw, value.dtype)
    settled = settle(raw.data, value.dtype)
    return Bounded(settled, out_of_range(raw.error, raw.data, settled, value.dtype))


def _stored(value: Bounded, dtype: DType) -> Bounded:
    """A value rounded to its own type; float32 keeps its precision, the bound holds its rounding."""
    if not dtype.is_low_precision:
        return value
    data = round_to(value.data, dtype)
    return Bounded(data, rounded(value.error, value.data, data, dtype))


def _either_way(value: Bounded, stored: Bounded) -> Bounded:
    """An output that `fast` rounds when it is stored: its readers may take it rounded or not."""
    with np.errstate(all="ignore"):
        gap = np.abs(stored.data - value.data)
    gap = np.where(np.isnan(gap), 0.0, gap)
    return Bounded(value.data, gap + sum(e for e in (value.error, stored.error) if e is not None))


def _evaluate(sub: Subgraph, value: Value, get: Lookup, undefined: Undefined, precision: Precision) -> Bounded:
    if value.op == "const":
        return Bounded(scalar(value))
    if value.op == "iota":
        assert value.position is not None
        at = positions(value.position, value.domain, sub, lambda v: get(v).data)
        y, doubt = cast(at, value.dtype), _doubt(sub, value, all_reads(value), get)
        return _edge(Bounded(y, roundoff("iota", [at], doubt, y, value.dtype)), value, precision)
    if value.op == "piecewise":
        return _piecewise(sub, value, get)
    operands = [_operand(sub, value, read, get) for read in value.reads]
    if not is_reduction(value):
        return _by_blocks(lambda part: _edge(_elementwise(value, part, undefined), value, precision), operands, value)
    source = sub.values[value.reads[0].value].dtype
    error = operands[0].error
    full = Bounded(over_domain(sub, value, operands[0].data), None if error is None else over_domain(sub, value, error))
    return _by_blocks(lambda part: _edge(_reduction(value, source, *part), value, precision), [full], value)


def _by_blocks(compute: Callable[[list[Bounded]], Bounded], operands: list[Bounded], value: Value) -> Bounded:
    """`compute` on pieces of the operands along the value's own axes, put together."""
    shape = np.broadcast_shapes(*(a.shape for o in operands for a in (o.data, o.error) if a is not None))
    kept = len(value.axes)
    cuts = list(blocks(shape[:kept], math.prod(shape[kept:])))
    if len(cuts) == 1:
        return compute(operands)
    data, error = np.empty(shape[:kept], wide(value.dtype)), None
    for cut in cuts:
        part = [Bounded(piece(o.data, cut), None if o.error is None else piece(o.error, cut)) for o in operands]
        found = compute(part)
        data[cut] = found.data
        if found.error is not None:
            error = np.zeros(shape[:kept]) if error is None else error
            error[cut] = found.error
    return Bounded(data, error)


def _elementwise(value: Value, operands: list[Bounded], undefined: Undefined) -> Bounded:
    datas, errors = [o.data for o in operands], [o.error for o in operands]
    y = apply(value.op, datas, value.dtype)
    if value.op == "cast":
        error = casting(datas[0], errors[0], y, value.dtype)
        error = _undefined(datas[0], error, value.dtype, undefined)
    elif value.op in COMPARISONS and value.reads[0] == value.reads[1]:
        error = None  # a value against itself: whatever it is, the outcome is certain
    else:
        error = spread(value.op, datas, errors, y, value.dtype)
    return Bounded(y, roundoff(value.op, datas, error, y, value.dtype))


def _reduction(value: Value, source: DType, operand: Bounded) -> Bounded:
    """A reduction of values of type `source` over the last dimensions, at full size."""
    places = tuple(range(len(value.axes), operand.data.ndim))
    last = bool(value.attr("select_last", False))
    y = reduce(value.op, operand.data, places, source, last)
    return Bounded(y, spread_reduction(value.op, operand.data, operand.error, places, source, y, last))


def _undefined(x: Array, error: Error, to: DType, undefined: Undefined) -> Error:
    """Not comparable where a float is out of the range of integer type `to`."""
    if x.dtype.kind != "f" or not to.is_integer:
        return error
    limits = np.iinfo(to.numpy)
    with np.errstate(all="ignore"):
        whole = np.trunc(x)
        outside = ~((whole >= float(limits.min)) & (whole < float(limits.max) + (1.0 if to.size < 8 else 0.0)))
    if not outside.any():
        return error
    undefined.seen = True
    return np.where(outside, np.inf, 0.0 if error is None else error)


def _operand(sub: Subgraph, value: Value, read: Read, get: Lookup) -> Bounded:
    data = operand(sub, value, read, lambda v: get(v).data)
    return Bounded(data, _read_error(sub, value, read, get))


def _read_error(sub: Subgraph, value: Value, read: Read, get: Lookup) -> Error:
    """The error of what `read` gives: that of the element read; not comparable where an index is uncertain."""
    found: Error = None
    source = get(read.value)
    if source.error is not None:
        access = resolve(read, value.domain, sub, lambda v: get(v).data)
        error = np.broadcast_to(source.error, source.data.shape)
        found = load(error, access, None if read.fill is None else np.zeros(()))
    nested = list(all_reads(replace(value, reads=(read,), position=None)))[1:]
    doubt = _doubt(sub, value, nested, get) if nested else None
    if doubt is None:
        return found
    return doubt if found is None else found + doubt


def _doubt(sub: Subgraph, value: Value, reads: Iterable[Read], get: Lookup) -> Error:
    """Not comparable where an integer that one of `reads` (of lookups) gives is uncertain."""
    return either([_read_error(sub, value, read, get) for read in reads if get(read.value).error is not None])


def _piecewise(sub: Subgraph, value: Value, get: Lookup) -> Bounded:
    data: Array | None = None
    error: Error = None
    for read in reversed(value.reads):
        access: Access = resolve(read, value.domain, sub, lambda v: get(v).data)
        found, doubt = load(get(read.value).data, access), _read_error(sub, value, read, get)
        if data is None or access.valid is None:
            data, error = found, doubt
            continue
        data = np.where(access.valid, found, data)
        if error is not None or doubt is not None:
            error = np.where(access.valid, 0.0 if doubt is None else doubt, 0.0 if error is None else error)
    assert data is not None
    return Bounded(data, error)
