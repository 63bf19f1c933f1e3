"""Built plans bound to arrays: one call of the runtime launches a whole plan.

The pointer table of a launch holds the subgraph's inputs, its outputs, then the scratch arrays of the plan.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .arena import Lifetime, allocate, place
from .build import BuiltPlan
from .team import Counts, Eviction, Record, Team, function_address, records

Array = NDArray[Any]


@functools.cache
def load_kernels(path: Path) -> ctypes.CDLL:
    """The compiled kernels at `path`. They stay loaded: somebody may still run them."""
    return ctypes.CDLL(str(path))


def plan_records(built: BuiltPlan, table: int, args: int) -> list[Record]:
    """The launches of a plan, reading the pointer table at `table` and the arguments at `args`."""
    library = load_kernels(built.library)
    return [
        Record(function_address(library[symbol]), table, args, block, kernel.team, True)
        for kernel, symbol, block in zip(built.kernels, built.symbols, built.block_bytes, strict=True)
    ]


def argument_array(built: BuiltPlan) -> ctypes.Array[ctypes.c_int64]:
    """The launch arguments in memory; never empty, so that it has an address."""
    values = built.arguments
    return (ctypes.c_int64 * max(1, len(values)))(*values)


class Launcher:
    """Binds one built plan to arrays, for measurement and for users who have one subgraph. Not for whole graphs."""

    def __init__(self, built: BuiltPlan, team: Team) -> None:
        self.built = built
        self.team = team

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Bound:
        """Arrays in the order of `sub.inputs` and `sub.outputs`, of their shapes (or as many elements) and dtypes.

        An input that is not C-contiguous and aligned, or that shares memory with an output, is copied here, once: the
        launches then read the copy. Outputs must be C-contiguous, aligned, writable and apart from each other. Raises
        ValueError otherwise.
        """
        sub = self.built.sub
        for kind, numbers, arrays in (("input", sub.inputs, inputs), ("output", sub.outputs, outputs)):
            if len(numbers) != len(arrays):
                raise ValueError(f"{len(arrays)} {kind}s given for {len(numbers)}")
            for i, (value, array) in enumerate(zip(numbers, arrays, strict=True)):
                dtype, elements = sub.values[value].dtype.numpy, sub.elements(value)
                if array.dtype != dtype or array.size != elements:
                    raise ValueError(f"{kind} {i} is {array.dtype} x {array.size}, the plan has {dtype} x {elements}")
        for i, output in enumerate(outputs):
            if not (in_order(output) and output.flags.writeable):
                raise ValueError(f"output {i} is not a writable, aligned C-contiguous array")
            if any(np.may_share_memory(output, other) for other in outputs[:i]):
                raise ValueError(f"output {i} shares memory with an earlier output")
        safe = [own_copy(a, outputs) for a in inputs]
        return Bound(self.built, self.team, tuple(safe), tuple(outputs))


def in_order(array: Array) -> bool:
    """True when kernels can address the elements: C-contiguous, each aligned to its size."""
    flags = array.flags
    return flags.c_contiguous and flags.aligned


def own_copy(array: Array, outputs: Sequence[Array]) -> Array:
    """`array` itself where kernels may read it in place, else a copy that is contiguous and apart from `outputs`."""
    if not in_order(array) or any(np.may_share_memory(array, output) for output in outputs):
        return np.array(array, order="C", copy=True)
    return array


@dataclass(frozen=True)
class Executed:
    """What one launch of a plan executed."""

    launches: int
    barriers: int


class Bound:
    """A plan ready to launch: every pointer is in place. One launch at a time, since scratch memory is its own."""

    def __init__(self, built: BuiltPlan, team: Team, inputs: tuple[Array, ...], outputs: tuple[Array, ...]) -> None:
        self.inputs = inputs
        self.outputs = outputs
        self._team = team
        layout = place([Lifetime(str(i), size, 0, 0) for i, size in enumerate(built.scratch_bytes)])
        self._scratch, base = allocate(layout.bytes)
        addresses = [array_address(a) for a in (*inputs, *outputs)]
        addresses += [base + layout.offsets[str(i)] for i in range(len(built.scratch))]
        self._table = (ctypes.c_int64 * max(1, len(addresses)))(*addresses)
        self._args = argument_array(built)
        self._records = records(plan_records(built, ctypes.addressof(self._table), ctypes.addressof(self._args)))

    def launch(self) -> Executed:
        """Runs every kernel of the plan once."""
        counts = Counts()
        self._team.run(self._records, counts=counts)
        return Executed(counts[0], counts[1])

    def time(self, repeats: int, *, batch: int = 1, evict: Eviction | None = None, limit_ns: int = 2**62) -> list[int]:
        """Nanoseconds per sample of `batch` runs of the plan; see Team.time."""
        return self._team.time(self._records, repeats, batch=batch, evict=evict, limit_ns=limit_ns)


_byte: Callable[[Any], ctypes.c_char] = ctypes.c_char.from_buffer


def array_address(array: Array) -> int:
    """Where the first element lies."""
    try:  # a quarter of the time of the way below, which every call of a small graph feels
        return ctypes.addressof(_byte(array))
    except (TypeError, ValueError):  # read-only, empty, strided, or a dtype that buffers cannot tell
        address: int = array.__array_interface__["data"][0]
        return address
