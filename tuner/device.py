"""The device of a target as measuring needs it: prepared once by the tuner, opened by whoever runs kernels."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ..graphs.errors import StitchtuneError
from ..kernels.compile import BuildFailure, compile_units, find_compiler
from ..kernels.team import Eviction, Team, load_runtime, runtime_source
from ..search_space.target import Target

if TYPE_CHECKING:
    from ..kernels.cuda.device import Device as OpenDevice


class DeviceError(StitchtuneError):
    """Nothing can be measured here. Exit code 1."""


@dataclass(frozen=True)
class Device:
    """A prepared device: the runtime library is compiled, so that a worker starts without a compiler."""

    runtime: Path
    threads: int
    cache_bytes: int
    opening: ClassVar[float] = 0.0

    def open(self) -> Team:
        """A team on this device, for the calling process alone. Close it after use."""
        return Team(load_runtime(self.runtime), self.threads)


@dataclass(frozen=True)
class CudaDevice:
    """A CUDA device of this machine, or an emulated one. Nothing is opened: a process that has it open cannot fork."""

    target: Target
    opening: ClassVar[float] = 120.0
    """Seconds that opening may take."""

    def open(self) -> OpenDevice:
        """The device, for the calling process. Raises NoDevice."""
        from ..kernels.cuda.opening import open_device

        return open_device(self.target)


def prepare_device(target: Target, cache: Path) -> Device | CudaDevice:
    """Compiles what measuring on `target` needs into `cache`. Raises DeviceError, one line, when that fails.

    Whether a CUDA device is really there shows when the worker opens it.
    """
    if target.kind == "cuda":
        return CudaDevice(target)
    compiler = find_compiler()
    if compiler is None:
        raise DeviceError("no C++ compiler works here: install g++ or clang++ to tune")
    [made] = compile_units([runtime_source()], compiler, cache)
    if isinstance(made, BuildFailure):
        raise DeviceError(f"the thread team does not compile: {made.message}")
    return Device(made.library, target.processors, target.cache_bytes)


class SharedEviction(Eviction):
    """Eviction memory that forked processes share, so that writing it copies no pages."""

    def __init__(self, cache_bytes: int) -> None:
        self.bytes = 2 * max(cache_bytes, 1 << 20)
        self._shared = mmap.mmap(-1, self.bytes)
        array = np.frombuffer(self._shared, np.uint8)
        array[:] = 1
        self.address = int(array.ctypes.data)
