"""Launches of a built plan under watch: fenced memory, poisoned outputs, one thread and two, twice."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stitchtune.kernels.build import BuiltPlan
from stitchtune.kernels.launch import argument_array, load_kernels, plan_records
from stitchtune.kernels.team import Counts, Team, records

from tests.differential.fences import LINE, Fenced, fenced, padded, view
from tests.differential.machine import Arrays, Wrong

_BARRIER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)
_alone = (ctypes.c_void_p * 1)(ctypes.cast(_BARRIER(lambda _team, _thread: None), ctypes.c_void_p))


class Launch:
    """A plan's buffers in memory of some kind."""

    def __init__(self, built: BuiltPlan, inputs: Sequence[NDArray[Any]], memory: Callable[[int, int], Fenced]) -> None:
        sub = built.sub
        self.built = built
        self.inputs = [memory(a.nbytes, a.itemsize) for a in inputs]
        self.outputs = [memory(sub.bytes(v), sub.values[v].dtype.size) for v in sub.outputs]
        self.scratch = [fenced(n, LINE) for n in built.scratch_bytes]
        self.given = [np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in inputs]
        for fence, data in zip(self.inputs, self.given, strict=True):
            fence.payload[:] = data
        everything = (*self.inputs, *self.outputs, *self.scratch)
        self.table = (ctypes.c_void_p * max(1, len(everything)))(*(f.address for f in everything))
        self.args = argument_array(built)

    def poison(self, byte: int) -> None:
        for fence in (*self.outputs, *self.scratch):
            fence.payload[:] = byte

    def results(self) -> Arrays:
        """The outputs, after checking that nothing else was touched."""
        sub = self.built.sub
        for kind, fences in (("input", self.inputs), ("output", self.outputs), ("scratch array", self.scratch)):
            for i, fence in enumerate(fences):
                if not fence.intact():
                    raise Wrong(f"memory around {kind} {i} was written")
        for i, (fence, data) in enumerate(zip(self.inputs, self.given, strict=True)):
            if not np.array_equal(fence.payload, data):
                raise Wrong(f"input {i} was changed")
        types = [(sub.values[v].dtype.numpy, sub.shape(v)) for v in sub.outputs]
        return [view(fence, *kind) for fence, kind in zip(self.outputs, types, strict=True)]

    def free(self) -> None:
        for fence in (*self.inputs, *self.outputs, *self.scratch):
            fence.free()


def run_alone(built: BuiltPlan, inputs: Sequence[NDArray[Any]]) -> Arrays:
    """One launch on this thread, with every array and the block memory before an unreadable page."""
    launch = Launch(built, inputs, fenced)
    launch.poison(0xFF)
    library = load_kernels(built.library)
    for symbol, size in zip(built.symbols, built.block_bytes, strict=True):
        block = fenced(size, LINE)
        block.payload[:] = 0xFF
        library[symbol](launch.table, launch.args, ctypes.c_void_p(block.address), 0, 1, _alone)
        if not block.intact():
            raise Wrong("memory around the block memory was written")
        block.free()
    results = launch.results()
    launch.free()
    return results


def run_together(built: BuiltPlan, inputs: Sequence[NDArray[Any]], team: Team) -> list[Arrays]:
    """Two launches on a team, over other poison each, with arrays that are aligned to their elements only."""
    launch = Launch(built, inputs, padded)
    items = records(plan_records(built, ctypes.addressof(launch.table), ctypes.addressof(launch.args)))
    found = []
    for poison in (0x5A, 0x00):
        launch.poison(poison)
        counts = Counts()
        team.run(items, counts=counts)
        if (counts[0], counts[1]) != (len(built.plan.kernels), built.plan.barriers):
            raise Wrong(f"{counts[0]} launches and {counts[1]} barriers were executed, not those of the plan")
        found.append(launch.results())
    launch.free()
    return found


def run_watched(built: BuiltPlan, inputs: Sequence[NDArray[Any]], team: Team) -> Arrays:
    """The outputs of a plan, the same bits in every way to run it. Raises Wrong otherwise."""
    first = run_alone(built, inputs)
    for how, again in zip(("on two threads", "the second time"), run_together(built, inputs, team), strict=True):
        for i, (one, other) in enumerate(zip(first, again, strict=True)):
            if one.tobytes() != other.tobytes():
                at = np.flatnonzero(one.reshape(-1).view(np.uint8) != other.reshape(-1).view(np.uint8))
                where = int(at[0]) // one.itemsize
                raise Wrong(f"output {i} has other bits {how}: element {where}, {len(at)} bytes in all")
    return first
