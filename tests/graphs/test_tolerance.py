"""The check of a kernel's results: it passes what float32 arithmetic gives and finds what a wrong kernel gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from stitchtune.graphs import rounding
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.interpret import elementwise, movement, reductions, run_subgraph
from stitchtune.graphs.interpret.propagate import corners, spread_reduction
from stitchtune.graphs.rounding import Precision
from stitchtune.graphs.subgraph import AxisVar, Read, Subgraph, Value
from stitchtune.graphs.tolerance import check_outputs

from tests.graphs.test_interpret_subgraph import layer_norm
from tests.random_subgraphs import random_subgraph
from tests.random_values import random_inputs

F32 = DType.F32
Run = Callable[..., list[Any]]


@pytest.fixture
def in_float32(monkeypatch: pytest.MonkeyPatch) -> Run:
    """run_subgraph computing every float but float64 in NumPy's float32: as good as a kernel, and as bad."""
    wide, round_to = rounding.wide, rounding.round_to

    def single(dtype: DType) -> np.dtype[Any]:
        return np.dtype(np.float32) if dtype.is_float and dtype is not DType.F64 else wide(dtype)

    def run(sub: Subgraph, inputs: list[Any], precision: Precision = "strict") -> list[Any]:
        with monkeypatch.context() as patch:
            for module in (rounding, elementwise, reductions, movement):
                if hasattr(module, "wide"):
                    patch.setattr(module, "wide", single)
                if hasattr(module, "round_to"):
                    patch.setattr(module, "round_to", lambda x, dtype: round_to(x, dtype).astype(single(dtype)))
            return run_subgraph(sub, inputs, precision)

    return run


def unary(op: str, dtype: DType = F32, to: DType | None = None, n: int = 7) -> Subgraph:
    values = (Value("input", dtype, (0,)), Value(op, to or dtype, (1,), reads=(Read(0, (AxisVar(1),)),)))
    return Subgraph(values, (1,), (n, n))


def reduction(op: str, n: int, dtype: DType = F32) -> Subgraph:
    values = (Value("input", dtype, (0,)), Value(op, dtype, (), (1,), (Read(0, (AxisVar(1),)),)))
    return Subgraph(values, (1,), (n, n))


@pytest.mark.parametrize("precision", ["strict", "fast"])
@pytest.mark.parametrize("special", [False, True])
def test_float32_arithmetic_passes(precision: Precision, special: bool, in_float32: Run) -> None:
    compared = 0
    for seed in range(80):
        sub = random_subgraph(seed)
        inputs = random_inputs(sub, seed, special)
        found = check_outputs(sub, inputs, in_float32(sub, inputs, precision), precision)
        assert found.worst <= 1, (seed, found.message)
        compared += found.comparable
    assert compared >= (60 if special else 74)


def spoiled(value: Any) -> Any:
    """Another value than `value`, 2 % off or the next integer."""
    if value.dtype == bool:
        return ~value
    return value + value.dtype.type(1) if value.dtype.kind in "iu" else value * value.dtype.type(1.02)


def test_a_wrong_element_is_found(in_float32: Run) -> None:
    missed, spoilt = 0, 0
    for seed in range(40):
        sub = random_subgraph(seed)
        inputs = random_inputs(sub, seed)
        results = in_float32(sub, inputs)
        rng = np.random.default_rng(seed)
        for i, got in enumerate(results):
            if got.size == 0:
                continue
            at = tuple(int(rng.integers(n)) for n in got.shape)
            wrong = got.copy()
            with np.errstate(all="ignore"):
                wrong[at] = spoiled(got[at])
            if wrong[at] != got[at] and wrong[at] == wrong[at]:
                found = check_outputs(sub, inputs, [*results[:i], wrong, *results[i + 1 :]])
                missed += found.worst <= 1
                spoilt += 1
    assert spoilt > 250
    assert missed <= 0.04 * spoilt  # elements that are excluded, or that cancel


def test_a_lost_tail_of_a_layer_norm_is_found() -> None:
    sub = layer_norm(64, 257)
    x = np.random.default_rng(0).normal(3, 1, (64, 257)).astype(np.float32)
    d = x - x.mean(1, keepdims=True)
    right = d / np.sqrt(np.square(d).mean(1, keepdims=True) + np.float32(1e-5))
    assert check_outputs(sub, [x], [right]).ok
    short = x - x[:, :-1].sum(1, keepdims=True) / np.float32(257)
    lost = short / np.sqrt(np.square(short).mean(1, keepdims=True) + np.float32(1e-5))
    found = check_outputs(sub, [x], [lost])
    assert not found.ok
    assert found.message.startswith("output 0[")
    assert "times the allowed error" in found.message


def test_flushed_subnormals_are_found() -> None:
    sub = unary("abs", n=3)
    x = np.array([1e-40, -1e-40, 1e-45], np.float32)
    assert check_outputs(sub, [x], [np.abs(x)]).ok
    assert check_outputs(sub, [x], [np.zeros(3, np.float32)]).worst == np.inf
    root = unary("sqrt", n=3)
    assert check_outputs(root, [np.abs(x)], [np.sqrt(np.abs(x))]).ok
    assert not check_outputs(root, [np.abs(x)], [np.zeros(3, np.float32)]).ok
    squares = unary("exp", n=3)
    tiny = np.array([-100, -101, -90], np.float32)
    assert check_outputs(squares, [tiny], [np.exp(tiny)]).ok
    assert not check_outputs(squares, [tiny], [np.zeros(3, np.float32)]).ok


