"""Library ops: exported operators that no kernel of ours computes, as ONNX Runtime sessions in a launch sequence.

The sessions run single-threaded on slices, on the threads of the team (see slices.py); an op that cannot be
sliced gets one session with a pool that never spins. Weights are handed over in place: a session packs them as it
likes, and the pages of a memory-mapped weight are given back after that.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import math
import mmap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graphs.dtypes import DType
from ..graphs.errors import StitchtuneError
from ..graphs.exported import ExportedOp
from ..graphs.ir import Graph, Node
from . import slices
from .onnx_model import Constant, attributes, canonical, element_type, model_bytes
from .team import Record, function_address

_ERROR_BYTES = 1024

_INLINE_BYTES = 1024
"""Constants up to this size go into the model, where shape inference sees them."""

_POOL_BYTES = 1 << 20
"""Bytes of all operands from which an op that cannot be cut gets threads of its own: waking them takes 0.1 ms."""

_TRIM_BYTES = 1 << 20
"""Weights handed to sessions after which the heap is trimmed."""

_WORK_BYTES = 3 << 18
"""Bytes of one piece of a convolution: its session holds them a second time, reordered, while it runs."""

_PACKED_BYTES = 5 << 20
"""Weights of a convolution that go into one session: while it is made there are five more copies of them."""

_CHANNELS = 16
"""Channels at whose multiples the output of a convolution may be cut: as many are computed at once."""

_LEVEL = 99
"""Graph optimization level: all, for a convolution in its best layout."""


class LibraryError(StitchtuneError):
    """A library op cannot be prepared or failed while running."""


class Operand(ctypes.Structure):
    """One tensor of a call (st_operand in runtime/library.h)."""

    _fields_ = (
        ("buffer", ctypes.c_int64),
        ("data", ctypes.c_void_p),
        ("offset", ctypes.c_int64),
        ("bytes", ctypes.c_int64),
        ("type", ctypes.c_int64),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
    )


class Call(ctypes.Structure):
    """One run of a session (st_call)."""

    _fields_ = (
        ("session", ctypes.c_void_p),
        ("operands", ctypes.c_void_p),
        ("inputs", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
    )


class Failure(ctypes.Structure):
    """Where the first failure of a run leaves its message (st_failure)."""

    _fields_ = (("failed", ctypes.c_int64), ("message", ctypes.c_char * 1016))


class LibraryState(ctypes.Structure):
    """The arguments of a library record (st_library)."""

    _fields_ = (
        ("calls", ctypes.c_void_p),
        ("count", ctypes.c_int64),
        ("name", ctypes.c_char_p),
        ("failure", ctypes.c_void_p),
    )


@dataclass
class LibraryOp:
    """A prepared library op; it may be launched by several runs at once, each with a table of addresses of its own."""

    calls: ctypes.Array[Call]
    name: bytes
    wide: bool
    kernel: int
    owned: list[Any] = field(default_factory=list)
    """What the calls point to."""

    def record(self, table: int, failure: Failure) -> tuple[Record, LibraryState]:
        """A launch with the addresses at `table`; the state must live as long as the record."""
        state = LibraryState(ctypes.addressof(self.calls), len(self.calls), self.name, ctypes.addressof(failure))
        return Record(self.kernel, table, ctypes.addressof(state), 0, self.wide, False), state


class Library:
    """Makes library ops of one graph; owns the sessions. `threads` is the size of the team that will run them."""

    def __init__(self, runtime: ctypes.CDLL, threads: int) -> None:
        self._runtime = runtime
        self._threads = threads
        self._kernel = function_address(runtime.st_library_run)
        self._sessions: dict[tuple[Any, ...], int] = {}
        self._owned: list[Any] = []
        self._opened = False
        self._handed_over = 0

    def prepare(self, node: Node, graph: Graph, numbers: Mapping[str, int]) -> LibraryOp:
        """The library op of `node`. `numbers` says which entry of the table of addresses is which tensor's.

        Raises LibraryError when ONNX Runtime has no such operator or refuses it.
        """
        op = payload(node)
        if op.missing:
            raise LibraryError(f"{node.origin or op.op_type}: {op.missing}")
        self._open()
        inputs = [graph.types[name] if name else None for name in node.inputs]
        outputs = [graph.types[name] for name in node.outputs if name]
        found: tuple[slices.Piece, ...] = ()
        if len(op.nodes) == 1:
            found = slices.pieces(op.op_type, attributes(op), inputs, outputs, self._threads)
            if found and op.op_type == "Conv":
                cut_channels = node.inputs[1] in graph.constants and int(attributes(op).get("group", 1)) == 1
                found = _small_pieces(found, outputs[0].dtype.size, cut_channels)
        moved = sum(t.bytes for t in (*inputs, *outputs) if t is not None)
        threads = 1 if found or moved < _POOL_BYTES else self._threads
        job = _Job(node, canonical(op), graph, numbers, threads)
        calls = [self._call(job, piece) for piece in found or (slices.whole(inputs, outputs),)]
        array = (Call * len(calls))(*calls)
        return LibraryOp(array, job.title.encode(), len(calls) > 1, self._kernel, job.owned)

    def _call(self, job: _Job, piece: slices.Piece) -> Call:
        """One run of a session over the parts of `piece`."""
        operands: list[Operand] = []
        inputs: dict[str, DType] = {}
        constants: dict[str, tuple[Constant, int]] = {}
        for tensor, name, part in zip(job.node.inputs, job.op.inputs, piece.inputs, strict=True):
            if part is None or name in inputs or name in constants:
                continue
            dtype = job.graph.types[tensor].dtype
            if tensor in job.graph.constants:
                constants[name] = _constant(job.graph.constants[tensor], dtype, part)
            else:
                inputs[name] = dtype
                operands.append(job.operand(name, dtype, part, job.numbers[tensor]))
        count = len(operands)
        results = [(t, n) for t, n in zip(job.node.outputs, job.op.outputs, strict=True) if t]
        for (tensor, name), part in zip(results, piece.outputs, strict=True):
            operands.append(job.operand(name, job.graph.types[tensor].dtype, part, job.numbers[tensor]))
        array = (Operand * len(operands))(*operands)
        job.owned.append(array)
        session = self._session(job, inputs, constants)
        return Call(session, ctypes.addressof(array), count, len(operands) - count)

    def _session(self, job: _Job, inputs: Mapping[str, DType], constants: Mapping[str, tuple[Constant, int]]) -> int:
        """A session, shared by all calls of the same operator with the same constants, whatever the other shapes."""
        model = model_bytes(job.op, inputs, {name: constant for name, (constant, _) in constants.items()})
        given = {name: address for name, (constant, address) in constants.items() if constant.content is None}
        key = (model, tuple(given.items()), job.threads)
        if key not in self._sessions:
            items = []
            for name, address in given.items():
                constant = constants[name][0]
                whole = slices.Part(0, constant.shape)
                items.append(job.operand(name, constant.dtype, whole, -1, address))
            array = (Operand * max(1, len(items)))(*items)
            reason = ctypes.create_string_buffer(_ERROR_BYTES)
            handle = self._runtime.st_session_create(
                model, len(model), array, len(items), job.threads, _LEVEL, reason, _ERROR_BYTES
            )
            if not handle:
                raise LibraryError(f"{job.title}: {one_line(reason.value)}")
            self._sessions[key] = handle
            self._owned.append(job.owned)
            self._give_back(job, sum(constants[name][0].size for name in given))
        return self._sessions[key]

    def _give_back(self, job: _Job, size: int) -> None:
        """Frees what making a session of `job` with `size` bytes of weights left in memory."""
        for tensor in job.node.inputs:
            if tensor in job.graph.constants:
                release_pages(job.graph.constants[tensor])
        self._handed_over += size
        if self._handed_over > _TRIM_BYTES:
            trim_heap()
            self._handed_over = 0

    def _open(self) -> None:
        if self._opened:
            return
        reason = self._runtime.st_library_open(str(runtime_path()).encode())
        if reason:
            raise LibraryError(f"cannot use ONNX Runtime: {one_line(reason)}")
        self._opened = True

    @property
    def sessions(self) -> int:
        """Sessions that are open."""
        return len(self._sessions)

    def close(self) -> None:
        """Frees the sessions. No op of this library may run any more."""
        for handle in self._sessions.values():
            self._runtime.st_session_release(handle)
        self._sessions.clear()


def runtime_path() -> Path:
    """The shared library of the installed onnxruntime package, found without importing it."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        raise LibraryError("onnxruntime is not installed: pip install onnxruntime")
    found = sorted((Path(spec.origin).parent / "capi").glob("libonnxruntime.so*"))
    if not found:
        raise LibraryError("the installed onnxruntime has no libonnxruntime.so: pip install 'onnxruntime>=1.20'")
    return found[-1]


