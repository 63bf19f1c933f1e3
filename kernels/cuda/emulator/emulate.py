"""CUDA plans and sources run by the emulator: results in the caller's arrays, findings and counters as values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....graphs.subgraph import Subgraph
from ....search_space.plan import Plan
from ....search_space.target import Target
from ...compile import Artifact, BuildFailure, compile_units, find_compiler
from ...loops import LoopKernel, evaluate
from ...lower import lower
from ..build import PARAMETER_BYTES, virtual_blocks
from ..built import BuiltCuda, Launch
from ..occupancy import resident_blocks
from ..text.emit import Bounds, emit
from .entries import unit
from .findings import Counters, Finding
from .library import kernel_compiler
from .machine import Machine, Memory, Settings, barrier_word

Array = NDArray[Any]

POISON = 0xFF
"""What every byte of outputs and scratch is before the first launch: floats are NaN."""

ASSUMED_REGISTERS = 32
"""Registers of a thread, which the emulator's compiler does not tell: few, so that many blocks are resident."""

_BASE_ALIGNMENT = 256


@dataclass(frozen=True)
class Emulation:
    """What running a plan's launches once has shown. `counters` are of each launch, where they were asked for."""

    findings: tuple[Finding, ...]
    counters: tuple[Counters, ...] = ()


def build_emulated(
    items: Sequence[tuple[Subgraph, Plan]],
    target: Target,
    *,
    precision: str = "strict",
    cache: Path,
    jobs: int = 2,
    per_unit: int = 1,
    aligned: bool = True,
    once: bool = False,
    index_bits: int | None = None,
) -> list[BuiltCuda | BuildFailure]:
    """Each (subgraph, plan) lowered, emitted and compiled for the emulator; `per_unit` neighbours share a unit.

    once         kernels whose grid has a block for every virtual one have no loop over them, as for a device; they run
                 on that grid only
    index_bits   64: indices are wide where 32 bits would do

    Raises LoweringError for an inconsistent plan and OSError when the cache cannot be used.
    """
    compiler = find_compiler()
    if compiler is None:
        return [_NO_COMPILER for _ in items]
    lowered = [lower(sub, plan, target, precision, aligned, index_bits) for sub, plan in items]
    grids = [
        [emulated_grid(k, (*(sub.extents[a] for a in plan.dynamic), *sub.slots), target) for k in kernels]
        for (sub, plan), kernels in zip(items, lowered, strict=True)
    ]
    units = [range(i, min(i + per_unit, len(items))) for i in range(0, len(items), per_unit)]
    names = {i: [f"st_p{i - u.start}_k{k}" for k in range(len(lowered[i]))] for u in units for i in u}
    emitted = [
        emit(
            [k for i in u for k in lowered[i]],
            [n for i in u for n in names[i]],
            [Bounds(once=once and k.team and g.whole) for i in u for k, g in zip(lowered[i], grids[i], strict=True)],
        )
        for u in units
    ]
    sources = [unit(e.source, [n for i in u for n in names[i]]) for u, e in zip(units, emitted, strict=True)]
    made = compile_units(sources, kernel_compiler(compiler), cache, jobs)
    built: list[BuiltCuda | BuildFailure] = []
    for u, text, artifact in zip(units, emitted, made, strict=True):
        parameters = iter(text.parameters)
        for i in u:
            launches = tuple(
                Launch(name, next(parameters), kernel.threads, grid.blocks, grid.shared_bytes, grid.cooperative)
                for name, kernel, grid in zip(names[i], lowered[i], grids[i], strict=True)
            )
            match artifact:
                case Artifact(library, _):
                    made_of = BuiltCuda(*items[i], lowered[i], library, launches, text.source, aligned)
                    built.append(_refused(launches) or made_of)
                case BuildFailure():
                    built.append(artifact)
    return built


def _refused(launches: Sequence[Launch]) -> BuildFailure | None:
    """What `build_cuda` refuses whatever the compiler says of registers; callers then take another plan."""
    for launch in launches:
        size = 8 * len(launch.parameters)
        if size > PARAMETER_BYTES:
            return BuildFailure("parameters", f"{launch.symbol} takes {size} bytes, {PARAMETER_BYTES} are allowed")
    return None


_NO_COMPILER = BuildFailure("compiler", "no C++ compiler works here: install g++ or clang++")


@dataclass(frozen=True)
class Grid:
    """How a kernel is launched; `whole`: there is a block for every virtual block."""

    blocks: int
    shared_bytes: int
    cooperative: bool
    whole: bool


def emulated_grid(kernel: LoopKernel, arguments: Sequence[int], target: Target) -> Grid:
    """As on a device whose compiler gave every thread `ASSUMED_REGISTERS` registers."""
    shared = evaluate(kernel.block_bytes, arguments)
    wanted = max(virtual_blocks(kernel, arguments))
    blocks = max(1, wanted) if kernel.team else 1
    cooperative = len(kernel.phases) > 1
    if cooperative:
        blocks = min(blocks, max(1, most_blocks(target, kernel.threads, shared)))
    return Grid(blocks, shared, cooperative, blocks == wanted)


