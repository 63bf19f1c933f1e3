"""The device through CuPy against a stand-in for its runtime and driver, whose memory is the host's.

What a real driver does is tested by test_launch.py and test_executor.py on a machine that has one; here are the calls:
their arguments, their order, and what their errors become.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.kernels.cuda.bfloat16 import narrowed, widened
from stitchtune.kernels.cuda.built import Launch, Parameter
from stitchtune.kernels.cuda.cupy_device import CupyDevice, cupy_device
from stitchtune.kernels.cuda.device import LaunchError, NoDevice, Span
from stitchtune.search_space.devices import device_target

TARGET = device_target("cuda:h200")
STREAM = 7


class Driver:
    """Counts and remembers; a launch doubles `count` floats of its first parameter into the second."""

    class CUDADriverError(RuntimeError):
        pass

    class CUDARuntimeError(RuntimeError):
        pass

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.memory: dict[int, Any] = {}
        self.pinned: set[int] = set()
        self.recorded: list[tuple[Any, ...]] | None = None
        self.fail: Exception | None = None
        self.cudaDevAttrMultiProcessorCount = 16

    def _do(self, name: str, *arguments: Any) -> None:
        self.log.append((name, *arguments))
        if self.fail is not None:
            raise self.fail

    # --- runtime

    def getDeviceCount(self) -> int:
        return 1

    def getDeviceProperties(self, index: int) -> dict[str, Any]:
        return {"name": b"NVIDIA H200", "major": 9, "minor": 0}

    def deviceGetAttribute(self, attribute: int, index: int) -> int:
        return 132

    def deviceGetPCIBusId(self, index: int) -> str:
        return "0000:65:00.0"

    def malloc(self, size: int) -> int:
        self._do("malloc", size)
        made = (ctypes.c_uint8 * (size + 256))()
        address = -(-ctypes.addressof(made) // 256) * 256
        self.memory[address] = made
        return address

    def free(self, address: int) -> None:
        self.memory.pop(address, None)

    def pointerGetAttributes(self, address: int) -> SimpleNamespace:
        return SimpleNamespace(type=int(address in self.pinned))

    def memcpyAsync(self, to: int, source: int, size: int, kind: int, stream: int) -> None:
        self._do("memcpy", kind, stream)
        ctypes.memmove(to, source, size)

    def memsetAsync(self, address: int, value: int, size: int, stream: int) -> None:
        self._do("memset", value, size, stream)
        ctypes.memset(address, value, size)

    def streamSynchronize(self, stream: int) -> None:
        self._do("synchronize", stream)

    def streamCreateWithFlags(self, flags: int) -> int:
        return 99

    def streamIsCapturing(self, stream: int) -> bool:
        return stream == 55

    def streamBeginCapture(self, stream: int) -> None:
        self.log.append(("begin", stream))
        self.recorded = []

    def streamEndCapture(self, stream: int) -> int:
        self.log.append(("end", stream))
        return 1234

    def graphInstantiate(self, graph: int) -> int:
        self.graph, self.recorded = list(self.recorded or ()), None
        return 4321

    def graphDestroy(self, graph: int) -> None:
        self.log.append(("destroy", graph))

    def graphExecDestroy(self, graph: int) -> None:
        self.log.append(("destroy", graph))

    def graphLaunch(self, graph: int, stream: int) -> None:
        self._do("replay", graph, stream)
        for launch in self.graph:
            self._run(launch)

    def eventCreate(self) -> int:
        return 31

    def eventDestroy(self, event: int) -> None:
        self.log.append(("destroy", event))

    def eventRecord(self, event: int, stream: int) -> None:
        self._do("record", event, stream)

    def eventSynchronize(self, event: int) -> None:
        self._do("reach", event)

    def eventElapsedTime(self, first: int, second: int) -> float:
        return 1.5

    def streamWaitEvent(self, stream: int, event: int) -> None:
        self._do("wait", stream, event)

    # --- driver

    def moduleLoadData(self, image: bytes) -> int:
        self._do("load", image)
        return 5

    def moduleGetFunction(self, module: int, name: str) -> int:
        self._do("function", module, name)
        return 6

    def funcSetAttribute(self, function: int, attribute: int, value: int) -> None:
        self._do("attribute", function, attribute, value)

    def occupancyMaxActiveBlocksPerMultiprocessor(self, function: int, threads: int, shared: int) -> int:
        assert (function, threads, shared) == (6, 128, 1024)
        return 12

    def launchKernel(self, function: int, *rest: int) -> None:
        *shape, stream, pointers, extra = rest
        assert extra == 0
        self._launch("launch", (function, *shape, stream), pointers)

    def launchCooperativeKernel(self, function: int, *rest: int) -> None:
        *shape, stream, pointers = rest
        self._launch("cooperative", (function, *shape, stream), pointers)

    def _launch(self, name: str, shape: tuple[int, ...], pointers: int) -> None:
        self._do(name, *shape)
        at = (ctypes.c_void_p * 4).from_address(pointers)
        values = tuple(ctypes.c_int64.from_address(at[i] or 0).value for i in range(4))
        if self.recorded is not None:
            self.recorded.append(values)
        else:
            self._run(values)

    def _run(self, values: tuple[Any, ...]) -> None:
        x, y, count, word = values
        source, into = ((ctypes.c_float * count).from_address(at) for at in (x, y))
        into[:] = [2 * v for v in source]
        assert ctypes.c_uint32.from_address(word).value == 0


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Driver]:
    driver = Driver()

    class Memory:
        def __init__(self, size: int) -> None:
            self.ptr = driver.malloc(size)

    pool = SimpleNamespace(free_all_blocks=lambda: driver.log.append(("free blocks",)))
    cuda = SimpleNamespace(
        runtime=driver,
        driver=driver,
        Device=lambda index: nullcontext(),
        Memory=Memory,
        get_current_stream=lambda: SimpleNamespace(ptr=STREAM),
    )
    cupy: Any = ModuleType("cupy")
    cupy.cuda, cupy.get_default_memory_pool = cuda, lambda: pool
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    cupy_device.cache_clear()
    yield driver
    cupy_device.cache_clear()


def loaded(device: CupyDevice, folder: Path, **changes: Any) -> Any:
    """A kernel (x, y, count, barrier)."""
    parameters = (
        Parameter("buffer", 0, DType.F32),
        Parameter("buffer", 1, DType.F32, written=True),
        Parameter("argument", 0, DType.I64),
        Parameter("barrier", 0, DType.U32),
    )
    launch = replace(Launch("st_k0", parameters, 128, 40, 1024, False), **changes)
    image = folder / "image.cubin"
    image.write_bytes(b"cubin")
    [kernel] = device.load(SimpleNamespace(image=image, launches=(launch,)))  # type: ignore[arg-type]
    return kernel


def prepared(device: CupyDevice, kernel: Any) -> tuple[Any, Any, Any]:
    """A call on three floats, and its memory."""
    x, y = device.allocate(16), device.allocate(16)
    device.upload(x.address, np.array([1, 2, 3], np.float32), STREAM)
    device.fill(y.address, 0, 16, STREAM)
    call = device.prepare(kernel, [Span(x.address, 12), Span(y.address, 12)], [3], y.address + 12)
    return call, y, x


def result(device: CupyDevice, y: Any) -> list[float]:
    found = np.empty(3, np.float32)
    device.download(found, y.address, STREAM)
    return [float(v) for v in found]


def test_the_driver_says_how_many_blocks_fit(driver: Driver, tmp_path: Path) -> None:
    device = cupy_device(TARGET)
    assert device.resident(loaded(device, tmp_path)) == 12


def test_a_kernel_gets_its_parameters(driver: Driver, tmp_path: Path) -> None:
    device = cupy_device(TARGET)
    assert (device.target, device.index, device.bus, device.real) == (TARGET, 0, "0000:65:00.0", True)
    call, y, _x = prepared(device, loaded(device, tmp_path))
    device.launch(call, STREAM)
    assert result(device, y) == [2, 4, 6]
    assert ("load", b"cubin") in driver.log
    assert ("launch", 6, 40, 1, 1, 128, 1, 1, 1024, STREAM) in driver.log
    assert ("memcpy", 1, STREAM) in driver.log
    assert driver.log[-2:] == [("memcpy", 2, STREAM), ("synchronize", STREAM)]
    assert not any(entry[0] == "attribute" for entry in driver.log)


def test_uploads_of_pinned_memory_are_waited_for(driver: Driver) -> None:
    device = cupy_device(TARGET)
    data, memory = np.arange(4, dtype=np.float32), device.allocate(16)
    device.upload(memory.address, data, STREAM)
    assert driver.log[-1] == ("memcpy", 1, STREAM)
    driver.pinned.add(data.ctypes.data)
    device.upload(memory.address, data, STREAM)
    assert driver.log[-2:] == [("memcpy", 1, STREAM), ("synchronize", STREAM)]


def test_large_shared_memory_is_asked_for_and_barriers_launch_together(driver: Driver, tmp_path: Path) -> None:
    device = cupy_device(TARGET)
    kernel = loaded(device, tmp_path, shared_bytes=100_000, cooperative=True)
    assert ("attribute", 6, 8, 100_000) in driver.log
    call, y, _x = prepared(device, kernel)
    device.launch(call, STREAM)
    assert result(device, y) == [2, 4, 6]
    assert ("cooperative", 6, 40, 1, 1, 128, 1, 1, 100_000, STREAM) in driver.log
    loaded(device, tmp_path, shared_bytes=100_000)
    assert sum(entry[0] in ("load", "function") for entry in driver.log) == 2  # loaded once


def test_a_graph_is_recorded_apart_and_replayed(driver: Driver, tmp_path: Path) -> None:
    device = cupy_device(TARGET)
    call, y, _x = prepared(device, loaded(device, tmp_path))
    before = len(driver.log)
    graph = device.capture([call, call])
    assert [entry[0] for entry in driver.log[before:]] == ["begin", "launch", "launch", "end", "destroy"]
    assert {entry[-1] for entry in driver.log[before : before + 4]} == {99}
    assert result(device, y) == [0, 0, 0]
    device.replay(graph, STREAM)
    assert result(device, y) == [2, 4, 6]
    del graph
    assert driver.log[-1] == ("destroy", 4321)


def test_a_recording_that_fails_is_ended(driver: Driver, tmp_path: Path) -> None:
    device = cupy_device(TARGET)
    call, _y, _x = prepared(device, loaded(device, tmp_path))
    driver.fail = Driver.CUDADriverError("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: operation not permitted")
    with pytest.raises(LaunchError, match="STREAM_CAPTURE_UNSUPPORTED"):
        device.capture([call])
    assert driver.log[-1] == ("end", 99)


def test_events_tell_seconds_and_streams_wait(driver: Driver) -> None:
    device = cupy_device(TARGET)
    event = device.event()
    device.record(event, STREAM)
    device.wait(9, event)
    assert device.elapsed(event, event) == 1.5e-3
    assert driver.log[-3:] == [("record", 31, STREAM), ("wait", 9, 31), ("reach", 31)]
    assert device.current_stream() == STREAM
    assert [device.capturing(stream) for stream in (0, 1, 2, 55, 56)] == [False, False, False, True, False]


def test_errors_say_what_happened_and_whether_the_device_is_lost(driver: Driver, tmp_path: Path) -> None:
    device = cupy_device(TARGET)
    call, _y, _x = prepared(device, loaded(device, tmp_path))
    driver.fail = Driver.CUDARuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
    with pytest.raises(LaunchError, match="running kernels: cudaErrorIllegalAddress") as lost:
        device.synchronize(STREAM)
    assert (lost.value.trouble, lost.value.sticky) == ("out-of-bounds", True)
    driver.fail = Driver.CUDADriverError("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: too many blocks")
    with pytest.raises(LaunchError, match="launching st_k0") as refused:
        device.launch(call, STREAM)
    assert (refused.value.trouble, refused.value.sticky) == ("refused", False)
    driver.fail = Driver.CUDARuntimeError("cudaErrorMemoryAllocation: out of memory")
    with pytest.raises(MemoryError, match="no 3 MiB of device memory"):
        device.allocate(3 << 20)
    assert ("free blocks",) in driver.log


def test_another_device_is_refused_in_one_line(driver: Driver) -> None:
    with pytest.raises(NoDevice, match=r"the device here is NVIDIA H200 \(sm_90, 132 multiprocessors\)"):
        cupy_device(device_target("cuda:a100"))
    with pytest.raises(NoDevice, match="there are 1 CUDA devices"):
        cupy_device(TARGET, 3)


def test_without_cupy_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    cupy_device.cache_clear()
    with pytest.raises(NoDevice, match=r"CuPy is not installed \(pip install 'stitchtune\[cuda13\]'"):
        cupy_device(TARGET)


def test_bfloat16_by_its_bits() -> None:
    rng = np.random.default_rng(0)
    numbers = rng.integers(0, 1 << 32, 100_000, np.uint32).view(np.float32)
    ties = (np.arange(1 << 16, dtype=np.uint32) << 16 | 0x8000).view(np.float32)
    every = np.concatenate([numbers, ties])
    with np.errstate(all="ignore"):
        want = every.astype(ml_dtypes.bfloat16)
    nan = np.isnan(every)
    found = narrowed(np, every)
    np.testing.assert_array_equal(found[~nan], want.view(np.uint16)[~nan])
    assert np.isnan(found[nan].view(ml_dtypes.bfloat16)).all()
    halves = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(widened(np, halves), halves.view(ml_dtypes.bfloat16).astype(np.float32))
