"""The targets that a campaign may run on, by name."""

from __future__ import annotations

from pathlib import Path

from tests.differential.cpu import Cpu
from tests.differential.cuda import EmulatedCuda
from tests.differential.machine import Machine

MACHINES: dict[str, type[Cpu] | type[EmulatedCuda]] = {"cpu": Cpu, "cuda": EmulatedCuda}


def machine(name: str, cache: Path) -> Machine:
    return MACHINES[name](cache)
