"""A partitioned graph with everything made that a run on a CUDA device needs, but for the memory of a run."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ...graphs.interpret import run_subgraph
from ...graphs.ir import Graph
from ...graphs.partition import Component, LibraryStep, Partition, ViewStep
from ...graphs.rounding import Precision
from ...graphs.subgraph import Subgraph
from ...search_space.plan import Plan
from ...search_space.stitch import unfused
from ..compile import BuildFailure
from ..library import LibraryError
from ..program import flat_constants, unknown_outputs
from ..schedule import Schedule, make_schedule
from .built import BuiltCuda
from .device import ALIGNMENT, Device, Kernel, Memory, Span, align
from .library import DeviceOp, HostOp, library_op

Array = NDArray[Any]


class Variants:
    """The kernels of one plan for buffers aligned to 16 bytes and, made when they are first needed, for any others."""

    def __init__(self, built: BuiltCuda, device: Device, precision: Precision, cache: Path) -> None:
        self.built = built
        self._device, self._precision, self._cache = device, precision, cache
        self._loaded: dict[bool, tuple[Kernel, ...]] = {True: device.load(built)}
        self._lock = threading.Lock()

    def kernels(self, aligned: bool) -> tuple[Kernel, ...]:
        """The loaded kernels. Raises LibraryError when those for any alignment do not compile."""
        with self._lock:
            if aligned not in self._loaded:
                [built] = self._device.build(
                    [(self.built.sub, self.built.plan)], precision=self._precision, cache=self._cache, aligned=False
                )
                if isinstance(built, BuildFailure):
                    raise LibraryError(f"a kernel for unaligned arrays does not compile: {built.message}")
                self._loaded[False] = self._device.load(built)
            return self._loaded[aligned]


@dataclass(frozen=True)
class KernelStep:
    """Component number `component`, run by the kernels of its plan. `shapes` are the subgraph's for its inputs."""

    component: int
    inputs: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    outputs: tuple[str, ...]
    variants: Variants


@dataclass(frozen=True)
class OpStep:
    """A library op in device memory."""

    op: DeviceOp
    component: int = -1

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.op.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.op.outputs


@dataclass(frozen=True)
class HostStep:
    """A step on arrays of the host: a component without kernels (`component` is its number), or a library op."""

    component: int
    shapes: tuple[tuple[int, ...], ...]
    op: HostOp

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.op.inputs

    @property
    def outputs(self) -> tuple[str, ...]:
        return self.op.outputs


Step = KernelStep | OpStep | HostStep


@dataclass(frozen=True)
class Program:
    """Steps in order of execution, and where their tensors live.

    segments   ranges of steps: neighbouring kernels together, everything else alone
    constants  where those are that steps read on the device; `memory` holds them
    elsewhere  outputs of the graph whose arrays only a run makes, since their shapes depend on data
    missing    "" or why the graph cannot run here, in one line
    """

    graph: Graph
    device: Device
    steps: tuple[Step, ...]
    segments: tuple[range, ...]
    schedule: Schedule
    constants: Mapping[str, Span]
    memory: Memory
    elsewhere: frozenset[str]
    missing: str

    def steps_of(self, segment: range) -> tuple[Step, ...]:
        return tuple(self.steps[i] for i in segment)


