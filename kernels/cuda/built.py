"""A plan as CUDA kernels: source, the compiler's report, and how each kernel is launched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ...graphs.dtypes import DType
from ...graphs.subgraph import Subgraph
from ...search_space.plan import Plan
from ..loops import Array, LoopKernel, evaluate


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel, in order of its signature.

    kind      "buffer": a pointer, `position` in the launch's buffers (inputs, outputs, scratch); "argument": a
              64-bit integer, `position` in the launch arguments; "barrier": the pointer to the grid barrier's 32-bit
              word, which is zero before the first launch
    dtype     element type of a buffer (I64 of an argument, U32 of the barrier)
    written   the kernel stores to the buffer
    """

    kind: str
    position: int
    dtype: DType
    written: bool = False


@dataclass(frozen=True)
class Report:
    """What the compiler says of one kernel: per thread registers and bytes, per block bytes of static shared memory."""

    registers: int
    stack_bytes: int
    spill_store_bytes: int
    spill_load_bytes: int
    static_shared_bytes: int = 0


@dataclass(frozen=True)
class Launch:
    """One kernel, ready to launch.

    threads         of a block
    blocks          of the grid
    shared_bytes    dynamic shared memory of a block (above 48 KiB the launcher opts in)
    cooperative     launched cooperatively: there is a grid barrier, and all blocks are resident at once
    resident        blocks that one multiprocessor holds at a time, by registers, shared memory and threads; 0 when
                    nothing was compiled for the device (emulator)
    report          None when no device compiler saw it (emulator)
    """

    symbol: str
    parameters: tuple[Parameter, ...]
    threads: int
    blocks: int
    shared_bytes: int
    cooperative: bool
    resident: int = 0
    report: Report | None = None


@dataclass(frozen=True)
class BuiltCuda:
    """A plan with its compiled kernels, in order of execution; nothing is loaded yet.

    image      a cubin (device), or a shared library of the emulator
    source     of the kernels alone, without the header of device functions
    aligned    the kernels take caller's buffers to be 16-byte aligned; else aligned to their elements only
    """

    sub: Subgraph
    plan: Plan
    kernels: tuple[LoopKernel, ...]
    image: Path
    launches: tuple[Launch, ...]
    source: str
    aligned: bool = True

    @property
    def arguments(self) -> tuple[int, ...]:
        """The launch arguments at the subgraph's own sizes: dynamic extents, then slots."""
        return (*(self.sub.extents[a] for a in self.plan.dynamic), *self.sub.slots)

    @property
    def scratch(self) -> tuple[Array, ...]:
        """Arrays of the whole plan, whose buffers follow inputs and outputs; each 256-byte aligned."""
        return self.kernels[0].scratch

    @property
    def scratch_bytes(self) -> tuple[int, ...]:
        """Bytes of each scratch array at the subgraph's sizes."""
        return tuple(evaluate(a.elements, self.arguments) * a.dtype.size for a in self.scratch)
