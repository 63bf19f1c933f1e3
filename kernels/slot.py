"""The memory and the prepared launches of one run at a time."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arena import allocate
from .launch import array_address, plan_records
from .library import Failure, LibraryError
from .program import KernelStep, OpStep, Program, PythonStep
from .schedule import scratch_name
from .team import Counts, Record, records

Array = NDArray[Any]

_WORD = 8


@dataclass(frozen=True)
class Tables:
    """The table of addresses: an entry per root tensor, then the pointer list of each kernel step.

    names   the root tensor or scratch array whose address each entry holds
    starts  where the list of a kernel step begins
    """

    names: tuple[str, ...]
    starts: Mapping[int, int]

    def places(self, root: str) -> tuple[int, ...]:
        """The entries that hold the address of a root tensor."""
        return tuple(i for i, name in enumerate(self.names) if name == root)


def lay_out(program: Program) -> Tables:
    """The table of a program."""
    names = list(program.schedule.numbers)
    starts: dict[int, int] = {}
    for i, step in enumerate(program.steps):
        if isinstance(step, KernelStep):
            starts[i] = len(names)
            names += [program.schedule.roots[n] for n in (*step.inputs, *step.outputs)]
            names += [scratch_name(i, k) for k in range(len(step.built.scratch))]
    return Tables(tuple(names), starts)


class Slot:
    """What one run needs for itself; nobody else may use it meanwhile."""

    def __init__(self, program: Program, tables: Tables) -> None:
        self.runs = 0
        self.counts = Counts()
        self._program = program
        self._failure = Failure()
        self._owned: list[Any] = []
        arena = program.schedule.arena
        self._memory, base = allocate(arena.bytes)
        self.table = (ctypes.c_int64 * max(1, len(tables.names)))()
        for i, name in enumerate(tables.names):
            if name in program.graph.constants:
                self.table[i] = array_address(program.graph.constants[name])
            elif name in arena.offsets:
                self.table[i] = base + arena.offsets[name]
        self._parts = [self._part(i, tables) for i in range(len(program.steps))]
        self._runs = list(_merged(self._parts))

    def _part(self, position: int, tables: Tables) -> list[Record] | PythonStep:
        """The launches of one step."""
        step = self._program.steps[position]
        table = ctypes.addressof(self.table)
        match step:
            case KernelStep():
                start = table + _WORD * tables.starts[position]
                return plan_records(step.built, start, ctypes.addressof(step.args))
            case OpStep():
                record, state = step.op.record(table, self._failure)
                self._owned.append(state)
                return [record]
            case PythonStep():
                return step

    def run(self) -> dict[str, Array]:
        """Runs every step. Returns the outputs whose arrays only a run can make."""
        made: dict[str, Array] = {}
        for part in self._runs:
            self._execute(part, made)
        return made

    def visit(self, see: Callable[[int, list[Array]], None]) -> dict[str, Array]:
        """Runs step by step; `see` gets each component's number and inputs (views) before the component runs."""
        made: dict[str, Array] = {}
        for step, part in zip(self._program.steps, self._parts, strict=True):
            if not isinstance(step, OpStep) and step.component >= 0:
                see(step.component, self._inputs(step))
            self._execute(part if isinstance(part, PythonStep) else records(part), made)
        return made

    def array(self, name: str, shape: tuple[int, ...]) -> Array:
        """A view of a tensor's memory in this shape, of as many elements."""
        dtype = self._program.graph.types[name].dtype.numpy
        size = math.prod(shape) * dtype.itemsize
        if size == 0:
            return np.empty(shape, dtype)
        memory = (ctypes.c_uint8 * size).from_address(self.table[self._program.schedule.number(name)])
        view: Array = np.frombuffer(memoryview(memory), dtype=np.uint8).view(dtype).reshape(shape)
        return view

    def _inputs(self, step: KernelStep | PythonStep) -> list[Array]:
        return [self.array(name, shape) for name, shape in zip(step.inputs, step.shapes, strict=True)]

    def _execute(self, part: ctypes.Array[Record] | PythonStep, made: dict[str, Array]) -> None:
        if isinstance(part, PythonStep):
            for name, array in zip(part.outputs, part.run(self._inputs(part)), strict=True):
                if name in self._program.elsewhere:
                    made[name] = array
                else:
                    np.copyto(self.array(name, array.shape), array)
            return
        assert self._program.team is not None
        self._program.team.run(part, counts=self.counts)
        if self._failure.failed:
            self._failure.failed = 0
            raise LibraryError(self._failure.message.decode(errors="replace"))


def _merged(parts: list[list[Record] | PythonStep]) -> Iterator[ctypes.Array[Record] | PythonStep]:
    """Launches of neighbouring steps in one array, so that the runtime goes through them alone."""
    pending: list[Record] = []
    for part in parts:
        if isinstance(part, PythonStep):
            if pending:
                yield records(pending)
            pending = []
            yield part
        else:
            pending += part
    if pending:
        yield records(pending)
