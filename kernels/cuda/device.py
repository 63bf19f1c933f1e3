"""What runs CUDA kernels: a device through CuPy, or the emulator on the CPU, behind one protocol.

Memory is named by addresses, streams by their handles (`cudaStream_t`; 0 is the default stream): the callers keep
arrays of any library, and nothing here wraps them. Everything that takes a stream only queues work there, unless it
says that it waits. An implementation may be used by several threads at a time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from ...graphs.errors import StitchtuneError
from ...graphs.subgraph import Subgraph
from ...search_space.plan import Plan
from ...search_space.target import Target
from ..compile import BuildFailure
from .built import BuiltCuda

ALIGNMENT = 256
"""Bytes that the start of device memory is a multiple of, as cudaMalloc gives it."""

Trouble = Literal[
    "refused", "out-of-bounds", "misaligned", "hung", "trapped", "race", "uninitialised", "divergence", "failed"
]
"""What went wrong on a device. refused: the launch did not start (too many blocks, too much shared memory)."""


class NoDevice(StitchtuneError):
    """There is no such device here. Exit code 1."""


class LaunchError(StitchtuneError):
    """A kernel did not run to its end. `sticky`: the process can use the device no more."""

    def __init__(self, message: str, trouble: Trouble = "failed", sticky: bool = False) -> None:
        super().__init__(message)
        self.trouble: Trouble = trouble
        self.sticky = sticky


@dataclass(frozen=True)
class Span:
    """`bytes` of memory from `address` on."""

    address: int
    bytes: int


@dataclass(frozen=True)
class DeviceArray:
    """An array in device memory, whoever made it; `owner` keeps it alive. `strides` are in bytes."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    writable: bool = True
    owner: Any = None

    @property
    def bytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize

    @property
    def contiguous(self) -> bool:
        """The elements lie side by side in row-major order."""
        plain = row_major(self.shape, self.dtype.itemsize)
        return (
            self.strides == plain
            or self.bytes == 0
            or all(n == 1 or a == b for n, a, b in zip(self.shape, self.strides, plain, strict=True))
        )

    def overlaps(self, other: DeviceArray) -> bool:
        """True when both may hold the same byte."""
        (a, b), (c, d) = self._reach(), other._reach()
        return a < d and c < b

    def _reach(self) -> tuple[int, int]:
        if self.bytes == 0 or self.contiguous:
            return self.address, self.address + self.bytes
        spans = [(extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True)]
        low = self.address + sum(min(0, s) for s in spans)
        return low, self.address + sum(max(0, s) for s in spans) + self.dtype.itemsize


@functools.lru_cache(4096)
def row_major(shape: tuple[int, ...], item: int) -> tuple[int, ...]:
    """The strides of a contiguous array."""
    return tuple(math.prod(shape[i + 1 :]) * item for i in range(len(shape)))


@dataclass(frozen=True)
class MatMul:
    """to = alpha * (a @ b) + beta * addend, as NumPy broadcasts, of one dtype; `addend` may be missing."""

    to: DeviceArray
    a: DeviceArray
    b: DeviceArray
    addend: DeviceArray | None = None
    alpha: float = 1.0
    beta: float = 1.0


class Memory(Protocol):
    """Device memory of our own, 256-byte aligned and uninitialised; it is freed when nobody holds the object."""

    @property
    def address(self) -> int: ...
    @property
    def bytes(self) -> int: ...


Kernel = Any
"""A loaded kernel; stays loaded while its device lives."""
Call = Any
"""A kernel with all its parameters in place."""
Graph = Any
"""Calls recorded to be queued at once."""
Event = Any
"""A point in a stream."""