def make_program(
    partition: Partition, plans: Sequence[Plan], device: Device, *, precision: Precision, cache: Path, jobs: int
) -> Program:
    """Builds what a run needs. `plans` are those of the components, in order.

    A component whose plan the device cannot take runs unfused, or where not even that compiles is interpreted on the
    host, with a warning. A library op that is missing
    does not fail here: the program says so. Raises LoweringError for an inconsistent plan.
    """
    graph = flat_constants(partition.graph)
    moving = [step for step in partition.steps if not isinstance(step, ViewStep)]
    components = [step for step in moving if isinstance(step, Component)]
    items = [(c.subgraph, plan) for c, plan in zip(components, plans, strict=True)]
    distinct = list(dict.fromkeys(items))
    made = _build(distinct, device, precision, cache, jobs)
    variants = {
        item: Variants(one, device, precision, cache) if isinstance(one, BuiltCuda) else one
        for item, one in zip(distinct, made, strict=True)
    }
    elsewhere = frozenset(n for step in moving if isinstance(step, LibraryStep) for n in unknown_outputs(step))
    steps: list[Step] = []
    scratch: dict[int, tuple[int, ...]] = {}
    missing = ""
    numbers = iter(range(len(components)))
    for step in moving:
        if isinstance(step, Component):
            number = next(numbers)
            found = variants[items[number]]
            if isinstance(found, Variants):
                scratch[len(steps)] = found.built.scratch_bytes
            steps.append(_component_step(step, number, found, precision))
            continue
        try:
            op = library_op(step.node, graph, device)
            steps.append(OpStep(op) if isinstance(op, DeviceOp) else HostStep(-1, _shapes(op.inputs, graph), op))
        except LibraryError as error:
            missing = missing or str(error)
    schedule = make_schedule(partition, scratch, elsewhere, ALIGNMENT)
    constants, memory = _upload(graph, schedule, steps, device)
    return Program(
        graph, device, tuple(steps), tuple(_segments(steps)), schedule, constants, memory, elsewhere, missing
    )


def _build(
    items: Sequence[tuple[Subgraph, Plan]], device: Device, precision: Precision, cache: Path, jobs: int
) -> list[BuiltCuda | BuildFailure]:
    """Each item built, by its unfused plan where its own is refused. Warns, once for each reason."""
    made = list(device.build(items, precision=precision, cache=cache, jobs=jobs))
    refused = [i for i, one in enumerate(made) if isinstance(one, BuildFailure)]
    if not refused:
        return made
    plain = [(items[i][0], unfused(items[i][0], device.target)) for i in refused]
    told: dict[str, None] = {}
    for i, second in zip(refused, device.build(plain, precision=precision, cache=cache, jobs=jobs), strict=True):
        first, made[i] = made[i], second
        assert isinstance(first, BuildFailure)
        how = "it runs unfused" if isinstance(second, BuiltCuda) else "it is interpreted, slowly"
        told[f"a subgraph did not compile ({first.message}); {how}"] = None
    for message in told:
        warnings.warn(message, stacklevel=5)
    return made


def _component_step(
    component: Component, number: int, found: Variants | BuildFailure, precision: Precision
) -> KernelStep | HostStep:
    sub = component.subgraph
    shapes = tuple(sub.shape(v) for v in sub.inputs)
    if isinstance(found, Variants):
        return KernelStep(number, component.inputs, shapes, component.outputs, found)
    return HostStep(number, shapes, _interpreted(component, sub, precision))


def _interpreted(component: Component, sub: Subgraph, precision: Precision) -> HostOp:
    return HostOp(component.inputs, component.outputs, lambda arrays: run_subgraph(sub, arrays, precision))


def _shapes(names: Sequence[str], graph: Graph) -> tuple[tuple[int, ...], ...]:
    return tuple(graph.types[name].shape for name in names)


def _upload(graph: Graph, schedule: Schedule, steps: Sequence[Step], device: Device) -> tuple[dict[str, Span], Memory]:
    """The constants that are wanted on the device, put there."""
    read = {schedule.roots[name] for step in steps if not isinstance(step, HostStep) for name in step.inputs}
    read |= {root for root, _ in schedule.copies}
    wanted = [name for name in graph.constants if name in read]
    memory = device.allocate(sum(align(graph.constants[name].nbytes) for name in wanted))
    spans: dict[str, Span] = {}
    address = memory.address
    for name in wanted:
        array = graph.constants[name]
        device.upload(address, array, 0)
        spans[name] = Span(address, array.nbytes)
        address += align(array.nbytes)
    device.synchronize(0)
    return spans, memory


def _segments(steps: Sequence[Step]) -> list[range]:
    found: list[range] = []
    for i, step in enumerate(steps):
        if found and isinstance(step, KernelStep) and isinstance(steps[i - 1], KernelStep):
            found[-1] = range(found[-1].start, i + 1)
        else:
            found.append(range(i, i + 1))
    return found
