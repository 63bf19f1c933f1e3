"""A partitioned graph with everything made that a run needs: compiled kernels, library ops, and the memory plan."""

from __future__ import annotations

import ctypes
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graphs.interpret import run_subgraph
from ..graphs.ir import Graph
from ..graphs.partition import Component, LibraryStep, Partition, ViewStep
from ..graphs.rounding import Precision
from ..search_space.plan import Plan
from ..search_space.target import Target
from .build import BuiltPlan, build_plans
from .compile import BuildFailure
from .cuda.built import BuiltCuda
from .launch import argument_array, in_order
from .library import Library, LibraryError, LibraryOp, payload, trim_heap
from .schedule import Schedule, make_schedule
from .session import run_library
from .team import Team, build_runtime, shared_team

Array = NDArray[Any]


@dataclass(frozen=True)
class KernelStep:
    """Component number `component`, run by the kernels of its plan. `shapes` are the subgraph's for its inputs."""

    component: int
    inputs: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    outputs: tuple[str, ...]
    built: BuiltPlan
    args: ctypes.Array[ctypes.c_int64]


@dataclass(frozen=True)
class OpStep:
    """A library op run on the team."""

    inputs: tuple[str, ...]
    op: LibraryOp
    component: int = -1


@dataclass(frozen=True)
class PythonStep:
    """A step run by Python on arrays: a component without kernels (`component` is its number), or a library op.

    `run` takes the arrays of `inputs` in these `shapes` and returns those of `outputs`.
    """

    component: int
    inputs: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    outputs: tuple[str, ...]
    run: Callable[[Sequence[Array]], Sequence[Array]]


Step = KernelStep | OpStep | PythonStep


@dataclass(frozen=True)
class Program:
    """Steps in order of execution, and where their tensors live.

    elsewhere  outputs of the graph whose arrays only a run makes, since their shapes depend on data
    missing    "" or why the graph cannot run here, in one line
    team       None: no compiler, so every step is a PythonStep
    """

    graph: Graph
    steps: tuple[Step, ...]
    schedule: Schedule
    elsewhere: frozenset[str]
    missing: str
    team: Team | None
    library: Library | None


def make_program(
    partition: Partition,
    plans: Sequence[Plan],
    target: Target,
    *,
    precision: Precision,
    cache: Path,
    jobs: int,
    threads: int,
) -> Program:
    """Builds what a run needs. `plans` are those of the components, in order.

    A component that cannot be compiled is interpreted instead, with a warning. A library op that is missing does
    not fail here: the program says so. Raises LoweringError for an inconsistent plan.
    """
    graph = flat_constants(partition.graph)
    moving = [step for step in partition.steps if not isinstance(step, ViewStep)]
    components = [step for step in moving if isinstance(step, Component)]
    runtime = build_runtime(cache)
    if isinstance(runtime, BuildFailure):
        warnings.warn(f"{runtime.message}; the reference interpreter runs the graph, slowly", stacklevel=3)
        built: Sequence[BuiltPlan | BuiltCuda | BuildFailure] = [runtime for _ in components]
        team = library = None
    else:
        items = [(c.subgraph, plan) for c, plan in zip(components, plans, strict=True)]
        built = build_plans(items, target, precision=precision, cache=cache, jobs=jobs)
        team = shared_team(runtime, threads)
        library = Library(runtime, threads)
    elsewhere = frozenset(name for step in moving if isinstance(step, LibraryStep) for name in unknown_outputs(step))
    numbers = iter(range(len(components)))
    by_step = {i: next(numbers) for i, step in enumerate(moving) if isinstance(step, Component)}
    scratch = {i: _scratch_bytes(built[number]) for i, number in by_step.items()}
    schedule = make_schedule(partition, scratch, elsewhere)
    places = {name: schedule.number(name) for name in schedule.roots}
    steps: list[Step | None] = [None] * len(moving)
    missing = ""
    for i in by_step:
        steps[i] = _component_step(components[by_step[i]], by_step[i], built[by_step[i]], precision)
    # The largest weights first: while a session is made there are two or three copies of them.
    ops = [(i, step) for i, step in enumerate(moving) if isinstance(step, LibraryStep)]
    for i, op in sorted(ops, key=lambda item: -_constant_bytes(item[1], graph)):
        try:
            steps[i] = _library_step(op, graph, library, places)
        except LibraryError as error:
            missing = missing or str(error)
    trim_heap()
    return Program(
        graph, tuple(step for step in steps if step is not None), schedule, elsewhere, missing, team, library
    )


def flat_constants(graph: Graph) -> Graph:
    """The graph with every constant C-contiguous and aligned, as kernels and sessions read them."""
    flat = {n: a if in_order(a) else np.array(a, order="C", copy=True) for n, a in graph.constants.items()}
    return replace(graph, constants=flat)


def unknown_outputs(step: LibraryStep) -> tuple[str, ...]:
    """Outputs whose shapes depend on data."""
    return tuple(name for name in step.node.outputs if name) if payload(step.node).dynamic else ()


def _constant_bytes(step: LibraryStep, graph: Graph) -> int:
    return sum(graph.constants[name].nbytes for name in step.node.inputs if name in graph.constants)


def _scratch_bytes(built: BuiltPlan | BuiltCuda | BuildFailure) -> tuple[int, ...]:
    return built.scratch_bytes if isinstance(built, BuiltPlan) else ()


def _component_step(
    component: Component, number: int, built: BuiltPlan | BuiltCuda | BuildFailure, precision: Precision
) -> KernelStep | PythonStep:
    sub = component.subgraph
    shapes = tuple(sub.shape(v) for v in sub.inputs)
    if isinstance(built, BuiltPlan):
        return KernelStep(number, component.inputs, shapes, component.outputs, built, argument_array(built))
    if isinstance(built, BuildFailure) and built.stage != "compiler":
        warnings.warn(f"a subgraph did not compile ({built.message}); it is interpreted, slowly", stacklevel=4)

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        return run_subgraph(sub, arrays, precision)

    return PythonStep(number, component.inputs, shapes, component.outputs, run)


def _library_step(step: LibraryStep, graph: Graph, library: Library | None, places: Mapping[str, int]) -> Step:
    op = payload(step.node)
    inputs = tuple(dict.fromkeys(n for n in step.node.inputs if n))
    if library is not None and not op.dynamic:
        return OpStep(inputs, library.prepare(step.node, graph, places))
    if op.missing:
        raise LibraryError(f"{step.node.origin or op.op_type}: {op.missing}")

    def run(arrays: Sequence[Array]) -> Sequence[Array]:
        given = dict(zip(inputs, arrays, strict=True))
        return run_library(step.node, [given.get(name) for name in step.node.inputs])

    shapes = tuple(graph.types[name].shape for name in inputs)
    return PythonStep(-1, inputs, shapes, tuple(n for n in step.node.outputs if n), run)
