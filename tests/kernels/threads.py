"""Plans for CUDA written by hand: groups of threads over the subgraphs of hand.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import AxisVar, Bound, Int, Lookup, Read, Subgraph, Sum, Value
from stitchtune.search_space.plan import Buffer, Edge, Group, Kernel, Phase, Plan, Reduction, Stage

from tests.kernels.hand import Builder, edges, layer_norm, layer_norm_plan, softmax, sums

Lanes = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Pair:
    """A plan of a subgraph; `inputs` are drawn when there are none."""

    name: str
    sub: Subgraph
    plan: Plan
    inputs: tuple[NDArray[Any], ...] = ()


def group(parallel: Sequence[tuple[int, int]], *stages: Stage, threads: int, each: int = 1) -> Group:
    return Group(tuple(parallel), stages, each, threads)


def one(parallel: Sequence[tuple[int, int]], *stages: Stage, threads: int, each: int = 1) -> tuple[Kernel, ...]:
    return (Kernel((Phase((group(parallel, *stages, threads=threads, each=each),)),)),)


def layer_norm_pair(
    name: str,
    tile: int,
    lanes: Lanes,
    threads: int,
    width: int,
    rows: int = 9,
    columns: int = 70,
    dtype: DType = DType.F32,
    each: int = 1,
) -> Pair:
    """Three stages with the centred row in block memory."""
    stages = [Stage(v, (3, 4), vector=4, width=width, lanes=lanes) for v in ((4,), (6, 8), (14,))]
    plan = replace(layer_norm_plan(tile), kernels=one([(3, tile)], *stages, threads=threads, each=each))
    return Pair(f"layer norm {name}", layer_norm(rows, columns, dtype), plan)


def kept_layer_norm(name: str, tile: int, lanes: Lanes, threads: int, width: int, rows: int, columns: int) -> Pair:
    """The input is loaded once into registers, and the sums stay there too."""
    stages = [Stage(v, (3, 4), vector=4, width=width, lanes=lanes) for v in ((0, 4), (6, 8), (14,))]
    places = {**{(e.value, e.consumer): e.place for e in layer_norm_plan(tile).edges}}
    places |= {(0, 4): "register", (0, 6): "register", (4, 5): "register", (6, 13): "register", (8, 9): "register"}
    found = tuple(Edge(v, c, place) for (v, c), place in sorted(places.items()))
    return Pair(f"kept {name}", layer_norm(rows, columns), Plan(one([(3, tile)], *stages, threads=threads), found))


def softmax_pair(name: str, tile: int, lanes: Lanes, threads: int, width: int, rows: int, columns: int) -> Pair:
    """One pass for maximum and sum, then the quotient."""
    stages = (
        Stage((1, 4), (2, 3), vector=3, width=width, lanes=lanes),
        Stage((5,), (2, 3), vector=3, width=width, lanes=lanes),
    )
    places = edges(v1_2="block", v2_3="inline", v3_4="inline", v3_5="inline", v4_5="block")
    plan = Plan(one([(2, tile)], *stages, threads=threads), places, reductions=(Reduction(4, coupled=1),))
    return Pair(f"softmax {name}", softmax(rows, columns), plan)


def resident_softmax(rows: int, columns: int, part: int, threads: int, width: int) -> Pair:
    """Rows split over blocks that keep their parts of the exponentials across the barriers."""
    lanes = ((3, threads),)
    tiles = [(2, 1), (3, part)]
    combine = Stage((), (2,), combine=(1,))
    first = group(tiles, Stage((0, 1), (2, 3), vector=3, width=width, lanes=lanes), threads=threads)
    second = group(tiles, combine, Stage((3, 4), (2, 3), vector=3, width=width, lanes=lanes), threads=threads)
    third = group(
        tiles, Stage((), (2,), combine=(4,)), Stage((5,), (2, 3), vector=3, width=width, lanes=lanes), threads=threads
    )
    places = edges(
        v0_1="register", v0_2="block", v1_2="block", v2_3="inline", v3_4="register", v3_5="block", v4_5="block"
    )
    return Pair(
        "resident softmax",
        softmax(rows, columns),
        Plan((Kernel(tuple(Phase((g,)) for g in (first, second, third))),), places),
    )


def split_pair(name: str, sub: Subgraph, part: int, threads: int, width: int, *inputs: NDArray[Any]) -> Pair:
    """A softmax (maximum, sum) or the statistics of a layer norm in one pass over rows split over blocks, whose common
    partial results the next phase combines."""
    first, second, out = (1, 4, 5) if len(sub.values) == 6 else (4, 8, 14)
    row, column = sub.values[out].axes
    lanes = ((column, threads),)
    made, read = (Stage(v, (row, column), vector=column, width=width, lanes=lanes) for v in ((first, second), (out,)))
    combine = Stage((), (row,), combine=(first, second))
    tiles = [(row, 1), (column, part)]
    phases = (group(tiles, made, threads=threads), group(tiles, combine, read, threads=threads))
    if out == 5:
        places = edges(v1_2="block", v2_3="inline", v3_5="inline", v4_5="block")
    else:
        names = "v5_6 v6_13 v9_10 v10_11 v11_12 v12_13 v13_14".split()
        places = edges(v4_5="block", v8_9="block", **dict.fromkeys(names, "inline"))
    kernel = Kernel(tuple(Phase((g,)) for g in phases))
    return Pair(f"split {name}", sub, Plan((kernel,), places, (Reduction(second, coupled=first),)), tuple(inputs))


def column_sums(name: str, rows: int, columns: int, stage: Stage, tile: int, threads: int) -> Pair:
    plan = Plan(one([(3, tile)] if tile else [], stage, threads=threads), edges(v1_3="inline", v1_2="inline"))
    return Pair(f"columns {name}", replace(sums(rows, columns), outputs=(3,)), plan)


def rows_and_columns(name: str, rows: int, columns: int, tile: int, lanes: Lanes, threads: int, width: int) -> Pair:
    """Row sums beside partial column sums in one stage; the latter are combined in a second phase."""
    first = group([(2, tile)], Stage((2, 3), (2, 3), vector=3, width=width, lanes=lanes), threads=threads)
    second = group([(3, 64)], Stage((), (3,), combine=(3,), vector=3, width=1, lanes=((3, 64),)), threads=threads)
    plan = Plan((Kernel((Phase((first,)), Phase((second,)))),), edges(v1_2="inline", v1_3="inline"))
    return Pair(f"rows and columns {name}", sums(rows, columns), plan)


def three_axes(name: str, outputs: int, stage: Stage, threads: int) -> Pair:
    """Sums along the middle axis, with `outputs` 2 beside maxima along the last two. Axes: 3, 4, 5."""
    b = Builder()
    x = b.input(6, 20, 300)
    i, j, k = b.axes(6, 20, 300)
    total = b.op("sum", (i, k), (x, (i, j, k)), reduce=(j,))
    top = b.op("max", (i,), (x, (i, j, k)), reduce=(j, k))
    sub = b.subgraph(*(total, top)[:outputs])
    return Pair(f"three axes {name}", sub, Plan(one([(i, 4)], stage, threads=threads)))


def kept_columns(width: int) -> Pair:
    """Column sums, own axis inside, that a later stage takes from registers."""
    b = Builder()
    x = b.input(40, 60)
    i, j = b.axes(40, 60)
    total = b.op("sum", (j,), (x, (i, j)), reduce=(i,))
    moved = b.op("sub", (i, j), (x, (i, j)), total)
    stages = [Stage((v,), (i, j), vector=j, width=width, lanes=((i, 8), (j, 8))) for v in (total, moved)]
    return Pair(f"kept columns {width}", b.subgraph(moved), Plan(one([], *stages, threads=64), edges(v1_2="register")))


def long_sum(lanes: tuple[int, int], width: int) -> Pair:
    """So many terms for each accumulator that what additions lose is carried along."""
    b = Builder()
    x = b.input(2, 70000)
    i, j = b.axes(2, 70000)
    total = b.op("sum", (i,), (x, (i, j)), reduce=(j,))
    stage = Stage((total,), (i, j), vector=j, width=width, lanes=((j, lanes[1]), (i, lanes[0])))
    return Pair(f"long sum {lanes}", b.subgraph(total), Plan(one([(i, 1)], stage, threads=32)))


def split_sum(size: int, part: int, threads: int) -> Pair:
    """All of a vector, in many parts."""
    b = Builder()
    x = b.input(size)
    (i,) = b.axes(size)
    total = b.op("sum", (), (x, (i,)), reduce=(i,))
    halved = b.op("exp", (), b.op("neg", (), total))
    first = group([(i, part)], Stage((total,), (i,), vector=i, width=2, lanes=((i, threads),)), threads=threads)
    second = group([], Stage((halved,), (), combine=(total,)), threads=threads)
    plan = Plan((Kernel((Phase((first,)), Phase((second,)))),), edges(v1_2="inline", v2_3="inline"))
    plan = replace(plan, edges=edges(v1_2="register", v2_3="inline"))
    return Pair(f"split sum {size} in parts of {part}", b.subgraph(total, halved), plan)


def transpose(rows: int, columns: int, pad: int) -> Pair:
    b = Builder()
    x = b.input(rows, columns)
    i, j = b.axes(rows, columns)
    kept = b.op("exp", (i, j), (x, (i, j)))
    turned = b.op("neg", (j, i), (kept, (i, j)))
    stages = (
        Stage((kept,), (i, j), vector=j, width=1, lanes=((i, 4), (j, 32))),
        Stage((turned,), (j, i), vector=i, width=1, lanes=((j, 4), (i, 32))),
    )
    plan = Plan(
        one([(i, 32), (j, 32)], *stages, threads=128), edges(v1_2="block"), buffers=(Buffer(kept, (i, j), pad),)
    )
    return Pair(f"transpose {rows}x{columns} pad {pad}", b.subgraph(turned), plan)


def movement(width: int, lanes: tuple[int, int]) -> Pair:
    """Padding, a concat and a gather."""
    b = Builder()
    x, table, ids = b.input(6, 12), b.input(9, 12), b.input(6, dtype=DType.I64)
    i, j = b.axes(6, 24)
    columns = b.values[x].axes[1]
    padded = Sum(((1, AxisVar(j)), (1, Int(-4))))
    late = Sum(((1, AxisVar(j)), (1, Int(-12))))
    lookup = Lookup(Read(ids, (AxisVar(i),)), b.values[table].axes[0])
    pad = b.op("neg", (i, j), Read(x, (AxisVar(i), padded), (Bound(padded, columns),), 7.0))
    pieces = (
        Read(x, (AxisVar(i), AxisVar(j)), (Bound(AxisVar(j), columns),)),
        Read(table, (lookup, late), (Bound(late, b.values[table].axes[1]),)),
    )
    both = b.add(Value("piecewise", DType.F32, (i, j), reads=pieces))
    out = b.op("add", (i, j), pad, both)
    stage = Stage((out,), (i, j), vector=j, width=width, lanes=tuple(zip((i, j), lanes, strict=True)))
    plan = Plan(one([(i, 4)], stage, threads=32), edges(v3_5="inline", v4_5="inline"))
    rng = np.random.default_rng(0)
    data = (rng.standard_normal((6, 12)).astype(np.float32), rng.standard_normal((9, 12)).astype(np.float32))
    return Pair(f"movement {width}", b.subgraph(out), plan, (*data, np.array([0, -1, 8, -9, 3, 3])))


def extreme(op: str, last: bool, lanes: tuple[int, int], threads: int, width: int) -> Pair:
    nan, inf = np.nan, np.inf
    x = np.array([[1, nan, 3, nan], [nan] * 4, [5, 5, 1, 5], [-inf] * 4, [inf] * 4], np.float32)
    wide = np.concatenate([x, np.repeat(x[:, -1:], 39, axis=1)], axis=1)
    b = Builder()
    i, j = (b.input(5, 43), b.axes(5, 43))[1]
    found = b.op(op, (i,), (0, (i, j)), reduce=(j,), dtype=DType.I64, select_last=last)
    stage = Stage((found,), (i, j), vector=j, width=width, lanes=tuple(zip((i, j), lanes, strict=True)))
    return Pair(f"{op} {last}", b.subgraph(found), Plan(one([(i, 2)], stage, threads=threads)), (wide,))


def elementwise(dtype: DType, width: int, op: str = "add", rows: int = 7, columns: int = 37) -> Pair:
    b = Builder(dtype)
    x, y = b.input(rows, columns), b.input(columns)
    i, j = b.axes(rows, columns)
    out = b.op(op, (i, j), (x, (i, j)), (y, (j,)))
    stage = Stage((out,), (i, j), vector=j, width=width, lanes=((i, 3), (j, 10)))
    return Pair(f"{op} {dtype.value} {width} {columns}", b.subgraph(out), Plan(one([(i, 5)], stage, threads=32)))


PAIRS = (
    layer_norm_pair("a warp a row", 4, ((3, 4), (4, 32)), 128, 2),
    layer_norm_pair("a warp a row, even", 4, ((3, 4), (4, 32)), 128, 4, rows=8, columns=256),
    layer_norm_pair("a block a row", 3, ((4, 128),), 128, 1),
    layer_norm_pair("a block a row in strips", 1, ((4, 128),), 128, 4, columns=1031),
    layer_norm_pair("a thread a row", 32, ((3, 32),), 32, 1),
    layer_norm_pair("a thread a row in strips", 64, ((3, 32),), 32, 4, rows=67),
    layer_norm_pair("several rows a warp", 5, ((3, 8), (4, 8)), 64, 4, each=3),
    layer_norm_pair("rows fastest", 5, ((4, 8), (3, 8)), 64, 4),
    layer_norm_pair("f16", 4, ((3, 2), (4, 32)), 64, 8, dtype=DType.F16),
    layer_norm_pair("bf16", 4, ((3, 2), (4, 32)), 64, 2, dtype=DType.BF16, columns=64),
    layer_norm_pair("f64", 2, ((4, 64),), 64, 2, dtype=DType.F64),
    kept_layer_norm("a warp a row", 4, ((3, 4), (4, 32)), 128, 4, 9, 200),
    kept_layer_norm("a block a row", 1, ((4, 128),), 128, 2, 5, 1031),
    kept_layer_norm("a thread a row", 32, ((3, 32),), 32, 4, 33, 19),
    softmax_pair("a warp a row", 4, ((2, 4), (3, 32)), 128, 2, 9, 77),
    softmax_pair("a block a row", 1, ((3, 256),), 256, 4, 3, 1500),
    resident_softmax(3, 100, 32, 32, 4),
    split_pair("softmax, few parts", softmax(3, 1500), 400, 128, 4),
    split_pair("softmax, many parts", softmax(2, 1000), 16, 64, 2),
    split_pair("moments, few parts", layer_norm(3, 1500), 400, 128, 4),
    split_pair("moments, many parts", layer_norm(2, 1000), 16, 64, 1),
    split_pair("moments, f64", layer_norm(2, 300, DType.F64), 100, 64, 2),
    column_sums("coalesced", 50, 70, Stage((3,), (3, 2), vector=3, width=1, lanes=((2, 4), (3, 32))), 32, 128),
    column_sums("in strips", 50, 70, Stage((3,), (3, 2), vector=3, width=4, lanes=((2, 8), (3, 8))), 64, 64),
    column_sums("wider than a tile", 50, 70, Stage((3,), (3, 2), vector=3, width=4, lanes=((2, 4), (3, 16))), 64, 64),
    column_sums("in registers", 50, 40, Stage((3,), (2, 3), vector=3, width=4, lanes=((2, 8), (3, 8))), 0, 64),
    column_sums("in block memory", 50, 600, Stage((3,), (2, 3), vector=3, width=1, lanes=((2, 8), (3, 4))), 0, 32),
    rows_and_columns("warps", 40, 60, 16, ((2, 4), (3, 32)), 128, 1),
    rows_and_columns("strips", 37, 100, 16, ((2, 2), (3, 32)), 64, 2),
    rows_and_columns("long rows", 10, 700, 4, ((2, 2), (3, 32)), 64, 1),
    three_axes("in block memory", 2, Stage((1, 2), (3, 4, 5), vector=5, width=1, lanes=((4, 4), (5, 8))), 32),
    three_axes("in registers", 2, Stage((1, 2), (3, 4, 5), vector=5, width=4, lanes=((3, 2), (4, 4), (5, 32))), 256),
    three_axes("strips outside", 1, Stage((1,), (5, 3, 4), vector=5, width=4, lanes=((5, 16), (3, 2), (4, 4))), 128),
    three_axes("an own axis inside", 1, Stage((1,), (5, 4, 3), vector=5, width=4, lanes=((4, 4), (5, 16))), 64),
    long_sum((16, 2), 2),
    kept_columns(1),
    kept_columns(4),
    rows_and_columns("many parts", 200, 100, 4, ((2, 4), (3, 32)), 128, 2),
    split_sum(1000, 64, 64),
    split_sum(5000, 16, 64),
    split_sum(5000, 8, 128),
    transpose(50, 70, 1),
    transpose(64, 32, 0),
    movement(4, (2, 6)),
    movement(1, (1, 24)),
    extreme("argmax", False, (2, 32), 64, 1),
    extreme("argmax", True, (1, 64), 64, 2),
    extreme("argmin", False, (1, 128), 128, 1),
    elementwise(DType.F16, 8),
    elementwise(DType.F16, 8, columns=64),
    elementwise(DType.BF16, 2),
    elementwise(DType.F64, 4, columns=36),
    elementwise(DType.I64, 2),
    elementwise(DType.U8, 16, columns=48),
    elementwise(DType.BOOL, 4, "and", columns=36),
)
