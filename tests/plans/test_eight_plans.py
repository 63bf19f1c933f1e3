"""The eight plans that tested the definition of a plan: they stay readable, legal, and lower to right kernels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.graphs.tolerance import check_outputs
from stitchtune.kernels.build import BuiltPlan, build_plans
from stitchtune.kernels.host import host_target
from stitchtune.kernels.launch import Launcher
from stitchtune.kernels.team import build_runtime, shared_team
from stitchtune.search_space import codec
from stitchtune.search_space.legality import check
from stitchtune.search_space.plan import Plan

from tests.plans.subjects import SUBJECTS
from tests.plans.write import HERE, TARGET, component, plan_of


def fixture(name: str) -> tuple[Subgraph, Plan]:
    document = json.loads((HERE / f"{name}.json").read_text())
    return codec.from_json(Subgraph, document["subgraph"]), codec.from_json(Plan, document["plan"])


def inputs_of(sub: Subgraph) -> list[NDArray[Any]]:
    """Normal numbers; labels within their classes."""
    rng = np.random.default_rng(7)
    found: list[NDArray[Any]] = []
    for number in sub.inputs:
        dtype = sub.values[number].dtype
        shape = sub.shape(number)
        found.append(rng.standard_normal(shape).astype(dtype.numpy) if dtype.is_float else rng.integers(0, 1000, shape))
    return found


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_graph_still_has_the_canonical_form_of_the_fixture(name: str) -> None:
    sub, plan = fixture(name)
    assert component(SUBJECTS[name]()) == sub, "regenerate with python -m tests.plans.write if this is meant"
    assert plan_of(name, sub) == plan, "regenerate with python -m tests.plans.write if this is meant"


@pytest.mark.parametrize("name", SUBJECTS)
def test_the_plan_is_legal_and_its_kernels_are_right(name: str, tmp_path: Path) -> None:
    sub, plan = fixture(name)
    assert check(sub, plan, TARGET) == ()
    [built] = build_plans([(sub, plan)], host_target(), cache=tmp_path)
    assert isinstance(built, BuiltPlan), built
    runtime = build_runtime(tmp_path)
    inputs = inputs_of(sub)
    results: list[list[NDArray[Any]]] = []
    for threads in (1, 2):
        outputs = [np.full(sub.shape(v), 77, sub.values[v].dtype.numpy) for v in sub.outputs]
        executed = Launcher(built, shared_team(runtime, threads)).bind(inputs, outputs).launch()
        assert (executed.launches, executed.barriers) == (len(plan.kernels), plan.barriers)
        result = check_outputs(sub, inputs, outputs)
        assert result.ok, result.message
        results.append(outputs)
    for one, two in zip(*results, strict=True):
        assert one.tobytes() == two.tobytes(), "the number of threads changed the result"
