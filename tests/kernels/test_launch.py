"""A built plan bound to arrays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import AxisVar, Int, Read, Subgraph, Sum, Value
from stitchtune.kernels.build import BuiltPlan, build_plans
from stitchtune.kernels.host import host_target
from stitchtune.kernels.launch import Executed, Launcher, array_address
from stitchtune.kernels.team import Team, build_runtime
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.stitch import heuristic, unfused
from stitchtune.search_space.target import Target

Choose = Callable[[Subgraph, Target], Plan]


def plain(value: int, *axes: int) -> Read:
    return Read(value, tuple(AxisVar(a) for a in axes))


def centred(rows: int, columns: int) -> Subgraph:
    """x[r, c] - sum of the row, and the sum itself as a second output."""
    f32 = DType.F32
    values = (
        Value("input", f32, (2, 3)),
        Value("sum", f32, (0,), (1,), (plain(0, 0, 1),)),
        Value("sub", f32, (0, 1), (), (plain(0, 0, 1), plain(1, 0))),
    )
    return Subgraph(values, (1, 2), (rows, columns, rows, columns))


def reversed_sum(n: int) -> Subgraph:
    """x[i] + x[n - 1 - i]."""
    f32 = DType.F32
    back = Read(0, (Sum(((1, Int(n - 1)), (-1, AxisVar(0)))),))
    return Subgraph((Value("input", f32, (1,)), Value("add", f32, (0,), (), (plain(0, 0), back))), (1,), (n, n))


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def team(cache: Path) -> Team:
    library = build_runtime(cache)
    assert isinstance(library, ctypes.CDLL)
    return Team(library, 2)


def build(sub: Subgraph, plan: Plan, cache: Path) -> BuiltPlan:
    [built] = build_plans([(sub, plan)], host_target(), cache=cache)
    assert isinstance(built, BuiltPlan), built
    return built


@pytest.mark.parametrize("choose", [heuristic, unfused])
def test_launch_runs_every_kernel_and_counts(
    team: Team, cache: Path, choose: Callable[[Subgraph, Target], Plan]
) -> None:
    sub = centred(37, 100)
    plan = choose(sub, host_target())
    x = np.random.default_rng(0).standard_normal((37, 100), np.float32)
    total, y = np.empty(37, np.float32), np.empty((37, 100), np.float32)
    bound = Launcher(build(sub, plan, cache), team).bind([x], [total, y])
    assert bound.launch() == Executed(len(plan.kernels), plan.barriers)
    np.testing.assert_allclose(total, x.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(y, x - x.sum(1, keepdims=True), rtol=1e-5, atol=1e-4)
    assert len(bound.time(5)) == 5


def test_output_on_top_of_an_input_reads_a_copy(team: Team, cache: Path) -> None:
    sub = reversed_sum(4)
    x = np.arange(4, dtype=np.float32)
    Launcher(build(sub, heuristic(sub, host_target()), cache), team).bind([x], [x]).launch()
    assert x.tolist() == [3, 3, 3, 3]


def test_strided_input_is_copied(team: Team, cache: Path) -> None:
    sub = reversed_sum(4)
    x, y = np.arange(8, dtype=np.float32)[::2], np.empty(4, np.float32)
    Launcher(build(sub, heuristic(sub, host_target()), cache), team).bind([x], [y]).launch()
    assert y.tolist() == [6, 6, 6, 6]


def test_arrays_that_do_not_fit_are_refused(team: Team, cache: Path) -> None:
    sub = reversed_sum(4)
    launcher = Launcher(build(sub, heuristic(sub, host_target()), cache), team)
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="0 inputs given for 1"):
        launcher.bind([], [y])
    with pytest.raises(ValueError, match="input 0 is float64"):
        launcher.bind([x.astype(np.float64)], [y])
    with pytest.raises(ValueError, match="output 0 is not a writable"):
        launcher.bind([x], [np.zeros(8, np.float32)[::2]])


def test_address_of_any_array() -> None:
    base = np.zeros((4, 6), np.float32)
    frozen = base.copy()
    frozen.flags.writeable = False
    for array in (base, base[1:, ::2], base[:0], frozen, base.astype(ml_dtypes.bfloat16), np.float16(1) + np.zeros(())):
        array = np.asarray(array)
        assert array_address(array) == array.__array_interface__["data"][0]
