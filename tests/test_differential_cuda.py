"""The central test on emulated CUDA: at least 300 pairs of a random graph and a random legal plan.

Every plan lowers, compiles and gives what the reference gives; with threads in order and in another, on all blocks and
on one, with the same bits; with no race, no access out of bounds, nothing read that nobody wrote, no barrier that some
threads miss. Some plans run on buffers that are aligned to their elements only, some with 64-bit indices. What the
pairs exercise is printed and has floors. `make fuzz TARGET=cuda` runs more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import AxisVar, Int, Read, Subgraph, Sum
from stitchtune.kernels.compile import find_compiler
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.emulator import emulate
from stitchtune.search_space.devices import device_target
from stitchtune.search_space.stitch import heuristic

from tests.differential.campaign import campaign, lacking, table
from tests.differential.cuda_marks import EVERY_CUDA_MARK
from tests.emulated import run_component
from tests.kernels.hand import Builder

PAIRS = 320
FLOOR = 5

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")


def test_every_legal_plan_of_a_random_graph_is_right(record_property: Callable[[str, object], None]) -> None:
    tally = campaign(PAIRS, jobs=min(2, os.cpu_count() or 1), target="cuda")
    report = "\n".join(table(tally, EVERY_CUDA_MARK))
    record_property("summary", f"differential test on emulated CUDA, {tally.seconds:.0f} s\n{report}")
    assert not tally.failures, "\n\n".join(f"{pair}\n  {problem}" for pair, problem in tally.failures.items())
    assert tally.pairs >= 300, report
    missing = lacking(tally, EVERY_CUDA_MARK, FLOOR)
    assert not missing, f"under the floor of {FLOOR}: {missing}"
    assert 2 * tally.features["phase", "two or more"] >= tally.pairs, report


# --- addresses that need 64 bits

FAR = (1 << 31) + 1000


def far_slice(rows: int) -> tuple[Subgraph, int]:
    """`rows` elements of an input of more than 2**31, those from FAR on; and the extent of the input."""
    b = Builder(DType.BOOL)
    size = FAR + 4 * rows
    x = b.input(size)
    (i,) = b.axes(rows)
    far = Read(x, (Sum(((3, AxisVar(i)), (1, Int(FAR)))),))
    return b.subgraph(b.op("not", (i,), far)), size


def test_an_address_beyond_31_bits_is_reached(tmp_path: Path) -> None:
    sub, size = far_slice(1031)
    target = device_target("cuda:h200")
    [built] = emulate.build_emulated([(sub, heuristic(sub, target))], target, cache=tmp_path)
    assert isinstance(built, BuiltCuda), built
    assert [k.index_bits for k in built.kernels] == [64]
    given = np.zeros(size, np.bool_)  # the system gives zeros only where they are touched
    given[FAR : FAR + 3 * 1031 : 6] = True
    outputs = [np.zeros(1031, np.bool_)]
    ran = emulate.run(built, [given], outputs)
    assert not ran.findings
    assert np.array_equal(outputs[0], ~given[FAR : FAR + 3 * 1031 : 3])


def test_small_addresses_have_32_bits(tmp_path: Path) -> None:
    b = Builder()
    x = b.input(1000, 37)
    axes = b.axes(1000, 37)
    sub = b.subgraph(b.op("neg", axes, (x, axes)))
    target = device_target("cuda:h200")
    [built] = emulate.build_emulated([(sub, heuristic(sub, target))], target, cache=tmp_path)
    assert isinstance(built, BuiltCuda), built
    assert [k.index_bits for k in built.kernels] == [32]
    array = np.arange(37_000, dtype=np.float32).reshape(1000, 37)
    assert np.array_equal(run_component(built, [array])[0], -array)
