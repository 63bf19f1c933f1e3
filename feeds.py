"""Inputs for a graph: read from files, or made up so that indices and masks are realistic."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .graphs.dtypes import DType
from .graphs.errors import InputError
from .graphs.ir import Graph, Node, TensorType
from .graphs.primitives import COMPARISONS
from .graphs.subgraph import FloorDiv, Index, Lookup, Mod, Subgraph, Sum, Value, all_reads

Role = Literal["index", "mask", "count", "number"]
"""What the values of a graph input mean: positions in a table, 0 or 1, small positive integers, or any number."""

MASK_NAMES = ("mask", "valid", "keep", "padding")


@dataclass(frozen=True)
class Feeds:
    """Arrays by input name, and where they come from."""

    arrays: Mapping[str, NDArray[Any]]
    synthetic: bool
    note: str
    """For the user: the file, or what was made up."""


def load(graph: Graph, source: Path) -> Feeds:
    """The graph's inputs from an .npz file or from a folder of NAME.npy files.

    Raises InputError when the source cannot be read, or a name, shape or dtype does not fit.
    """
    try:
        if source.is_dir():
            arrays = {p.stem: np.load(p, allow_pickle=False) for p in sorted(source.glob("*.npy"))}
        else:
            with np.load(source, allow_pickle=False) as archive:
                arrays = dict(archive)
    except _UNREADABLE as error:
        raise InputError(f"{source}: not an .npz file or a folder of .npy files: {error}") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):
            raise InputError(f"{source}: {name!r} is no array")
    arrays = {name: _typed(graph, name, array) for name, array in arrays.items()}
    check(graph, arrays, str(source))
    return Feeds(arrays, False, f"inputs from {source}")


_UNREADABLE = (
    *(OSError, ValueError, TypeError, EOFError, MemoryError),
    *(zipfile.BadZipFile, zlib.error, RuntimeError),  # zipfile: damaged, encrypted or compressed in a way of its own
)
"""What NumPy raises for a file that holds no arrays, or claims more than there is."""


def _typed(graph: Graph, name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array under the dtype that its file lost: NumPy stores bfloat16 as two bytes without a meaning."""
    kind = graph.types.get(name) if name in graph.inputs else None
    if kind is None or kind.dtype is not DType.BF16 or array.dtype != np.dtype("V2"):
        return array
    return array.view(kind.dtype.numpy)


def check(graph: Graph, arrays: Mapping[str, NDArray[Any]], source: str) -> None:
    """Raises InputError, naming `source`, unless `arrays` are the graph's inputs in name, shape and dtype."""
    for name in graph.inputs:
        if name not in arrays:
            raise InputError(f"{source}: input {name!r} is missing; the graph takes {', '.join(graph.inputs)}")
        wanted, found = graph.types[name], arrays[name]
        if found.shape != wanted.shape or found.dtype != wanted.dtype.numpy:
            raise InputError(
                f"{source}: input {name!r} is {found.dtype}{list(found.shape)}, "
                f"the graph takes {wanted.dtype.numpy}{list(wanted.shape)}"
            )
    for name in arrays:
        if name not in graph.inputs:
            raise InputError(f"{source}: {name!r} is no input; the graph takes {', '.join(graph.inputs)}")


def synthetic(graph: Graph, seed: int = 0) -> Feeds:
    """Made-up inputs: indices within the smallest table they gather from, masks 0/1, other numbers normal."""
    rng = np.random.default_rng(seed)
    roles = {name: infer_role(graph, name) for name in graph.inputs}
    arrays = {name: _draw(rng, graph.types[name], *roles[name]) for name in graph.inputs}
    told = ", ".join(f"{name}: {_TOLD[role].format(limit)}" for name, (role, limit) in roles.items())
    return Feeds(arrays, True, f"synthetic inputs (seed {seed}; {told})")


_TOLD = {"index": "indices below {}", "mask": "mask of 0 and 1", "count": "integers 1 to {}", "number": "normal"}


def infer_role(graph: Graph, name: str) -> tuple[Role, int]:
    """What an input's values mean, found by following them through the graph, and the number of them (or 0)."""
    kind = graph.types[name]
    tables, flag = [], kind.dtype is DType.BOOL
    for node, position, sources in _uses(graph, name):
        if node.op in ("gather", "gather_elements") and position == 1:
            tables.append(graph.types[node.inputs[0]].shape[node.attr("axis")])
        flag = flag or _takes_flag(graph, node, position, sources)
    if tables:
        return "index", min(tables)
    if flag or any(word in name.lower() for word in MASK_NAMES):
        return "mask", 2
    return ("number", 0) if kind.dtype.is_float else ("count", 8)


