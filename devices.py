"""The devices of this machine as targets: the CPU, and the first CUDA device where one can be used.

`cuda:emulated` is a CUDA device everywhere: the emulator runs the same kernels, watches every access, and is slow.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib.util import find_spec

from .graphs.errors import InputError
from .kernels.cuda import driver
from .kernels.cuda.opening import EMULATED
from .search_space.target import Target

LIKE = "cuda:h200"
"""The profile whose limits the emulated device has."""

FORTY_GB = 50 << 30
"""Memory that tells an A100 of 40 GB from one of 80 GB."""


def resolve_target(name: str | None) -> Target:
    """The target that a user names; None is the best device of this machine. An alias says on standard error what it
    stands for. Raises InputError, one line, for a name that means nothing and for `cuda` without a device.
    """
    from .kernels.host import host_target
    from .search_space import devices

    if name is None:
        return cuda_device() or host_target()
    if name == "cpu":
        return host_target()
    if name == "cuda":
        here = cuda_device()
        if here is None:
            raise InputError(f"{absence()}; --target cuda:NAME plans for one that is elsewhere ({_names()})")
        return here
    if name == EMULATED:
        return emulated(devices.DEVICES[LIKE])
    if name.startswith("cuda:"):
        target, note = devices.resolve(name)
        if note:
            print(note, file=sys.stderr)
        return target
    raise InputError(f"target {name!r} is not known; the targets are cpu, cuda, and the profiles {_names()}")


def emulated(like: Target) -> Target:
    """A device with the limits of `like` that the emulator is."""
    return replace(like, name=EMULATED)


def present(target: Target) -> bool:
    """True when kernels for `target` can run here."""
    return target.kind == "cpu" or target.name == EMULATED or target == cuda_device()


def require(target: Target) -> None:
    """Raises InputError, one line, when kernels for `target` cannot run here."""
    if present(target):
        return
    here = cuda_device()
    cause = f"the device here is {here.name} ({here.arch})" if here is not None else absence()
    raise InputError(f"nothing can run for {target.name}: {cause}; inspect, source and tune work without it")


def cuda_device() -> Target | None:
    """The first CUDA device, when driver, CuPy and NVRTC are here; nothing is loaded where there is no driver.

    A device that a profile describes is that profile's target, so that plans predicted elsewhere are found here.
    """
    found = driver.devices()
    return target_of(found[0]) if found and not _lacking() else None


def _lacking() -> str:
    """What of the extra is not installed, for people; "" when nothing is."""
    if find_spec("cupy") is None:
        return "CuPy"
    return "" if find_spec("cuda") is not None and find_spec("cuda.bindings") is not None else "NVRTC"


def target_of(device: driver.DriverDevice) -> Target:
    """A device as a target: a profile of its name, architecture and multiprocessors, else its own numbers."""
    from .search_space.devices import DEVICES

    name = device.name.lower().replace(" ", "")
    fits = [
        target
        for title, target in DEVICES.items()
        if title.removeprefix("cuda:").partition("-")[0] in name
        and (target.arch, target.processors) == (device.arch, device.processors)
    ]
    if fits:
        small = [target for target in fits if target.name.endswith("-40")]
        return small[0] if small and device.memory < FORTY_GB else fits[0]
    return Target(
        "cuda",
        "cuda",
        device.arch,
        processors=device.processors,
        vector_bytes=16,
        lanes=32,
        block_bytes=device.block_bytes,
        l1_bytes=device.shared_bytes,
        cache_bytes=device.cache_bytes,
        resident_threads=device.resident_threads,
        resident_blocks=device.resident_blocks,
        registers=device.registers,
        shared_bytes=device.shared_bytes,
    )


def absence() -> str:
    """Why no CUDA device can be used here, with the mend."""
    found = driver.devices()
    if found:
        return f"{found[0].name} needs {_lacking()}: pip install 'stitchtune[{extra_for(found[0].driver)}]'"
    if driver.driver_files():
        return "the NVIDIA driver names no device: `nvidia-smi` says why"
    return "this machine has no NVIDIA driver"


def extra_for(version: int) -> str:
    """The extra whose wheels a driver runs (1000 x major + 10 x minor)."""
    return "cuda13" if version >= 13000 else "cuda12"


def _names() -> str:
    from .search_space.devices import DEVICES

    return ", ".join(DEVICES)