def test_nan_and_infinities_must_stand_where_they_do() -> None:
    x = np.array([-1, 0, np.nan, 4, 9, np.inf, 16], np.float32)
    with np.errstate(all="ignore"):
        right = np.sqrt(x)
    assert check_outputs(unary("sqrt"), [x], [right]).ok
    for place, value in ((0, 0.0), (2, 1.0), (5, 3e38), (3, np.nan), (4, np.inf)):
        wrong = right.copy()
        wrong[place] = value
        found = check_outputs(unary("sqrt"), [x], [wrong])
        assert found.worst == np.inf
        assert found.message.startswith(f"output 0[{place}] is ")


def test_shape_and_type_are_checked() -> None:
    x = np.ones(7, np.float32)
    assert check_outputs(unary("neg"), [x], [-x[:6]]).message == "output 0 is float32[6], not f32[7]"
    assert check_outputs(unary("neg"), [x], [-x.astype(np.float64)]).message == "output 0 is float64[7], not f32[7]"


def test_a_flip_is_excluded_counted_and_capped() -> None:
    values = (
        Value("input", F32, (0,)),
        Value("exp", F32, (1,), reads=(Read(0, (AxisVar(1),)),)),
        Value("const", F32, (), attrs=(("value", float(np.exp(np.float32(0.5)))),)),
        Value("lt", DType.BOOL, (1,), reads=(Read(1, (AxisVar(1),)), Read(2, ()))),
    )
    sub = Subgraph(values, (3,), (4000, 4000))
    x = np.linspace(-1, 1, 4000, dtype=np.float32)
    x[7] = 0.5
    right = np.exp(x) < np.exp(np.float32(0.5))
    for value in (True, False):
        right[7] = value
        found = check_outputs(sub, [x], [right])
        assert (found.ok, found.excluded, found.comparable) == (True, 1, True)
    right[8] = not right[8]
    assert not check_outputs(sub, [x], [right]).ok
    x[:9] = 0.5
    found = check_outputs(sub, [x], [np.exp(x) < np.exp(np.float32(0.5))])
    assert (found.ok, found.comparable) == (False, False)
    assert found.message == "9 of 4000 elements lie too close to a flip to be compared"


def test_an_undefined_cast_is_not_compared() -> None:
    sub = unary("cast", to=DType.I32)
    x = np.array([1.5, np.nan, 3e9, -np.inf, 2.0, -7.9, 0], np.float32)
    right = np.array([1, 123, 456, 789, 2, -7, 0], np.int32)
    assert check_outputs(sub, [x], [right]).ok
    right[5] = -8
    assert not check_outputs(sub, [x], [right]).ok


@pytest.mark.parametrize("n", [1, 33, 4096, 300_000])
def test_sums_in_any_order_pass_and_lost_terms_do_not(n: int) -> None:
    rng = np.random.default_rng(n)
    for x in (rng.normal(size=n), rng.uniform(0, 1, n), np.full(n, 0.1)):
        x = x.astype(np.float32)
        sub = reduction("sum", n)
        orders = [x.sum(), np.sort(x).sum(), x[::-1].sum(), np.cumsum(x)[-1] if n < 10_000 else x.sum()]
        for total in orders:
            assert check_outputs(sub, [x], [np.asarray(total)]).ok
        lost = x[: n - max(1, n // 50)].sum(dtype=np.float32)
        assert not check_outputs(sub, [x], [np.asarray(lost)]).ok


def test_low_precision_may_differ_by_one_unit_at_a_tie_only() -> None:
    values = (
        Value("input", DType.F16, (0,)),
        Value("const", DType.F16, (), attrs=(("value", 1.0),)),
        Value("add", DType.F16, (1,), reads=(Read(0, (AxisVar(1),)), Read(1, ()))),
    )
    sub = Subgraph(values, (2,), (2, 2))
    x = np.array([2.0**-11, 2.0**-10], np.float16)
    assert check_outputs(sub, [x], [np.array([1, 1 + 2.0**-10], np.float16)]).ok
    assert not check_outputs(sub, [x], [np.array([1 + 2.0**-10, 1 + 2.0**-10], np.float16)]).ok


def test_corners_of_certain_and_uncertain_results() -> None:
    x, error = np.array([0.5, 2.0, -1.0, 1e-9]), np.array([0.1, 0.0, 0.1, 1e-8])
    with np.errstate(all="ignore"):
        found = corners(np.sqrt, np.sqrt(x), [x], [error])
    assert found is not None
    assert found[0] == pytest.approx(np.sqrt(0.5) - np.sqrt(0.4))
    assert found[1:].tolist() == [0, 0, np.inf]


def test_argmax_is_uncertain_between_near_rivals_only() -> None:
    x = np.array([[1.0, 5.0, 5.1], [1.0, 5.0, 5.0], [np.nan, 1.0, 2.0]])
    error = np.array([[0.0, 0.1, 0.1], [0.0, 0.0, 0.0], [0.0, 0.1, 0.1]])
    y = x.argmax(1)
    found = spread_reduction("argmax", x, error, (1,), F32, y, False)
    assert found is not None
    assert found.tolist() == [np.inf, 0, 0]
