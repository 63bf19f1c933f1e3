"""A built plan bound to guarded memory, so that checking sees every byte its kernels touch."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from ..kernels.build import BuiltPlan
from ..kernels.launch import argument_array, plan_records
from ..kernels.team import Eviction, Team, records
from .memory import Guarded


class Harness:
    """Launches and times one plan on inputs, outputs and scratch arrays that the caller owns and inspects."""

    def __init__(
        self,
        built: BuiltPlan,
        team: Team,
        inputs: Sequence[Guarded],
        outputs: Sequence[Guarded],
        scratch: Sequence[Guarded],
    ) -> None:
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.scratch = tuple(scratch)
        self._team = team
        addresses = [buffer.address for buffer in (*self.inputs, *self.outputs, *self.scratch)]
        self._table = (ctypes.c_int64 * max(1, len(addresses)))(*addresses)
        self._args = argument_array(built)
        self._records = records(plan_records(built, ctypes.addressof(self._table), ctypes.addressof(self._args)))

    def launch(self) -> None:
        """Runs every kernel of the plan once."""
        self._team.run(self._records)

    def time(
        self, repeats: int, *, batch: int = 1, evict: Eviction | None = None, limit_ns: int = 2**62
    ) -> list[float]:
        """Seconds of one run, from each of at most `repeats` samples of `batch` runs; see Team.time."""
        taken = self._team.time(self._records, repeats, batch=batch, evict=evict, limit_ns=limit_ns)
        return [ns / batch * 1e-9 for ns in taken]
