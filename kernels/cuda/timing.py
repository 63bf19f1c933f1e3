"""Calls queued together, and their time by the device's own clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .device import Call, Device, Graph, LaunchError, Memory


@dataclass(frozen=True)
class Flush:
    """Memory twice as large as the L2 cache: writing it throws everything else out."""

    memory: Memory

    def __call__(self, device: Device, stream: int) -> None:
        device.fill(self.memory.address, 0, self.memory.bytes, stream)


def make_flush(device: Device) -> Flush:
    """Flush memory for a device."""
    return Flush(device.allocate(2 * max(device.target.cache_bytes, 1 << 20)))


class Batch:
    """Calls that are queued together: as one graph, or one by one where the device cannot record them."""

    def __init__(self, device: Device, calls: Sequence[Call]) -> None:
        self._device = device
        self._calls = tuple(calls)
        self._graph: Graph | None = None
        try:
            self._graph = device.capture(self._calls)
        except LaunchError as error:
            if error.sticky:
                raise

    def queue(self, stream: int) -> None:
        """Raises LaunchError."""
        if self._graph is not None:
            self._device.replay(self._graph, stream)
            return
        for call in self._calls:
            self._device.launch(call, stream)


def time_batch(
    device: Device, batch: Batch, stream: int, repeats: int, flush: Flush | None = None, limit_ns: int = 2**62
) -> list[int]:
    """Nanoseconds, by events, of each of at most `repeats` runs of a batch; at least one is taken.

    A batch is one graph, so that the host's part of launching is not measured. Before each sample it runs once untimed
    (or, with `flush`, the cache is emptied): the device is then busy while the sample is queued. Sampling stops once
    the samples add up to more than `limit_ns`. Raises LaunchError.
    """
    first, last = device.event(), device.event()
    samples: list[int] = []
    while len(samples) < repeats and (not samples or sum(samples) <= limit_ns):
        if flush is None:
            batch.queue(stream)
        else:
            flush(device, stream)
        device.record(first, stream)
        batch.queue(stream)
        device.record(last, stream)
        samples.append(max(1, round(device.elapsed(first, last) * 1e9)))
    return samples
