"""Candidates on a CUDA device: guarded memory there, plans bound to it, timing by events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

from ...graphs.subgraph import Subgraph
from ...kernels.cuda.built import BuiltCuda
from ...kernels.cuda.device import Device, LaunchError, Span, Trouble, align
from ...kernels.cuda.launch import Launches
from ...kernels.cuda.timing import Batch, make_flush, time_batch
from ..bench import Check, Misbehaved
from ..memory import CANARY, GUARD, POISONS, Bytes, damage
from ..protocol import Outcome
from .watch import Log

if TYPE_CHECKING:
    from ...kernels.cuda.timing import Flush
    from ...results.records import Status
    from ..protocol import Built

SHIFT = 16
"""Bytes that the buffers of the second run start behind those of the first: kernels may take 16-byte alignment as
given, and nothing beyond it."""

BATCHES = 3
"""Recorded batches that a harness keeps."""

_STATUS: dict[Trouble, Status] = {
    "out-of-bounds": "out-of-bounds",
    "hung": "hung",
    "trapped": "trapped",
    "race": "nondeterministic",
    "uninitialised": "unwritten",
}
"""What a failed launch means for a candidate; everything else is "crashed"."""


class DeviceBuffer:
    """`size` bytes on the device with canaries around them, starting `shift` bytes after a multiple of 256."""

    def __init__(self, device: Device, size: int, stream: int, shift: int = 0) -> None:
        self._device, self._stream = device, stream
        self.bytes = size
        self._memory = device.allocate(2 * GUARD + align(size + shift))
        self.span = Span(self._memory.address + GUARD + shift, size)
        self._guard()

    def poison(self, run: int) -> None:
        """Fills it as it is before run 0 or 1."""
        self._device.fill(self.span.address, POISONS[run], self.bytes, self._stream)

    def damage(self) -> int | None:
        """Offset of the nearest byte outside that was written, which is mended for the next one; None when none was."""
        before, after = (self._fetch(zone.address, zone.bytes) for zone in self._zones())
        found = damage(before, after, self.bytes)
        if found is not None:
            self._guard()
        return found

    def _zones(self) -> tuple[Span, Span]:
        start, end = self._memory.address, self.span.address + self.bytes
        return Span(start, self.span.address - start), Span(end, start + self._memory.bytes - end)

    def _guard(self) -> None:
        for zone in self._zones():
            self._device.fill(zone.address, CANARY, zone.bytes, self._stream)

    def host(self) -> Bytes:
        """A copy of the contents in host memory."""
        return self._fetch(self.span.address, self.bytes)

    def keep(self) -> DeviceBuffer:
        """A copy of the contents on the device."""
        copy = DeviceBuffer(self._device, self.bytes, self._stream)
        self._device.copy(copy.span.address, self.span.address, self.bytes, self._stream)
        return copy

    def same(self, kept: DeviceBuffer) -> bool:
        """True when the contents are those of `kept`."""
        return self._device.same(self.span.address, kept.span.address, self.bytes, self._stream)

    def write(self, data: Bytes) -> None:
        """Sets the contents."""
        self._device.upload(self.span.address, data, self._stream)

    def _fetch(self, address: int, size: int) -> Bytes:
        found: Bytes = np.empty(size, np.uint8)
        self._device.download(found, address, self._stream)
        return found


class CudaHarness:
    """Launches and times one plan on buffers that the caller owns and inspects."""

    def __init__(
        self,
        bench: CudaBench,
        built: BuiltCuda,
        inputs: Sequence[DeviceBuffer],
        outputs: Sequence[DeviceBuffer],
        scratch: Sequence[DeviceBuffer],
    ) -> None:
        self.inputs, self.outputs, self.scratch = tuple(inputs), tuple(outputs), tuple(scratch)
        self._bench, self._device, self._stream = bench, bench.device, bench.stream
        self._launches = Launches(built, bench.device, bench.stream, [buffer.span for buffer in scratch])
        self._calls = self._launches.calls([buffer.span for buffer in (*inputs, *outputs)])
        self._batches: dict[int, Batch] = {}

    def launch(self) -> None:
        """Runs every kernel of the plan once, to its end. Raises Misbehaved."""
        with self._failures():
            for call in self._calls:
                self._device.launch(call, self._stream)
            self._device.synchronize(self._stream)

    def time(self, repeats: int, *, batch: int = 1, cold: bool = False, limit_ns: int = 2**62) -> list[float]:
        """Seconds of one run, from each of at most `repeats` samples of `batch` runs that are one graph."""
        with self._failures():
            if batch not in self._batches:
                while len(self._batches) >= BATCHES:
                    self._batches.pop(next(iter(self._batches)))
                self._batches[batch] = Batch(self._device, list(self._calls) * batch)
            flush = self._bench.flush if cold else None
            taken = time_batch(self._device, self._batches[batch], self._stream, repeats, flush, limit_ns)
        self._bench.log.look()
        return [ns / batch * 1e-9 for ns in taken]

    @contextmanager
    def _failures(self) -> Iterator[None]:
        try:
            yield
        except LaunchError as error:
            if not error.sticky:
                self._launches.clear(self._stream)
            status = _STATUS.get(error.trouble, "crashed")
            raise Misbehaved(Outcome(status, str(error)), error.sticky) from error


class CudaBench:
    """A loaded subject on a device: two copies of the inputs, at two alignments."""

    cold = True

    def __init__(self, sub: Subgraph, check: Check, inputs: Sequence[Bytes], device: Device, log: Log) -> None:
        self.sub, self.check, self.device, self.log = sub, check, device, log
        self.stream = device.current_stream()
        self.flush: Flush = make_flush(device)
        self._inputs = tuple(inputs)
        self._copies = tuple(tuple(self._buffer(len(data), shift) for data in inputs) for shift in (0, SHIFT))
        self._write()

    def prepare(self, built: Built, run: int = 0) -> CudaHarness:
        """`built` bound to poisoned outputs and scratch; 16 bytes further on when `run` is 1. Raises Misbehaved."""
        assert isinstance(built, BuiltCuda)
        outputs = [self._buffer(self.sub.bytes(v), run * SHIFT) for v in self.sub.outputs]
        scratch = [self._buffer(size, 0) for size in built.scratch_bytes]
        for buffer in (*outputs, *scratch):
            buffer.poison(run)
        try:
            return CudaHarness(self, built, self._copies[run], outputs, scratch)
        except LaunchError as error:
            raise Misbehaved(Outcome("crashed", str(error)), error.sticky) from error

    def changed(self) -> tuple[int, int] | None:
        """The first input whose copies differ, and the byte; they are put right for the next candidate."""
        for position, (a, b) in enumerate(zip(*self._copies, strict=True)):
            if not a.same(b):
                byte = int(np.flatnonzero(a.host() != b.host())[0])
                self._write()
                return position, byte
        return None

    def _write(self) -> None:
        for copies in self._copies:
            for buffer, data in zip(copies, self._inputs, strict=True):
                buffer.write(data)

    def _buffer(self, size: int, shift: int) -> DeviceBuffer:
        return DeviceBuffer(self.device, size, self.stream, shift)
