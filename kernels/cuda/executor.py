"""Runs a whole graph on a CUDA device: dict of arrays in, dict of arrays out, as kernels/executor.py on the CPU.

Work is queued on the caller's stream and outputs on the device are handed out before it is done. Where inputs come as
arrays of NumPy, outputs are arrays of NumPy too, and a call waits for them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graphs.errors import InputError
from ...graphs.partition import Partition
from ...graphs.rounding import Precision
from ...search_space.plan import Plan
from ..boundary import misfit, missing_input, refuse_extra, unusable_output
from ..library import LibraryError
from ..stats import Stats, Visit
from .arrays import import_arrays, on_device
from .device import Device, DeviceArray, Span, contiguous
from .launch import copy_to
from .program import HostStep, KernelStep, Program, make_program
from .slot import Slot

Array = NDArray[Any]


@dataclass
class Result:
    """Where an output goes.

    array   the caller's
    span    what steps write
    device  the array on the device; None: NumPy's
    """

    array: Any
    span: Span
    device: DeviceArray | None

    @property
    def direct(self) -> bool:
        """Steps write the caller's own memory."""
        return self.device is not None and self.device.address == self.span.address


def compile_cuda(
    partition: Partition, plans: Sequence[Plan], device: Device, *, precision: Precision, cache: Path, jobs: int = 2
) -> CudaExecutor:
    """An executor that runs each component by its plan of `plans` (in the order of the components) on `device`.

    A component that does not compile is interpreted on the host, and a warning says so.
    """
    return CudaExecutor(make_program(partition, plans, device, precision=precision, cache=cache, jobs=jobs))


