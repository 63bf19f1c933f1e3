"""A CUDA device through CuPy; the one file that imports it."""

from __future__ import annotations

import ctypes
import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graphs.subgraph import Subgraph
from ...search_space.plan import Plan
from ...search_space.target import Target
from ..compile import BuildFailure
from .bfloat16 import narrowed, widened
from .build import build_cuda
from .built import BuiltCuda, Launch
from .device import Call, DeviceArray, Event, Graph, Kernel, LaunchError, MatMul, NoDevice, Span, Trouble, contiguous

_OPT_IN = 48 << 10
"""Bytes of dynamic shared memory that a kernel may have without asking."""

_MAX_DYNAMIC_SHARED = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES (CUDA driver API)."""

_HOST_TO_DEVICE, _DEVICE_TO_HOST, _DEVICE_TO_DEVICE = 1, 2, 3
"""cudaMemcpyKind."""

_PAGEABLE = 0
"""cudaMemoryTypeUnregistered."""

_BYTE, _HALF = np.dtype(np.uint8), np.dtype(np.uint16)

_NON_BLOCKING = 1
"""cudaStreamNonBlocking."""

_TROUBLES: dict[str, tuple[Trouble, bool]] = {
    "ILLEGALADDRESS": ("out-of-bounds", True),
    "MISALIGNEDADDRESS": ("misaligned", True),
    "LAUNCHTIMEOUT": ("hung", True),
    "ILLEGALINSTRUCTION": ("trapped", True),
    "ASSERT": ("trapped", True),
    "LAUNCHFAILED": ("failed", True),
    "LAUNCHFAILURE": ("failed", True),
    "COOPERATIVELAUNCHTOOLARGE": ("refused", False),
    "LAUNCHOUTOFRESOURCES": ("refused", False),
    "INVALIDVALUE": ("refused", False),
}
"""The name of a driver's or runtime's error -> what it means, and whether the context is lost (CUDA driver API,
"CUresult": those after which "the process must be terminated and relaunched")."""


@dataclass(frozen=True)
class CupyKernel:
    """A function of a loaded module."""

    handle: int
    launch: Launch


class CupyMemory:
    """Memory from cudaMalloc; freeing it waits for the device, so nothing queued loses it."""

    def __init__(self, cupy: Any, size: int) -> None:
        self.bytes = size
        self._memory = cupy.cuda.Memory(max(1, size))
        self.address: int = self._memory.ptr


@dataclass(frozen=True)
class CupyCall:
    """The arguments of cuLaunchKernel. `held` is what `pointers` points to."""

    kernel: CupyKernel
    pointers: int
    held: tuple[Any, ...] = field(repr=False)


class CupyDevice:
    """The device number `index` of this process. Make it by `cupy_device`."""

    real = True

    def __init__(self, cupy: Any, index: int, name: str, target: Target) -> None:
        self.name = name
        self.target = target
        self._cupy = cupy
        self.index = index
        self._runtime = cupy.cuda.runtime
        self._driver = cupy.cuda.driver
        self._failures: tuple[type[Exception], ...] = (self._driver.CUDADriverError, self._runtime.CUDARuntimeError)
        self._lock = threading.Lock()
        self._entered = threading.local()
        self._modules: dict[Path, int] = {}
        self._functions: dict[tuple[Path, str], int] = {}
        with cupy.cuda.Device(index):
            self._runtime.free(0)  # makes the context
            self._recording = self._runtime.streamCreateWithFlags(_NON_BLOCKING)
        self.bus: str = self._runtime.deviceGetPCIBusId(index)

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
        return build_cuda(
            items, self.target, precision=precision, cache=cache, jobs=jobs, per_unit=per_unit, aligned=aligned
        )

    @functools.cached_property
    def multiplies(self) -> bool:
        """cuBLAS is installed, which CuPy's wheels do not bring."""
        try:
            from cupy.cuda import cublas
        except ImportError:
            return False
        self._failures = (*self._failures, cublas.CUBLASError)
        return True

    # --- memory

    def allocate(self, size: int) -> CupyMemory:
        with self._cupy.cuda.Device(self.index):
            try:
                return CupyMemory(self._cupy, size)
            except self._failures:
                self._cupy.get_default_memory_pool().free_all_blocks()
            try:
                return CupyMemory(self._cupy, size)
            except self._failures as error:
                raise MemoryError(f"no {size >> 20} MiB of device memory ({error})") from error

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any], stream: int) -> Any:
        try:
            with self._cupy.cuda.Device(self.index), self._on(stream):
                return self._cupy.empty(shape, dtype)
        except self._cupy.cuda.memory.OutOfMemoryError as error:
            raise MemoryError(str(error)) from error

    def upload(self, address: int, data: NDArray[Any], stream: int) -> None:
        if data.nbytes:
            self._copy(address, data.ctypes.data, data.nbytes, _HOST_TO_DEVICE, stream)
            # Of pageable memory the runtime has its own copy by now; pinned memory is read when the stream gets there.
            if self._runtime.pointerGetAttributes(data.ctypes.data).type != _PAGEABLE:
                self.synchronize(stream)

    def download(self, data: NDArray[Any], address: int, stream: int) -> None:
        if data.nbytes:
            self._copy(data.ctypes.data, address, data.nbytes, _DEVICE_TO_HOST, stream)
        self.synchronize(stream)

    def copy(self, to: int, source: int, size: int, stream: int) -> None:
        if size:
            self._copy(to, source, size, _DEVICE_TO_DEVICE, stream)

    def _copy(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        with self._errors("copying"):
            self._runtime.memcpyAsync(to, source, size, kind, stream)

    def copy_elements(self, to: DeviceArray, source: DeviceArray, stream: int) -> None:
        with self._errors("copying"), self._cupy.cuda.Device(self.index), self._on(stream):
            kind = np.dtype(f"u{to.dtype.itemsize}")  # whatever CuPy knows of the dtype
            self._cupy.copyto(self._array(to, kind), self._array(source, kind))

    def same(self, a: int, b: int, size: int, stream: int) -> bool:
        if not size:
            return True
        with self._errors("running kernels"), self._cupy.cuda.Device(self.index), self._on(stream):
            first, second = (self._array(contiguous(at, (size,), _BYTE), _BYTE) for at in (a, b))
            return bool(self._cupy.array_equal(first, second))

    def matmul(self, product: MatMul, stream: int) -> None:
        cupy = self._cupy
        plain = product.alpha == 1.0 and product.addend is None
        with self._errors("multiplying matrices"), cupy.cuda.Device(self.index), self._on(stream):
            if product.to.dtype.kind == "V":  # bfloat16, which CuPy does not multiply
                found = self._scaled(product, lambda given: widened(cupy, self._array(given, _HALF)))
                cupy.copyto(self._array(product.to, _HALF), narrowed(cupy, found))
            elif plain:
                a, b, to = (self._array(one, one.dtype) for one in (product.a, product.b, product.to))
                cupy.matmul(a, b, out=to)
            else:
                found = self._scaled(product, lambda given: self._array(given, given.dtype))
                cupy.copyto(self._array(product.to, product.to.dtype), found)

    def _scaled(self, product: MatMul, get: Callable[[DeviceArray], Any]) -> Any:
        """The product in a fresh array."""
        found = self._cupy.matmul(get(product.a), get(product.b))
        if product.alpha != 1.0:
            found *= product.alpha
        if product.addend is not None:
            found += get(product.addend) * found.dtype.type(product.beta)
        return found

    def _array(self, given: DeviceArray, dtype: np.dtype[Any]) -> Any:
        """Memory of somebody else as an array of CuPy's."""
        memory = self._cupy.cuda.UnownedMemory(given.address, max(1, given.bytes), None, self.index)
        pointer = self._cupy.cuda.MemoryPointer(memory, 0)
        return self._cupy.ndarray(given.shape, dtype, pointer, given.strides)

    def fill(self, address: int, byte: int, size: int, stream: int) -> None:
        if size:
            with self._errors("filling memory"):
                self._runtime.memsetAsync(address, byte, size, stream)

    # --- kernels

    def _enter(self) -> None:
        """Lets the calling thread use the driver, which does not enter the device by itself as the runtime does."""
        if not hasattr(self._entered, "done"):
            with self._cupy.cuda.Device(self.index):
                self._runtime.free(0)
            self._entered.done = True

    def load(self, built: BuiltCuda) -> tuple[Kernel, ...]:
        self._enter()
        with self._lock, self._cupy.cuda.Device(self.index), self._errors(f"loading {built.image.name}"):
            return tuple(CupyKernel(self._function(built.image, launch), launch) for launch in built.launches)

    def _function(self, image: Path, launch: Launch) -> int:
        if image not in self._modules:
            self._modules[image] = self._driver.moduleLoadData(image.read_bytes())
        at = (image, launch.symbol)
        if at not in self._functions:
            handle = self._driver.moduleGetFunction(self._modules[image], launch.symbol)
            if launch.shared_bytes > _OPT_IN:
                self._driver.funcSetAttribute(handle, _MAX_DYNAMIC_SHARED, launch.shared_bytes)
            self._functions[at] = handle
        return self._functions[at]

    def resident(self, kernel: CupyKernel) -> int:
        self._enter()
        threads, shared = kernel.launch.threads, kernel.launch.shared_bytes
        with self._errors(f"asking about {kernel.launch.symbol}"):
            found: int = self._driver.occupancyMaxActiveBlocksPerMultiprocessor(kernel.handle, threads, shared)
        return found

    def prepare(self, kernel: CupyKernel, buffers: Sequence[Span], arguments: Sequence[int], barrier: int) -> Call:
        parameters = kernel.launch.parameters
        values = (ctypes.c_int64 * max(1, len(parameters)))()
        for i, parameter in enumerate(parameters):
            match parameter.kind:
                case "buffer":
                    values[i] = buffers[parameter.position].address
                case "argument":
                    values[i] = arguments[parameter.position]
                case _:
                    values[i] = barrier
        base = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * len(values))(*(base + 8 * i for i in range(len(values))))
        return CupyCall(kernel, ctypes.addressof(pointers), (values, pointers))

    def launch(self, call: CupyCall, stream: int) -> None:
        self._enter()
        launch = call.kernel.launch
        where = (call.kernel.handle, launch.blocks, 1, 1, launch.threads, 1, 1, launch.shared_bytes, stream)
        with self._errors(f"launching {launch.symbol}"):
            if launch.cooperative:
                self._driver.launchCooperativeKernel(*where, call.pointers)
            else:
                self._driver.launchKernel(*where, call.pointers, 0)

    def capture(self, calls: Sequence[CupyCall]) -> Graph:
        with self._lock, self._errors("recording a graph"):
            self._runtime.streamBeginCapture(self._recording)
            try:
                for call in calls:
                    self.launch(call, self._recording)
            finally:
                recorded = self._runtime.streamEndCapture(self._recording)
            made = CupyGraph(self._runtime.graphInstantiate(recorded))
            self._runtime.graphDestroy(recorded)
        weakref.finalize(made, self._runtime.graphExecDestroy, made.handle).atexit = False
        return made

    def replay(self, graph: CupyGraph, stream: int) -> None:
        with self._errors("launching a graph"):
            self._runtime.graphLaunch(graph.handle, stream)

    # --- streams

    def current_stream(self) -> int:
        stream: int = self._cupy.cuda.get_current_stream().ptr
        return stream

    def capturing(self, stream: int) -> bool:
        # The default stream cannot be captured, and asking about it while another one is counts as an error.
        return stream > 2 and bool(self._runtime.streamIsCapturing(stream))

    def event(self) -> Event:
        event = CupyEvent(self._runtime.eventCreate())
        weakref.finalize(event, self._runtime.eventDestroy, event.handle).atexit = False
        return event

    def record(self, event: CupyEvent, stream: int) -> None:
        with self._errors("recording an event"):
            self._runtime.eventRecord(event.handle, stream)

    def wait(self, stream: int, event: CupyEvent) -> None:
        with self._errors("waiting for an event"):
            self._runtime.streamWaitEvent(stream, event.handle)

    def elapsed(self, first: CupyEvent, second: CupyEvent) -> float:
        with self._errors("running kernels"):
            self._runtime.eventSynchronize(second.handle)
            milliseconds: float = self._runtime.eventElapsedTime(first.handle, second.handle)
        return milliseconds * 1e-3

    def synchronize(self, stream: int) -> None:
        with self._errors("running kernels"):
            self._runtime.streamSynchronize(stream)

    @contextmanager
    def _errors(self, doing: str) -> Any:
        try:
            yield
        except self._failures as error:
            raise LaunchError(f"{doing}: {error}", *meaning(str(error))) from error

    def _on(self, stream: int) -> Any:
        """The context in which CuPy allocates for `stream`."""
        if stream == self.current_stream():
            return self._cupy.cuda.get_current_stream()
        if stream == 0:
            return self._cupy.cuda.Stream.null
        if hasattr(self._cupy.cuda.Stream, "from_external"):
            return self._cupy.cuda.Stream.from_external(_Foreign(stream))
        return self._cupy.cuda.ExternalStream(stream, self.index)


