"""The device that a target of kind "cuda" means on this machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ...search_space.target import Target
from .device import Device, NoDevice

if TYPE_CHECKING:
    from ..compile import BuildFailure
    from .built import BuiltCuda

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


def builder(target: Target) -> Callable[..., list[BuiltCuda | BuildFailure]]:
    """What makes kernels for `target`: `build_cuda`, or its twin for the emulator."""
    if target.name == EMULATED:
        from .emulator.emulate import build_emulated

        return build_emulated
    from .build import build_cuda

    return build_cuda
