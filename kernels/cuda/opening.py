"""The device that a target of kind "cuda" means on this machine."""

from __future__ import annotations

from ...search_space.target import Target
from .device import Device, NoDevice

EMULATED = "cuda:emulated"
"""Name of a target whose kernels the emulator runs."""


def open_device(target: Target) -> Device:
    """The device of this process for `target`.

    Raises NoDevice, one line, when there is none or another one.
    """
    if target.name == EMULATED:
        from .emulated_device import EmulatedDevice

        return EmulatedDevice(target)
    from .cupy_device import cupy_device

    try:
        return cupy_device(target)
    except NoDevice as error:
        raise NoDevice(f"{target.name} cannot run here: {error}; use a machine that has it, or --target cpu") from None
