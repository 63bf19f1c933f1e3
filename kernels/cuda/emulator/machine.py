"""The emulated machine: launches of compiled kernels on buffers of this process, with what was found as values."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from ....search_space.target import MOST_BLOCKS, MOST_THREADS
from ..built import Launch
from .findings import KINDS, BufferCounts, Counters, Finding, PhaseCounts, Traffic
from .library import Buffer, CountsRecord, FindingRecord, LaunchRecord, TrafficRecord, address, load_kernels, runtime

STEPS = 4_000_000_000
"""Accesses and synchronisations of one launch, at most."""

PARAMETER_BYTES = 4096
MOST_SHARED_BYTES = 232448
"""Limits of CUDA (programming guide, compute capabilities): shared memory is that of sm_90."""


@dataclass(frozen=True)
class Settings:
    """How to run.

    offset_elements  every input and output starts this many elements behind a 256-byte boundary
    resident_blocks  blocks that run at a time; all of the grid by default
    grid             blocks of each launch instead of what the launch says
    seed             0: threads in order; else an order drawn from it
    check            look for races, uninitialised reads, writes to const (bounds and alignment always)
    count            count traffic
    steps            accesses and synchronisations of one launch, at most
    findings         so many end a launch
    shared_bytes     most that a block may ask for
    """

    offset_elements: int = 0
    resident_blocks: int | None = None
    grid: int | None = None
    seed: int = 0
    check: bool = True
    count: bool = False
    steps: int = STEPS
    findings: int = 8
    shared_bytes: int = MOST_SHARED_BYTES


@dataclass(frozen=True)
class Memory:
    """A buffer: where it lies, and the bytes of one element.

    initialised   it has contents before the first launch
    """

    address: int
    bytes: int
    element: int
    initialised: bool


@dataclass(frozen=True)
class Outcome:
    """What one launch has shown; `whole`: it ran to its end."""

    findings: tuple[Finding, ...]
    whole: bool
    counters: Counters | None = None


_alone = threading.Lock()
"""The runtime runs one machine at a time in a process."""


class Machine:
    """Runs launches one after the other on the same buffers. A context manager; others wait until it is left."""

    def __init__(self, buffers: Sequence[Memory], cache: Path) -> None:
        """Raises OSError when the runtime cannot be compiled into `cache`."""
        self._buffers = tuple(buffers)
        self._runtime = runtime(cache)
        self._emulator = 0
        self._seen = 0

    def __enter__(self) -> Machine:
        _alone.acquire()
        records = [Buffer(b.address, b.bytes, b.element, b.initialised) for b in self._buffers]
        table = (Buffer * max(1, len(records)))(*records)
        self._emulator = self._runtime.st_open(ctypes.addressof(table), len(records)) or 0
        if not self._emulator:
            _alone.release()
            raise MemoryError("the emulator's shadow memory does not fit")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runtime.st_close(self._emulator)
        _alone.release()

    def launch(
        self,
        image: Path,
        launch: Launch,
        arguments: Sequence[int],
        barrier: int,
        settings: Settings,
        source: str = "",
    ) -> Outcome:
        """What one launch shows. `barrier` is the address of the barrier's word."""
        refusal = _refusal(launch, settings)
        if refusal:
            return Outcome((Finding("limit", launch.symbol, refusal),), False)
        record, _kept = self._record(load_kernels(image), launch, arguments, barrier, settings)
        total = self._runtime.st_launch(self._emulator, ctypes.addressof(record))
        if total < 0:
            raise MemoryError("the emulator's shadow memory does not fit")
        found = (FindingRecord * max(1, total))()
        self._runtime.st_findings(self._emulator, ctypes.addressof(found))
        new = found[self._seen : total]
        self._seen = total
        lines = source.splitlines()
        findings = tuple(_finding(f, launch.symbol, lines) for f in new)
        return Outcome(findings, not any(f.terminal for f in new), self._counters(launch) if settings.count else None)

    def _counters(self, launch: Launch) -> Counters:
        n = self._runtime.st_counts(self._emulator, None)
        records = (CountsRecord * max(1, n))()
        self._runtime.st_counts(self._emulator, ctypes.addressof(records))
        each = 1 + len(self._buffers)  # of each phase: shared memory, then the buffers
        return Counters(launch.symbol, tuple(_phase(records[i : i + each]) for i in range(0, n, each)))

    def _record(
        self, kernels: ctypes.CDLL, launch: Launch, arguments: Sequence[int], barrier: int, settings: Settings
    ) -> tuple[LaunchRecord, Any]:
        """What the runtime needs of a launch, and what must outlive it."""
        values = (ctypes.c_int64 * max(1, len(launch.parameters)))()
        writable = (ctypes.c_int32 * max(1, len(self._buffers)))()
        for i, p in enumerate(launch.parameters):
            match p.kind:
                case "buffer":
                    values[i] = self._buffers[p.position].address
                    writable[p.position] |= p.written
                case "argument":
                    values[i] = arguments[p.position]
                case _:
                    values[i] = barrier
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(values) + 8 * i for i in range(len(values))))
        blocks = settings.grid or launch.blocks
        record = LaunchRecord(
            kernel=address(kernels, f"st_enter_{launch.symbol}"),
            bind=address(kernels, "st_bind"),
            at=ctypes.addressof(pointers),
            blocks=blocks,
            threads=launch.threads,
            shared_bytes=launch.shared_bytes,
            resident=settings.resident_blocks or min(blocks, MOST_BLOCKS),
            check=settings.check,
            count=settings.count,
            most_findings=settings.findings,
            seed=settings.seed,
            steps=settings.steps,
            writable=ctypes.addressof(writable),
        )
        return record, (values, pointers, writable)


