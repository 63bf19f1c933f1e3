"""The devices that launcher and executor are tested on, and arrays of their own and of others on them."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from stitchtune.devices import cuda_device, emulated
from stitchtune.kernels.cuda.device import Device, NoDevice
from stitchtune.kernels.cuda.emulated_device import EmulatedDevice
from stitchtune.kernels.cuda.opening import open_device
from stitchtune.search_space.devices import device_target

DEVICES = ("emulated", "cupy")


def shared_cache(factory: pytest.TempPathFactory) -> Path:
    """One cache for all modules: the emulator itself takes seconds to compile."""
    folder = factory.getbasetemp() / "cuda-cache"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


@functools.cache
def device_of(kind: str) -> Device:
    """A device to test on; skips, with the reason, where there is none."""
    if kind == "emulated":
        return EmulatedDevice(emulated(device_target("cuda:h200")))
    target = cuda_device()
    if target is None:
        pytest.skip("no CUDA device that CuPy can use")
    try:
        return open_device(target)
    except NoDevice as error:
        pytest.skip(str(error))


def put(device: Device, array: NDArray[Any]) -> Any:
    """The array on the device, as one of its own library."""
    there = device.empty(array.shape, array.dtype, device.current_stream())
    device.upload(address_of(there), np.ascontiguousarray(array), device.current_stream())
    device.synchronize(device.current_stream())
    return there


def address_of(array: Any) -> int:
    address: int = array.__cuda_array_interface__["data"][0]
    return address


class Foreign:
    """An array of another library: a pointer into device memory, any strides, and perhaps a stream of its own."""

    def __init__(
        self,
        device: Device,
        data: NDArray[Any],
        *,
        offset: int = 0,
        strides: tuple[int, ...] | None = None,
        stream: int | None = None,
        read_only: bool = False,
    ) -> None:
        self._device = device
        self._shape, self._dtype, self._strides = data.shape, data.dtype, strides
        reach = sum((n - 1) * s for n, s in zip(data.shape, strides or (), strict=False)) + data.itemsize
        self._memory = device.allocate(max(data.nbytes, reach) + offset)
        self.address = self._memory.address + offset
        if strides is None:
            device.upload(self.address, np.ascontiguousarray(data), 0)
        else:
            spread = np.zeros(reach, np.uint8)
            np.lib.stride_tricks.as_strided(spread[: data.itemsize].view(data.dtype), data.shape, strides)[...] = data
            device.upload(self.address, spread, 0)
        device.synchronize(0)
        self._stream, self._read_only = stream, read_only

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        named = {} if self._stream is None else {"stream": self._stream}
        return {
            "shape": self._shape,
            "typestr": self._dtype.str,
            "data": (self.address, self._read_only),
            "strides": self._strides,
            "version": 3,
            **named,
        }

    def numpy(self) -> NDArray[Any]:
        """The contents of a contiguous one."""
        found = np.empty(self._shape, self._dtype)
        self._device.download(found, self.address, 0)
        return found


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


_capsule = ctypes.pythonapi.PyCapsule_New
_capsule.restype = ctypes.py_object
_capsule.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


class Tensor:
    """An array that only DLPack tells of; it remembers the streams that it was asked for."""

    def __init__(self, device: Device, data: NDArray[Any], *, number: int = 0, code: int = 2) -> None:
        self._device, self._data, self._number = device, data, number
        self._memory = device.allocate(data.nbytes + 16)
        device.upload(self._memory.address + 16, np.ascontiguousarray(data), 0)
        device.synchronize(0)
        self._shape = (ctypes.c_int64 * data.ndim)(*data.shape)
        bits = 8 * data.itemsize
        self._tensor = DLTensor(self._memory.address, 2, number, data.ndim, code, bits, 1, self._shape, None, 16)
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self._number

    def __dlpack__(self, stream: int) -> Any:
        self.streams.append(stream)
        return _capsule(ctypes.addressof(self._tensor), b"dltensor", None)

    def numpy(self) -> NDArray[Any]:
        found = np.empty(self._data.shape, self._data.dtype)
        self._device.download(found, self._memory.address + 16, 0)
        return found


def fetched(device: Device, array: Any) -> NDArray[Any]:
    """An array of the device's own library in NumPy."""
    interface = array.__cuda_array_interface__
    found = np.empty(interface["shape"], array.dtype)
    device.download(found, interface["data"][0], 0)
    return found


class Spy:
    """A device that remembers the streams on which kernels and graphs were queued, and how often it recorded."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self.launched: list[int] = []
        self.replayed: list[int] = []
        self.waits: list[int] = []
        self.captures = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def launch(self, call: Any, stream: int) -> None:
        self.launched.append(stream)
        self._device.launch(call, stream)

    def capture(self, calls: Any) -> Any:
        self.captures += 1
        return self._device.capture(calls)

    def replay(self, graph: Any, stream: int) -> None:
        self.replayed.append(stream)
        self._device.replay(graph, stream)

    def wait(self, stream: int, event: Any) -> None:
        self.waits.append(stream)
        self._device.wait(stream, event)
