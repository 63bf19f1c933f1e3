"""Plans become CUDA kernels that fit the device: lower, emit, compile, read the assembler's report, choose the launch.

The resource-aware launch of AStitch (Zheng et al., ASPLOS 2022): registers are capped so that several blocks are
resident, the report says what a kernel really needs, the cap is relaxed where it makes a kernel spill, and the grid of
a kernel with barriers is what the device holds at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ...graphs.dtypes import DType
from ...graphs.subgraph import Subgraph
from ...search_space.plan import Plan
from ...search_space.target import MOST_BLOCKS, Target
from ..build import symbols
from ..compile import BuildFailure
from ..loops import Apply, LoopKernel, evaluate, expressions, statements, within
from ..lower import lower
from .built import BuiltCuda, Launch, Parameter, Report
from .nvrtc import Compiled, compile_units
from .occupancy import resident_blocks
from .report import parse
from .text.emit import Bounds, Unit, emit

WANTED_THREADS = 1024
"""Threads that a multiprocessor should hold, where shared memory lets it: 64 registers each. Memory-bound kernels with
16-byte accesses have enough bytes in flight with these."""

PARAMETER_BYTES = 4096
"""Most bytes of a kernel's parameters. From CUDA 12.1 on 32764 are allowed, but older drivers refuse them."""


@dataclass(frozen=True)
class Needs:
    """What a kernel asks of the device, whatever the compiler makes of it.

    blocks        virtual blocks of its largest phase: a larger grid would idle
    shared_bytes  dynamic shared memory of a block
    residency     blocks per multiprocessor to ask the compiler for, the most wanted first
    """

    blocks: int
    shared_bytes: int
    residency: tuple[int, ...]


@dataclass(frozen=True)
class _Item:
    """A plan on its way: what its kernels need, and which of their residencies is asked for now."""

    number: int
    sub: Subgraph
    plan: Plan
    kernels: tuple[LoopKernel, ...]
    needs: tuple[Needs, ...]
    tried: tuple[int, ...]

    def bounds(self, target: Target) -> list[Bounds]:
        """What each kernel is compiled for now."""
        return [
            launch_bounds(kernel, need, need.residency[k], target)
            for kernel, need, k in zip(self.kernels, self.needs, self.tried, strict=True)
        ]


def build_cuda(
    items: Sequence[tuple[Subgraph, Plan]],
    target: Target,
    *,
    precision: str = "strict",
    cache: Path,
    jobs: int = 2,
    per_unit: int = 1,
    aligned: bool = True,
) -> list[BuiltCuda | BuildFailure]:
    """Each (subgraph, plan) compiled for `target`; `per_unit` neighbours share a unit, which compiles faster.

    aligned   the caller's buffers will be 16-byte aligned; else to their elements only

    Failures: "shared-memory", "parameters" and "occupancy" when the device cannot hold a kernel, "stack" and "spill"
    when a thread's registers do not suffice, "compiler". Raises LoweringError for an inconsistent plan and OSError when
    the cache cannot be used.
    """
    outcome: dict[int, BuiltCuda | BuildFailure] = {}
    ready: list[_Item] = []
    for number, (sub, plan) in enumerate(items):
        kernels = lower(sub, plan, target, precision, aligned=aligned)
        arguments = (*(sub.extents[a] for a in plan.dynamic), *sub.slots)
        needs = [kernel_needs(kernel, arguments, target) for kernel in kernels]
        failure = next((need for need in needs if isinstance(need, BuildFailure)), None)
        if failure is not None:
            outcome[number] = failure
            continue
        known = tuple(need for need in needs if isinstance(need, Needs))
        ready.append(_Item(number, sub, plan, kernels, known, (0,) * len(kernels)))
    units = [ready[i : i + per_unit] for i in range(0, len(ready), per_unit)]
    while units:
        again: list[_Item] = []
        texts = [_emit(unit, target) for unit in units]
        made = compile_units([text.source for text in texts], target.arch, cache, jobs)
        for unit, text, compiled in zip(units, texts, made, strict=True):
            for item, settled in zip(unit, _settle_unit(unit, text, compiled, target, aligned), strict=True):
                if isinstance(settled, _Item):
                    again.append(settled)
                else:
                    outcome[item.number] = settled
        units = [[item] for item in again]
    return [outcome[number] for number in range(len(items))]


