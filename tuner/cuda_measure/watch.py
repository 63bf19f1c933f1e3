"""What else happens on a CUDA device while candidates are timed: its clocks, and who else uses it.

NVIDIA's management library tells (package nvidia-ml-py); where it is missing, nothing is known and nothing is flagged.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ...results.records import Fact

MOVED = 1.04
"""Largest clock over smallest from which times are not to be compared."""

INTERVAL = 0.02
"""Seconds between two looks: asking takes up to a millisecond."""


@dataclass(frozen=True)
class Sample:
    """One look at the device: megahertz, and how many other processes work on it; None: not known."""

    clock: int | None = None
    memory_clock: int | None = None
    others: int | None = None


class Watch(Protocol):
    """Looks at one device. `driver`: its driver's version, "" when that is not known."""

    @property
    def driver(self) -> str: ...

    def sample(self) -> Sample: ...


class NoWatch:
    """Where nothing can be known."""

    driver = ""

    def sample(self) -> Sample:
        return Sample()


class Nvml:
    """NVIDIA's management library. Raises OSError where it cannot be used."""

    def __init__(self, bus: str) -> None:
        try:
            import pynvml
        except ImportError as error:
            raise OSError("nvidia-ml-py is not installed") from error
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus.encode())
            version: bytes | str = pynvml.nvmlSystemGetDriverVersion()
        except pynvml.NVMLError as error:
            raise OSError(str(error)) from error
        self.driver = version.decode() if isinstance(version, bytes) else version
        self._seen = 0

    def sample(self) -> Sample:
        nvml = self._nvml
        return Sample(
            self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            self._others(),
        )

    def _others(self) -> int | None:
        """Processes besides this one that worked on the device since the last look; those that only hold memory do
        not count where the driver tells them apart."""
        running = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses)
        if running is None:
            return None
        pids, own = {one.pid for one in running}, os.getpid()
        worked = self._worked()
        if worked is not None:
            pids &= worked | {own}
        # In a container this process has another number there, but it is among them.
        return len(pids - {own}) if own in pids else max(0, len(pids) - 1)

    def _worked(self) -> set[int] | None:
        """Processes that kept multiprocessors busy since the last look; None where the driver does not tell."""
        nvml = self._nvml
        try:
            samples = nvml.nvmlDeviceGetProcessUtilization(self._handle, self._seen)
        except nvml.NVMLError_NotFound:  # none did
            return set()
        except nvml.NVMLError:
            return None
        self._seen = max((one.timeStamp for one in samples), default=self._seen)
        return {one.pid for one in samples if one.smUtil > 0}

    def _ask(self, function: Any, *arguments: Any) -> Any:
        """What the library answers, None where the device or the driver does not tell."""
        with contextlib.suppress(self._nvml.NVMLError):
            return function(self._handle, *arguments)
        return None


def watch_device(bus: str) -> Watch:
    """What looks at the device on a PCI bus ("0000:65:00.0")."""
    try:
        return Nvml(bus)
    except OSError:
        return NoWatch()


class Log:
    """Looks taken during a job."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._samples: list[Sample] = []
        self._last = 0.0

    def look(self) -> None:
        """Takes a sample, unless the last one is fresh."""
        if time.monotonic() - self._last >= INTERVAL:
            self._samples.append(self._watch.sample())
            self._last = time.monotonic()

    def facts(self) -> tuple[tuple[str, Fact], ...]:
        """What the samples since the last call say."""
        samples, self._samples, self._last = self._samples, [], 0.0
        driver = self._watch.driver
        return (*((("driver", driver),) if driver else ()), *facts_of(samples))


def facts_of(samples: Sequence[Sample]) -> tuple[tuple[str, Fact], ...]:
    """Median clocks, and "disturbed" with the reason where times are not to be trusted.

    The first look may find a device that only wakes up, so its clocks do not count against the others.
    """
    found: list[tuple[str, Fact]] = []
    moved = ""
    for name, what in (("clock", "sm_clock"), ("memory_clock", "memory_clock")):
        clocks = [c for c in (getattr(s, name) for s in samples[1:] or samples) if c]
        if clocks:
            found.append((what, int(statistics.median(clocks))))
            if max(clocks) > MOVED * min(clocks):
                moved = moved or f"{what} between {min(clocks)} and {max(clocks)} MHz"
    others = max((s.others for s in samples if s.others is not None), default=0)
    reasons = [f"{others} other processes on the device"] if others else []
    reasons += [moved] if moved else []
    return (*found, ("disturbed", "; ".join(reasons))) if reasons else tuple(found)
