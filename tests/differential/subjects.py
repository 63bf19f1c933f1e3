"""What plans are drawn for: subgraphs with inputs, numbered, of four kinds by turns.

g  components of random tensor-level graphs, through simplification and partition;
s  random canonical subgraphs;
j  random concats and copies of computed values, which may be stored straight into their consumer; and softmaxes and
   layer norms, whose reductions may share a pass;
r  row and column reductions of one value, of all float types and with rows of any length.

Each primitive with each type comes first in some of them, by turns of the number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.interpret import run_subgraph
from stitchtune.graphs.partition import Component, ViewStep, partition
from stitchtune.graphs.primitives import PRIMITIVES
from stitchtune.graphs.simplify import simplify
from stitchtune.graphs.subgraph import AxisVar, Bound, Index, Int, Read, Slot, Subgraph, Sum, Value

from tests.coverage import coverage
from tests.guards import DTYPES
from tests.kernels.hand import Builder
from tests.pruning import pruned
from tests.random_graphs import random_feeds, random_graph
from tests.random_subgraphs import random_subgraph
from tests.random_values import random_inputs

Array = NDArray[Any]
Features = Counter[tuple[str, str]]


@dataclass(frozen=True, eq=False)
class Subject:
    """A subgraph with inputs.

    features  what it (and the graph it comes from) exercises
    plans     how many plans to draw for it
    """

    name: str
    sub: Subgraph
    inputs: list[Array]
    features: Features
    plans: int = 2


def subjects(number: int, kinds: str, focus: int, graph_focus: int, moves: int) -> Iterator[Subject]:
    """The subjects of one number; usually one. The numbers take turns at `kinds`.

    focus         primitives with a type that come first in a subgraph
    graph_focus   the same in a graph; with `moves` movement primitives
    """
    special = number % 5 == 4
    at, kind = number % len(kinds), kinds[number % len(kinds)]
    # Seeds without gaps in each kind, so that the turns of its primitives have none.
    seed = number // len(kinds) * kinds.count(kind) + kinds[:at].count(kind)
    match kind:
        case "g":
            yield from _of_graph(number, seed, special, graph_focus, moves)
        case "r":
            sub = reductions(seed)
            inputs = [_summable(a) for a in random_inputs(sub, number, special)]
            yield Subject(f"reductions {number}", sub, inputs, coverage(sub))
        case "j":
            sub = normalised(seed) if seed % 3 == 1 else joined(seed)
            yield Subject(f"joined {number}", sub, random_inputs(sub, number, special), coverage(sub))
        case _:
            recipes = (("crossed",), ("normalise",), ("crossed", "concat"))[seed % 3]
            points = 30_000 if seed % 9 == 4 else 4_000
            sub = random_subgraph(seed, steps=seed % 2, points=points, focus=focus, recipes=recipes)
            yield Subject(f"subgraph {number}", sub, random_inputs(sub, number, special), coverage(sub))


def _of_graph(number: int, seed: int, special: bool, focus: int, moves: int) -> Iterator[Subject]:
    drawn = random_graph(seed, steps=number % 2, focus=focus, moves=moves, recipes=("crossed",))
    graph = simplify(drawn)
    seen = coverage(graph)
    movement: Features = Counter({f: n for f, n in seen.items() if f[0] in PRIMITIVES and _moves(f[0])})
    movement.update({f: n for f, n in seen.items() if f[0] == "structure"})
    memory: dict[str, Array] = {**graph.constants, **random_feeds(graph, number, special)}
    for k, step in enumerate(partition(graph).steps):
        if isinstance(step, ViewStep):
            memory[step.output] = memory[step.source].reshape(graph.types[step.output].shape)
        elif isinstance(step, Component):
            sub = step.subgraph
            arrays = [memory[n].reshape(sub.shape(v)) for n, v in zip(step.inputs, sub.inputs, strict=True)]
            inputs = [np.array(a, order="C") for a in arrays]
            for name, array in zip(step.outputs, run_subgraph(sub, inputs), strict=True):
                memory[name] = array.reshape(graph.types[name].shape)
            own = coverage(sub)
            if not k:
                own = own | movement
            yield Subject(f"graph {number} component {k}", sub, inputs, own, plans=1)


def _moves(op: str) -> bool:
    return PRIMITIVES[op].kind == "movement"


def normalised(seed: int) -> Subgraph:
    """A softmax or a layer norm of rows or of columns; or the moments alone."""
    rng = np.random.default_rng([seed, 8])
    b = Builder(DType.F32 if rng.random() < 0.7 else DType.F64)
    shape = [int(n) for n in rng.choice((1, 3, 8, 17, 33, 64), 2)]
    x = b.input(*shape)
    axes = b.axes(*shape)
    row, along = axes if rng.random() < 0.7 else axes[::-1]
    count = b.extents[along]
    if seed % 2:
        top = b.op("max", (row,), (x, axes), reduce=(along,))
        power = b.op("exp", axes, b.op("sub", axes, (x, axes), top))
        total = b.op("sum", (row,), power, reduce=(along,))
        return b.subgraph(b.op("div", axes, power, total))
    share = b.const(float(np.float32(1 / count)) if b.dtype is DType.F32 else 1 / count)
    total = b.op("sum", (row,), (x, axes), reduce=(along,))
    centred = b.op("sub", axes, (x, axes), b.op("mul", (row,), total, share))
    spread = b.op("sum", (row,), b.op("mul", axes, centred, centred), reduce=(along,))
    variance = b.op("add", (row,), b.op("mul", (row,), spread, share), b.const(0.015625))
    out = b.op("div", axes, centred, b.op("sqrt", (row,), variance))
    return b.subgraph(variance, out) if rng.random() < 0.3 else b.subgraph(out)


def _summable(array: Array) -> Array:
    """Without the largest numbers of its type: whether their sum overflows depends on the order."""
    with np.errstate(all="ignore"):
        return np.where(np.isfinite(array) & (np.abs(array) > 1e4), array.dtype.type(1), array)


FLOATS = (DType.F32, DType.F16, DType.BF16, DType.F64)
ROWS = (1, 2, 5, 16, 37, 64)
COLUMNS = (31, 32, 64, 97, 128, 257, 512, 1031)
LONG = ((1, 65_537), (2, 33_000), (3, 22_003), (4, 16_384))


def reductions(seed: int) -> Subgraph:
    """A softmax, a layer norm or the squares of rows, beside column sums of what is read or made of it."""
    rng = np.random.default_rng([seed, 9])
    # One in five has rows so long that they are split over tasks.
    long, dtype = seed % 5 == 3, FLOATS[seed % len(FLOATS)]
    b = Builder(DType.F32 if long and dtype is DType.F16 else dtype)
    shape = LONG[seed // 5 % len(LONG)] if long else (int(rng.choice(ROWS)), int(rng.choice(COLUMNS)))
    x, other = b.input(*shape), b.input(*shape)
    row, column = axes = b.axes(*shape)
    source = b.op("add", axes, (x, axes), (other, axes)) if rng.random() < 0.5 else b.op("neg", axes, (x, axes))
    outputs: list[int] = []
    match seed // 5 % 2 if long else seed % 3:
        case 0:
            top = b.op("max", (row,), source, reduce=(column,))
            power = b.op("exp", axes, b.op("sub", axes, source, top))
            made = b.op("div", axes, power, b.op("sum", (row,), power, reduce=(column,)))
        case 1:
            share = b.const(float(np.float32(1 / shape[1])))
            centred = b.op(
                "sub", axes, source, b.op("mul", (row,), b.op("sum", (row,), source, reduce=(column,)), share)
            )
            spread = b.op("sum", (row,), b.op("mul", axes, centred, centred), reduce=(column,))
            variance = b.op("add", (row,), b.op("mul", (row,), spread, share), b.const(0.015625))
            made = b.op("div", axes, centred, b.op("sqrt", (row,), variance))
        case _:
            made = b.op("mul", axes, source, (x, axes))
            outputs.append(b.op("sum", (row,), made, reduce=(column,)))
    if seed % 2:
        outputs.append(b.op("sum", (column,), source if rng.random() < 0.5 else made, reduce=(row,)))
    return pruned(b.subgraph(*sorted((made, *outputs))))


def joined(seed: int) -> Subgraph:
    """Computed pieces put together along an axis (or one copied with its axes turned), and perhaps read again."""
    rng = np.random.default_rng([seed, 7])
    b = Builder(DTYPES[seed % len(DTYPES)])
    rank = int(rng.integers(1, 4))
    shape = [int(n) for n in rng.choice((2, 3, 5, 8, 13, 16, 33), rank)]
    along = int(rng.integers(rank))
    slots: list[int] = []
    copied = bool(rng.random() < 0.25)
    parts: list[tuple[int, int]] = []
    for _ in range(1 if copied else int(rng.integers(2, 4))):
        size = [*shape[:along], int(rng.integers(1, 20)), *shape[along + 1 :]]
        x = b.input(*size)
        axes = b.axes(*size)
        op = "not" if b.dtype is DType.BOOL else "neg" if b.dtype.is_float else "abs"
        first = b.op(op, axes, (x, axes))
        parts.append((b.op("copy" if rng.random() < 0.3 else op, axes, first), size[along]))
    total = sum(n for _, n in parts)
    out = b.axes(*shape[:along], total, *shape[along + 1 :])
    reads: list[Read] = []
    before = 0
    for piece, length in parts:
        at: Index = AxisVar(out[along])
        if before and rng.random() < 0.5:
            slots.append(before)
            at = Sum(((1, at), (-1, Slot(len(slots) - 1))))
        elif before:
            at = Sum(((1, at), (1, Int(-before))))
        bounds = () if copied else (Bound(at, b.values[piece].axes[along]),)
        reads.append(Read(piece, tuple(at if d == along else AxisVar(a) for d, a in enumerate(out)), bounds))
        before += length
    order = tuple(int(a) for a in rng.permutation(out))
    whole = b.add(Value("copy" if copied else "piecewise", b.dtype, order, reads=tuple(reads)))
    outputs = [whole]
    if rng.random() < 0.5:
        flip = (
            Sum(((-1, AxisVar(out[0])), (1, Int(b.extents[out[0]] - 1)))) if b.extents[out[0]] > 1 else AxisVar(out[0])
        )
        back = Read(whole, tuple(flip if a == out[0] else AxisVar(a) for a in order))
        outputs = [b.op("copy", out, back)] if rng.random() < 0.5 else [whole, b.op("copy", out, back)]
    if rng.random() < 0.3:
        outputs.append(parts[0][0])
    return b.subgraph(*sorted(outputs), slots=tuple(slots))
