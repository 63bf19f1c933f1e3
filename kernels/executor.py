"""Runs a whole graph: dict of arrays in, dict of arrays out, and hardly any Python in between.

Everything a run touches lies in a *slot*: arena, table of addresses and launch records. A call takes a slot from the
pool (or makes one), writes the addresses of its inputs and outputs into the table, and launches all steps in one call
of the runtime. So calls from several threads do not share memory; they take turns on the team.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graphs.errors import InputError
from ..graphs.partition import Partition
from ..graphs.rounding import Precision
from ..search_space.plan import Plan
from ..search_space.target import Target
from .boundary import misfit, missing_input, refuse_extra, unusable_output
from .launch import array_address, in_order
from .library import LibraryError
from .program import KernelStep, Program, PythonStep, make_program
from .slot import Slot, Tables, lay_out
from .stats import Executor, Stats, Visit

__all__ = ["Executor", "HostExecutor", "Stats", "Visit", "compile_graph"]

Array = NDArray[Any]


def compile_graph(
    partition: Partition,
    plans: Sequence[Plan],
    target: Target,
    *,
    cache: Path,
    precision: Precision = "strict",
    jobs: int = 2,
    threads: int | None = None,
) -> Executor:
    """An executor that runs each component by its plan of `plans` (in the order of the components).

    `threads` defaults to the processors (CPU only). Without a compiler the reference interpreter runs the graph,
    and a warning says so. Raises OSError when `cache` cannot be used, NoDevice when the target is a device that is
    elsewhere.
    """
    if target.kind == "cuda":
        from .cuda.executor import compile_cuda
        from .cuda.opening import open_device

        return compile_cuda(partition, plans, open_device(target), precision=precision, cache=cache, jobs=jobs)
    program = make_program(
        partition,
        plans,
        target,
        precision=precision,
        cache=cache,
        jobs=jobs,
        threads=threads or target.processors,
    )
    return HostExecutor(program)


class HostExecutor:
    """A compiled graph on the CPU. Calls are thread-safe; the child of a fork may go on using it."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._tables: Tables = lay_out(program)
        self._slots: list[Slot] = []
        self._free: list[Slot] = []
        if program.library is not None:
            weakref.finalize(self, program.library.close).atexit = False
        graph = program.graph
        self._feeds = tuple(
            (name, graph.types[name].shape, graph.types[name].dtype.numpy, self._tables.places(name))
            for name in dict.fromkeys(graph.inputs)
        )
        direct = {output: root for root, output in program.schedule.direct.items()}
        self._outputs = tuple(
            (
                name,
                graph.types[name].shape,
                graph.types[name].dtype.numpy,
                self._tables.places(direct[name]) if name in direct else (),
            )
            for name in dict.fromkeys(graph.outputs)
            if name not in program.elsewhere
        )

    def __call__(self, feeds: Mapping[str, Any], out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """The outputs by name, for arrays of the graph's inputs.

        Outputs are fresh arrays of the caller's, or those of `out` (all or some names): of the output's shape and dtype
        and writable. Inputs are read in place when they are C-contiguous and aligned; they may overlap `out`.
        Raises InputError when arrays do not fit, LibraryError when a library op is missing or fails.
        """
        return self._with_slot(feeds, out, None)

    def record(self, feeds: Mapping[str, Any], visit: Visit) -> dict[str, Array]:
        """Runs the graph step by step and shows `visit` the inputs of each component, by its number, before it runs.

        The arrays have the shapes of the subgraph's inputs. They are views of memory that the next steps overwrite:
        `visit` copies what it keeps.
        """
        return self._with_slot(feeds, None, visit)

    def stats(self) -> Stats:
        """Sizes, and counts over all runs so far (those under way in other threads partly)."""
        steps = self._program.steps
        kernels = [step for step in steps if isinstance(step, KernelStep)]
        return Stats(
            runs=sum(slot.runs for slot in self._slots),
            launches=sum(slot.counts[0] for slot in self._slots),
            barriers=sum(slot.counts[1] for slot in self._slots),
            kernels=sum(len(step.built.kernels) for step in kernels),
            library_ops=sum(step.component < 0 for step in steps),
            interpreted=sum(isinstance(step, PythonStep) and step.component >= 0 for step in steps),
            arena_bytes=self._program.schedule.arena.bytes,
            threads=self._program.team.threads if self._program.team else 1,
        )

    def _with_slot(
        self, feeds: Mapping[str, Any], out: Mapping[str, Array] | None, visit: Visit | None
    ) -> dict[str, Array]:
        try:
            slot = self._free.pop()
        except IndexError:
            slot = self._new_slot()
        try:
            return self._run(slot, feeds, out, visit)
        finally:
            self._free.append(slot)

    def _new_slot(self) -> Slot:
        if self._program.missing:
            raise LibraryError(self._program.missing)
        slot = Slot(self._program, self._tables)
        self._slots.append(slot)
        return slot

    def _run(
        self, slot: Slot, feeds: Mapping[str, Any], out: Mapping[str, Array] | None, visit: Visit | None
    ) -> dict[str, Array]:
        table = slot.table
        held = []
        for name, shape, dtype, places in self._feeds:
            array = feeds.get(name)
            if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
                array = self._fit(name, feeds)
            if not in_order(array):
                array = np.array(array, order="C", copy=True)
            held.append(array)
            address = array_address(array)
            for place in places:
                table[place] = address
        if len(feeds) != len(held):
            refuse_extra("input", feeds, [name for name, *_ in self._feeds])
        given = self._usable(out, held) if out else {}
        results: dict[str, Array] = {}
        for name, shape, dtype, places in self._outputs:
            array = given.get(name)
            if array is None:
                array = np.empty(shape, dtype)
            results[name] = array
            address = array_address(array)
            for place in places:
                table[place] = address
        made = slot.run() if visit is None else slot.visit(visit)
        slot.runs += 1
        for root, name in self._program.schedule.copies:
            np.copyto(results[name], slot.array(root, results[name].shape))
        if made:
            results = {name: made[name] if name in made else results[name] for name in self._program.graph.outputs}
        if out:
            for name, array in out.items():
                if results[name] is not array:
                    np.copyto(array, results[name])
                    results[name] = array
        return results

    def _fit(self, name: str, feeds: Mapping[str, Any]) -> Array:
        """The feed `name` as an array of the right type, or an InputError that says what is wrong."""
        graph = self._program.graph
        if name not in feeds:
            raise missing_input(graph, name)
        array = np.asarray(feeds[name])
        kind = graph.types[name]
        if array.shape != kind.shape or array.dtype != kind.dtype.numpy:
            raise misfit(graph, name, array.dtype, array.shape)
        return array

    def _usable(self, out: Mapping[str, Array], held: Sequence[Array]) -> dict[str, Array]:
        """The arrays of `out` that steps may write while inputs are still read; InputError when one does not fit."""
        names = [name for name, *_ in self._outputs]
        refuse_extra("output", out, names)
        direct: dict[str, Array] = {}
        for name, shape, dtype, _ in self._outputs:
            if name not in out:
                continue
            array = out[name]
            if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
                found = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
                raise unusable_output(self._program.graph, name, found)
            if not array.flags.writeable:
                raise InputError(f"out[{name!r}] is read-only")
            others = [*held, *(a for n, a in out.items() if n != name)]
            if in_order(array) and not any(np.may_share_memory(array, other) for other in others):
                direct[name] = array
        return direct
