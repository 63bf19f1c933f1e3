"""The loop program: what a plan becomes before it becomes text, in terms no target owns.

A kernel is a list of phases with a team barrier between them; a phase is a list of groups whose tasks form one
range; a group's body is straight code of one task: lets, loads, stores and loops over named locals. Everything is
decided here (order, vector loops, lanes, masks, widths, addresses); an emitter only spells it. Names are
assigned in order of creation, so two plans that mean the same program give equal values.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf

from ..graphs.dtypes import DType

Space = OneOf["input", "output", "scratch", "block", "register"]
"""Where an array lives: a buffer of the caller (input, output), memory of the whole launch (scratch), memory of
the task (block), or a small array of constant size that should stay in registers."""


# --- expressions: scalars of the *computing* dtype (f16 and bf16 are f32 outside memory; indices are i64, or i32 where
# LoopKernel.index_bits says so)


@dataclass(frozen=True, slots=True)
class Literal:
    value: int | float | bool
    dtype: DType


@dataclass(frozen=True, slots=True)
class Local:
    """A loop variable, a let, or a variable."""

    name: str
    dtype: DType


@dataclass(frozen=True, slots=True)
class Argument:
    """A 64-bit integer argument of the launch, by position."""

    position: int

    @property
    def dtype(self) -> DType:
        return DType.I64


@dataclass(frozen=True, slots=True)
class Apply:
    """`op` of primitives.py on `operands`, or one of these:

    select                    (condition, a, b)
    round_f16, round_bf16     a float32 to the nearest number of that type
    sum_error                 what adding two floats loses, exactly; 0 where the sum is not finite
    before_argmax_first, ...  (value, index, value, index): the first pair wins; argmin, last
    plus minus times          index arithmetic, which never overflows
    hidden                    a constant that compilers must not know
    quotient rest             of numbers >= 0 (quotient_u32, rest_u32: below 2**32); floordiv, remainder of any, floored
    shuffle_xor               (value, mask literal): the value of the lane whose number differs in `mask` (CUDA); all
                              lanes of the warp get here together
    """

    op: str
    dtype: DType
    operands: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Load:
    """Element `offset` of an array, widened to the computing dtype; 0 (nothing is touched) where `mask` is false."""

    array: str
    offset: Expr
    dtype: DType
    mask: Expr | None = None


@dataclass(frozen=True, slots=True)
class Fold:
    """Elements 0..lanes-1 of a register array combined by `op` in a balanced tree: the halves, lane by lane."""

    op: str
    array: str
    lanes: int
    dtype: DType


Expr = Literal | Local | Argument | Apply | Load | Fold

THREAD = Local("thread", DType.I64)
"""The number of the running thread in its block (CUDA); of I32 where index_bits is 32."""


# --- statements


@dataclass(frozen=True, slots=True)
class Let:
    """A name for a value that does not change; a `mutable` one may be assigned."""

    local: Local
    value: Expr
    mutable: bool = False


@dataclass(frozen=True, slots=True)
class Assign:
    local: Local
    value: Expr


@dataclass(frozen=True, slots=True)
class Store:
    """Write `value`, narrowed to the array's dtype."""

    array: str
    offset: Expr
    value: Expr


@dataclass(frozen=True, slots=True)
class Stream:
    """Copy `count` elements from the start of block array `source` to `array` from `offset` on, past the caches: nobody
    reads them soon. Both have one dtype."""

    array: str
    offset: Expr
    source: str
    count: Expr


@dataclass(frozen=True, slots=True)
class For:
    """`body` for `local` in start, start + step, ... < stop. `simd`: iterations are independent, run them in lanes."""

    local: Local
    start: Expr
    stop: Expr
    body: tuple[Stmt, ...]
    step: int = 1
    simd: bool = False
    unroll: int = 1


@dataclass(frozen=True, slots=True)
class If:
    condition: Expr
    body: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True)
class Declare:
    """A register array of `size` elements, not initialised."""

    array: str
    dtype: DType
    size: int


@dataclass(frozen=True, slots=True)
class LoadPack:
    """Fill register array `into` with `width` neighbouring elements of `array` from `offset` on, widened, by accesses
    as wide as the hardware has (CUDA). `offset` is a multiple of `align` elements, and so is the array's base."""

    into: str
    array: str
    offset: Expr
    width: int
    align: int


@dataclass(frozen=True, slots=True)
class StorePack:
    """Write the first `width` elements of register array `source`, narrowed, to `array` from `offset` on."""

    array: str
    offset: Expr
    source: str
    width: int
    align: int


