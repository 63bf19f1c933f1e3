"""Stages that are cut at the pieces of a concat: each part initialises and stores only what it computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from stitchtune.graphs.builder import GraphBuilder
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.tolerance import check_outputs
from stitchtune.kernels.build import BuiltPlan, build_plans
from stitchtune.kernels.host import host_target
from stitchtune.search_space.stitch import heuristic

from tests.kernels.calling import run_built
from tests.plans.write import component


def test_a_sum_beside_a_concat_keeps_the_sums_of_both_pieces(tmp_path: Path) -> None:
    """Column sums of joined tables were zeroed by the part that computes the other table (found on dien)."""
    b = GraphBuilder()
    tables = [b.reshape(b.input(f"x{k}", DType.F32, (16, 30, 18)), (16, 30, 1, 18)) for k in range(2)]
    joined = b.op("concat", *tables, axis=2)
    b.output(joined)
    b.output(b.reduce("sum", joined, (1,)))
    sub = component(b.build())
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(sub.shape(v)).astype(np.float32) for v in sub.inputs]
    target = host_target()
    [built] = build_plans([(sub, heuristic(sub, target))], target, cache=tmp_path)
    assert isinstance(built, BuiltPlan)
    result = check_outputs(sub, inputs, run_built(built, inputs))
    assert result.ok, result.message
