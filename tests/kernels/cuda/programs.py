"""Loop programs written by hand, for tests of what comes behind the lowering."""

from __future__ import annotations

from stitchtune.graphs.dtypes import DType
from stitchtune.kernels.loops import (
    Apply,
    Array,
    Assign,
    Expr,
    GroupProgram,
    If,
    Let,
    Literal,
    Load,
    Local,
    LoopKernel,
    PhaseProgram,
    Stmt,
    Store,
    Sync,
)

I32, F32, BOOL = DType.I32, DType.F32, DType.BOOL
THREAD = Local("thread", I32)
TASK = Local("task", I32)


def index(value: int) -> Literal:
    return Literal(value, I32)


def apply(op: str, *operands: Expr, dtype: DType = I32) -> Apply:
    return Apply(op, dtype, operands)


def array(name: str, space: str, position: int, elements: int = 1 << 20, dtype: DType = F32) -> Array:
    return Array(name, dtype, space, index(elements), position)  # type: ignore[arg-type]


def group(*body: Stmt, tasks: int = 64, per_block: int = 1, arrays: tuple[Array, ...] = ()) -> GroupProgram:
    return GroupProgram(index(tasks), per_block, TASK, arrays, body)


def kernel(
    *phases: tuple[GroupProgram, ...],
    buffers: tuple[Array, ...],
    scratch: tuple[Array, ...] = (),
    threads: int = 128,
    block_bytes: int = 0,
    resident: bool = False,
) -> LoopKernel:
    made = tuple(PhaseProgram(groups) for groups in phases)
    return LoopKernel(made, True, buffers, scratch, index(block_bytes), 0, threads, resident, 32)


def scale(tasks: int = 64, per_block: int = 1) -> GroupProgram:
    """y0 = 2 x0, an element a thread."""
    at = Local("k1", I32)
    place = Let(at, apply("plus", apply("times", TASK, index(128)), THREAD))
    value = apply("mul", Load("x0", at, F32), Literal(2.0, F32), dtype=F32)
    return group(place, Store("y0", at, value), tasks=tasks, per_block=per_block)


def row_sums(rows: int = 64, columns: int = 1024) -> LoopKernel:
    """g0 = sums of the rows of x0, a block a row by shuffles and shared memory; behind a grid barrier y0 = x0 / g0."""
    at, total, part = Local("k1", I32), Local("a2", F32), Local("t3", F32)
    columns_of = apply("plus", apply("times", TASK, index(columns)), THREAD)
    fold = tuple(
        Assign(total, apply("add", total, apply("shuffle_xor", total, index(mask), dtype=F32), dtype=F32))
        for mask in (16, 8, 4, 2, 1)
    )
    warp = apply("quotient", THREAD, index(32))
    sums: list[Expr] = [Load("s0", index(k), F32) for k in range(4)]
    both = [apply("add", sums[0], sums[1], dtype=F32), apply("add", sums[2], sums[3], dtype=F32)]
    first = group(
        Let(at, columns_of),
        Let(total, Load("x0", at, F32), mutable=True),
        *fold,
        If(apply("eq", apply("rest", THREAD, index(32)), index(0), dtype=BOOL), (Store("s0", warp, total),)),
        Sync("block"),
        Let(part, apply("add", *both, dtype=F32)),
        If(apply("eq", THREAD, index(0), dtype=BOOL), (Store("g0", TASK, part),)),
        Sync("block"),
        tasks=rows,
        arrays=(Array("s0", F32, "block", index(4), start=index(0)),),
    )
    quotient = apply("div", Load("x0", at, F32), Load("g0", TASK, F32), dtype=F32)
    second = group(Let(at, columns_of), Store("y0", at, quotient), tasks=rows)
    return kernel(
        (first,),
        (second,),
        buffers=(array("x0", "input", 0), array("y0", "output", 1)),
        scratch=(array("g0", "scratch", 2),),
        block_bytes=16,
    )


BUFFERS = (array("x0", "input", 0), array("y0", "output", 1))