def _refusal(launch: Launch, settings: Settings) -> str | None:
    """Why a device would not start the launch."""
    blocks = settings.grid or launch.blocks
    if not 32 <= launch.threads <= MOST_THREADS or launch.threads % 32:
        return f"{launch.threads} threads a block: a multiple of 32 up to {MOST_THREADS} is allowed"
    if not 1 <= blocks <= MOST_BLOCKS:
        return f"{blocks} blocks: 1 to {MOST_BLOCKS} are allowed"
    if launch.shared_bytes > settings.shared_bytes:
        return f"{launch.shared_bytes} bytes of shared memory: {settings.shared_bytes} are the most"
    if 8 * len(launch.parameters) > PARAMETER_BYTES:
        return f"{8 * len(launch.parameters)} bytes of parameters: {PARAMETER_BYTES} are the most"
    return None


def _finding(found: FindingRecord, kernel: str, lines: Sequence[str]) -> Finding:
    text = lines[found.line - 1].strip() if 0 < found.line <= len(lines) else ""
    who = f"block {found.block}" + (f" thread {found.thread}" if found.thread >= 0 else "")
    place = f"line {found.line} `{text}`: " if text else ""
    where = f"{place}{who}, phase {found.phase}: {found.text.decode()}"
    return Finding(KINDS[found.kind], kernel, where, found.line if text else 0)


def _phase(records: Sequence[CountsRecord]) -> PhaseCounts:
    shared, *rest = records
    buffers = (BufferCounts(r.position, _traffic(r.reads), _traffic(r.writes)) for r in rest)
    touched = tuple(b for b in buffers if b.reads.sectors or b.writes.sectors)
    return PhaseCounts(touched, shared.reads.requests + shared.writes.requests, shared.conflicts)


def _traffic(record: TrafficRecord) -> Traffic:
    return Traffic(*(getattr(record, f.name) for f in fields(Traffic)))


def barrier_word() -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The word of the grid barrier, as it is before the first launch."""
    return np.zeros(1, np.uint32)
