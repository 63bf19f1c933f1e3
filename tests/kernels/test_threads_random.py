"""Row and column reductions under random orders, threads, strips, tiles and places: plans that no heuristic makes."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.compile import find_compiler
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.emulator.emulate import build_emulated
from stitchtune.kernels.lower import LoweringError, lower
from stitchtune.search_space.devices import device_target
from stitchtune.search_space.plan import Edge, Place, Plan, Stage

from tests.kernels.hand import Builder
from tests.kernels.test_threads_results import check
from tests.kernels.threads import Lanes, Pair, one

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
TARGET = device_target("cuda:h200")
PLANS = 24
SIZES = ((7, 13), (16, 64), (33, 100), (64, 20), (1, 40), (50, 1), (12, 48))
ROWS, COLUMNS = 3, 4


def subject(rows: int, columns: int, dtype: DType) -> Subgraph:
    """Values: 0 x, 1 scale, 2 row sums, 3 x - sum, 4 row maxima of that, 5 its column sums, 6 it scaled, 7 plus 4."""
    b = Builder(dtype)
    x, scale = b.input(rows, columns), b.input(columns)
    i, j = b.axes(rows, columns)
    total = b.op("sum", (i,), (x, (i, j)), reduce=(j,))
    moved = b.op("sub", (i, j), (x, (i, j)), total)
    top = b.op("max", (i,), moved, reduce=(j,))
    columns_ = b.op("sum", (j,), moved, reduce=(i,))
    scaled = b.op("mul", (i, j), moved, (scale, (j,)))
    return b.subgraph(b.op("add", (i, j), scaled, top), columns_)


def shared(rng: random.Random, threads: int, whole: bool) -> Lanes:
    """Threads of both loops, slowest first; `whole`: powers of two, all threads."""
    counts, left = {}, threads
    axes = rng.sample((ROWS, COLUMNS), 2)
    for axis in axes:
        counts[axis] = 1 << rng.randint(0, left.bit_length() - 1) if whole else rng.randint(1, left)
        left //= counts[axis]
    if whole:
        counts[axes[0]] *= left
    return tuple(rng.sample(sorted(counts.items()), 2))


def drawn(rng: random.Random) -> Pair:
    sub = subject(*rng.choice(SIZES), rng.choice((DType.F32, DType.F32, DType.F64, DType.F16)))
    threads = rng.choice((32, 64, 128, 256))
    whole = rng.random() < 0.4  # one task, so that columns can be summed too

    def stage(*values: int, folds: bool = True) -> Stage:
        vector = rng.choice((ROWS, COLUMNS, COLUMNS, -1))
        width = rng.choice((1, 2, 4, 8)) if vector >= 0 else 1
        order = (ROWS, COLUMNS) if rng.random() < 0.5 else (COLUMNS, ROWS)
        unroll = ((rng.choice(order), 2),) if rng.random() < 0.2 else ()
        return Stage(values, order, (), vector, width, unroll, shared(rng, threads, folds))

    sets = [(2,), (3, 4), *([(5,)] if whole else []), (7,)]
    alike = rng.random() < 0.5
    stages = [stage(*values, folds=values != (7,)) for values in sets]
    if alike:
        stages = [replace(stages[0], values=values) for values in sets]
    kept: Place = "register" if alike and rng.random() < 0.7 else "block"
    places: dict[tuple[int, int], Place] = {(2, 3): kept, (3, 4): "register", (3, 6): kept, (4, 7): kept}
    places |= {(3, 5): kept if whole else "inline", (6, 7): "inline"}
    tiles = [] if whole else [(ROWS, rng.choice((1, 2, 4, 5, 16)))]
    kernels = one(tiles, *stages, threads=threads, each=rng.choice((1, 1, 3)))
    sub = sub if whole else replace(sub, outputs=(7,))
    return Pair("drawn", sub, Plan(kernels, tuple(Edge(v, c, p) for (v, c), p in sorted(places.items()))))


@pytest.mark.parametrize(("seed", "aligned"), [(0, True), (1, False)])
def test_random_threads(seed: int, aligned: bool, tmp_path: Path) -> None:
    rng = random.Random(seed)
    pairs: list[Pair] = []
    refused: list[str] = []
    while len(pairs) < PLANS:
        pair = drawn(rng)
        try:
            lower(pair.sub, pair.plan, TARGET)
        except LoweringError as error:
            refused.append(str(error))
            continue
        pairs.append(replace(pair, name=f"{len(pairs)}: {pair.plan.kernels}"))
    assert all("too many for registers" in why for why in refused), refused
    items = [(p.sub, p.plan) for p in pairs]
    for pair, built in zip(
        pairs, build_emulated(items, TARGET, cache=tmp_path, per_unit=PLANS, aligned=aligned), strict=True
    ):
        assert isinstance(built, BuiltCuda), built
        first = check(pair, built, offset_elements=0 if aligned else 1)
        again = check(pair, built, seed=7, grid=1)
        assert all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True)), f"{pair.name}: other bits"
