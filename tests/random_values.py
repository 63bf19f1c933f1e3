"""Random arrays for the inputs of subgraphs and graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import FloorDiv, Index, Lookup, Mod, Read, Subgraph, Sum


def random_inputs(sub: Subgraph, seed: int, special: bool = False) -> list[NDArray[Any]]:
    """Arrays for `sub.inputs`; `special` mixes in NaN, infinities, signed zeros, subnormals and the largest numbers."""
    rng = np.random.default_rng([seed, 2])
    tables = _tables(sub)
    return [random_array(rng, sub.values[v].dtype, sub.shape(v), tables.get(v), special) for v in sub.inputs]


def random_array(
    rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], table: int | None = None, special: bool = False
) -> NDArray[Any]:
    """Plain values of a type; those of an index, within -table..table-1, when `table` is given."""
    if table is not None:
        return rng.integers(-table, table, shape).astype(dtype.numpy)
    if dtype is DType.BOOL:
        return rng.random(shape) < 0.5
    if dtype.is_integer:
        low, high = np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max
        array = rng.integers(max(low, -20), 21, shape).astype(dtype.numpy)
        extreme = rng.random(shape) < 0.02
        return np.where(extreme, rng.choice(np.array([low, high, high - 1], dtype.numpy), shape), array)
    array = rng.normal(0.0, 1.0, shape).astype(dtype.numpy)
    if special:
        info = np.finfo(np.float32 if dtype is DType.BF16 else dtype.numpy)
        odd = [
            np.nan,
            np.inf,
            -np.inf,
            0.0,
            -0.0,
            float(info.max),
            float(info.smallest_subnormal) * 5,
            float(info.tiny),
        ]
        with np.errstate(all="ignore"):
            array = np.where(rng.random(shape) < 0.05, rng.choice(np.array(odd), shape).astype(dtype.numpy), array)
    return array


def _tables(sub: Subgraph) -> dict[int, int]:
    """For each input read by lookups: the least extent that it indexes."""
    found: dict[int, int] = {}

    def visit(index: Index) -> None:
        match index:
            case Sum(terms):
                for _, term in terms:
                    visit(term)
            case FloorDiv(term, _) | Mod(term, _):
                visit(term)
            case Lookup(read, axis):
                found[read.value] = min(found.get(read.value, 1 << 30), sub.extents[axis])
                visit_read(read)

    def visit_read(read: Read) -> None:
        for index in (*read.index, *(bound.index for bound in read.where)):
            visit(index)

    for value in sub.values:
        for read in value.reads:
            visit_read(read)
        if value.position is not None:
            visit(value.position)
    return {v: n for v, n in found.items() if sub.values[v].is_input}
