"""CUDA plans and sources run by the emulator: results in the caller's arrays, findings and counters as values."""

from __future__ import annotations

import ctypes
import threading
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
from ..built import BuiltCuda, Launch
from ..emit import emit
from .entries import unit
from .findings import KINDS, Finding
from .library import Buffer, FindingRecord, LaunchRecord, address, kernel_compiler, load_kernels, runtime

Array = NDArray[Any]

STEPS = 4_000_000_000
"""Accesses and synchronisations of one launch, at most."""

POISON = 0xFF
"""What every byte of outputs and scratch is before the first launch: floats are NaN."""

_BASE_ALIGNMENT = 256


@dataclass(frozen=True)
class Emulation:
    """What running a plan's launches once has shown."""

    findings: tuple[Finding, ...]


@dataclass(frozen=True)
class Settings:
    """How to run.

    offset_elements  every input and output starts this many elements behind a 256-byte boundary
    resident_blocks  blocks that run at a time; by default the grid of a cooperative launch
    grid             blocks of each launch instead of what the launch says
    seed             0: threads in order; else an order drawn from it
    check            look for races, uninitialised reads, writes to const (bounds and alignment always)
    steps            accesses and synchronisations of one launch, at most
    findings         so many end a launch
    """

    offset_elements: int = 0
    resident_blocks: int | None = None
    grid: int | None = None
    seed: int = 0
    check: bool = True
    steps: int = STEPS
    findings: int = 8


def build_emulated(
    items: Sequence[tuple[Subgraph, Plan]],
    target: Target,
    *,
    precision: str = "strict",
    cache: Path,
    jobs: int = 2,
    per_unit: int = 1,
    aligned: bool = True,
) -> list[BuiltCuda | BuildFailure]:
    """Each (subgraph, plan) lowered, emitted and compiled for the emulator; `per_unit` neighbours share a unit.

    Raises LoweringError for an inconsistent plan and OSError when the cache cannot be used.
    """
    compiler = find_compiler()
    if compiler is None:
        return [BuildFailure("compiler", "no C++ compiler works here: install g++ or clang++") for _ in items]
    lowered = [lower(sub, plan, target, precision, aligned) for sub, plan in items]
    built: list[BuiltCuda | BuildFailure] = []
    units = [range(i, min(i + per_unit, len(items))) for i in range(0, len(items), per_unit)]
    names = {i: [f"st_p{i - u.start}_k{k}" for k in range(len(lowered[i]))] for u in units for i in u}
    emitted = [emit([k for i in u for k in lowered[i]], [n for i in u for n in names[i]]) for u in units]
    sources = [unit(e.source, [n for i in u for n in names[i]]) for u, e in zip(units, emitted, strict=True)]
    made = compile_units(sources, kernel_compiler(compiler), cache, jobs)
    for u, text, artifact in zip(units, emitted, made, strict=True):
        parameters = iter(text.parameters)
        for i in u:
            sub, plan = items[i]
            arguments = (*(sub.extents[a] for a in plan.dynamic), *sub.slots)
            launches = tuple(
                _launch(name, kernel, next(parameters), arguments, target)
                for name, kernel in zip(names[i], lowered[i], strict=True)
            )
            match artifact:
                case Artifact(library, _):
                    built.append(BuiltCuda(sub, plan, lowered[i], library, launches, text.source, aligned))
                case BuildFailure():
                    built.append(artifact)
    return built


