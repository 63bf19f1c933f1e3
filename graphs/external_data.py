"""Tensors of an ONNX file as arrays: inline ones checked against their shape, external ones memory-mapped.

Nothing is allocated from a size that a file merely claims: sizes are compared with the bytes that are there first.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .dtypes import DType
from .errors import GraphError
from .onnx_types import BY_NUMBER, OTHERS

if TYPE_CHECKING:
    from onnx import NodeProto, TensorProto

_EXTERNAL = 1
"""TensorProto.DataLocation.EXTERNAL."""

_FIELDS = {
    DType.F32: "float_data",
    DType.F64: "double_data",
    DType.I64: "int64_data",
    DType.U32: "uint64_data",
    DType.U64: "uint64_data",
}
"""Where values lie that are not raw bytes; all other types lie in int32_data."""


class TensorReader:
    """Reads the tensors of one model file. External files are mapped read-only, once each, for as long as used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._files: dict[Path, mmap.mmap] = {}

    def read(self, tensor: TensorProto) -> NDArray[Any]:
        """The array of `tensor`. Raises GraphError, without the file's name, when it cannot be had."""
        what = f"tensor {tensor.name!r}"
        dtype = BY_NUMBER.get(tensor.data_type)
        if dtype is None:
            kind = OTHERS.get(tensor.data_type, f"number {tensor.data_type}")
            raise GraphError(f"{what}: element type {kind} is not supported")
        shape = tuple(tensor.dims)
        if any(d < 0 for d in shape):
            raise GraphError(f"{what}: shape {list(shape)} has a negative dimension")
        if tensor.data_location == _EXTERNAL:
            return self._external(tensor, dtype, shape, what)
        return _inline(tensor, dtype, shape, what)

    def embedded(self, node: NodeProto) -> NodeProto:
        """`node` with the external tensors of its attributes and bodies in it; itself when it has none."""
        from onnx import NodeProto, numpy_helper

        if not any(t.data_location == _EXTERNAL for t in _tensors(node)):
            return node
        copy = NodeProto()
        copy.CopyFrom(node)
        for tensor in _tensors(copy):
            if tensor.data_location == _EXTERNAL:
                tensor.CopyFrom(numpy_helper.from_array(self.read(tensor), tensor.name))
        return copy

    def _external(self, tensor: TensorProto, dtype: DType, shape: tuple[int, ...], what: str) -> NDArray[Any]:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        size = math.prod(shape) * dtype.size
        offset = _number(entries, "offset", 0, what)
        length = _number(entries, "length", size, what)
        if length != size:
            raise GraphError(f"{what}: {length} bytes of external data for shape {list(shape)}, which takes {size}")
        path = self._locate(entries.get("location", ""), what)
        there = path.stat().st_size
        if offset + size > there:
            raise GraphError(f"{what}: external file {path.name} has {there} bytes, {offset + size} are needed")
        if size == 0:
            return np.zeros(shape, dtype.numpy)
        if path not in self._files:
            try:
                with path.open("rb") as file:
                    self._files[path] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except OSError as error:
                raise GraphError(f"{what}: external file {path.name} cannot be read: {error.strerror}") from error
        array = np.frombuffer(self._files[path], dtype.numpy, math.prod(shape), offset).reshape(shape)
        # Kernels rely on element alignment, which a file does not promise.
        return array if array.flags.aligned else array.copy()

    def _locate(self, location: str, what: str) -> Path:
        """The file of external data, which must lie in the model's folder whatever links say."""
        if not location or "\0" in location:
            raise GraphError(f"{what}: external data without a location")
        try:
            path = (self._folder / location).resolve()
            there = path.is_file()
        except (OSError, RuntimeError) as error:
            raise GraphError(f"{what}: external file {location[:80]!r} cannot be resolved") from error
        if not path.is_relative_to(self._folder):
            raise GraphError(f"{what}: external file {location!r} lies outside the model's folder")
        if not there:
            raise GraphError(f"{what}: external file {location!r} is missing")
        return path


def _tensors(node: NodeProto) -> Iterator[TensorProto]:
    """Every tensor that a node carries."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            yield from body.initializer
            for inner in body.node:
                yield from _tensors(inner)


def _number(entries: dict[str, str], key: str, default: int, what: str) -> int:
    text = entries.get(key)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 20):
        raise GraphError(f"{what}: external data with {key} {text[:20]!r}")
    return int(text)


def _inline(tensor: TensorProto, dtype: DType, shape: tuple[int, ...], what: str) -> NDArray[Any]:
    count = math.prod(shape)
    if tensor.HasField("raw_data"):
        raw = tensor.raw_data
        if len(raw) != count * dtype.size:
            raise GraphError(f"{what}: {len(raw)} bytes for shape {list(shape)}, which takes {count * dtype.size}")
        return np.frombuffer(raw, dtype.numpy).reshape(shape)
    values = getattr(tensor, _FIELDS.get(dtype, "int32_data"))
    if len(values) != count:
        raise GraphError(f"{what}: {len(values)} values for shape {list(shape)}, which takes {count}")
    if dtype.is_low_precision:
        # The bit patterns are stored as integers.
        return np.asarray(values, np.int32).astype(np.uint16).view(dtype.numpy).reshape(shape)
    stored = {"float_data": np.float32, "double_data": np.float64, "int64_data": np.int64, "uint64_data": np.uint64}
    wide = stored.get(_FIELDS.get(dtype, ""), np.int32)
    return np.asarray(values, wide).astype(dtype.numpy, copy=False).reshape(shape)