@dataclass(frozen=True, eq=False)
class CupyGraph:
    """An executable graph of the runtime."""

    handle: int


@dataclass(frozen=True, eq=False)
class CupyEvent:
    """An event of the runtime."""

    handle: int


class _Foreign:
    """A stream of somebody else, in the CUDA stream protocol (version 0)."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def meaning(message: str) -> tuple[Trouble, bool]:
    """What an error of the driver or the runtime means, by its text, and whether the process lost the device."""
    name = message.partition(":")[0].upper().replace("_", "").removeprefix("CUDAERROR")
    return _TROUBLES.get(name, ("failed", False))


@functools.cache
def cupy_device(target: Target, index: int = 0) -> CupyDevice:
    """Device number `index` of this process, which `target` describes. Raises NoDevice, with what is missing."""
    try:
        import cupy
    except ImportError as error:
        raise NoDevice("CuPy is not installed (pip install 'stitchtune[cuda13]' or 'stitchtune[cuda12]')") from error
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
        if index >= count:
            raise NoDevice(f"there are {count} CUDA devices")
        arch = "sm_{major}{minor}".format(**runtime.getDeviceProperties(index))
        processors = runtime.deviceGetAttribute(runtime.cudaDevAttrMultiProcessorCount, index)
        name = _text(runtime.getDeviceProperties(index)["name"])
    except runtime.CUDARuntimeError as error:
        raise NoDevice(f"no CUDA device can be used ({error})") from error
    if (arch, processors) != (target.arch, target.processors):
        raise NoDevice(f"the device here is {name} ({arch}, {processors} multiprocessors)")
    return CupyDevice(cupy, index, name, target)


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
