"""A built plan bound to guarded memory, so that checking sees every byte its kernels touch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..graphs.subgraph import Subgraph
from ..kernels.build import BuiltPlan
from ..kernels.launch import argument_array, plan_records
from ..kernels.team import Eviction, Team, records
from .bench import Check
from .memory import Guarded, equal

if TYPE_CHECKING:
    from .protocol import Built


class HostHarness:
    """Launches and times one plan on inputs, outputs and scratch arrays that the caller owns and inspects."""

    def __init__(
        self,
        built: BuiltPlan,
        team: Team,
        evict: Eviction | None,
        inputs: Sequence[Guarded],
        outputs: Sequence[Guarded],
        scratch: Sequence[Guarded],
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.scratch = tuple(scratch)
        self._team, self._evict = team, evict
        addresses = [buffer.address for buffer in (*self.inputs, *self.outputs, *self.scratch)]
        self._table = (ctypes.c_int64 * max(1, len(addresses)))(*addresses)
        self._args = argument_array(built)
        self._records = records(plan_records(built, ctypes.addressof(self._table), ctypes.addressof(self._args)))

    def launch(self) -> None:
        """Runs every kernel of the plan once."""
        self._team.run(self._records)

    def time(self, repeats: int, *, batch: int = 1, cold: bool = False, limit_ns: int = 2**62) -> list[float]:
        """Seconds of one run, from each of at most `repeats` samples of `batch` runs; see Team.time."""
        evict = self._evict if cold else None
        taken = self._team.time(self._records, repeats, batch=batch, evict=evict, limit_ns=limit_ns)
        return [ns / batch * 1e-9 for ns in taken]


@dataclass(frozen=True)
class Material:
    """A loaded subject: inputs aligned to 64 bytes, the same inputs at odd elements, and what checks results."""

    sub: Subgraph
    inputs: tuple[Guarded, ...]
    shifted: tuple[Guarded, ...]
    check: Check


class HostBench:
    """A loaded subject on the CPU."""

    def __init__(self, material: Material, team: Team, evict: Eviction | None) -> None:
        self.sub, self.check = material.sub, material.check
        self.cold = evict is not None
        self._material, self._team, self._evict = material, team, evict

    def prepare(self, built: Built, run: int = 0) -> HostHarness:
        """`built` bound to poisoned outputs and scratch; at odd addresses when `run` is 1."""
        assert isinstance(built, BuiltPlan)
        sub, material = self.sub, self._material
        outputs = [Guarded(sub.bytes(v), run * sub.values[v].dtype.size) for v in sub.outputs]
        scratch = [Guarded(size) for size in built.scratch_bytes]
        for buffer in (*outputs, *scratch):
            buffer.poison(run)
        inputs = material.shifted if run else material.inputs
        return HostHarness(built, self._team, self._evict, inputs, outputs, scratch)

    def changed(self) -> tuple[int, int] | None:
        """The first input that differs from its other copy, and the byte."""
        for position, (a, b) in enumerate(zip(self._material.inputs, self._material.shifted, strict=True)):
            if not equal(a.data, b.data):
                return position, int(np.flatnonzero(a.data != b.data)[0])
        return None