@dataclass(frozen=True, slots=True)
class Sync:
    """What threads of the scope have stored is visible to one another behind it; all of them get there (CUDA)."""

    scope: OneOf["warp", "block"]


Stmt = Let | Assign | Store | Stream | For | If | Declare | LoadPack | StorePack | Sync


# --- kernels


@dataclass(frozen=True, slots=True)
class Array:
    """Memory of a known element type.

    position   of an input, output or scratch array: its place in the launch's buffers
    elements   how many elements the program may touch
    start      of a block array: its first byte in the task's block memory, a multiple of 64
    alone      no other array of the program shares memory with it
    """

    name: str
    dtype: DType
    space: Space
    elements: Expr
    position: int = -1
    start: Expr = Literal(0, DType.I64)
    alone: bool = True


@dataclass(frozen=True, slots=True)
class GroupProgram:
    """What one task of a group does; `task` is its number among the group's `tasks`.

    vector_bytes   how wide the registers of its vector loops should be; 0: as the target likes
    """

    tasks: Expr
    tasks_per_block: int
    task: Local
    arrays: tuple[Array, ...]
    body: tuple[Stmt, ...]
    vector_bytes: int = 0


@dataclass(frozen=True, slots=True)
class PhaseProgram:
    groups: tuple[GroupProgram, ...]


@dataclass(frozen=True, slots=True)
class LoopKernel:
    """One launch.

    buffers      the caller's arrays: inputs, then outputs, in the order of the launch's buffers
    scratch      arrays of the whole plan, shared by its kernels; their buffers follow the caller's
    block_bytes  private memory of each thread (CPU) or block (GPU), an expression of the arguments
    arguments    how many launch arguments there are: dynamic extents, then slots
    threads      of a block (CUDA)
    resident     each block keeps one task of every phase: the grid is exactly the tasks of the largest phase (CUDA)
    index_bits   what indices are computed in: 32 where no address, loop bound or task number needs more (CUDA)
    """

    phases: tuple[PhaseProgram, ...]
    team: bool
    buffers: tuple[Array, ...]
    scratch: tuple[Array, ...]
    block_bytes: Expr
    arguments: int
    threads: int = 1
    resident: bool = False
    index_bits: OneOf[32, 64] = 64


def evaluate(expr: Expr, arguments: Sequence[int] = ()) -> int:
    """The value of a size expression (literals, arguments, index arithmetic), given the arguments."""
    match expr:
        case Literal(value):
            return int(value)
        case Argument(position):
            return arguments[position]
        case Apply(op, _, (a, b)):
            x, y = evaluate(a, arguments), evaluate(b, arguments)
            return _INTEGER[op](x, y)
        case _:
            raise TypeError(f"not a size expression: {expr}")


_INTEGER: dict[str, Callable[[int, int], int]] = {
    "plus": operator.add,
    "minus": operator.sub,
    "times": operator.mul,
    "min": min,
    "max": max,
    "quotient": operator.floordiv,
    "quotient_u32": operator.floordiv,
    "rest": operator.mod,
    "rest_u32": operator.mod,
    "floordiv": operator.floordiv,
    "remainder": operator.mod,
}


def locals_of(expr: Expr) -> Iterator[Local]:
    """The locals an expression mentions (repeats possible)."""
    match expr:
        case Local():
            yield expr
        case Apply(_, _, operands):
            for operand in operands:
                yield from locals_of(operand)
        case Load(_, offset, _, mask):
            yield from locals_of(offset)
            if mask is not None:
                yield from locals_of(mask)
        case _:
            pass


def statements(body: Sequence[Stmt]) -> Iterator[Stmt]:
    """Every statement of a body, outer before inner."""
    for statement in body:
        yield statement
        if isinstance(statement, For | If):
            yield from statements(statement.body)


def expressions(statement: Stmt) -> Iterator[Expr]:
    """The expressions of a statement itself, not of the statements in it."""
    match statement:
        case Let(_, value) | Assign(_, value):
            yield value
        case Store(_, offset, value):
            yield from (offset, value)
        case Stream(_, offset, _, count):
            yield from (offset, count)
        case LoadPack(_, _, offset) | StorePack(_, offset):
            yield offset
        case For(_, start, stop):
            yield from (start, stop)
        case If(condition):
            yield condition
        case _:
            pass


def within(expr: Expr) -> Iterator[Expr]:
    """An expression and all that it is made of."""
    yield expr
    match expr:
        case Apply(_, _, operands):
            for operand in operands:
                yield from within(operand)
        case Load(_, offset, _, mask):
            yield from within(offset)
            if mask is not None:
                yield from within(mask)
        case _:
            pass