def release_pages(array: NDArray[Any]) -> None:
    """Gives the pages of an array in a read-only mapped file back; the next reader maps them again from the file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    mapped = base.obj if isinstance(base, memoryview) else base
    if not isinstance(mapped, mmap.mmap) or not memoryview(mapped).readonly:
        return
    start = _address(array) - _address(np.frombuffer(mapped, np.uint8))
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    size = (start + array.nbytes - first) // mmap.PAGESIZE * mmap.PAGESIZE
    if size > 0:
        mapped.madvise(mmap.MADV_DONTNEED, first, size)


def trim_heap() -> None:
    """Gives freed memory back to the system, where the C library can: making sessions leaves copies of weights free."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def one_line(message: bytes) -> str:
    """A library's message without line breaks and without the place in its own sources."""
    return " ".join(message.decode(errors="replace").split())


def payload(node: Node) -> ExportedOp:
    """What a library node carries."""
    assert isinstance(node.payload, ExportedOp)
    return node.payload


@dataclass
class _Job:
    """What the calls of one library op have in common; `owned` keeps alive what they point to."""

    node: Node
    op: ExportedOp
    graph: Graph
    numbers: Mapping[str, int]
    threads: int
    owned: list[Any] = field(default_factory=list)

    @property
    def title(self) -> str:
        return self.node.origin or self.op.op_type

    def operand(self, name: str, dtype: DType, part: slices.Part, buffer: int, data: int | None = None) -> Operand:
        dims = (ctypes.c_int64 * max(1, len(part.shape)))(*part.shape)
        text = ctypes.create_string_buffer(name.encode())
        self.owned += [dims, text]
        return Operand(
            buffer,
            data,
            part.start * dtype.size,
            math.prod(part.shape) * dtype.size,
            element_type(dtype),
            len(part.shape),
            ctypes.addressof(dims),
            ctypes.addressof(text),
        )


