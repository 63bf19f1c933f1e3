"""The emulated CUDA device: memory of this process, kernels by the emulator, streams that are always done.

It runs what a device runs through the same launcher and executor, so that those are tested where no GPU is. Times mean
nothing here.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graphs.subgraph import Subgraph
from ...search_space.plan import Plan
from ...search_space.target import Target
from ..compile import BuildFailure, find_compiler
from .built import BuiltCuda, Launch
from .device import ALIGNMENT, Call, DeviceArray, Event, Graph, Kernel, LaunchError, MatMul, NoDevice, Span, Trouble
from .emulator.emulate import build_emulated, launch_kernel

_TROUBLES: dict[str, Trouble] = {
    "race": "race",
    "out-of-bounds": "out-of-bounds",
    "misaligned": "misaligned",
    "uninitialised": "uninitialised",
    "deadlock": "hung",
    "divergence": "divergence",
    "exited": "divergence",
    "limit": "refused",
}
"""Kinds of findings (emulator/findings.py) as a device would show them."""


class EmulatedMemory:
    """Memory of this process."""

    def __init__(self, size: int) -> None:
        self.bytes = size
        self._bytes = np.full(size + ALIGNMENT, 0xA5, np.uint8)
        self.address: int = -(-self._bytes.ctypes.data // ALIGNMENT) * ALIGNMENT


class EmulatedArray:
    """An array in the memory of an emulated device: all that others know of it is `__cuda_array_interface__`."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], memory: EmulatedMemory, stream: int = 0) -> None:
        self.shape, self.dtype = shape, dtype
        self._memory = memory
        self._stream = stream

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self._memory.address, False),
            "strides": None,
            "version": 3,
            "stream": self._stream or 1,
        }

    def get(self) -> NDArray[Any]:
        """A copy in NumPy."""
        found: NDArray[Any] = np.empty(self.shape, self.dtype)
        ctypes.memmove(found.ctypes.data, self._memory.address, found.nbytes)
        return found


@dataclass(frozen=True)
class EmulatedKernel:
    image: Path
    launch: Launch


@dataclass(frozen=True)
class EmulatedCall:
    kernel: EmulatedKernel
    buffers: tuple[Span, ...]
    arguments: tuple[int, ...]
    barrier: int


class EmulatedEvent:
    """When the host got there."""

    seconds = 0.0


class EmulatedDevice:
    """A device with the limits of `target`. Work is done when the call that queues it returns."""

    real = False
    multiplies = True
    index = 0
    bus = ""

    def __init__(self, target: Target) -> None:
        """Raises NoDevice without a C++ compiler, which takes a while to find: better now than at the first launch."""
        if find_compiler() is None:
            raise NoDevice("no C++ compiler works here: install g++ or clang++")
        self.target = target

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
        return build_emulated(
            items, self.target, precision=precision, cache=cache, jobs=jobs, per_unit=per_unit, aligned=aligned
        )

    def allocate(self, size: int) -> EmulatedMemory:
        return EmulatedMemory(size)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: int) -> EmulatedArray:
        return EmulatedArray(shape, dtype, EmulatedMemory(int(np.prod(shape)) * dtype.itemsize), stream)

    def upload(self, address: int, data: NDArray[Any], stream: int) -> None:
        ctypes.memmove(address, data.ctypes.data, data.nbytes)

    def download(self, data: NDArray[Any], address: int, stream: int) -> None:
        ctypes.memmove(data.ctypes.data, address, data.nbytes)

    def copy(self, to: int, source: int, size: int, stream: int) -> None:
        ctypes.memmove(to, source, size)

    def copy_elements(self, to: DeviceArray, source: DeviceArray, stream: int) -> None:
        np.copyto(_array(to), _array(source))

    def same(self, a: int, b: int, size: int, stream: int) -> bool:
        return ctypes.string_at(a, size) == ctypes.string_at(b, size)

    def matmul(self, product: MatMul, stream: int) -> None:
        small = product.to.dtype.itemsize < 4 and product.to.dtype.kind not in "iu"
        kind = np.dtype(np.float32) if small else product.to.dtype
        found = np.matmul(_array(product.a).astype(kind), _array(product.b).astype(kind)) * kind.type(product.alpha)
        if product.addend is not None:
            found = found + _array(product.addend).astype(kind) * kind.type(product.beta)
        np.copyto(_array(product.to), found.astype(product.to.dtype))

    def fill(self, address: int, byte: int, size: int, stream: int) -> None:
        ctypes.memset(address, byte, size)

    def load(self, built: BuiltCuda) -> tuple[Kernel, ...]:
        return tuple(EmulatedKernel(built.image, launch) for launch in built.launches)

    def resident(self, kernel: EmulatedKernel) -> int:
        return kernel.launch.resident

    def prepare(self, kernel: EmulatedKernel, buffers: Sequence[Span], arguments: Sequence[int], barrier: int) -> Call:
        return EmulatedCall(kernel, tuple(buffers), tuple(arguments), barrier)

    def launch(self, call: EmulatedCall, stream: int) -> None:
        buffers = [(span.address, span.bytes) for span in call.buffers]
        kernel = call.kernel
        findings = launch_kernel(kernel.image, kernel.launch, buffers, call.arguments, call.barrier, self.target)
        if findings:
            first = findings[0]
            raise LaunchError(f"{first.kind} in {first.kernel}: {first.where}", _TROUBLES.get(first.kind, "failed"))

    def capture(self, calls: Sequence[EmulatedCall]) -> Graph:
        return tuple(calls)

    def replay(self, graph: Sequence[EmulatedCall], stream: int) -> None:
        for call in graph:
            self.launch(call, stream)

    def current_stream(self) -> int:
        return 0

    def capturing(self, stream: int) -> bool:
        return False

    def event(self) -> Event:
        return EmulatedEvent()

    def record(self, event: EmulatedEvent, stream: int) -> None:
        event.seconds = time.perf_counter()

    def wait(self, stream: int, event: Event) -> None:
        pass

    def elapsed(self, first: EmulatedEvent, second: EmulatedEvent) -> float:
        return second.seconds - first.seconds

    def synchronize(self, stream: int) -> None:
        pass


class _Raw:
    """Memory of this process, at any address and with any strides, for NumPy."""

    def __init__(self, array: DeviceArray) -> None:
        self.__array_interface__ = {
            "version": 3,
            "shape": array.shape,
            "typestr": f"|V{array.dtype.itemsize}",
            "data": (array.address, False),
            "strides": array.strides,
        }


def _array(array: DeviceArray) -> NDArray[Any]:
    if array.bytes == 0:
        return np.empty(array.shape, array.dtype)
    return np.asarray(_Raw(array)).view(array.dtype)