class CudaExecutor:
    """A compiled graph. Calls are thread-safe, and each works on the stream of its caller."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._device = program.device
        self._slots: list[Slot] = []
        self._free: list[Slot] = []
        self._lock = threading.Lock()
        graph = program.graph
        self._inputs = tuple(dict.fromkeys(graph.inputs))
        self._outputs = tuple(dict.fromkeys(graph.outputs))
        self._direct = {output: root for root, output in program.schedule.direct.items()}

    def __call__(self, feeds: Mapping[str, Any], out: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The outputs by name, for arrays of the graph's inputs: of NumPy, CuPy, or anything that has
        `__cuda_array_interface__` or DLPack and lies on this device.

        Outputs are those of `out` (all or some names), else fresh arrays of the caller's: on the device when any input
        is there, else of NumPy. Arrays on the device are used in place; inputs may overlap `out`. The work is queued on
        the stream that the first input names, else the current one. Raises InputError when arrays do not fit,
        LibraryError when a library op is missing or fails, LaunchError when a kernel fails.
        """
        return self._call(feeds, out or {}, None)

    def record(self, feeds: Mapping[str, Any], visit: Visit) -> dict[str, Any]:
        """Runs the graph step by step and shows `visit` the inputs of each component, by its number, before it runs.

        The arrays are NumPy's, of the shapes of the subgraph's inputs.
        """
        return self._call(feeds, {}, visit)

    def stats(self) -> Stats:
        """Sizes, and counts over all runs so far (those under way in other threads partly)."""
        steps = self._program.steps
        kernels = [step for step in steps if isinstance(step, KernelStep)]
        copied = Counter(step.op.mend for step in steps if isinstance(step, HostStep) and step.op.mend)
        notes = tuple(
            f"{count} library ops run on the host, with copies there and back: {package} runs them on the device"
            for package, count in copied.items()
        )
        return Stats(
            runs=sum(slot.runs for slot in self._slots),
            launches=sum(slot.launches for slot in self._slots),
            barriers=sum(slot.barriers for slot in self._slots),
            kernels=sum(len(step.variants.built.kernels) for step in kernels),
            library_ops=sum(step.component < 0 for step in steps),
            interpreted=sum(isinstance(step, HostStep) and step.component >= 0 for step in steps),
            arena_bytes=self._program.schedule.arena.bytes,
            threads=1,
            notes=notes,
        )

    def _call(self, feeds: Mapping[str, Any], out: Mapping[str, Any], visit: Visit | None) -> dict[str, Any]:
        arrays = self._arrays(feeds, out)
        seen, stream = self._import(arrays)
        inputs = dict(zip(self._inputs, seen, strict=False))
        given = dict(zip(out, seen[len(self._inputs) :], strict=True))
        self._check(feeds, inputs, out, given)
        recording = self._device.capturing(stream)
        slot = self._take(stream, recording)
        try:
            spans = self._feed(slot, feeds, inputs, stream)
            there = any(found is not None for found in inputs.values())
            results = self._results(slot, out, given, inputs, there, stream)
            caller = {**spans, **{root: results[name].span for name, root in self._direct.items()}}
            slot.held = (arrays, seen)
            made = slot.run(caller, stream, recording, visit)
            found = self._deliver(slot, results, made, there, stream)
            if recording:
                return found
            self._device.record(slot.done, stream)
            if not there and not any(given.values()):  # all is done, since results were waited for
                slot.held = ()
            return found
        finally:
            if not recording:  # the caller's graph uses the slot whenever it is replayed
                with self._lock:
                    self._free.append(slot)

    # --- before a run

    def _arrays(self, feeds: Mapping[str, Any], out: Mapping[str, Any]) -> list[Any]:
        """The inputs in order, then the arrays of `out`."""
        for name in self._inputs:
            if name not in feeds:
                raise missing_input(self._program.graph, name)
        refuse_extra("input", feeds, self._inputs)
        refuse_extra("output", out, [n for n in self._outputs if n not in self._program.elsewhere])
        inputs = [feeds[n] if on_device(feeds[n]) else np.asarray(feeds[n]) for n in self._inputs]
        return [*inputs, *out.values()]

    def _import(self, arrays: Sequence[Any]) -> tuple[list[DeviceArray | None], int]:
        try:
            return import_arrays(arrays, self._device)
        except ValueError as error:
            raise InputError(str(error)) from error

    def _check(
        self,
        feeds: Mapping[str, Any],
        inputs: Mapping[str, DeviceArray | None],
        out: Mapping[str, Any],
        given: Mapping[str, DeviceArray | None],
    ) -> None:
        """Raises InputError for an array of another dtype or shape, and for outputs that cannot be written."""
        graph = self._program.graph
        for name, found in inputs.items():
            array = np.asarray(feeds[name]) if found is None else found
            kind = graph.types[name]
            if array.shape != kind.shape or array.dtype != kind.dtype.numpy:
                raise misfit(graph, name, array.dtype, array.shape)
        for name, on in given.items():
            array = out[name] if on is None else on
            kind = graph.types[name]
            if on is None and not isinstance(array, np.ndarray):
                raise unusable_output(graph, name, type(array).__name__)
            if array.shape != kind.shape or array.dtype != kind.dtype.numpy:
                raise unusable_output(graph, name, f"{array.dtype}{list(array.shape)}")
            if not (array.flags.writeable if isinstance(array, np.ndarray) else array.writable):
                raise InputError(f"out[{name!r}] is read-only")

    def _take(self, stream: int, recording: bool) -> Slot:
        """A slot for work on `stream`: one that was used there last, else one whose work is waited for, else a new one.

        A stream that the caller records cannot wait for work outside the recording: there it is the caller who has.
        Raises LibraryError when a library op is missing.
        """
        if self._program.missing:
            raise LibraryError(self._program.missing)
        with self._lock:
            found = next((s for s in self._free if s.stream == stream), None) or next(iter(self._free), None)
            if found is not None:
                self._free.remove(found)
        if found is None:
            found = Slot(self._program, stream)
            self._slots.append(found)
        elif found.stream != stream:
            if not recording:
                self._device.wait(stream, found.done)
            found.stream = stream
        return found

    def _feed(
        self, slot: Slot, feeds: Mapping[str, Any], inputs: Mapping[str, DeviceArray | None], stream: int
    ) -> dict[str, Span]:
        """Where the inputs lie on the device: in place, or in the slot."""
        spans: dict[str, Span] = {}
        for name, found in inputs.items():
            if found is not None and found.contiguous:
                spans[name] = Span(found.address, found.bytes)
                continue
            spans[name] = slot.staging(name)
            if found is None:
                self._device.upload(spans[name].address, np.ascontiguousarray(feeds[name]), stream)
            else:
                copy_to(self._device, spans[name].address, found, stream)
        return spans

    def _results(
        self,
        slot: Slot,
        out: Mapping[str, Any],
        given: Mapping[str, DeviceArray | None],
        inputs: Mapping[str, DeviceArray | None],
        there: bool,
        stream: int,
    ) -> dict[str, Result]:
        """Where the outputs go. Steps write an array of `out` only where nothing is read or written there besides."""
        graph = self._program.graph
        results: dict[str, Result] = {}
        for name in self._outputs:
            if name in self._program.elsewhere:
                continue
            kind = graph.types[name]
            if name in out:
                found = given[name]
                if found is None:
                    results[name] = Result(out[name], slot.staging(name), None)
                    continue
                others = [o for n, o in given.items() if n != name] + list(inputs.values())
                free = found.contiguous and not any(o is not None and o.overlaps(found) for o in others)
                span = Span(found.address, found.bytes) if free else slot.staging(name)
                results[name] = Result(out[name], span, found)
            elif there:
                array = self._device.empty(kind.shape, kind.dtype.numpy, stream)
                address = array.__cuda_array_interface__["data"][0]
                device = contiguous(address, kind.shape, kind.dtype.numpy)
                results[name] = Result(array, Span(address, device.bytes), device)
            else:
                results[name] = Result(np.empty(kind.shape, kind.dtype.numpy), slot.staging(name), None)
        return results

    # --- after a run

    def _deliver(
        self, slot: Slot, results: Mapping[str, Result], made: Mapping[str, Array], there: bool, stream: int
    ) -> dict[str, Any]:
        """The caller's arrays, filled."""
        device, graph = self._device, self._program.graph
        for root, name in self._program.schedule.copies:
            source, to = slot.span(root), results[name].span
            if source.address != to.address:
                device.copy(to.address, source.address, to.bytes, stream)
        for name, result in results.items():
            if result.direct:
                continue
            kind = graph.types[name]
            if result.device is not None:
                staged = contiguous(result.span.address, kind.shape, kind.dtype.numpy)
                device.copy_elements(result.device, staged, stream)
            elif result.array.flags.c_contiguous:
                device.download(result.array, result.span.address, stream)
            else:
                fetched = np.empty(kind.shape, kind.dtype.numpy)
                device.download(fetched, result.span.address, stream)
                np.copyto(result.array, fetched)
        found: dict[str, Any] = {}
        for name in self._outputs:
            if name not in made:
                found[name] = results[name].array
            elif there:
                found[name] = self._device.empty(made[name].shape, made[name].dtype, stream)
                address = found[name].__cuda_array_interface__["data"][0]
                device.upload(address, np.ascontiguousarray(made[name]), stream)
            else:
                found[name] = made[name]
        return found
