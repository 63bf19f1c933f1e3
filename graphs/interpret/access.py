"""Reads of the canonical form as NumPy operations.

Arrays here are *compact*: one dimension per axis of their value, of size 1 where nothing varies along that axis.
A read gives an array with one dimension per axis of the reader's domain, compact likewise. Reads that
only move (identity, transpose, slice, reversal) give views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import InputError, VerifyError
from ..rounding import Array, wide_scalar
from ..subgraph import AxisVar, FloorDiv, Index, Int, Lookup, Mod, Read, Slot, Subgraph, Sum

Fetch = Callable[[int], Array]
"""The compact wide array of a value."""


@dataclass(frozen=True)
class Access:
    """A read, resolved: an index array per dimension of the value read, and where it is valid (None: everywhere).

    Index arrays and `valid` have one dimension per domain axis, compact.
    """

    index: tuple[Array, ...]
    valid: Array | None
    shape: tuple[int, ...]
    """The domain's extents."""
    gathers: bool
    """True when an index holds a Lookup: being out of range is then the input's fault."""


def positions(index: Index, domain: Sequence[int], sub: Subgraph, fetch: Fetch) -> Array:
    """`index` at every point of `domain`: int64, one dimension per domain axis, compact."""
    match index:
        case AxisVar(axis):
            shape = [1] * len(domain)
            shape[domain.index(axis)] = -1
            return np.arange(sub.extents[axis], dtype=np.int64).reshape(shape)
        case Int(number):
            return np.full([1] * len(domain), number, np.int64)
        case Slot(slot):
            return np.full([1] * len(domain), sub.slots[slot], np.int64)
        case Sum(terms):
            total = np.zeros([1] * len(domain), np.int64)
            for factor, term in terms:
                total = total + factor * positions(term, domain, sub, fetch)
            return total
        case FloorDiv(term, divisor):
            return np.floor_divide(positions(term, domain, sub, fetch), divisor)
        case Mod(term, divisor):
            return np.mod(positions(term, domain, sub, fetch), divisor)
        case Lookup(read, axis):
            found = load(fetch(read.value), resolve(read, domain, sub, fetch), filler(sub, read)).astype(np.int64)
            return np.where(found < 0, found + sub.extents[axis], found)


def _has_lookup(index: Index) -> bool:
    match index:
        case Lookup():
            return True
        case Sum(terms):
            return any(_has_lookup(term) for _, term in terms)
        case FloorDiv(term, _) | Mod(term, _):
            return _has_lookup(term)
        case _:
            return False


def resolve(read: Read, domain: Sequence[int], sub: Subgraph, fetch: Fetch) -> Access:
    """The index arrays of `read` for a reader that iterates over `domain`."""
    valid: Array | None = None
    for bound in read.where:
        at = positions(bound.index, domain, sub, fetch)
        inside = (at >= 0) & (at < sub.extents[bound.axis])
        valid = inside if valid is None else valid & inside
    index = tuple(positions(i, domain, sub, fetch) for i in read.index)
    gathers = any(_has_lookup(i) for i in read.index)
    return Access(index, valid, tuple(sub.extents[a] for a in domain), gathers)


def filler(sub: Subgraph, read: Read) -> Array | None:
    """What `read` gives where it is not valid, as the value read holds it."""
    return None if read.fill is None else wide_scalar(read.fill, sub.values[read.value].dtype)


def load(array: Array, access: Access, fill: Array | None = None) -> Array:
    """What a read gives: `array` (compact) at the index arrays, `fill` where it is not valid (None: anything).

    Raises InputError when a gathered index is out of range, VerifyError when a computed one is.
    """
    if 0 in access.shape:  # nothing is read, whatever the indices say
        return np.zeros([min(n, 1) for n in access.shape], array.dtype)
    if access.valid is not None and not access.valid.any():
        return np.full([1] * len(access.shape), 0 if fill is None else fill, array.dtype)
    picked = _pick(
        array, [_in_range(ix, n, access) for ix, n in zip(access.index, array.shape, strict=True)], len(access.shape)
    )
    if access.valid is None or access.valid.all() or fill is None:
        return picked
    return np.where(access.valid, picked, fill)


def _in_range(index: Array, size: int, access: Access) -> Array:
    """`index` with what is out of 0..size-1 set to 0; that must not be read."""
    if size == 1:
        return np.zeros([1] * index.ndim, np.int64)
    wrong = (index < 0) | (index >= size)
    if not wrong.any():
        return index
    if access.valid is None or (wrong & access.valid).any():
        which = index[wrong].flat[0]
        if access.gathers:
            raise InputError(f"gather index out of range: {which} for a dimension of {size}")
        raise VerifyError(f"a read reaches position {which} of a dimension of {size}")
    return np.where(wrong, 0, index)


def _pick(array: Array, index: list[Array], rank: int) -> Array:
    """`array[index...]` over broadcast index arrays, by views and one-dimensional takes where they suffice."""
    varying = [tuple(i for i, n in enumerate(ix.shape) if n != 1) for ix in index]
    uses = [sum(axis in other for other in varying) for axis in range(rank)]
    names: list[int] = []  # domain dimension that each remaining dimension of `array` stands for
    joint: list[int] = []  # dimensions of `array` whose index arrays must be applied together
    for d in reversed(range(array.ndim)):
        if not varying[d]:
            array = array[(slice(None),) * d + (int(index[d].reshape(-1)[0]),)]
        elif len(varying[d]) == 1 and uses[varying[d][0]] == 1:
            array = _along(array, d, index[d].reshape(-1))
            names.insert(0, varying[d][0])
        else:
            joint.insert(0, d)
            names.insert(0, -1 - d)
    if joint:
        places = [names.index(-1 - d) for d in joint]
        array = np.moveaxis(array, places, range(len(places)))
        together = sorted(set().union(*(varying[d] for d in joint)))
        indices = [_squeeze(index[d], together) for d in joint]
        array = array.take(indices[0], axis=0) if len(indices) == 1 else array[tuple(indices)]
        names = together + [n for n in names if n >= 0]
    array = array.transpose(sorted(range(len(names)), key=lambda i: names[i]))
    names = sorted(names)
    return array[tuple(slice(None) if i in names else None for i in range(rank))]


def _squeeze(index: Array, kept: list[int]) -> Array:
    return index.reshape([index.shape[i] for i in kept])


def _along(array: Array, dim: int, index: Array) -> Array:
    """`array` at positions `index` along `dim`: a view when they are equally spaced."""
    if index.size < 2:
        return array.take(index, axis=dim)
    step = int(index[1] - index[0])
    if step == 0 or (np.diff(index) != step).any():
        return array.take(index, axis=dim)
    stop = int(index[-1]) + (1 if step > 0 else -1)
    chosen = slice(int(index[0]), None if stop < 0 else stop, step)
    return array[(slice(None),) * dim + (chosen,)]