def _launch(name: str, kernel: LoopKernel, parameters: Any, arguments: Sequence[int], target: Target) -> Launch:
    shared = evaluate(kernel.block_bytes, arguments)
    blocks = max(
        sum(-(-evaluate(g.tasks, arguments) // g.tasks_per_block) for g in phase.groups) for phase in kernel.phases
    )
    cooperative = len(kernel.phases) > 1
    if cooperative:
        blocks = min(blocks, most_blocks(target, kernel.threads, shared))
    return Launch(name, parameters, kernel.threads, max(1, blocks), shared, cooperative)


def most_blocks(target: Target, threads: int, shared_bytes: int) -> int:
    """Blocks that the whole device holds at a time, as far as threads and shared memory decide (registers do not)."""
    system = 1024  # shared memory that each block costs beyond its own, sm_80 and later
    each = min(
        target.resident_threads // threads,
        target.resident_blocks,
        target.shared_bytes // (shared_bytes + system),
    )
    return each * target.processors


def run(
    built: BuiltCuda,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    *,
    cache: Path,
    settings: Settings | None = None,
) -> Emulation:
    """Runs all launches of a plan once; the outputs are written.

    Raises OSError when the emulator cannot be compiled, MemoryError when its shadow memory cannot be had.
    """
    return run_launches(
        built.image,
        built.source,
        built.launches,
        inputs,
        outputs,
        scratch_bytes=built.scratch_bytes,
        arguments=built.arguments,
        cache=built.image.parent,
        settings=Settings(offset_elements, resident_blocks, grid, seed, check),
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
        return BuildFailure("compiler", "no C++ compiler works here: install g++ or clang++")
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
        cache=cache,
        settings=settings or Settings(),
    )


_alone = threading.Lock()
"""The runtime runs one launch at a time in a process."""


def run_launches(
    image: Path,
    source: str,
    launches: Sequence[Launch],
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    *,
    scratch_bytes: Sequence[int],
    arguments: Sequence[int],
    cache: Path,
    settings: Settings,
) -> Emulation:
    """Runs compiled kernels on buffers of the emulator; what they leave in outputs is copied to the caller's arrays."""
    memory = [_input(a, settings.offset_elements) for a in inputs]
    memory += [_fresh(a.nbytes, a.itemsize * settings.offset_elements) for a in outputs]
    memory += [_fresh(n, 0) for n in scratch_bytes]
    elements = _element_sizes(launches, [*(a.itemsize for a in (*inputs, *outputs)), *(16 for _ in scratch_bytes)])
    buffers = (Buffer * max(1, len(memory)))(
        *(
            Buffer(m.ctypes.data, m.nbytes, element, i < len(inputs))
            for i, (m, element) in enumerate(zip(memory, elements, strict=True))
        )
    )
    word = np.zeros(1, np.uint32)
    library, kernels = runtime(cache), load_kernels(image)
    findings: list[Finding] = []
    with _alone:
        emulator = library.st_open(ctypes.addressof(buffers), len(memory))
        try:
            for launch in launches:
                refusal = _limits(launch)
                if refusal:
                    findings.append(Finding("limit", launch.symbol, refusal))
                    break
                record, _kept = _record(launch, kernels, memory, word, arguments, settings)
                before = len(findings)
                total = library.st_launch(emulator, ctypes.addressof(record))
                if total < 0:
                    raise MemoryError("the emulator's shadow memory does not fit")
                found = (FindingRecord * max(1, total))()
                library.st_findings(emulator, ctypes.addressof(found))
                findings += [_finding(f, launch.symbol, source) for f in found[before:total]]
                if any(f.terminal for f in found[before:total]):
                    break
        finally:
            library.st_close(emulator)
    for into, made in zip(outputs, memory[len(inputs) :], strict=False):
        into.reshape(-1).view(np.uint8)[:] = made
    return Emulation(tuple(findings))


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


def _limits(launch: Launch) -> str | None:
    """Why a device would refuse the launch."""
    if not 32 <= launch.threads <= 1024 or launch.threads % 32:
        return f"{launch.threads} threads a block: a multiple of 32 up to 1024 is allowed"
    if not 1 <= launch.blocks <= 2**31 - 1:
        return f"{launch.blocks} blocks: 1 to 2147483647 are allowed"
    if launch.shared_bytes > 232448:
        return f"{launch.shared_bytes} bytes of shared memory: 232448 are the most"
    if 8 * len(launch.parameters) > 4096:
        return f"{len(launch.parameters)} parameters: 4096 bytes are the most"
    return None


def _record(
    launch: Launch,
    kernels: ctypes.CDLL,
    memory: Sequence[NDArray[np.uint8]],
    word: NDArray[np.uint32],
    arguments: Sequence[int],
    settings: Settings,
) -> tuple[LaunchRecord, Any]:
    """What the runtime needs of a launch, and what must outlive it."""
    values = (ctypes.c_int64 * max(1, len(launch.parameters)))()
    for i, p in enumerate(launch.parameters):
        match p.kind:
            case "buffer":
                values[i] = memory[p.position].ctypes.data
            case "argument":
                values[i] = arguments[p.position]
            case _:
                values[i] = word.ctypes.data
    pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(values) + 8 * i for i in range(len(values))))
    writable = (ctypes.c_int32 * max(1, len(memory)))()
    for p in launch.parameters:
        if p.kind == "buffer":
            writable[p.position] |= p.written
    blocks = settings.grid or launch.blocks
    record = LaunchRecord(
        address(kernels, f"st_enter_{launch.symbol}"),
        address(kernels, "st_bind"),
        ctypes.addressof(pointers),
        blocks,
        launch.threads,
        launch.shared_bytes,
        settings.resident_blocks or blocks,
        settings.check,
        False,
        settings.findings,
        settings.seed,
        settings.steps,
        ctypes.addressof(writable),
    )
    return record, (values, pointers, writable)


def _finding(found: FindingRecord, kernel: str, source: str) -> Finding:
    lines = source.splitlines()
    text = lines[found.line - 1].strip() if 0 < found.line <= len(lines) else ""
    who = f"block {found.block}" + (f" thread {found.thread}" if found.thread >= 0 else "")
    place = f"line {found.line} `{text}`: " if text else ""
    where = f"{place}{who}, phase {found.phase}: {found.text.decode()}"
    return Finding(KINDS[found.kind], kernel, where, found.line if text else 0)
