"""What operations mean, by hand-written values: libraries get some of these wrong (DESIGN.md section 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from stitchtune.graphs.interpret.tensors import run_graph

from tests.graphs.onnx_models import Array, library_ops, make_model, ours, read, single

INF, NAN = np.inf, np.nan


def run(folder: Path, op: str, *operands: Any, constants: tuple[int, ...] = (), **attrs: Any) -> Array:
    """The only output of one operator; `opset` may be among the attributes."""
    opset = attrs.pop("opset", 21)
    model, feeds = single(op, operands, 1, opset, constants, **attrs)
    return ours(model, feeds, folder)[0]


def f32(*values: Any) -> Array:
    return np.array(values, np.float32)


def test_masked_softmax(tmp_path: Path) -> None:
    rows = np.zeros((4, 1031), np.float32)
    mask = np.ones((4, 1031), bool)
    mask[0] = False
    mask[1] = np.arange(1031) == 1030
    rows[3] = 1000 + np.arange(1031) % 3
    nodes = [
        helper.make_node("Where", ["mask", "x", "low"], ["kept"]),
        helper.make_node("Softmax", ["kept"], ["y"], axis=-1),
    ]
    feeds = {"mask": mask, "x": rows}
    (y,) = ours(make_model(nodes, feeds, ["y"], {"low": np.float32(-INF)}), feeds, tmp_path)
    assert np.isnan(y[0]).all()
    np.testing.assert_array_equal(y[1], mask[1].astype(np.float32))
    assert np.isfinite(y[3]).all()
    assert y[3].sum(dtype=np.float64) == pytest.approx(1, abs=1e-6)


def test_large_mean(tmp_path: Path) -> None:
    """LayerNormalization of values whose mean is large against their spread."""
    x = (4096 + np.arange(257, dtype=np.float32) / 1024)[None]
    y = run(tmp_path, "LayerNormalization", x, np.ones(257, np.float32))
    np.testing.assert_allclose([y[0, 0], y[0, 256]], [-1.7236832, 1.7236832], rtol=1e-5)
    constant = run(tmp_path, "LayerNormalization", np.full((1, 257), 7.1, np.float32), np.ones(257, np.float32))
    np.testing.assert_array_equal(constant, np.zeros((1, 257), np.float32))


def test_layer_norm_decomposed_by_the_exporter(tmp_path: Path) -> None:
    x = np.arange(16, dtype=np.float32).reshape(4, 4)
    nodes = [
        helper.make_node("ReduceMean", ["x", "axis"], ["mean"], keepdims=0),
        helper.make_node("Sub", ["x", "mean"], ["d"]),
        helper.make_node("Pow", ["d", "two"], ["sq"]),
        helper.make_node("ReduceMean", ["sq", "axis"], ["var"], keepdims=0),
        helper.make_node("Add", ["var", "eps"], ["shifted"]),
        helper.make_node("Sqrt", ["shifted"], ["dev"]),
        helper.make_node("Div", ["d", "dev"], ["y"]),
    ]
    constants = {"axis": np.array([-1]), "two": np.float32(2), "eps": np.float32(1e-5)}
    (y,) = ours(make_model(nodes, {"x": x}, ["y"], constants), {"x": x}, tmp_path)
    np.testing.assert_allclose(y[0], [-0.21821787, -1.1523315, -1.9205526, -1.5275251], rtol=1e-6)


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize(
    ("op", "value"),
    [("ReduceSum", 0), ("ReduceProd", 1), ("ReduceMax", -INF), ("ReduceMin", INF), ("ReduceMean", NAN)],
)
def test_nothing_reduced(op: str, value: float, keepdims: int, tmp_path: Path) -> None:
    x = np.zeros((3, 0, 5), np.float32)
    y = run(tmp_path, op, x, np.array([1]), constants=(1,), keepdims=keepdims)
    np.testing.assert_array_equal(y, np.full((3, 1, 5) if keepdims else (3, 5), value, np.float32))
    assert run(tmp_path, op, np.zeros((0, 5), np.float32), np.array([1]), constants=(1,), keepdims=0).shape == (0,)


def test_softmax_of_nothing(tmp_path: Path) -> None:
    assert run(tmp_path, "Softmax", np.zeros((3, 0), np.float32)).shape == (3, 0)


def test_half_accumulates_in_single(tmp_path: Path) -> None:
    ones = np.ones((2, 70000), np.float16)
    np.testing.assert_array_equal(run(tmp_path, "ReduceMean", ones, np.array([1]), constants=(1,), keepdims=0), [1, 1])
    large = np.full((1, 16), 4095, np.float16)
    assert run(tmp_path, "ReduceSum", large, np.array([1]), constants=(1,), keepdims=0)[0] == INF


ORDER = f32([1, NAN, 3, NAN], [NAN] * 4, [5, 5, 1, 5], [-INF] * 4)


@pytest.mark.parametrize(
    ("op", "last", "expected"),
    [
        ("ArgMax", 0, [1, 0, 0, 0]),
        ("ArgMax", 1, [3, 3, 3, 3]),
        ("ArgMin", 0, [1, 0, 2, 0]),
    ],
)
def test_positions_of_extremes(op: str, last: int, expected: list[int], tmp_path: Path) -> None:
    y = run(tmp_path, op, ORDER, axis=1, keepdims=0, select_last_index=last)
    np.testing.assert_array_equal(y, expected)


def test_nan_is_kept(tmp_path: Path) -> None:
    np.testing.assert_array_equal(
        run(tmp_path, "ReduceMax", ORDER, np.array([1]), constants=(1,), keepdims=0), f32(NAN, NAN, 5, -INF)
    )
    np.testing.assert_array_equal(run(tmp_path, "Relu", f32(NAN, -1, 2)), f32(NAN, 0, 2))
    np.testing.assert_array_equal(run(tmp_path, "Clip", f32(NAN, -1, 9), np.float32(0), np.float32(4)), f32(NAN, 0, 4))
    np.testing.assert_array_equal(run(tmp_path, "Max", f32(NAN, -1, 2), np.float32(0)), f32(NAN, 0, 2))


def test_integers(tmp_path: Path) -> None:
    a, b = np.array([-7, 7, -7, 7, 6, -1], np.int32), np.array([2, -2, -2, 2, 3, 4], np.int32)
    np.testing.assert_array_equal(run(tmp_path, "Div", a, b), [-3, -3, 3, 3, 2, 0])
    np.testing.assert_array_equal(run(tmp_path, "Mod", a, b), [1, -1, -1, 1, 0, 3])
    np.testing.assert_array_equal(run(tmp_path, "Mod", a, b, fmod=1), [-1, 1, -1, 1, 0, -1])
    wrapping = np.array([2**30, 2**30, 2**30, 7], np.int32)
    assert run(tmp_path, "ReduceSum", wrapping, np.array([0]), constants=(1,), keepdims=0) == -1073741817


def test_rounding_and_powers(tmp_path: Path) -> None:
    halves = run(tmp_path, "Round", f32(-2.5, -1.5, -0.5, 0.5, 1.5, 2.5))
    np.testing.assert_array_equal(halves, [-2, -2, 0, 0, 2, 2])
    assert np.signbit(halves[2])
    base, exponent = f32(-8, -2, -2, 0, NAN, 1, 0), f32(1 / 3, 3, 2, 0, 0, NAN, -1)
    expected = f32(NAN, -8, 4, 1, 1, 1, INF)
    np.testing.assert_allclose(run(tmp_path, "Pow", base, exponent), expected, rtol=1e-6)
    for b, e, y in zip(base, exponent, expected, strict=True):
        # The same with the exponent known, where shorter forms stand for pow.
        np.testing.assert_allclose(run(tmp_path, "Pow", f32(b), np.float32(e), constants=(1,)), [y], rtol=1e-6)


@pytest.mark.parametrize("exponent", [1, 2, 3, -1, 0.5])
def test_short_powers_agree_everywhere(exponent: float, tmp_path: Path) -> None:
    x = f32(0.0, -0.0, INF, -INF, NAN, 2.25, -2.25, 1e-40, -1e-40, 3e38)
    y = run(tmp_path, "Pow", x, np.float32(exponent), constants=(1,))
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), np.full(x.shape, exponent)).astype(np.float32)
    np.testing.assert_allclose(y, expected, rtol=1e-6)
    np.testing.assert_array_equal(np.signbit(y[~np.isnan(y)]), np.signbit(expected[~np.isnan(y)]))


def test_layer_norm_scale_wider_than_its_operand(tmp_path: Path) -> None:
    y = run(tmp_path, "LayerNormalization", f32([4]), f32(2, 3), f32(5, 7))
    np.testing.assert_array_equal(y, [[5, 7]])


def test_mean_over_separate_axes(tmp_path: Path) -> None:
    x = np.arange(210, dtype=np.float32).reshape(2, 3, 5, 7)
    nodes = [
        helper.make_node("ReduceMean", ["x", "axes"], ["m"], keepdims=0),
        helper.make_node("Reshape", ["m", "shape"], ["wide"]),
        helper.make_node("Sub", ["x", "wide"], ["y"]),
    ]
    constants = {"axes": np.array([-2, 0]), "shape": np.array([1, 3, 1, 7])}
    m, y = ours(make_model(nodes, {"x": x}, ["m", "y"], constants), {"x": x}, tmp_path)
    assert [float(v) for v in (m[0, 0], m[1, 0], y[0, 0, 0, 0])] == [66.5, 101.5, -66.5]


def test_reversed_operand(tmp_path: Path) -> None:
    x = f32(0, 1, 2, 3)
    nodes = [
        helper.make_node("Slice", ["x", "start", "end", "axis", "step"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    numbers = {"start": [-1], "end": [-(1 << 60)], "axis": [0], "step": [-1]}
    constants = {name: np.array(value) for name, value in numbers.items()}
    (y,) = ours(make_model(nodes, {"x": x}, ["y"], constants), {"x": x}, tmp_path)
    np.testing.assert_array_equal(y, [3, 3, 3, 3])


def test_outputs_that_are_inputs_constants_and_shared(tmp_path: Path) -> None:
    x = f32(1, 2, 3)
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Mul", ["x", "x"], ["sq"]),
        helper.make_node("Add", ["sq", "sq"], ["twice"]),
        helper.make_node("Sub", ["twice", "one"], ["y"]),
        helper.make_node("ReduceSum", ["twice"], ["s"], keepdims=0),
        helper.make_node("Exp", ["x"], ["unused"]),
    ]
    outputs = ["same", "sq", "y", "s", "one", "x", "same"]
    model = make_model(nodes, {"x": x}, outputs, {"one": np.float32(1)})
    same, sq, y, s, one, again, twice = ours(model, {"x": x}, tmp_path)
    np.testing.assert_array_equal([same, sq, y, again, twice], [x, [1, 4, 9], [1, 7, 17], x, x])
    assert [float(s), float(one)] == [28, 1]
    assert not any("Exp" in node.origin for node in read(model, tmp_path).nodes)


def test_softmax_before_opset_13_flattens(tmp_path: Path) -> None:
    x = np.zeros((2, 3, 4), np.float32)
    np.testing.assert_allclose(run(tmp_path, "Softmax", x, opset=11, axis=1), np.full(x.shape, 1 / 12))
    np.testing.assert_allclose(run(tmp_path, "Softmax", x, opset=11), np.full(x.shape, 1 / 12))
    np.testing.assert_allclose(run(tmp_path, "Softmax", x, axis=1), np.full(x.shape, 1 / 3))
    np.testing.assert_allclose(run(tmp_path, "Softmax", x), np.full(x.shape, 1 / 4))


def test_subnormals(tmp_path: Path) -> None:
    x = f32(1e-40, -1e-40, 1e-45)
    np.testing.assert_array_equal(run(tmp_path, "Mul", x, np.float32(2), constants=(1,)), x * np.float32(2))
    np.testing.assert_array_equal(run(tmp_path, "Add", x, np.float32(0), constants=(1,)), x)
    np.testing.assert_array_equal(run(tmp_path, "Max", x, np.float32(0), constants=(1,)), f32(1e-40, 0, 1e-45))
    assert run(tmp_path, "Sqrt", x)[0] == np.float32(np.sqrt(np.float64(x[0])))


def test_log_sum_exp_of_infinities(tmp_path: Path) -> None:
    x = f32([-INF, -INF], [INF, 0], [1000, 1000], [NAN, 0])
    y = run(tmp_path, "ReduceLogSumExp", x, np.array([1]), constants=(1,), keepdims=0)
    np.testing.assert_allclose(y, f32(-INF, INF, 1000 + np.log(2), NAN), rtol=1e-6)


def test_stable_activations(tmp_path: Path) -> None:
    x = f32(-1000, 1000, 0)
    np.testing.assert_array_equal(run(tmp_path, "Sigmoid", x), f32(0, 1, 0.5))
    np.testing.assert_allclose(run(tmp_path, "Softplus", x), f32(0, 1000, np.log(2)), rtol=1e-6)
    np.testing.assert_array_equal(run(tmp_path, "LogSoftmax", f32(-1000, 1000)), f32(-2000, 0))


def test_swish(tmp_path: Path) -> None:
    y = run(tmp_path, "Swish", f32(-INF, 0, 2), opset=24, alpha=0.5)
    np.testing.assert_allclose(y, f32(NAN, 0, 2 / (1 + np.exp(-1))), rtol=1e-6)


def test_half_sigmoid_does_not_overflow_inside(tmp_path: Path) -> None:
    """exp(13) is no float16, but the sigmoid of -13 is one."""
    y = run(tmp_path, "Sigmoid", np.array([-13], np.float16))
    assert y[0] == np.float16(1 / (1 + np.exp(13.0)))


def test_group_norm_parameters_per_group_before_opset_21(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 4, 3)).astype(np.float32)
    scale, bias = f32(2, 3), f32(10, 20)
    y = run(tmp_path, "GroupNormalization", x, scale, bias, opset=18, num_groups=2)
    groups = x.reshape(2, 2, 6).astype(np.float64)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    expected = (normal * scale[:, None] + bias[:, None]).reshape(x.shape)
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_vanishing_norm_gives_zero(tmp_path: Path) -> None:
    np.testing.assert_array_equal(run(tmp_path, "LpNormalization", f32([0, 0], [3, 4])), f32([0, 0], [0.6, 0.8]))


def test_batch_norm_training_statistics(tmp_path: Path) -> None:
    """Running statistics mix in the population variance; the mean is that of this batch."""
    x = f32([[1, 2]], [[3, 6]])
    operands = (x, f32(1), f32(0), f32(10), f32(100))
    model, feeds = single("BatchNormalization", operands, 3, 15, training_mode=1, momentum=0.75, epsilon=0.0)
    y, mean, variance = ours(model, feeds, tmp_path)
    np.testing.assert_allclose(y, (x - 3) / np.sqrt(3.5), rtol=1e-6)
    np.testing.assert_allclose([mean[0], variance[0]], [0.75 * 10 + 0.25 * 3, 0.75 * 100 + 0.25 * 3.5], rtol=1e-6)


def test_ignored_labels_may_lie_outside_the_classes(tmp_path: Path) -> None:
    scores = f32([0, 0], [0, 0], [0, 0])
    labels = np.array([0, -100, 1])
    loss = run(tmp_path, "SoftmaxCrossEntropyLoss", scores, labels, ignore_index=-100, reduction="mean")
    assert loss == pytest.approx(np.log(2))
    each = run(tmp_path, "SoftmaxCrossEntropyLoss", scores, labels, ignore_index=-100, reduction="none")
    np.testing.assert_allclose(each, f32(np.log(2), 0, np.log(2)), rtol=1e-6)


def test_bfloat16(tmp_path: Path) -> None:
    """A cast to bfloat16 and back rounds; a chain of its operators keeps the type."""
    x = f32(1.001, -3.3)
    nodes = [
        helper.make_node("Cast", ["x"], ["low"], to=TensorProto.BFLOAT16),
        helper.make_node("Gelu", ["low"], ["mid"]),
        helper.make_node("Cast", ["mid"], ["y"], to=TensorProto.FLOAT),
    ]
    graph = read(make_model(nodes, {"x": x}, ["y"]), tmp_path)
    assert not library_ops(graph)
    y = run_graph(graph, {"x": x})["y"]
    assert (y.view(np.uint32) & 0xFFFF == 0).all()
    np.testing.assert_allclose(y, [0.842, -0.0016], rtol=2e-2)


def test_rotation_by_position(tmp_path: Path) -> None:
    """Products with cosine and sine tables, halves swapped: what exporters write for rotary embeddings."""
    x = np.arange(8, dtype=np.float32).reshape(1, 1, 2, 4)
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=-1, num_outputs=2),
        helper.make_node("Neg", ["b"], ["nb"]),
        helper.make_node("Concat", ["nb", "a"], ["turned"], axis=-1),
        helper.make_node("Mul", ["turned", "sin"], ["t"]),
        helper.make_node("Mul", ["x", "cos"], ["c"]),
        helper.make_node("Add", ["t", "c"], ["y"]),
    ]
    tables = {"sin": np.ones((2, 4), np.float32), "cos": np.zeros((2, 4), np.float32)}
    (y,) = ours(make_model(nodes, {"x": x}, ["y"], tables), {"x": x}, tmp_path)
    np.testing.assert_array_equal(y[0, 0], [[-2, -3, 0, 1], [-6, -7, 4, 5]])
