"""What the NVIDIA driver says of this machine's devices, asked through its own library: nothing else is imported.

It is asked in a process of its own (this file as a script), because a process that has called the driver can no longer
use it after a fork.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import subprocess
import sys
from dataclasses import dataclass

LIBRARY = "libcuda.so.1"
_FILES = ("/dev/nvidiactl", "/dev/dxg")
"""Device files of the driver: on Linux, and on Linux inside Windows."""
_ASK_SECONDS = 30

# CUdevice_attribute, from cuda.h
_ATTRIBUTES = {
    "processors": 16,
    "cache_bytes": 38,
    "resident_threads": 39,
    "major": 75,
    "minor": 76,
    "shared_bytes": 81,
    "registers": 82,
    "block_bytes": 97,
    "resident_blocks": 106,
}


@dataclass(frozen=True)
class DriverDevice:
    """One device as the driver describes it; sizes in bytes, those of shared memory and registers per multiprocessor.

    block_bytes   most shared memory that a block may opt in to
    driver        newest CUDA version that the driver runs, as 1000 x major + 10 x minor
    """

    name: str
    memory: int
    driver: int
    processors: int
    cache_bytes: int
    resident_threads: int
    major: int
    minor: int
    shared_bytes: int
    registers: int
    block_bytes: int
    resident_blocks: int

    @property
    def arch(self) -> str:
        return f"sm_{self.major}{self.minor}"


def driver_files() -> bool:
    """True when a driver may be there: a look at the file system, nothing is loaded."""
    return any(os.path.exists(path) for path in _FILES)


@functools.cache
def devices() -> tuple[DriverDevice, ...]:
    """The devices that this process may use, () without a driver that works. Asked once a process."""
    if not driver_files():
        return ()
    command = [sys.executable, "-I", "-S", __file__]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_ASK_SECONDS, check=False)
        return tuple(DriverDevice(**one) for one in json.loads(done.stdout)) if done.returncode == 0 else ()
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return ()


def _ask() -> list[dict[str, object]]:
    """Asks the driver, in this process. Raises OSError when it is missing or refuses."""
    library = ctypes.CDLL(LIBRARY)

    def call(name: str, *arguments: object) -> None:
        code = getattr(library, name)(*arguments)
        if code:
            raise OSError(f"{name} returned {code}")

    version, count = ctypes.c_int(), ctypes.c_int()
    call("cuInit", 0)
    call("cuDriverGetVersion", ctypes.byref(version))
    call("cuDeviceGetCount", ctypes.byref(count))
    found: list[dict[str, object]] = []
    for number in range(count.value):
        device, memory, name = ctypes.c_int(), ctypes.c_size_t(), ctypes.create_string_buffer(256)
        call("cuDeviceGet", ctypes.byref(device), number)
        call("cuDeviceGetName", name, len(name), device)
        call("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
        facts: dict[str, object] = {
            "name": name.value.decode("utf-8", "replace"),
            "memory": memory.value,
            "driver": version.value,
        }
        for attribute, number_of in _ATTRIBUTES.items():
            value = ctypes.c_int()
            call("cuDeviceGetAttribute", ctypes.byref(value), number_of, device)
            facts[attribute] = value.value
        found.append(facts)
    return found


if __name__ == "__main__":
    json.dump(_ask(), sys.stdout)
