"""The central test: at least 500 pairs of a random graph and a random legal plan, each right to the bit rules.

Every plan lowers, compiles and gives what the reference gives, within the bounds of graphs/tolerance.py; on one thread
and on two, twice, with the same bits; with nothing written but outputs and nothing read outside inputs. What the pairs
exercise is printed and has floors. `make fuzz` or `python -m tests.differential` run more.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from stitchtune.kernels.compile import find_compiler

from tests.differential.campaign import EVERY_FEATURE, campaign, lacking, table
from tests.differential.marks import EVERY_MARK

PAIRS = 700
FLOOR = 10
GRAPHS = {"reductions over different axes": 100, "non-identity read": 100}


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
def test_every_legal_plan_of_a_random_graph_is_right(record_property: Callable[[str, object], None]) -> None:
    tally = campaign(PAIRS, jobs=min(2, os.cpu_count() or 1))
    report = "\n".join(table(tally, EVERY_MARK))
    record_property("summary", f"differential test, {tally.seconds:.0f} s\n{report}")
    assert not tally.failures, "\n\n".join(f"{pair}\n  {problem}" for pair, problem in tally.failures.items())
    assert tally.pairs >= 500, report
    missing = lacking(tally, (*EVERY_FEATURE, *EVERY_MARK), FLOOR)
    assert not missing, f"under the floor of {FLOOR}: {missing}"
    assert all(tally.structures[name] >= floor for name, floor in GRAPHS.items()), report