class Device(Protocol):
    """A CUDA device or its emulation."""

    @property
    def target(self) -> Target:
        """The facts of the device; the name is that of its profile where there is one."""

    @property
    def index(self) -> int:
        """Its number in this process."""

    @property
    def bus(self) -> str:
        """Its address on the PCI bus; "" when it is emulated."""

    @property
    def real(self) -> bool:
        """A GPU that other libraries of this process can use too, not an emulation."""

    @property
    def multiplies(self) -> bool:
        """`matmul` works: the library it needs is installed."""

    def build(
        self,
        items: Sequence[tuple[Subgraph, Plan]],
        *,
        precision: str,
        cache: Path,
        jobs: int = 2,
        per_unit: int = 1,
        aligned: bool = True,
    ) -> list[BuiltCuda | BuildFailure]:
        """Plans as kernels for this device, in the order given."""

    def allocate(self, size: int) -> Memory:
        """Memory that must not be dropped while queued work uses it. Raises MemoryError."""

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: int) -> Any:
        """A fresh array of the device's own array library, uninitialised, for use on `stream`. Raises MemoryError."""

    def upload(self, address: int, data: NDArray[Any], stream: int) -> None:
        """Copies a C-contiguous array to the device; `data` may change as soon as this returns."""

    def download(self, data: NDArray[Any], address: int, stream: int) -> None:
        """Copies to a C-contiguous array, and waits for it. Raises LaunchError for a kernel that failed before."""

    def copy(self, to: int, source: int, size: int, stream: int) -> None:
        """Copies `size` bytes within the device."""

    def copy_elements(self, to: DeviceArray, source: DeviceArray, stream: int) -> None:
        """Copies within the device, between arrays of one shape and dtype and any strides."""

    def same(self, a: int, b: int, size: int, stream: int) -> bool:
        """True when `size` bytes at two addresses are equal; waits. Raises LaunchError for a kernel that failed."""

    def matmul(self, product: MatMul, stream: int) -> None:
        """Queues a matrix product of the device's library. Raises LaunchError when it cannot."""

    def fill(self, address: int, byte: int, size: int, stream: int) -> None:
        """Sets `size` bytes."""

    def load(self, built: BuiltCuda) -> tuple[Kernel, ...]:
        """The kernels of a plan, one per launch, loaded once per image. Raises LaunchError when the device cannot."""

    def resident(self, kernel: Kernel) -> int:
        """Blocks of a loaded kernel that one multiprocessor holds at a time, as the device itself has it."""

    def prepare(self, kernel: Kernel, buffers: Sequence[Span], arguments: Sequence[int], barrier: int) -> Call:
        """Parameters by the positions that the kernel's Launch names; `barrier` is the address of its word."""

    def launch(self, call: Call, stream: int) -> None:
        """Queues one kernel. Raises LaunchError when it cannot start."""

    def capture(self, calls: Sequence[Call]) -> Graph:
        """The calls as one graph. Nothing runs. Raises LaunchError when the device cannot record them."""

    def replay(self, graph: Graph, stream: int) -> None:
        """Queues a graph; the addresses in its calls must still be valid."""

    def current_stream(self) -> int:
        """The stream that the calling thread works on by the device's array library."""

    def capturing(self, stream: int) -> bool:
        """True while the caller records what is queued on `stream` into a graph of its own."""

    def event(self) -> Event:
        """An event that can tell the time; it counts as reached until it is recorded."""

    def record(self, event: Event, stream: int) -> None:
        """Places an event behind what is queued on `stream`; where it was before is forgotten."""

    def wait(self, stream: int, event: Event) -> None:
        """Lets what is queued on `stream` from now on wait for an event."""

    def elapsed(self, first: Event, second: Event) -> float:
        """Seconds between two events; waits for the second. Raises LaunchError for a kernel that failed before."""

    def synchronize(self, stream: int) -> None:
        """Waits for a stream. Raises LaunchError for a kernel that failed."""


def contiguous(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceArray:
    """Memory of our own as a row-major array."""
    return DeviceArray(address, shape, row_major(shape, dtype.itemsize), dtype)


def align(size: int) -> int:
    """`size` up to the next multiple of ALIGNMENT, at least one: empty arrays too have addresses of their own."""
    return max(1, -(-size // ALIGNMENT)) * ALIGNMENT