_CARRIERS = frozenset("copy cast reshape transpose broadcast slice".split())
"""Operators whose output holds the very values of their only operand."""


def _uses(graph: Graph, name: str) -> Iterator[tuple[Node, int, frozenset[str]]]:
    """Nodes that read the values of tensor `name`, as they are, and at which operand; all tensors that carry them."""
    carried, readers = {name}, []
    for node in graph.nodes:
        for position, source in enumerate(node.inputs):
            if source in carried:
                readers.append((node, position))
                if node.op in _CARRIERS:
                    carried.update(node.outputs)
    for node, position in readers:
        yield node, position, frozenset(carried)


def _takes_flag(graph: Graph, node: Node, position: int, carried: frozenset[str]) -> bool:
    """True where a node treats the operand as 0 or 1: `1 - m`, a comparison with a constant 0 or 1."""
    others = [source for source in node.inputs if source not in carried]
    if node.op == "sub" and position == 1:
        return _constant(graph, others) == 1
    return node.op in COMPARISONS and _constant(graph, others) in (0, 1)


def _constant(graph: Graph, names: list[str]) -> float | None:
    """The value of the only name given when it is one number, perhaps broadcast; else None."""
    if len(names) != 1:
        return None
    name, producers = names[0], graph.producers()
    while name in producers and producers[name].op in _CARRIERS:
        name = producers[name].inputs[0]
    array = graph.constants.get(name)
    return None if array is None or array.size == 0 or (array != array.flat[0]).any() else float(array.flat[0])


def _draw(rng: np.random.Generator, kind: TensorType, role: Role, limit: int) -> NDArray[Any]:
    """Values of a role; `limit` bounds indices (exclusive) and counts (inclusive)."""
    if role == "index":
        return rng.integers(0, max(limit, 1), kind.shape).astype(kind.dtype.numpy)
    if role == "mask":
        return _prefixes(rng, kind.shape).astype(kind.dtype.numpy)
    if role == "count":
        return rng.integers(1, limit, kind.shape, endpoint=True).astype(kind.dtype.numpy)
    return rng.standard_normal(kind.shape, dtype=np.float32).astype(kind.dtype.numpy)


def _prefixes(rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Rows along the last axis that are true up to a drawn length, at least half of it: padded sequences."""
    if not shape:
        return np.ones((), np.bool_)
    length = shape[-1]
    lengths = rng.integers(min(1 + length // 2, length), length, (*shape[:-1], 1), endpoint=True)
    return np.arange(length) < lengths


def for_subgraph(sub: Subgraph, seed: int = 0) -> list[NDArray[Any]]:
    """Made-up arrays for the inputs of a subgraph: indices within what they look up, other numbers normal or small."""
    rng, tables = np.random.default_rng(seed), _tables(sub)
    arrays = []
    for number in sub.inputs:
        kind = TensorType(sub.values[number].dtype, sub.shape(number))
        if number in tables:
            arrays.append(_draw(rng, kind, "index", tables[number]))
        elif kind.dtype is DType.BOOL:
            arrays.append(_draw(rng, kind, "mask", 2))
        else:
            arrays.append(_draw(rng, kind, "number" if kind.dtype.is_float else "count", 8))
    return arrays


def _tables(sub: Subgraph) -> dict[int, int]:
    """For each value that ends up as an index: the smallest extent it looks up in."""
    found: dict[int, int] = {}
    for number in reversed(range(len(sub.values))):
        value = sub.values[number]
        for lookup in _lookups(value):
            found[lookup.read.value] = min(sub.extents[lookup.extent], found.get(lookup.read.value, 1 << 62))
        if number in found:
            for read in value.reads:
                found[read.value] = min(found[number], found.get(read.value, 1 << 62))
    return found


def _lookups(value: Value) -> Iterator[Lookup]:
    waiting: list[Index] = [index for read in all_reads(value) for index in read.index]
    waiting += [bound.index for read in all_reads(value) for bound in read.where]
    while waiting:
        match waiting.pop():
            case Lookup() as found:
                yield found
            case Sum(terms):
                waiting += [term for _, term in terms]
            case FloorDiv(term, _) | Mod(term, _):
                waiting.append(term)
            case _:
                pass


def given_or_made(graph: Graph, source: Path | None, seed: int) -> Feeds:
    """The inputs of a file or folder, or synthetic ones without one."""
    return synthetic(graph, seed) if source is None else load(graph, source)