def kernel_needs(kernel: LoopKernel, arguments: Sequence[int], target: Target) -> Needs | BuildFailure:
    """What must hold of any compiled form of a kernel on `target`."""
    blocks = max(virtual_blocks(kernel, arguments))
    shared = evaluate(kernel.block_bytes, arguments)
    if shared > target.block_bytes:
        return BuildFailure(
            "shared-memory", f"a block needs {shared} bytes of shared memory, {target.name} has {target.block_bytes}"
        )
    most = resident_blocks(target, kernel.threads, 1, shared)
    if not most:
        return BuildFailure("occupancy", f"no block of {kernel.threads} threads and {shared} bytes fits {target.name}")
    least = -(-blocks // target.processors) if kernel.resident else 1
    if least > most:
        return BuildFailure("occupancy", _crowded(blocks, most * target.processors, target))
    wanted = max(least, min(most, WANTED_THREADS // kernel.threads))
    residency = [wanted]
    while residency[-1] > least:
        residency.append(max(least, residency[-1] // 2))
    return Needs(blocks, shared, tuple(residency))


def virtual_blocks(kernel: LoopKernel, arguments: Sequence[int]) -> tuple[int, ...]:
    """Virtual blocks of each phase."""
    return tuple(
        sum(-(-evaluate(group.tasks, arguments) // group.tasks_per_block) for group in phase.groups)
        for phase in kernel.phases
    )


def library_stack(kernel: LoopKernel) -> int:
    """Bytes of stack that CUDA's own mathematics need, whatever the cap: sin, cos and tan of doubles reduce huge angles
    in a local array, which no other angle touches."""
    bodies = (s for phase in kernel.phases for group in phase.groups for s in statements(group.body))
    done = {(e.op, e.dtype) for s in bodies for x in expressions(s) for e in within(x) if isinstance(e, Apply)}
    return 40 if any((op, DType.F64) in done for op in ("sin", "cos", "tan")) else 0


def launch_bounds(kernel: LoopKernel, need: Needs, residency: int, target: Target) -> Bounds:
    """The bounds of a kernel of which `residency` blocks are to fit a multiprocessor: its grid has a block for every
    virtual one where those of a kernel with barriers all fit the device."""
    room = residency * target.processors if len(kernel.phases) > 1 else MOST_BLOCKS
    return Bounds(residency, once=kernel.team and need.blocks <= room)


def _emit(unit: Sequence[_Item], target: Target) -> Unit:
    names = [name for position, item in enumerate(unit) for name in symbols(position, len(item.kernels))]
    return emit([k for item in unit for k in item.kernels], names, [b for item in unit for b in item.bounds(target)])


def _settle_unit(
    unit: Sequence[_Item], text: Unit, compiled: Compiled | BuildFailure, target: Target, aligned: bool
) -> Iterator[BuiltCuda | BuildFailure | _Item]:
    """What became of each plan of a unit; those that are items are to be compiled again, each alone."""
    if isinstance(compiled, BuildFailure):
        yield from unit if len(unit) > 1 else [compiled]  # one of several is to blame
        return
    reports = parse(compiled.log)
    parameters = iter(text.parameters)
    for position, item in enumerate(unit):
        names = symbols(position, len(item.kernels))
        own = [next(parameters) for _ in names]
        made = _settle(item, names, own, [reports[name] for name in names], target)
        if isinstance(made, tuple):
            yield BuiltCuda(item.sub, item.plan, item.kernels, compiled.image, made, text.source, aligned)
        else:
            yield made


def _settle(
    item: _Item,
    names: Sequence[str],
    parameters: Sequence[tuple[Parameter, ...]],
    reports: Sequence[Report],
    target: Target,
) -> tuple[Launch, ...] | BuildFailure | _Item:
    """How the plan's kernels are launched, or why they cannot be, or the plan with looser caps on registers."""
    launches: list[Launch] = []
    tried = list(item.tried)
    for k, (kernel, need, report) in enumerate(zip(item.kernels, item.needs, reports, strict=True)):
        if report.stack_bytes > library_stack(kernel) or report.spill_store_bytes or report.spill_load_bytes:
            tried[k] += 1
            if tried[k] == len(need.residency):
                return _overflow(names[k], kernel, report)
            continue
        launch = choose_launch(names[k], kernel, need, parameters[k], report, target)
        if isinstance(launch, BuildFailure):
            return launch
        if launch.blocks < need.blocks and launch_bounds(kernel, need, need.residency[item.tried[k]], target).once:
            tried[k] += 1  # fewer blocks are resident than were asked for, and the text does one task a block
            continue
        launches.append(launch)
    if tuple(tried) != item.tried:
        return replace(item, tried=tuple(tried))
    return tuple(launches)


def choose_launch(
    symbol: str,
    kernel: LoopKernel,
    need: Needs,
    parameters: tuple[Parameter, ...],
    report: Report,
    target: Target,
) -> Launch | BuildFailure:
    """How a compiled kernel is launched. With barriers all its blocks are resident, and loop over virtual blocks."""
    size = 8 * len(parameters)
    if size > PARAMETER_BYTES:
        return BuildFailure("parameters", f"{symbol} takes {size} bytes of parameters, {PARAMETER_BYTES} are allowed")
    shared = need.shared_bytes + report.static_shared_bytes
    resident = resident_blocks(target, kernel.threads, report.registers, shared)
    if not resident:
        what = f"{kernel.threads} threads with {report.registers} registers and {shared} bytes of shared memory"
        return BuildFailure("occupancy", f"no block of {symbol} fits {target.name}: {what}")
    cooperative = len(kernel.phases) > 1
    room = resident * target.processors
    if kernel.resident and need.blocks > room:
        return BuildFailure("occupancy", _crowded(need.blocks, room, target))
    blocks = min(max(need.blocks, 1), room if cooperative else MOST_BLOCKS) if kernel.team else 1
    return Launch(
        symbol, parameters, kernel.threads, blocks, need.shared_bytes, cooperative, resident=resident, report=report
    )


def _crowded(blocks: int, room: int, target: Target) -> str:
    return f"{blocks} blocks keep what they hold across a grid barrier, {target.name} holds {room} at a time"


def _overflow(symbol: str, kernel: LoopKernel, report: Report) -> BuildFailure:
    """Why a kernel is refused at its loosest cap. A stack without spills is a local array, which no cap mends."""
    spilled = report.spill_store_bytes or report.spill_load_bytes
    amount = f"{report.spill_store_bytes} bytes of registers" if spilled else f"a stack of {report.stack_bytes} bytes"
    return BuildFailure(
        "spill" if spilled else "stack",
        f"{symbol} keeps {amount} in device memory at {report.registers} registers and {kernel.threads} threads",
    )
