"""Built CUDA plans bound to arrays, as kernels/launch.py binds those of the CPU."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..launch import Executed
from .arrays import import_arrays
from .built import BuiltCuda
from .device import Call, Device, DeviceArray, LaunchError, Memory, Span, align, contiguous
from .timing import Batch, Flush, time_batch

PACK = 16
"""Bytes that aligned kernels take the caller's buffers to be aligned to."""

WORD = 4
"""Bytes of a grid barrier's word."""


@dataclass(frozen=True)
class Operand:
    """An array of the caller's; `there` is how it lies on the device, None when it is NumPy's."""

    array: Any
    there: DeviceArray | None

    @property
    def shown(self) -> Any:
        """What has its shape and dtype."""
        return self.array if self.there is None else self.there

    @property
    def writable(self) -> bool:
        """Kernels (or a copy) can fill it from start to end."""
        if self.there is None:
            flags = self.array.flags
            return bool(flags.c_contiguous and flags.aligned and flags.writeable)
        return self.there.contiguous and self.there.writable and self.there.address % self.there.dtype.itemsize == 0

    def overlaps(self, other: Operand) -> bool:
        """True when both may hold the same byte."""
        if self.there is not None and other.there is not None:
            return self.there.overlaps(other.there)
        return self.there is other.there and bool(np.may_share_memory(self.array, other.array))


class _Places:
    """Where operands lie on the device while they are bound; `host` lists arrays to fill and where from."""

    def __init__(self, device: Device, stream: int) -> None:
        self.host: list[tuple[NDArray[Any], int]] = []
        self.held: list[Memory] = []
        self._device, self._stream = device, stream

    def read(self, operand: Operand, taken: bool) -> Span:
        """An input: in place, unless it is elsewhere, strided, or `taken` by an output."""
        there = operand.there
        if there is None:
            data = np.ascontiguousarray(operand.array)
            span = self._own(data.nbytes)
            self._device.upload(span.address, data, self._stream)
        elif there.contiguous and not taken:
            span = Span(there.address, there.bytes)
        else:
            span = self._own(there.bytes)
            copy_to(self._device, span.address, there, self._stream)
        return span

    def write(self, operand: Operand) -> Span:
        """An output."""
        if operand.there is not None:
            return Span(operand.there.address, operand.there.bytes)
        span = self._own(operand.array.nbytes)
        self.host.append((operand.array, span.address))
        return span

    def _own(self, size: int) -> Span:
        self.held.append(self._device.allocate(size))
        return Span(self.held[-1].address, size)


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
        sub = self.built.sub
        for kind, numbers, arrays in (("input", sub.inputs, inputs), ("output", sub.outputs, outputs)):
            if len(numbers) != len(arrays):
                raise ValueError(f"{len(arrays)} {kind}s given for {len(numbers)}")
        seen, stream = import_arrays([*inputs, *outputs], self.device)
        operands = [Operand(array, there) for array, there in zip((*inputs, *outputs), seen, strict=True)]
        given, results = operands[: len(inputs)], operands[len(inputs) :]
        self._check("input", sub.inputs, given)
        self._check("output", sub.outputs, results)
        for i, result in enumerate(results):
            if not result.writable:
                raise ValueError(f"output {i} is not a writable, aligned C-contiguous array")
            if any(result.overlaps(other) for other in results[:i]):
                raise ValueError(f"output {i} shares memory with an earlier output")
        places = _Places(self.device, stream)
        spans = [places.read(one, any(one.overlaps(other) for other in results)) for one in given]
        spans += [places.write(one) for one in results]
        return Bound(self._for(spans), self.device, spans, stream, tuple(places.host), (operands, places.held))

    def _check(self, kind: str, numbers: Sequence[int], operands: Sequence[Operand]) -> None:
        sub = self.built.sub
        for i, (value, operand) in enumerate(zip(numbers, operands, strict=True)):
            dtype, elements = sub.values[value].dtype.numpy, sub.elements(value)
            size = math.prod(operand.shown.shape)
            if operand.shown.dtype != dtype or size != elements:
                raise ValueError(f"{kind} {i} is {operand.shown.dtype} x {size}, the plan has {dtype} x {elements}")

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


def copy_to(device: Device, address: int, array: DeviceArray, stream: int) -> None:
    """Copies a device array into contiguous memory."""
    if array.contiguous:
        device.copy(address, array.address, array.bytes, stream)
    else:
        device.copy_elements(contiguous(address, array.shape, array.dtype), array, stream)
