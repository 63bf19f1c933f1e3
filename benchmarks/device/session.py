"""What the sections share: the device, kernels built here or carried from elsewhere, the time that is left.

Kernels for a machine without a compiler are *carried*: a folder of cubins with an index of how each is launched, made
by `--build` on a machine that has NVRTC. The kernels themselves are lowered again where they run, so that nothing but
numbers and machine code travels.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graphs.subgraph import Subgraph
from ...kernels.compile import BuildFailure
from ...kernels.cuda.built import BuiltCuda, Launch
from ...kernels.cuda.device import Device, LaunchError
from ...kernels.cuda.launch import Bound, CudaLauncher
from ...kernels.lower import LoweringError, lower
from ...search_space import codec
from ...search_space.plan import Plan
from ...search_space.target import Target

INDEX = "index.json"
UNIT = 6
"""Plans that one unit of the emulator's compiler holds."""


@dataclass(frozen=True)
class Item:
    """A plan that a section runs."""

    name: str
    sub: Subgraph
    plan: Plan
    precision: str = "strict"
    aligned: bool = True

    @property
    def key(self) -> str:
        """Names what is built, on every machine."""
        text = "\0".join((codec.dumps(self.sub), codec.dumps(self.plan), self.precision, str(self.aligned)))
        return hashlib.sha256(text.encode()).hexdigest()[:32]


Built = BuiltCuda | BuildFailure


@dataclass
class Session:
    """One run of the device check.

    target    what plans are made for
    device    None while kernels are only built
    emulated  small sizes, and times that mean nothing
    carried   folder of kernels built elsewhere; None: they are built here, into `cache`
    until     when the section under way should end, on the monotonic clock
    """

    target: Target
    device: Device | None
    cache: Path
    emulated: bool = False
    carried: Path | None = None
    until: float = field(default_factory=lambda: time.monotonic() + 3600)

    @property
    def left(self) -> float:
        """Seconds that the section under way still has."""
        return self.until - time.monotonic()

    @property
    def lost(self) -> bool:
        """A kernel has cost this process the device: every call from now on fails."""
        if self.device is None or self.emulated:
            return False
        try:
            self.device.synchronize(self.device.current_stream())
        except LaunchError as error:
            return error.sticky
        return False

    def here(self) -> Device:
        assert self.device is not None, "a section that runs has a device"
        return self.device

    def build(self, items: Sequence[Item]) -> list[Built]:
        """Each item's kernels, or why there are none."""
        found: dict[int, Built] = {}
        groups: dict[tuple[str, bool], list[int]] = {}
        for number, item in enumerate(items):
            try:
                lower(item.sub, item.plan, self.target, item.precision, item.aligned)
            except LoweringError as error:
                found[number] = BuildFailure("lowering", str(error))
            else:
                groups.setdefault((item.precision, item.aligned), []).append(number)
        for (precision, aligned), numbers in groups.items():
            made = self._build([items[n] for n in numbers], precision, aligned)
            found.update(zip(numbers, made, strict=True))
        return [found[n] for n in range(len(items))]

    def _build(self, items: Sequence[Item], precision: str, aligned: bool) -> Sequence[Built]:
        if self.carried is not None:
            return [self._recall(item) for item in items]
        pairs = [(item.sub, item.plan) for item in items]
        how: dict[str, Any] = {"precision": precision, "cache": self.cache, "aligned": aligned}
        if self.emulated:
            from ...kernels.cuda.emulator.emulate import build_emulated

            return build_emulated(pairs, self.target, per_unit=UNIT, **how)
        from ...kernels.cuda.build import build_cuda

        return build_cuda(pairs, self.target, **how)

    def _recall(self, item: Item) -> Built:
        assert self.carried is not None
        known = read_index(self.carried).get(item.key)
        if known is None:
            return BuildFailure("carried", "this plan was not built for the folder of kernels")
        kernels = lower(item.sub, item.plan, self.target, item.precision, item.aligned)
        launches = tuple(codec.from_json(Launch, launch) for launch in known["launches"])
        image = self.carried / known["image"]
        return BuiltCuda(item.sub, item.plan, kernels, image, launches, known["source"], item.aligned)

    def bind(self, built: BuiltCuda, inputs: Sequence[Any], outputs: Sequence[Any]) -> Bound:
        return CudaLauncher(built, self.here()).bind(inputs, outputs)

    def outputs(self, built: BuiltCuda) -> list[NDArray[Any]]:
        """Host arrays that a launch fills, poisoned."""
        sub = built.sub
        found = [np.empty(sub.shape(v), sub.values[v].dtype.numpy) for v in sub.outputs]
        for array in found:
            array.reshape(-1).view(np.uint8)[...] = 0xA5
        return found

    def on_device(self, arrays: Iterable[NDArray[Any]]) -> list[Any]:
        """Copies of host arrays in the device's memory."""
        device = self.here()
        found = []
        for array in arrays:
            made = device.empty(array.shape, array.dtype, device.current_stream())
            address = made.__cuda_array_interface__["data"][0]
            device.upload(address, np.ascontiguousarray(array), device.current_stream())
            found.append(made)
        return found

    def shifted(self, array: NDArray[Any]) -> Any:
        """A copy in device memory that starts one element behind an aligned address."""
        device = self.here()
        memory = device.allocate(array.nbytes + array.itemsize)
        address = memory.address + array.itemsize
        device.upload(address, np.ascontiguousarray(array), device.current_stream())
        return _Placed(memory, address, array)


class _Placed:
    """Device memory that says where it is by `__cuda_array_interface__`."""

    def __init__(self, memory: Any, address: int, like: NDArray[Any]) -> None:
        self.shape, self.dtype = like.shape, like.dtype
        self._memory = memory
        self.__cuda_array_interface__ = {
            "shape": like.shape,
            "typestr": like.dtype.str,
            "data": (address, False),
            "strides": None,
            "version": 3,
            "stream": 1,
        }


# --- kernels that travel

_indices: dict[Path, dict[str, Any]] = {}


def read_index(folder: Path) -> dict[str, Any]:
    """The index of a folder of kernels, read once. Raises OSError."""
    if folder not in _indices:
        _indices[folder] = json.loads((folder / INDEX).read_text())["kernels"]
    return _indices[folder]


def carry(session: Session, items: Sequence[Item], folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Builds items for another machine into `folder`; the entries of its index. Kernels that do not build are told."""
    entries: dict[str, Any] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for item, built in zip(items, session.build(items), strict=True):
        if isinstance(built, BuildFailure):
            tell(f"{item.name}: {built.stage}: {built.message}")
            continue
        shutil.copyfile(built.image, folder / built.image.name)
        launches = [codec.to_json(launch) for launch in built.launches]
        entries[item.key] = {"name": item.name, "image": built.image.name, "launches": launches, "source": ""}
    return entries
