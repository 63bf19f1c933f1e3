"""The small graphs that trip fusers, as data: a model, feeds, and the right values. Any backend can run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from tests.compare import Want, exactly
from tests.models import model

Array = NDArray[Any]
f32, i64 = np.float32, np.int64


@dataclass(frozen=True)
class Setup:
    """A model, arrays for its inputs and the right values of its outputs.

    alias  (output, input) pairs: the output is to be written into the input's own memory
    """

    model: onnx.ModelProto
    feeds: Mapping[str, Array]
    wanted: Mapping[str, Want]
    alias: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Case:
    """One case by name; `large` ones have a million elements or more. `make` builds it anew each time."""

    name: str
    make: Callable[[], Setup]
    large: bool = False


def softmax(x: Array, axis: int = -1) -> Array:
    with np.errstate(all="ignore"):
        e = np.exp(x.astype(np.float64) - x.max(axis=axis, keepdims=True))
        return np.asarray((e / e.sum(axis=axis, keepdims=True)).astype(x.dtype))


def normalised(x: Array, axis: int = -1, eps: float = 1e-5) -> Array:
    d = x.astype(np.float64) - x.mean(axis=axis, keepdims=True, dtype=np.float64)
    return np.asarray((d / np.sqrt((d * d).mean(axis=axis, keepdims=True) + eps)).astype(x.dtype))


LAYER_NORM = [
    ("ReduceMean", "x axes", "m", {"keepdims": 1}),
    ("Sub", "x m", "d"),
    ("Pow", "d two", "q"),
    ("ReduceMean", "q axes", "v", {"keepdims": 1}),
    ("Add", "v eps", "w"),
    ("Sqrt", "w", "s"),
    ("Div", "d s", "y"),
]
LAYER_NORM_CONSTANTS = {"axes": np.array([-1], i64), "two": np.array(2, f32), "eps": np.array(1e-5, f32)}
SOFTMAX = [
    ("ReduceMax", "z axes", "top", {"keepdims": 1}),
    ("Sub", "z top", "low"),
    ("Exp", "low", "e"),
    ("ReduceSum", "e axes", "total", {"keepdims": 1}),
    ("Div", "e total", "y"),
]
LAST = {"axes": np.array([-1], i64)}


# --- 1 masked softmax


def masked_softmax(decomposed: bool) -> Setup:
    n = 1031
    x = np.random.default_rng(1).normal(size=(4, n)).astype(f32)
    x[3] = 1000 + np.arange(n) % 3
    mask = np.ones((4, n), bool)
    mask[0] = False
    mask[1, :-1] = False
    want = softmax(np.where(mask, x, -np.inf).astype(f32))
    assert np.isnan(want[0]).all()
    assert want[1, -1] == 1
    assert not want[1, :-1].any()
    tail = SOFTMAX if decomposed else [("Softmax", "z", "y", {"axis": -1})]
    constants = {"inf": np.array(-np.inf, f32), **(LAST if decomposed else {})}
    feeds = {"mask": mask, "x": x}
    built = model(feeds, [("Where", "mask x inf", "z"), *tail], "y", constants)
    return Setup(built, feeds, {"y": Want(want, 2e-5, 1e-9)})


# --- 2 large mean


def large_mean(decomposed: bool) -> Setup:
    x = np.stack([4096 + np.arange(257) / 1024, np.full(257, 4096.0)]).astype(f32)
    want = normalised(x)
    assert np.allclose(want[0, [0, -1]], [-1.7236832, 1.7236832], rtol=1e-6)
    assert not want[1].any()
    if decomposed:
        built = model({"x": x}, LAYER_NORM, "y", LAYER_NORM_CONSTANTS)
    else:
        one = {"scale": np.ones(257, f32), "bias": np.zeros(257, f32)}
        built = model({"x": x}, [("LayerNormalization", "x scale bias", "y", {"epsilon": 1e-5})], "y", one)
    # A float32 mean is off by half a unit of 4096, 0.3 % of the deviation; cancelling squares would lose all of it.
    return Setup(built, {"x": x}, {"y": Want(want, 5e-3, 0.0)})


# --- 3 zero-size


def empty_reductions() -> Setup:
    x, nodes, wanted = np.zeros((3, 0, 5), f32), [], {}
    values = {"ReduceSum": 0.0, "ReduceProd": 1.0, "ReduceMax": -np.inf, "ReduceMin": np.inf, "ReduceMean": np.nan}
    for op, value in values.items():
        for keep in (0, 1):
            nodes.append((op, "x axes", f"{op}{keep}", {"keepdims": keep}))
            wanted[f"{op}{keep}"] = exactly(np.full((3, 1, 5) if keep else (3, 5), value, f32))
    return Setup(model({"x": x}, nodes, " ".join(wanted), {"axes": np.array([1], i64)}), {"x": x}, wanted)


def reduced_nothing() -> Setup:
    x = np.zeros((0, 5), f32)
    built = model({"x": x}, [("ReduceSum", "x axes", "y", {"keepdims": 0})], "y", {"axes": np.array([1], i64)})
    return Setup(built, {"x": x}, {"y": exactly(np.zeros(0, f32))})


def empty_softmax() -> Setup:
    x = np.zeros((3, 0), f32)
    return Setup(model({"x": x}, [("Softmax", "x", "y")], "y"), {"x": x}, {"y": exactly(x)})


# --- 4 float16 accumulation


def half_sums() -> Setup:
    feeds = {"x": np.ones((2, 70000), np.float16), "z": np.full((1, 16), 4095, np.float16)}
    nodes = [("ReduceMean", "x axes", "mean", {"keepdims": 0}), ("ReduceSum", "z axes", "sum", {"keepdims": 0})]
    wanted = {"mean": exactly(np.ones(2, np.float16)), "sum": exactly(np.full(1, np.inf, np.float16))}
    return Setup(model(feeds, nodes, "mean sum", LAST), feeds, wanted)


# --- 5 NaN order


def nan_order() -> Setup:
    nan, inf = np.nan, np.inf
    x = np.array([[1, nan, 3, nan], [nan] * 4, [5, 5, 1, 5], [-inf] * 4], f32)
    nodes: list[Any] = [
        ("ReduceMax", "x axes", "top", {"keepdims": 0}),
        ("Relu", "x", "relu"),
        ("Clip", "x zero four", "clip"),
        ("Max", "x zero", "max"),
    ]
    positions = {"ArgMax0": [1, 0, 0, 0], "ArgMax1": [3, 3, 3, 3], "ArgMin0": [1, 0, 2, 0], "ArgMin1": [3, 3, 2, 3]}
    for name in positions:
        attrs = {"axis": 1, "keepdims": 0, "select_last_index": int(name[-1])}
        nodes.append((name[:-1], "x", name, attrs))
    kept = np.array([[1, nan, 3, nan], [nan] * 4, [5, 5, 1, 5], [0] * 4], f32)
    wanted = {name: exactly(np.array(at, i64)) for name, at in positions.items()}
    wanted["top"] = exactly(np.array([nan, nan, 5, -inf], f32))
    wanted |= {"relu": exactly(kept), "max": exactly(kept), "clip": exactly(np.minimum(kept, f32(4)))}
    constants = {"zero": np.array(0, f32), "four": np.array(4, f32), **LAST}
    return Setup(model({"x": x}, nodes, " ".join(wanted), constants), {"x": x}, wanted)


# --- 6 integers


def integers(length: int) -> Setup:
    values = {
        "a": [-7, 7, -7, 7, 6, -1],
        "b": [2, -2, -2, 2, 3, 4],
        "div": [-3, -3, 3, 3, 2, 0],
        "mod": [1, -1, -1, 1, 0, 3],
        "fmod": [-1, 1, -1, 1, 0, -1],
    }
    arrays = {name: np.resize(np.array(v, np.int32), length) for name, v in values.items()}
    feeds = {name: arrays[name] for name in "ab"}
    nodes = [("Div", "a b", "div"), ("Mod", "a b", "mod"), ("Mod", "a b", "fmod", {"fmod": 1})]
    wanted = {name: exactly(arrays[name]) for name in ("div", "mod", "fmod")}
    return Setup(model(feeds, nodes, "div mod fmod"), feeds, wanted)


def wrapping_sum() -> Setup:
    x = np.array([2**30, 2**30, 2**30, 7], np.int32)
    built = model({"x": x}, [("ReduceSum", "x axes", "y", {"keepdims": 0})], "y", LAST)
    return Setup(built, {"x": x}, {"y": exactly(np.array(-1073741817, np.int32))})


# --- 7 rounding, powers


def rounding() -> Setup:
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], f32)
    want = np.array([-2, -2, -0.0, 0, 2, 2], f32)
    return Setup(model({"x": x}, [("Round", "x", "y")], "y"), {"x": x}, {"y": exactly(want, signed=True)})


def powers() -> Setup:
    nan, inf = np.nan, np.inf
    feeds = {
        "x": np.array([-8, -2, -2, 0, nan, 1, 0], f32),
        "p": np.array([1 / 3, 3, 2, 0, 0, nan, -1], f32),
    }
    want = np.array([nan, -8, 4, 1, 1, 1, inf], f32)
    return Setup(model(feeds, [("Pow", "x p", "y")], "y"), feeds, {"y": Want(want)})


# --- 8 axes and broadcasts


def crossed_mean() -> Setup:
    x = np.arange(16, dtype=f32).reshape(4, 4)
    nodes = [(*n[:3], {"keepdims": 0}) if n[0] == "ReduceMean" else n for n in LAYER_NORM]
    d = x.astype(np.float64) - x.mean(-1)
    want = (d / np.sqrt((d * d).mean(-1) + 1e-5)).astype(f32)
    assert np.allclose(want[0], [-0.21821787, -1.1523315, -1.9205526, -1.5275251], rtol=1e-6)
    return Setup(model({"x": x}, nodes, "y", LAYER_NORM_CONSTANTS), {"x": x}, {"y": Want(want)})


def widening_scale() -> Setup:
    x = np.full((1, 1), 4, f32)
    constants = {"scale": np.array([2, 3], f32), "bias": np.array([5, 7], f32)}
    built = model({"x": x}, [("LayerNormalization", "x scale bias", "y")], "y", constants)
    return Setup(built, {"x": x}, {"y": exactly(np.array([[5, 7]], f32))})


def several_axes() -> Setup:
    x = np.arange(210, dtype=f32).reshape(2, 3, 5, 7)
    nodes = [
        ("ReduceMean", "x axes", "m", {"keepdims": 0}),
        ("Reshape", "m shape", "r"),
        ("Sub", "x r", "y"),
    ]
    mean = x.mean((0, 2))
    assert (mean[0, 0], mean[1, 0]) == (66.5, 101.5)
    constants = {"axes": np.array([-2, 0], i64), "shape": np.array([1, 3, 1, 7], i64)}
    wanted = {"m": Want(mean), "y": Want(x - mean.reshape(1, 3, 1, 7))}
    return Setup(model({"x": x}, nodes, "m y", constants), {"x": x}, wanted)


def plus_transpose() -> Setup:
    x = np.random.default_rng(8).normal(size=(37, 37)).astype(f32)
    nodes = [
        ("Tanh", "x", "e"),
        ("Transpose", "e", "t", {"perm": [1, 0]}),
        ("Add", "e t", "s"),
        ("Softmax", "s", "y", {"axis": 0}),
    ]
    e = np.tanh(x.astype(np.float64))
    return Setup(model({"x": x}, nodes, "y"), {"x": x}, {"y": Want(softmax(e + e.T, 0).astype(f32))})


def pairwise_differences() -> Setup:
    x = np.random.default_rng(9).normal(size=41).astype(f32)
    nodes = [
        ("Unsqueeze", "x one", "column"),
        ("Unsqueeze", "x zero", "row"),
        ("Sub", "column row", "d"),
        ("ReduceMax", "d zero", "over_rows", {"keepdims": 0}),
        ("ReduceMax", "d one", "over_columns", {"keepdims": 0}),
    ]
    d = x[:, None] - x[None, :]
    constants = {"zero": np.array([0], i64), "one": np.array([1], i64)}
    wanted = {"over_rows": Want(d.max(0)), "over_columns": Want(d.max(1))}
    return Setup(model({"x": x}, nodes, "over_rows over_columns", constants), {"x": x}, wanted)


def degrees() -> Setup:
    a = np.random.default_rng(10).uniform(0.1, 1, size=(29, 29)).astype(f32)
    nodes = [
        ("ReduceSum", "a axes", "sums", {"keepdims": 0}),
        ("Sqrt", "sums", "root"),
        ("Reciprocal", "root", "d"),
        ("Unsqueeze", "d axes", "column"),
        ("Mul", "column a", "left"),
        ("Mul", "left d", "y"),
    ]
    d = 1 / np.sqrt(a.astype(np.float64).sum(1))
    built = model({"a": a}, nodes, "y", {"axes": np.array([1], i64)})
    return Setup(built, {"a": a}, {"y": Want((d[:, None] * a * d).astype(f32))})


def relative_shift() -> Setup:
    x = np.random.default_rng(11).normal(size=(197, 99)).astype(f32)
    nodes = [
        ("Tanh", "x", "e"),
        ("Reshape", "e shape", "r"),
        ("Slice", "r start end axis", "s"),
        ("Softmax", "s", "y", {"axis": -1}),
    ]
    constants = {
        "shape": np.array([99, 197], i64),
        "start": np.array([1], i64),
        "end": np.array([100], i64),
        "axis": np.array([1], i64),
    }
    want = softmax(np.tanh(x.astype(np.float64)).reshape(99, 197)[:, 1:100]).astype(f32)
    return Setup(model({"x": x}, nodes, "y", constants), {"x": x}, {"y": Want(want)})


def merged_argmax() -> Setup:
    x = np.random.default_rng(12).normal(size=(5, 7, 11)).astype(f32)
    nodes = [("Tanh", "x", "e"), ("Reshape", "e shape", "r"), ("ArgMax", "r", "y", {"axis": 1, "keepdims": 0})]
    built = model({"x": x}, nodes, "y", {"shape": np.array([5, 77], i64)})
    return Setup(built, {"x": x}, {"y": exactly(x.reshape(5, 77).argmax(1))})


# --- 9 aliasing


def reversed_sum() -> Setup:
    x = np.arange(4, dtype=f32)
    constants = {n: np.array([v], i64) for n, v in {"start": -1, "end": -(2**31), "axis": 0, "step": -1}.items()}
    nodes = [("Slice", "x start end axis step", "r"), ("Add", "x r", "y")]
    wanted = {"y": exactly(np.full(4, 3, f32))}
    return Setup(model({"x": x}, nodes, "y", constants), {"x": x}, wanted, (("y", "x"),))


# --- 10 structure


def shared_values() -> Setup:
    x = np.array([1, 2, 3], f32)
    nodes = [
        ("Identity", "x", "same"),
        ("Mul", "x x", "sq"),
        ("Add", "sq sq", "twice"),
        ("Sub", "twice one", "y"),
        ("ReduceSum", "twice axes", "s", {"keepdims": 0}),
        ("Exp", "x", "unused"),
    ]
    constants = {"one": np.array(1, f32), "c": np.array([4, 5], f32), **LAST}
    values = {"same": [1, 2, 3], "sq": [1, 4, 9], "y": [1, 7, 17], "s": 28, "c": [4, 5]}
    wanted = {name: exactly(np.array(v, f32)) for name, v in values.items()}
    return Setup(model({"x": x}, nodes, " ".join(values), constants), {"x": x}, wanted)


def long_sum() -> Setup:
    x = np.full((1, 10000019), 0.1, f32)
    built = model({"x": x}, [("ReduceSum", "x axes", "y", {"keepdims": 0})], "y", LAST)
    return Setup(built, {"x": x}, {"y": Want(np.array([1000001.91], f32), 1e-4, 0.0)})


def uniform_softmax(opset: int, axis: int | None, value: float) -> Setup:
    x = np.zeros((2, 3, 4), f32)
    built = model({"x": x}, [("Softmax", "x", "y", {} if axis is None else {"axis": axis})], "y", opset=opset)
    return Setup(built, {"x": x}, {"y": Want(np.full(x.shape, value, f32))})


# --- 11 irregular shapes

SHAPES = ((750000, 32), (64, 30000), (2, 2097152), (1, 1), (7, 13), (1031, 1031), (3, 1, 5), (1, 4097))
CHAINS = ("softmax", "layer norm", "column sum", "transpose and reduce")


def irregular(chain: str, shape: tuple[int, ...]) -> Setup:
    x = np.random.default_rng(sum(shape)).standard_normal(shape, dtype=f32)
    wide = x.astype(np.float64)
    match chain:
        case "softmax":
            built = model({"x": x}, [("Softmax", "x", "y", {"axis": -1})], "y")
            want = Want(softmax(x), 1e-4, 1e-9)
        case "layer norm":
            built, want = model({"x": x}, LAYER_NORM, "y", LAYER_NORM_CONSTANTS), Want(normalised(x), 1e-4, 1e-4)
        case "column sum":
            nodes = [("Mul", "x x", "q"), ("ReduceSum", "q axes", "y", {"keepdims": 0})]
            built = model({"x": x}, nodes, "y", {"axes": np.array([0], i64)})
            want = Want((wide * wide).sum(0).astype(f32), 1e-4)
        case _:
            perm = list(reversed(range(x.ndim)))
            nodes = [
                ("Tanh", "x", "e"),
                ("Transpose", "e", "t", {"perm": perm}),
                ("ReduceMax", "t axes", "y", {"keepdims": 0}),
            ]
            built = model({"x": x}, nodes, "y", LAST)
            want = Want(np.tanh(wide).transpose(perm).max(-1).astype(f32))
    return Setup(built, {"x": x}, {"y": want})


# --- 12 subnormals


def subnormals() -> Setup:
    x = np.array([1e-40, -1e-40, 1e-45], f32)
    nodes = [("Mul", "x two", "mul"), ("Add", "x zero", "add"), ("Max", "x zero", "max"), ("Sqrt", "x", "sqrt")]
    with np.errstate(all="ignore"):
        wanted = {
            "mul": exactly(x * f32(2)),
            "add": exactly(x),
            "max": exactly(np.maximum(x, f32(0))),
            "sqrt": Want(np.sqrt(x.astype(np.float64)).astype(f32), 1e-6, 0.0),
        }
    constants = {"two": np.array(2, f32), "zero": np.array(0, f32)}
    return Setup(model({"x": x}, nodes, " ".join(wanted), constants), {"x": x}, wanted)


def _all() -> Iterator[Case]:
    for decomposed in (False, True):
        how = "decomposed" if decomposed else "as an operator"
        yield Case(f"1 masked softmax {how}", lambda d=decomposed: masked_softmax(d))  # type: ignore[misc]
        yield Case(f"2 large mean {how}", lambda d=decomposed: large_mean(d))  # type: ignore[misc]
    yield Case("3 reductions of nothing", empty_reductions)
    yield Case("3 nothing reduced", reduced_nothing)
    yield Case("3 softmax of nothing", empty_softmax)
    yield Case("4 float16 accumulation", half_sums)
    yield Case("5 NaN order", nan_order)
    yield Case("6 integers", lambda: integers(6))
    yield Case("6 integers with a tail", lambda: integers(1031))
    yield Case("6 wrapping sum", wrapping_sum)
    yield Case("7 rounding", rounding)
    yield Case("7 powers", powers)
    yield Case("8a mean along the other axis", crossed_mean)
    yield Case("8b scale wider than x", widening_scale)
    yield Case("8c several axes", several_axes)
    yield Case("8d plus its transpose", plus_transpose)
    yield Case("8d pairwise differences", pairwise_differences)
    yield Case("8d degrees", degrees)
    yield Case("8d relative shift", relative_shift)
    yield Case("8d argmax over merged axes", merged_argmax)
    yield Case("9 reversed onto itself", reversed_sum)
    yield Case("10a shared values", shared_values)
    yield Case("10b long sum", long_sum, large=True)
    for opset, axis, part in ((11, 1, 12), (11, None, 12), (13, 1, 3), (13, None, 4)):
        name = f"10c softmax opset {opset} axis {'default' if axis is None else axis}"
        yield Case(name, lambda o=opset, a=axis, p=part: uniform_softmax(o, a, 1 / p))  # type: ignore[misc]
    for shape in SHAPES:
        for chain in CHAINS:
            name = f"11 {chain} {'x'.join(str(n) for n in shape)}"
            large = int(np.prod(shape)) >= 1_000_000
            yield Case(name, lambda c=chain, s=shape: irregular(c, s), large)  # type: ignore[misc]
    yield Case("12 subnormals", subnormals)


CASES: tuple[Case, ...] = tuple(_all())
