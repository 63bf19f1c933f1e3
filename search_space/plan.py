"""The plan: every decision about one subgraph, as a plain frozen value that holds no code.

A plan is a list of kernels; a kernel is a list of *phases* with a grid barrier between them; a phase is a
list of *groups* that share its tasks without depending on each other (the independent scheme); a group
is a list of *stages*, each one loop nest, run one after the other by every task.

A task is one tile of the group's parallel axes. On the CPU a thread works on a contiguous run of tasks; on a
GPU a block does. Within a task, values pass between stages through block memory (regional scheme) and within a
stage through registers (local scheme); between phases and kernels through global memory (global scheme).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PLAN_SCHEMA = 2
"""Version of the JSON form; a database row with a newer one is a miss."""

Place = Literal["inline", "register", "shuffle", "block", "cluster", "global", "alias"]
"""How a value reaches one consumer (the reuse level):

inline    the consumer evaluates the value's expression where it reads it (no reductions)
register  computed in the consumer's stage, read through the identity, kept in a scalar or vector register; on CUDA also
          by an earlier stage of the group whose threads hold the very elements that they read (a register-resident row)
shuffle   a reduction across lanes (CPU: of a vector; CUDA: of a warp or block), handed back to every lane in the same
          stage
block     stored by an earlier stage of the same group in the task's block buffer; on CUDA also by an earlier phase of
          the kernel, when each block keeps its one task (a row or a part of it on chip across the grid barrier)
cluster   in the block memory of a neighbouring block (CUDA, sm_90 and later): reserved, no plan may use it yet
global    stored in device memory by an earlier phase or kernel, or by an earlier stage of the very same task
alias     the value is stored straight into the consumer's storage (a piece of a concat, a view)
"""


@dataclass(frozen=True)
class Stage:
    """Values that share one loop nest inside a task.

    values   computed here, ascending. A reduction listed here accumulates here. An input listed here (CUDA) is loaded
             here, once, for the readers that have an edge from it; readers without one load it from device memory. It
             is loaded along the axes by which those readers read it (`loading.loaded_axes`), not its own; where one of
             them is evaluated at another position too, that element is loaded from device memory.
    combine  reductions whose partial results, one per task along reduced parallel axes, are combined here in
             task order; each stage that combines a value stores it too, where it is an output or read globally (all
             store the same bits).
    order    the loops, outer to inner: every axis that a listed value iterates over (parallel ones run over the tile).
    vector   the axis of the SIMD loop, innermost in `order` on the CPU; on CUDA the axis along which a thread accesses
             `width` neighbouring elements at once, anywhere in `order`; -1: none.
    width    elements per step that the vector loop handles at once (vector width in elements; 1 when no vector).
    unroll   (axis, factor) pairs, for loops other than the vector loop.
    lanes    CUDA: (axis, threads) pairs, how the block's threads share the loops, slowest to fastest varying:
             neighbouring threads are neighbours along the last one. A loop that is not named is run whole by every
             thread. Empty on the CPU.
    """

    values: tuple[int, ...]
    order: tuple[int, ...]
    combine: tuple[int, ...] = ()
    vector: int = -1
    width: int = 1
    unroll: tuple[tuple[int, int], ...] = ()
    lanes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Group:
    """An independent iteration space.

    parallel        (axis, tile) pairs, outermost first, perhaps none; tasks = product of ceil(extent / tile).
                    A tile larger than 1 on a row axis is horizontal packing. A reduced axis here is a *split*
                    reduction: P = ceil(extent / tile) parts, stored as global partials, combined by a later
                    `Stage.combine`.
    tasks_per_block vertical packing: tasks that a block takes at a time.
    threads         threads of a block (CUDA: the same in all groups of a kernel; 1 on the CPU).
    """

    parallel: tuple[tuple[int, int], ...]
    stages: tuple[Stage, ...]
    tasks_per_block: int = 1
    threads: int = 1


@dataclass(frozen=True)
class Phase:
    """Groups between two grid barriers, sharing one range of tasks in this order."""

    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Kernel:
    """One launch. `team` False runs it on the calling thread (CPU) or as one block (GPU)."""

    phases: tuple[Phase, ...]
    team: bool = True


@dataclass(frozen=True)
class Edge:
    """How computed value `value` reaches computed value `consumer`, wherever the consumer is evaluated."""

    value: int
    consumer: int
    place: Place


@dataclass(frozen=True)
class Reduction:
    """How one reduction accumulates.

    accumulators  independent accumulators per lane of the vector loop (hides latency; combined in a fixed order); on
                  CUDA a thread has one for each element of its step, and this unrolls the loop over steps
    coupled       the value number of the reduction this one runs beside in one pass (Welford for sum((x-mean)^2) with
                  its mean, running max for sum(exp(x-max))); -1: multi-pass. Split (CUDA): their partial results are
                  the common accumulator's components, and each stage that combines one of them combines both.
    """

    value: int
    accumulators: int = 1
    coupled: int = -1


@dataclass(frozen=True)
class Buffer:
    """Layout of a value in block or global scratch: axis order (outer to inner), padding of the innermost dimension."""

    value: int
    order: tuple[int, ...]
    pad: int = 0


@dataclass(frozen=True)
class Plan:
    """All choices for one subgraph, referring to its value and axis numbers.

    edges        one per (computed value, computed consumer) pair; sorted. A value that no stage lists is only inlined.
    reductions   only those that differ from the default; sorted by value.
    buffers      only those that differ from the default (the value's own axis order, no padding); sorted.
    stream       outputs written with non-temporal stores; sorted.
    dynamic      axes whose extents are kernel arguments instead of constants; sorted.
    """

    kernels: tuple[Kernel, ...]
    edges: tuple[Edge, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    buffers: tuple[Buffer, ...] = ()
    stream: tuple[int, ...] = ()
    dynamic: tuple[int, ...] = ()

    def place(self, value: int, consumer: int) -> Place:
        """The place of an edge; KeyError when the plan does not name it."""
        for edge in self.edges:
            if edge.value == value and edge.consumer == consumer:
                return edge.place
        raise KeyError((value, consumer))

    def reduction(self, value: int) -> Reduction:
        return next((r for r in self.reductions if r.value == value), Reduction(value))

    @property
    def barriers(self) -> int:
        """Grid barriers per run: one between two phases of a kernel."""
        return sum(len(kernel.phases) - 1 for kernel in self.kernels)
