"""Heuristic plans compile without stack or spills; benchmarks/compile_all.py asks it of whole graphs, everywhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from stitchtune.benchmarks.compile_all import Row, compile_graph, table, totals
from stitchtune.benchmarks.suite import SUITE
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.cuda.nvrtc import find_nvrtc

from tests.golden.kernels import SUBGRAPHS
from tests.golden.kernels import component as only
from tests.plans.subjects import SUBJECTS

pytestmark = pytest.mark.skipif(find_nvrtc() is None, reason="no NVRTC")


@cache
def subgraphs() -> tuple[Subgraph, ...]:
    """The suite, what golden sources are of, and what the plan fixtures are of."""
    golden = [make() for make in SUBGRAPHS.values()]
    return tuple(dict.fromkeys((*(only(s.graph()) for s in SUITE), *golden, *(only(m()) for m in SUBJECTS.values()))))


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])  # the others see the golden sources
def test_heuristic_plans_compile_without_stack_or_spills(arch: str, tmp_path: Path) -> None:
    row = compile_graph("suite", subgraphs(), arch, tmp_path / "cache", jobs=2)
    assert row.refused == ()
    assert (row.stack_bytes, row.spill_bytes) == (0, 0)
    assert row.kernels >= row.plans > 30
    assert row.most_registers <= 255


def test_the_table_says_what_was_refused() -> None:
    good = Row("a", "sm_90", 2, 3, 40, 32.0, 0, 0, (), 1.0)
    bad = Row("b", "sm_90", 1, 0, 0, 0, 0, 0, ("spill: st_k0 keeps 8 bytes",), 0.5)
    assert good.clean
    assert not bad.clean
    assert [line.split() for line in table([good])][1] == ["a", "sm_90", "2", "3", "40", "(32)", "0", "0", "0", "1.0"]
    assert list(totals([good, bad])) == ["sm_90: 3 kernels in 1.5 s", "refused, b sm_90: spill: st_k0 keeps 8 bytes"]
