"""CUDA plans written by hand, one for each way to run a softmax or a stream; subgraphs are those of `examples`."""

from __future__ import annotations

from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import Subgraph, Value
from stitchtune.search_space.plan import Edge, Group, Kernel, Phase, Place, Plan, Reduction, Stage

from .examples import at

X, MAX, SUB, EXP, SUM, OUT = range(6)
ROW, COLUMN = 2, 3
"""Values and axes of `examples.softmax`."""


# --- streams (BabelStream's kernels)


def stream(elements: int, inputs: int, dtype: DType = DType.F64) -> Subgraph:
    """y = 3 a (copy, mul), or a + 3 b (triad)."""
    values = [Value("input", dtype, (i,)) for i in range(inputs)]
    values.append(Value("const", dtype, (), attrs=(("value", 3.0),)))
    axis, const = inputs, inputs
    values.append(Value("mul", dtype, (axis,), (), (at(inputs - 1, axis), at(const))))
    if inputs == 2:
        values.append(Value("add", dtype, (axis,), (), (at(0, axis), at(inputs + 1, axis))))
    return Subgraph(tuple(values), (len(values) - 1,), (elements,) * (inputs + 1))


def flat(sub: Subgraph, *, threads: int = 1024, width: int = 2, steps: int = 1) -> Plan:
    """Elementwise: each thread takes `width` neighbours at a time, `steps` times."""
    last = len(sub.values) - 1
    axis = sub.values[last].axes[0]
    stage = Stage((last,), (axis,), vector=axis if width > 1 else -1, width=width, lanes=((axis, threads),))
    group = Group(((axis, threads * width * steps),), (stage,), threads=threads)
    edges = tuple(Edge(v, v + 1, "inline") for v in sub.computed if v != last)
    return Plan((Kernel((Phase((group,)),)),), edges)


def dot(elements: int, dtype: DType = DType.F64) -> Subgraph:
    """s = sum of a b."""
    values = (
        Value("input", dtype, (0,)),
        Value("input", dtype, (1,)),
        Value("mul", dtype, (2,), (), (at(0, 2), at(1, 2))),
        Value("sum", dtype, (), (2,), (at(2, 2),)),
    )
    return Subgraph(values, (3,), (elements,) * 3)


def split_sum(sub: Subgraph, *, parts: int, threads: int = 1024, width: int = 2) -> Plan:
    """A sum of everything: partial sums, a grid barrier, one block combines."""
    total, axis = 3, 2
    stage = Stage((total,), (axis,), vector=axis, width=width, lanes=((axis, threads),))
    first = Group(((axis, -(-sub.extents[axis] // parts)),), (stage,), threads=threads)
    second = Group((), (Stage((), (), combine=(total,)),), threads=threads)
    return Plan((Kernel((Phase((first,)), Phase((second,)))),), (Edge(2, 3, "inline"),))


def strided(sub: Subgraph, *, threads: int = 256) -> Plan:
    """`examples.transposed` row by row: neighbouring threads read a column, a sector for every element."""
    stage = Stage((2,), (3, 2), vector=3, width=4, lanes=((3, threads),))
    group = Group(((2, 1), (3, 4 * threads)), (stage,), threads=threads)
    return Plan((Kernel((Phase((group,)),)),))


# --- softmax


def _row(rows: int, threads: int, width: int) -> dict[str, object]:
    lanes = ((ROW, rows), (COLUMN, threads // rows)) if rows > 1 else ((COLUMN, threads),)
    return {"order": (ROW, COLUMN), "vector": COLUMN if width > 1 else -1, "width": width, "lanes": lanes}


def kept_row(*, rows: int = 1, threads: int, width: int = 4, tile: int = 0, keep: Place = "register") -> Plan:
    """The input is loaded once and kept in registers or shared memory; `rows` rows side by side in a block."""
    how = _row(rows, threads, width)
    stages = (Stage((X, MAX), **how), Stage((EXP, SUM), **how), Stage((OUT,), **how))  # type: ignore[arg-type]
    edges = (
        Edge(X, MAX, "register"),
        Edge(X, SUB, keep),
        Edge(MAX, SUB, "register"),
        Edge(SUB, EXP, "inline"),
        Edge(EXP, SUM, "register"),
        Edge(EXP, OUT, keep),
        Edge(SUM, OUT, "register"),
    )
    group = Group(((ROW, tile or rows),), stages, threads=threads)
    return Plan((Kernel((Phase((group,)),)),), edges)


def read_again(*, threads: int, width: int = 4) -> Plan:
    """Nothing is kept: one pass for maximum and sum together, one for the result, the input read in both."""
    how = _row(1, threads, width)
    stages = (Stage((MAX, SUM), **how), Stage((OUT,), **how))  # type: ignore[arg-type]
    edges = (
        Edge(MAX, SUB, "register"),
        Edge(SUB, EXP, "inline"),
        Edge(EXP, SUM, "inline"),
        Edge(EXP, OUT, "inline"),
        Edge(SUM, OUT, "register"),
    )
    group = Group(((ROW, 1),), stages, threads=threads)
    return Plan((Kernel((Phase((group,)),)),), edges, (Reduction(SUM, coupled=MAX),))


def split_row(columns: int, *, parts: int, threads: int, width: int = 4, keep: Place = "block") -> Plan:
    """Each row split over `parts` blocks, which keep their part on chip across the grid barriers."""
    how = _row(1, threads, width)
    parallel = ((ROW, 1), (COLUMN, -(-columns // parts)))
    first = Group(parallel, (Stage((X, MAX), **how),), threads=threads)  # type: ignore[arg-type]
    second = Group(
        parallel,
        (Stage((), (ROW,), combine=(MAX,)), Stage((SUM,), **how)),  # type: ignore[arg-type]
        threads=threads,
    )
    third = Group(
        parallel,
        (Stage((), (ROW,), combine=(SUM,)), Stage((OUT,), **how)),  # type: ignore[arg-type]
        threads=threads,
    )
    edges = (
        Edge(X, MAX, "register"),
        Edge(X, SUB, keep),
        Edge(MAX, SUB, "block"),
        Edge(SUB, EXP, "inline"),
        Edge(EXP, SUM, "inline"),
        Edge(EXP, OUT, "inline"),
        Edge(SUM, OUT, "block"),
    )
    return Plan((Kernel((Phase((first,)), Phase((second,)), Phase((third,)))),), edges)


def split_once(columns: int, *, parts: int, threads: int, width: int = 4, keep: Place = "block") -> Plan:
    """Each row split over `parts` blocks; maximum and sum in one pass, so one grid barrier."""
    how = _row(1, threads, width)
    parallel = ((ROW, 1), (COLUMN, -(-columns // parts)))
    first = Group(parallel, (Stage((X, MAX, SUM), **how),), threads=threads)  # type: ignore[arg-type]
    second = Group(
        parallel,
        (Stage((), (ROW,), combine=(MAX, SUM)), Stage((OUT,), **how)),  # type: ignore[arg-type]
        threads=threads,
    )
    edges = (
        Edge(X, MAX, "register"),
        Edge(X, SUB, keep),
        Edge(MAX, SUB, "block"),
        Edge(SUB, EXP, "inline"),
        Edge(EXP, SUM, "inline"),
        Edge(EXP, OUT, "inline"),
        Edge(SUM, OUT, "block"),
    )
    return Plan((Kernel((Phase((first,)), Phase((second,)))),), edges, (Reduction(SUM, coupled=MAX),))
