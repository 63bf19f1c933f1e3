"""Built CUDA plans bound to arrays, as kernels/launch.py binds those of the CPU."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..launch import Executed
from .arrays import import_arrays
from .built import BuiltCuda
from .device import Call, Device, DeviceArray, Graph, LaunchError, Memory, Span, align, contiguous

PACK = 16
"""Bytes that aligned kernels take the caller's buffers to be aligned to."""

WORD = 4
"""Bytes of a grid barrier's word."""


class CudaLauncher:
    """Binds one built plan to arrays, for measurement and for users who have one subgraph. Not for whole graphs.

    `unaligned` makes the same plan for buffers that are aligned to their elements only; it is called at the first
    binding that needs it.
    """

    def __init__(self, built: BuiltCuda, device: Device, unaligned: Callable[[], BuiltCuda] | None = None) -> None:
        self.built = built
        self.device = device
        self._unaligned = unaligned
        self._other: BuiltCuda | None = None

    def bind(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> Bound:
        """Arrays in the order of `sub.inputs` and `sub.outputs`, of their shapes (or as many elements) and dtypes, on
        the device or of NumPy.

        A device input that is not contiguous, or that shares memory with an output, is copied here, once, and so is
        one of NumPy. Outputs must be C-contiguous, writable and apart from each other; those of NumPy are filled by
        each launch. Raises ValueError otherwise.
        """
        sub, device = self.built.sub, self.device
        for kind, numbers, arrays in (("input", sub.inputs, inputs), ("output", sub.outputs, outputs)):
            if len(numbers) != len(arrays):
                raise ValueError(f"{len(arrays)} {kind}s given for {len(numbers)}")
        seen, stream = import_arrays([*inputs, *outputs], device)
        given, results = seen[: len(inputs)], seen[len(inputs) :]
        for kind, numbers, arrays, found in (
            ("input", sub.inputs, inputs, given),
            ("output", sub.outputs, outputs, results),
        ):
            for i, (value, array, on_device) in enumerate(zip(numbers, arrays, found, strict=True)):
                dtype, elements = sub.values[value].dtype.numpy, sub.elements(value)
                shown = array if on_device is None else on_device
                size = int(np.prod(shown.shape))
                if shown.dtype != dtype or size != elements:
                    raise ValueError(f"{kind} {i} is {shown.dtype} x {size}, the plan has {dtype} x {elements}")
        for i, (array, on_device) in enumerate(zip(outputs, results, strict=True)):
            if not _writable(array, on_device):
                raise ValueError(f"output {i} is not a writable, aligned C-contiguous array")
            if any(_overlap(outputs[j], results[j], array, on_device) for j in range(i)):
                raise ValueError(f"output {i} shares memory with an earlier output")
        held: list[Memory] = []

        def own(size: int) -> Span:
            held.append(device.allocate(size))
            return Span(held[-1].address, size)

        spans = []
        for array, on_device in zip(inputs, given, strict=True):
            if on_device is None:
                data = np.ascontiguousarray(array)
                spans.append(own(data.nbytes))
                device.upload(spans[-1].address, data, stream)
            elif on_device.contiguous and not any(r is not None and r.overlaps(on_device) for r in results):
                spans.append(Span(on_device.address, on_device.bytes))
            else:
                spans.append(own(on_device.bytes))
                copy_to(device, spans[-1].address, on_device, stream)
        host: list[tuple[NDArray[Any], int]] = []
        for array, on_device in zip(outputs, results, strict=True):
            if on_device is None:
                spans.append(own(array.nbytes))
                host.append((array, spans[-1].address))
            else:
                spans.append(Span(on_device.address, on_device.bytes))
        built = self._for(spans)
        return Bound(built, device, spans, stream, tuple(host), (tuple(held), tuple(inputs), tuple(outputs), seen))

    def _for(self, spans: Sequence[Span]) -> BuiltCuda:
        """The plan built for the alignment of the caller's buffers."""
        if not self.built.aligned or all(span.address % PACK == 0 for span in spans):
            return self.built
        if self._other is None:
            if self._unaligned is None:
                raise ValueError("a buffer is not aligned to 16 bytes, and the plan was built for those only")
            self._other = self._unaligned()
        return self._other


class Launches:
    """A plan's kernels with scratch memory (given, or their own) and a barrier word of their own: one run at a time."""

    def __init__(self, built: BuiltCuda, device: Device, stream: int, scratch: Sequence[Span] | None = None) -> None:
        self.built = built
        self.device = device
        sizes = [align(size) for size in built.scratch_bytes] if scratch is None else []
        self._memory = device.allocate(sum(sizes) + WORD)
        starts = itertools.accumulate(sizes, initial=self._memory.address)
        own = [Span(start, size) for start, size in zip(starts, built.scratch_bytes, strict=False)]
        self.scratch = own if scratch is None else list(scratch)
        self._word = self._memory.address + sum(sizes)
        self._kernels = device.load(built)
        self.clear(stream)

    def clear(self, stream: int) -> None:
        """Puts the barrier's word where it was before the first launch."""
        self.device.fill(self._word, 0, WORD, stream)

    def calls(self, buffers: Sequence[Span]) -> tuple[Call, ...]:
        """The launches on the caller's buffers: inputs, then outputs."""
        spans = [*buffers, *self.scratch]
        arguments = self.built.arguments
        return tuple(self.device.prepare(kernel, spans, arguments, self._word) for kernel in self._kernels)


class Bound:
    """A plan ready to launch, as `calls` on `stream`. One launch at a time: scratch memory and barrier are its own."""

    def __init__(
        self,
        built: BuiltCuda,
        device: Device,
        spans: Sequence[Span],
        stream: int,
        host: tuple[tuple[NDArray[Any], int], ...],
        held: Any,
    ) -> None:
        self.built = built
        self.device = device
        self.stream = stream
        self._held = held
        self._host = host
        self._launches = Launches(built, device, stream)
        self.calls = self._launches.calls(spans)
        self._barriers = sum(len(kernel.phases) - 1 for kernel in built.kernels)

    def launch(self) -> Executed:
        """Queues every kernel of the plan once; waits only where outputs are NumPy's. Raises LaunchError."""
        self._guarded(self._queue)
        return Executed(len(self.calls), self._barriers)

    def synchronize(self) -> None:
        """Waits until all launches so far are done. Raises LaunchError when one failed."""
        self._guarded(lambda: self.device.synchronize(self.stream))

    def time(self, repeats: int, *, batch: int = 1, flush: Flush | None = None, limit_ns: int = 2**62) -> list[int]:
        """Nanoseconds per sample of `batch` runs of the plan; see `time_batch`."""
        timed: list[int] = []

        def measure() -> None:
            runs = Batch(self.device, self.calls * batch)
            timed.extend(time_batch(self.device, runs, self.stream, repeats, flush, limit_ns))

        self._guarded(measure)
        return timed

    def _queue(self) -> None:
        for call in self.calls:
            self.device.launch(call, self.stream)
        for array, address in self._host:
            self.device.download(array, address, self.stream)

    def _guarded(self, act: Callable[[], None]) -> None:
        try:
            act()
        except LaunchError as error:
            if not error.sticky:
                self._launches.clear(self.stream)
            raise


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


def copy_to(device: Device, address: int, array: DeviceArray, stream: int) -> None:
    """Copies a device array into contiguous memory."""
    if array.contiguous:
        device.copy(address, array.address, array.bytes, stream)
    else:
        device.copy_elements(contiguous(address, array.shape, array.dtype), array, stream)


def _writable(array: Any, on_device: DeviceArray | None) -> bool:
    if on_device is None:
        return bool(array.flags.c_contiguous and array.flags.aligned and array.flags.writeable)
    return on_device.contiguous and on_device.writable and on_device.address % on_device.dtype.itemsize == 0


def _overlap(array: Any, on_device: DeviceArray | None, other: Any, other_on_device: DeviceArray | None) -> bool:
    if on_device is not None and other_on_device is not None:
        return on_device.overlaps(other_on_device)
    return on_device is None and other_on_device is None and bool(np.may_share_memory(array, other))