def most_blocks(target: Target, threads: int, shared_bytes: int) -> int:
    """Blocks that the whole device holds at a time."""
    return resident_blocks(target, threads, ASSUMED_REGISTERS, shared_bytes) * target.processors


def run(
    built: BuiltCuda,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    *,
    offset_elements: int = 0,
    resident_blocks: int | None = None,
    grid: int | None = None,
    seed: int = 0,
    check: bool = True,
    count: bool = False,
) -> Emulation:
    """Runs all launches of a plan once, as `Settings` says; the outputs are written.

    Raises OSError when the emulator cannot be compiled, MemoryError when its shadow memory cannot be had.
    """
    settings = Settings(offset_elements, resident_blocks, grid, seed, check, count)
    return run_launches(
        built.image,
        built.source,
        built.launches,
        inputs,
        outputs,
        scratch_bytes=built.scratch_bytes,
        arguments=built.arguments,
        settings=settings,
    )


def run_source(
    source: str,
    launches: Sequence[Launch],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    *,
    cache: Path,
    scratch_bytes: Sequence[int] = (),
    arguments: Sequence[int] = (),
    settings: Settings | None = None,
    barrier: str | None = None,
) -> Emulation | BuildFailure:
    """Compiles and runs hand-written or altered source; `barrier` stands in for grid_barrier.h."""
    compiler = find_compiler()
    if compiler is None:
        return _NO_COMPILER
    text = unit(source, list(dict.fromkeys(x.symbol for x in launches)), barrier=barrier)
    (made,) = compile_units([text], kernel_compiler(compiler), cache)
    if isinstance(made, BuildFailure):
        return made
    return run_launches(
        made.library,
        source,
        launches,
        inputs,
        outputs,
        scratch_bytes=scratch_bytes,
        arguments=arguments,
        settings=settings or Settings(),
    )


def run_launches(
    image: Path,
    source: str,
    launches: Sequence[Launch],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    *,
    scratch_bytes: Sequence[int],
    arguments: Sequence[int],
    settings: Settings,
) -> Emulation:
    """Runs compiled kernels on buffers of the emulator; what they leave in outputs is copied to the caller's arrays."""
    data = [_input(a, settings.offset_elements) for a in inputs]
    data += [_fresh(a.nbytes, a.itemsize * settings.offset_elements) for a in outputs]
    data += [_fresh(n, 0) for n in scratch_bytes]
    elements = _element_sizes(launches, [*(a.itemsize for a in (*inputs, *outputs)), *(16 for _ in scratch_bytes)])
    memory = [
        Memory(d.ctypes.data, d.nbytes, element, i < len(inputs))
        for i, (d, element) in enumerate(zip(data, elements, strict=True))
    ]
    word = barrier_word()
    findings: list[Finding] = []
    counters: list[Counters] = []
    with Machine(memory, image.parent) as machine:
        for launch in launches:
            outcome = machine.launch(image, launch, arguments, word.ctypes.data, settings, source)
            findings += outcome.findings
            if outcome.counters:
                counters.append(outcome.counters)
            if not outcome.whole:
                break
    for into, made in zip(outputs, data[len(inputs) :], strict=False):
        into.reshape(-1).view(np.uint8)[:] = made
    return Emulation(tuple(findings), tuple(counters))


def launch_kernel(
    image: Path,
    launch: Launch,
    buffers: Sequence[tuple[int, int]],
    arguments: Sequence[int],
    barrier: int,
    target: Target,
) -> tuple[Finding, ...]:
    """One launch on memory of this process: (address, bytes) of each buffer, all with contents already; `barrier` is
    the address of the barrier's word. A cooperative grid larger than `target` holds is refused, as on a device."""
    most = most_blocks(target, launch.threads, launch.shared_bytes)
    if launch.cooperative and launch.blocks > most:
        why = f"{launch.blocks} blocks that wait for each other: {most} are resident at most"
        return (Finding("limit", launch.symbol, why),)
    elements = _element_sizes([launch], [16] * len(buffers))
    memory = [Memory(at, size, element, True) for (at, size), element in zip(buffers, elements, strict=True)]
    with Machine(memory, image.parent) as machine:
        settings = Settings(shared_bytes=target.block_bytes)
        return machine.launch(image, launch, arguments, barrier, settings).findings


def _input(array: Array, offset: int) -> NDArray[np.uint8]:
    """The bytes of an input where the emulator wants them: in place when they already are there."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    if not offset and flat.ctypes.data % 16 == 0:
        return flat
    moved = _fresh(flat.nbytes, offset * array.itemsize)
    moved[:] = flat
    return moved


def _fresh(size: int, offset: int) -> NDArray[np.uint8]:
    """Poisoned bytes that start `offset` bytes behind an aligned address."""
    room = np.full(size + offset + _BASE_ALIGNMENT, POISON, np.uint8)
    start = -room.ctypes.data % _BASE_ALIGNMENT + offset
    return room[start : start + size]


def _element_sizes(launches: Sequence[Launch], sizes: list[int]) -> list[int]:
    """Bytes of an element of each buffer, the smallest that any launch takes it for."""
    for launch in launches:
        for p in launch.parameters:
            if p.kind == "buffer":
                sizes[p.position] = min(sizes[p.position], p.dtype.size)
    return sizes
