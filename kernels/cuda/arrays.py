"""Arrays on a device, whoever made them: seen through `__cuda_array_interface__` or DLPack, never copied.

A producer that says on which stream its data is made (version 3 of the interface) is waited for; one that takes part in
DLPack is told the stream on which the data will be read, and waits itself. So the interface is used where it names a
stream or where there is nothing else, DLPack otherwise (CUDA Array Interface, version 3, numba.readthedocs.io; Python
specification for DLPack, data-apis.org).
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from .device import Device, DeviceArray, row_major

_CUDA, _MANAGED = 2, 13
"""DLDeviceType: kDLCUDA and kDLCUDAManaged."""

_CODES = {0: "i", 1: "u", 2: "f", 6: "b"}
_BFLOAT, _BOOL = 4, 6
"""DLDataTypeCode."""


def on_device(array: Any) -> bool:
    """True for an array whose elements a kernel can reach."""
    if type(array) is np.ndarray:
        return False
    if hasattr(array, "__cuda_array_interface__"):
        return True
    place = getattr(array, "__dlpack_device__", None)
    return place is not None and place()[0] in (_CUDA, _MANAGED)


def import_arrays(arrays: Sequence[Any], device: Device) -> tuple[list[DeviceArray | None], int]:
    """The device arrays among `arrays` (None for others), and the stream to work on.

    That is the stream which the first of them names, else the current one of the device's library; the data of all of
    them is ready there. Raises ValueError for an array that cannot be shared.
    """
    interfaces = [_interface(a) if on_device(a) else None for a in arrays]
    named = [_handle(i["stream"]) for i in interfaces if i is not None and i.get("stream") is not None]
    stream = named[0] if named else device.current_stream()
    for other in dict.fromkeys(named):
        if other != stream:
            event = device.event()
            device.record(event, other)
            device.wait(stream, event)
    found: list[DeviceArray | None] = []
    for array, interface in zip(arrays, interfaces, strict=True):
        if interface is not None and (interface.get("stream") is not None or not hasattr(array, "__dlpack__")):
            found.append(_from_interface(array, interface))
        elif on_device(array):
            found.append(_from_dlpack(array, device, stream))
        else:
            found.append(None)
    return found, stream


def _interface(array: Any) -> Mapping[str, Any] | None:
    try:
        interface: Mapping[str, Any] | None = getattr(array, "__cuda_array_interface__", None)
    except (RuntimeError, TypeError):  # PyTorch: a tensor that requires grad, a dtype that the interface lacks
        return None
    return interface


def _handle(stream: int) -> int:
    """A stream of the interface as a handle: 1 is the default stream there."""
    return 0 if stream == 1 else stream


def _from_interface(array: Any, interface: Mapping[str, Any]) -> DeviceArray:
    if interface.get("mask") is not None:
        raise ValueError("a masked device array cannot be used")
    text = interface["typestr"]
    dtype = np.dtype(ml_dtypes.bfloat16) if text in ("<V2", "|V2") else np.dtype(text)
    shape = tuple(int(n) for n in interface["shape"])
    address, read_only = interface["data"]
    strides = interface.get("strides")
    return DeviceArray(
        int(address or 0),
        shape,
        row_major(shape, dtype.itemsize) if strides is None else tuple(int(s) for s in strides),
        dtype,
        not read_only,
        array,
    )


class _Tensor(ctypes.Structure):
    """DLTensor (dlpack.h), the first member of DLManagedTensor."""

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


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def _from_dlpack(array: Any, device: Device, stream: int) -> DeviceArray:
    """The capsule is kept and never consumed, so dropping it gives the tensor back to its producer."""
    try:
        capsule = array.__dlpack__(stream=stream or 1)
    except (BufferError, RuntimeError) as error:
        raise ValueError(f"the array cannot be shared: {error}") from error
    tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    if tensor.device_type not in (_CUDA, _MANAGED) or tensor.device_id != device.index:
        raise ValueError(f"the array is on device {tensor.device_id}, not on CUDA device {device.index}")
    if tensor.lanes != 1 or (tensor.code != _BFLOAT and tensor.code not in _CODES):
        raise ValueError(f"elements of DLPack type {tensor.code} with {tensor.lanes} lanes cannot be used")
    if tensor.code == _BFLOAT:
        dtype = np.dtype(ml_dtypes.bfloat16)
    else:
        dtype = np.dtype(np.bool_) if tensor.code == _BOOL else np.dtype(f"{_CODES[tensor.code]}{tensor.bits // 8}")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    strides = row_major(shape, dtype.itemsize)
    if tensor.strides:
        strides = tuple(tensor.strides[i] * dtype.itemsize for i in range(tensor.ndim))
    return DeviceArray((tensor.data or 0) + tensor.byte_offset, shape, strides, dtype, True, capsule)