def _small_pieces(found: Sequence[slices.Piece], size: int, cut_channels: bool) -> tuple[slices.Piece, ...]:
    """Pieces of a convolution cut until the memory that ONNX Runtime takes for each is small.

    `size` is the bytes of an element; `cut_channels` says that weights may be cut too. Pieces go by turns, so that
    every thread gets as much as before.
    """
    cut = [list(_smaller(piece, size, cut_channels)) for piece in found]
    return tuple(part for turn in itertools.zip_longest(*cut) for part in turn if part is not None)


def _smaller(piece: slices.Piece, size: int, cut_channels: bool) -> Iterator[slices.Piece]:
    x, w, *biases = piece.inputs
    [y] = piece.outputs
    assert x is not None
    assert w is not None
    samples, channels = y.shape[:2]
    read, made = math.prod(x.shape[1:]), math.prod(y.shape[1:])
    plane, filters = math.prod(y.shape[2:]), math.prod(w.shape[1:])
    parts = -(-channels * filters * size // _PACKED_BYTES) if cut_channels else 1
    # Channels of one sample alone lie side by side.
    several = -(-samples * (read + made) * size // _WORK_BYTES) if parts == 1 else samples
    for i, n in slices.split(samples, several):
        for o, c in slices.split(channels, parts, _CHANNELS):
            yield slices.Piece(
                (
                    slices.Part(x.start + i * read, (n, *x.shape[1:])),
                    slices.Part(w.start + o * filters, (c, *w.shape[1:])),
                    *(None if b is None else slices.Part(b.start + o, (c,)) for b in biases),
                ),
                (slices.Part(y.start + i * made + o * plane, (n, c, *y.shape[2:])),),
            )


def _constant(array: NDArray[Any], dtype: DType, part: slices.Part) -> tuple[Constant, int]:
    """A part of a constant, and where it lies in memory."""
    size = math.prod(part.shape) * dtype.size
    offset = part.start * dtype.size
    content = array.tobytes()[offset : offset + size] if array.nbytes <= _INLINE_BYTES else None
    return Constant(dtype, part.shape, size, content), _address(array) + offset


def _address(array: NDArray[Any]) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
