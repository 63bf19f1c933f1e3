"""The memory of one run at a time on a CUDA device, and the graphs recorded for it.

Neighbouring kernels are recorded as one CUDA graph when they meet the same addresses of the caller's arrays for the
second time: a caller who brings new arrays each time never pays for recording, one who brings the same pays once.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..schedule import scratch_name
from .device import ALIGNMENT, Call, LaunchError, Memory, Span, align
from .launch import PACK
from .program import HostStep, KernelStep, OpStep, Program, Step
from .timing import Batch

Array = NDArray[Any]
See = Callable[[int, list[Array]], None]

RECORDINGS = 8
"""Sets of addresses that each segment remembers."""


@dataclass
class Recording:
    """A segment's launches for one set of addresses; `batch` once they came a second time."""

    calls: tuple[Call, ...]
    batch: Batch | None = None


class Slot:
    """What one run needs for itself; nobody else may use it meanwhile.

    stream  where the last run was queued; `done` is behind its work
    held    the caller's arrays of that run, which queued work may still read
    """

    def __init__(self, program: Program, stream: int) -> None:
        self.runs = self.launches = self.barriers = 0
        self.stream = stream
        self.held: Sequence[Any] = ()
        self._program = program
        self._device = program.device
        self.done = self._device.event()
        words = align(ALIGNMENT * max(1, len(program.steps)))
        arena = program.schedule.arena
        self._memory = self._device.allocate(words + arena.bytes)
        self._words, self._words_bytes = self._memory.address, words
        base = self._memory.address + words
        sizes = {
            scratch_name(i, k): size
            for i, step in enumerate(program.steps)
            if isinstance(step, KernelStep)
            for k, size in enumerate(step.variants.built.scratch_bytes)
        }
        self._fixed: dict[str, Span] = dict(program.constants)
        for name, offset in arena.offsets.items():
            size = sizes[name] if name in sizes else program.graph.types[name].bytes
            self._fixed[name] = Span(base + offset, size)
        self._spans: dict[str, Span] = {}
        self._roots = [self._caller_roots(segment) for segment in program.segments]
        self._recordings: list[OrderedDict[tuple[int, ...], Recording]] = [OrderedDict() for _ in program.segments]
        self._staging: dict[str, Span] = {}
        self._staged: Memory | None = None
        self._clear(stream)

    def staging(self, name: str) -> Span:
        """Memory of the slot for the input or output `name`, where the caller's own cannot be used."""
        if self._staged is None:
            graph = self._program.graph
            names = list(dict.fromkeys((*graph.inputs, *graph.outputs)))
            sizes = [align(graph.types[n].bytes) for n in names]
            self._staged = self._device.allocate(sum(sizes))
            address = self._staged.address
            for one, size in zip(names, sizes, strict=True):
                self._staging[one] = Span(address, graph.types[one].bytes)
                address += size
        return self._staging[name]

    def run(
        self, caller: Mapping[str, Span], stream: int, recording: bool = False, see: See | None = None
    ) -> dict[str, Array]:
        """Queues every step, with the caller's arrays by root tensor. Returns the outputs that only a run can make.

        `recording`: the caller records the stream into a graph of its own. `see` gets each component's number and
        inputs before it runs; the steps then run one by one.
        """
        self._spans = {**self._fixed, **caller}
        made: dict[str, Array] = {}
        for i, segment in enumerate(self._program.segments):
            first = self._program.steps[segment.start]
            if see is not None:
                self._show(segment, see, stream, made)
            elif isinstance(first, KernelStep):
                self._launch(i, segment, stream, recording)
            else:
                self._execute(first, stream, made)
        self.runs += 1
        return made

    def span(self, tensor: str) -> Span:
        """Where a tensor lies in the run that was queued last."""
        return self._spans[self._program.schedule.roots[tensor]]

    def array(self, tensor: str, shape: tuple[int, ...], stream: int) -> Array:
        """A copy of a tensor in host memory."""
        constant = self._program.graph.constants.get(self._program.schedule.roots[tensor])
        if constant is not None:
            return constant.reshape(shape)
        found: Array = np.empty(shape, self._program.graph.types[tensor].dtype.numpy)
        self._device.download(found, self.span(tensor).address, stream)
        return found

    # --- kernels

    def _launch(self, position: int, segment: range, stream: int, recording: bool) -> None:
        """Queues a segment of kernels: recorded, or one by one, as where the caller records the stream itself."""
        key = tuple(self._spans[root].address for root in self._roots[position])
        known = self._recordings[position]
        entry = known.get(key)
        try:
            if entry is None:
                entry = known[key] = Recording(tuple(self._calls(segment)))
                while len(known) > RECORDINGS:
                    known.popitem(last=False)
            else:
                known.move_to_end(key)
                if entry.batch is None and len(entry.calls) > 1 and not recording:
                    entry.batch = Batch(self._device, entry.calls)
            if entry.batch is not None and not recording:
                entry.batch.queue(stream)
            else:
                for call in entry.calls:
                    self._device.launch(call, stream)
        except LaunchError as error:
            if not error.sticky:
                self._clear(stream)
            raise
        self.launches += len(entry.calls)
        self.barriers += sum(_barriers(step) for step in self._program.steps_of(segment))

    def _calls(self, segment: range) -> list[Call]:
        """The launches of a segment on the addresses of this run."""
        calls: list[Call] = []
        for i in segment:
            step = self._program.steps[i]
            assert isinstance(step, KernelStep)
            tensors = [self._input_span(step, k) for k in range(len(step.inputs))]
            tensors += [self.span(name) for name in step.outputs]
            aligned = all(span.address % PACK == 0 for span in tensors)
            built = step.variants.built
            scratch = [self._spans[scratch_name(i, k)] for k in range(len(built.scratch))]
            word = self._words + ALIGNMENT * i
            for kernel in step.variants.kernels(aligned):
                calls.append(self._device.prepare(kernel, (*tensors, *scratch), built.arguments, word))
        return calls

    def _input_span(self, step: KernelStep, position: int) -> Span:
        """The memory of a step's input, of the size that the subgraph sees."""
        name = step.inputs[position]
        size = math.prod(step.shapes[position]) * self._program.graph.types[name].dtype.size
        return Span(self.span(name).address, size)

    def _caller_roots(self, segment: range) -> tuple[str, ...]:
        """The tensors of a segment whose addresses change from run to run."""
        roots = self._program.schedule.roots
        names = (n for step in self._program.steps_of(segment) for n in (*step.inputs, *step.outputs))
        return tuple(dict.fromkeys(roots[n] for n in names if roots.get(n, n) not in self._fixed))

    def _clear(self, stream: int) -> None:
        """Puts all barriers where they were before the first launch."""
        self._device.fill(self._words, 0, self._words_bytes, stream)

    # --- everything else

    def _execute(self, step: Step, stream: int, made: dict[str, Array]) -> None:
        if isinstance(step, OpStep):
            step.op.run({name: self.span(name) for name in (*step.inputs, *step.outputs)}, stream)
            return
        assert isinstance(step, HostStep)
        results = step.op.run([self.array(n, shape, stream) for n, shape in zip(step.inputs, step.shapes, strict=True)])
        for name, array in zip(step.outputs, results, strict=True):
            if name in self._program.elsewhere:
                made[name] = array
            else:
                self._device.upload(self.span(name).address, np.ascontiguousarray(array), stream)

    def _show(self, segment: range, see: See, stream: int, made: dict[str, Array]) -> None:
        """Runs a segment step by step, each component shown before."""
        for i, step in zip(segment, self._program.steps_of(segment), strict=True):
            if isinstance(step, KernelStep | HostStep) and step.component >= 0:
                see(step.component, [self.array(n, s, stream) for n, s in zip(step.inputs, step.shapes, strict=True)])
            if isinstance(step, KernelStep):
                for call in self._calls(range(i, i + 1)):
                    self._device.launch(call, stream)
                self._device.synchronize(stream)
            else:
                self._execute(step, stream, made)


def _barriers(step: Step) -> int:
    return step.variants.built.plan.barriers if isinstance(step, KernelStep) else 0
