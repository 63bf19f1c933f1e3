"""Decomposed operators against ONNX Runtime, on random operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto
from stitchtune.graphs.interpret.tensors import run_graph

from tests.graphs.onnx_models import Array, library_ops, ours, read, runtimes, single


def floats(*shape: int, seed: int = 0, scale: float = 1.0, dtype: Any = np.float32) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def uniform(low: float, high: float, *shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(1).uniform(low, high, shape).astype(dtype)


def ints(low: int, high: int, *shape: int, dtype: Any = np.int32, seed: int = 2) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def bools(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).integers(0, 2, shape).astype(bool)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


@dataclass(frozen=True)
class Case:
    """One operator with operands, which of them are initializers, attributes and how near the results must be."""

    op: str
    operands: list[Any]
    constants: tuple[int, ...] = ()
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 21
    rtol: float = 2e-5
    atol: float = 2e-6
    note: str = ""

    @property
    def id(self) -> str:
        return "-".join(p for p in (self.op, self.note or "_".join(f"{k}={v}" for k, v in self.attrs.items())) if p)[
            :60
        ]


X = floats(3, 4, 5)
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -1.5, 1e-3, 88.0, -88.0], np.float32)
IMAGE = floats(2, 6, 4, 3, seed=4)

ELEMENTWISE = [
    *(Case(op, [X]) for op in "Abs Ceil Cos Erf Exp Floor Neg Reciprocal Round Sign Sin Tan Tanh Sinh Cosh".split()),
    *(Case(op, [SPECIAL], note="special") for op in "Abs Ceil Exp Floor Neg Reciprocal Round Tanh IsNaN IsInf".split()),
    *(Case(op, [uniform(-0.9, 0.9, 7)]) for op in "Acos Asin Atan Atanh Asinh".split()),
    *(Case(op, [uniform(1.1, 9, 7)]) for op in "Acosh Log Sqrt".split()),
    *(Case(op, [X, floats(4, 1, seed=5)]) for op in "Add Sub Mul Div".split()),
    *(Case(op, [floats(4, 1, seed=5), X, floats(5, seed=6)]) for op in "Min Max Sum Mean".split()),
    *(Case(op, [X], note="one") for op in "Min Max Sum Mean".split()),
    *(
        Case(op, [ints(-9, 9, 4, 5), ints(-9, 9, 5, seed=7)])
        for op in "Less LessOrEqual Greater GreaterOrEqual Equal".split()
    ),
    *(Case(op, [bools(4, 5), bools(5, seed=8)]) for op in "And Or Xor Equal".split()),
    *(Case(op, [ints(-9, 99, 4, 5), ints(-9, 99, 5, seed=9)]) for op in "BitwiseAnd BitwiseOr BitwiseXor".split()),
    Case("BitwiseNot", [ints(-9, 99, 4, 5)]),
    Case("Not", [bools(4, 5)]),
    *(
        Case("BitShift", [ints(0, 200, 6, dtype=np.uint8), ints(0, 8, 6, dtype=np.uint8)], attrs={"direction": d})
        for d in ("LEFT", "RIGHT")
    ),
    Case("Div", [ints(-50, 50, 40), ints(1, 7, 40)], note="int"),
    Case("Mod", [ints(-50, 50, 40), ints(1, 7, 40) * ints(0, 2, 40).astype(np.int32) * 2 - 7], note="int"),
    Case("Mod", [ints(-50, 50, 40), ints(1, 7, 40)], attrs={"fmod": 1}),
    Case("Mod", [floats(9, scale=5), uniform(0.5, 2, 9)], attrs={"fmod": 1}, note="float"),
    *(Case("Pow", [uniform(0.1, 3, 4, 5), np.float32(e)], (1,), note=str(e)) for e in (1, 2, 3, -1, 0.5, 0.25)),
    Case("Pow", [uniform(0.1, 3, 4, 5), floats(5)], note="dynamic"),
    Case("Pow", [ints(-4, 5, 4, 5), ints(0, 4, 5)], note="int"),
    Case("Pow", [X, i64(2)], (1,), note="mixed"),
    Case("Where", [bools(4, 1), X, floats(3, 1, 5, seed=5)]),
    Case("Clip", [X, np.float32(-0.5), np.float32(0.5)], (1, 2)),
    Case("Clip", [X, None, np.float32(0.5)], note="max"),
    Case("Clip", [ints(-9, 9, 20), np.int32(-3)], note="int"),
    Case("Clip", [X], attrs={"min": -0.5, "max": 0.25}, opset=10),
    Case("IsInf", [SPECIAL], attrs={"detect_negative": 0}),
    Case("IsInf", [SPECIAL], attrs={"detect_positive": 0}),
    *(
        Case("Cast", [floats(20, scale=40)], attrs={"to": to})
        for to in (TensorProto.INT32, TensorProto.INT8, TensorProto.BOOL, TensorProto.FLOAT16, TensorProto.DOUBLE)
    ),
    Case("Cast", [SPECIAL], attrs={"to": TensorProto.BOOL}, note="special"),
    Case("Cast", [bools(9)], attrs={"to": TensorProto.FLOAT}, note="bool"),
    Case("CastLike", [X, ints(0, 2, 1)]),
    Case("Identity", [X]),
    Case("Dropout", [X], outputs=2),
    Case("Dropout", [X, np.float32(0), np.array(True)], (1, 2), outputs=2, note="training"),
]

ACTIVATIONS = [
    *(
        Case(op, [X])
        for op in "Relu LeakyRelu Elu Selu Celu ThresholdedRelu Sigmoid HardSigmoid HardSwish Softplus".split()
    ),
    *(Case(op, [X]) for op in ("Softsign", "Mish")),
    *(Case(op, [SPECIAL], note="special") for op in "Relu LeakyRelu Elu Sigmoid Softplus".split()),
    Case("Celu", [X], attrs={"alpha": 2.0}),
    Case("Elu", [X], attrs={"alpha": 0.3}),
    Case("PRelu", [X, floats(4, 1)]),
    Case("Shrink", [X], attrs={"lambd": 0.3, "bias": 0.1}),
    *(Case("Gelu", [X], attrs={"approximate": a}, opset=20) for a in ("none", "tanh")),
    *(Case(op, [X]) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    *(Case(op, [X], attrs={"axis": 1}) for op in ("Softmax", "LogSoftmax", "Hardmax")),
    *(Case(op, [X], attrs={"axis": 1}, opset=11, note="flattened") for op in ("Softmax", "LogSoftmax", "Hardmax")),
    Case("Softmax", [X], opset=11, note="default"),
    Case("Softmax", [floats(6, 50, scale=30)], note="large"),
]

_REDUCE = (
    "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSumExp".split()
)
REDUCTIONS = [
    *(Case(op, [X, i64(1)], (1,)) for op in _REDUCE),
    *(Case(op, [X, i64(-1, 0)], (1,), attrs={"keepdims": 0}) for op in _REDUCE),
    *(Case(op, [X], note="all") for op in _REDUCE),
    *(Case(op, [X], attrs={"noop_with_empty_axes": 1}) for op in ("ReduceSum", "ReduceMean", "ReduceMax")),
    *(Case(op, [X], attrs={"axes": [0, 2]}, opset=11) for op in _REDUCE),
    Case("ReduceLogSum", [np.abs(X), i64(1)], (1,)),
    Case("ReduceMean", [ints(-9, 9, 4, 6), i64(1)], (1,), note="int"),
    Case("ReduceMax", [bools(4, 6), i64(1)], (1,), note="bool"),
    *(
        Case(op, [ints(0, 4, 5, 9).astype(np.float32)], attrs={"axis": a, "keepdims": k, "select_last_index": s})
        for op in ("ArgMax", "ArgMin")
        for a in (0, -1)
        for k in (0, 1)
        for s in (0, 1)
    ),
    Case("GlobalAveragePool", [IMAGE]),
    Case("GlobalMaxPool", [IMAGE]),
]

NORMALISATIONS = [
    Case("LayerNormalization", [X, floats(5, seed=6), floats(5, seed=7)], outputs=3),
    Case("LayerNormalization", [X, floats(4, 5, seed=6)], attrs={"axis": 1, "epsilon": 0.1}),
    Case("LayerNormalization", [X.astype(np.float16), floats(5).astype(np.float16)], rtol=2e-3, atol=2e-3, note="half"),
    Case("RMSNormalization", [X, floats(5, seed=6)], opset=23),
    Case("BatchNormalization", [IMAGE, *(uniform(0.5, 2, 6) for _ in range(4))]),
    Case(
        "BatchNormalization", [IMAGE, *(uniform(0.5, 2, 6) for _ in range(4))], (1, 2, 3, 4), opset=9, note="constant"
    ),
    Case(
        "BatchNormalization",
        [IMAGE, *(uniform(0.5, 2, 6) for _ in range(4))],
        attrs={"training_mode": 1, "momentum": 0.7},
        outputs=3,
        opset=15,
        note="training",
    ),
    Case("InstanceNormalization", [IMAGE, floats(6), floats(6, seed=7)]),
    Case("GroupNormalization", [IMAGE, floats(6), floats(6, seed=7)], attrs={"num_groups": 3}, opset=21),
    Case("LpNormalization", [X], attrs={"axis": 1, "p": 1}),
    Case("LpNormalization", [X], attrs={"axis": -1, "p": 2}),
    Case("MeanVarianceNormalization", [IMAGE]),
    Case("MeanVarianceNormalization", [IMAGE], attrs={"axes": [1, 3]}),
]

MOVEMENT = [
    Case("Transpose", [X]),
    Case("Transpose", [X], attrs={"perm": [1, 0, 2]}),
    Case("Reshape", [X, i64(0, -1, 10)], (1,)),
    Case("Reshape", [np.zeros((0, 3), np.float32), i64(3, 0)], (1,), attrs={"allowzero": 1}),
    *(Case("Flatten", [X], attrs={"axis": a}) for a in (0, 1, 3, -1)),
    Case("Squeeze", [floats(1, 3, 1, 2)], note="all"),
    Case("Squeeze", [floats(1, 3, 1, 2), i64(-2)], (1,)),
    Case("Squeeze", [floats(1, 3, 1, 2)], attrs={"axes": [0]}, opset=11),
    Case("Unsqueeze", [X, i64(-1, 1)], (1,)),
    Case("Unsqueeze", [X], attrs={"axes": [0, 4]}, opset=11),
    Case("Expand", [floats(3, 1, 5), i64(2, 1, 4, 1)], (1,)),
    Case("Slice", [X, i64(1, 0), i64(9, 3), i64(1, 2), i64(1, 2)], (1, 2, 3, 4)),
    Case("Slice", [X, i64(-1, -1), i64(-99, 0), i64(0, -1), i64(-1, -2)], (1, 2, 3, 4), note="backwards"),
    Case("Slice", [X, i64(2), i64(1), i64(1)], (1, 2, 3), note="empty"),
    Case("Slice", [X, i64(-2), i64(1 << 62)], (1, 2), note="default axes"),
    Case("Slice", [X], attrs={"starts": [1, -3], "ends": [9, -1], "axes": [0, 2]}, opset=9),
    Case("Split", [X], attrs={"axis": 2, "num_outputs": 2}, outputs=2, opset=18),
    Case("Split", [X, i64(1, 0, 3)], (1,), attrs={"axis": 1}, outputs=3),
    Case("Split", [X], attrs={"axis": 1}, outputs=2, opset=13, note="equal"),
    Case("Split", [X], attrs={"axis": -1, "split": [2, 3]}, outputs=2, opset=11),
    Case("Concat", [X, floats(3, 2, 5, seed=9), X], attrs={"axis": -2}),
    *(Case("Pad", [X, i64(1, 0, 2, 0, 3, 1)], (1,), attrs={"mode": m}) for m in ("constant", "edge", "reflect")),
    Case("Pad", [X, i64(1, -1, 2, 0, -2, 1), np.float32(7)], (1, 2), note="crop"),
    Case("Pad", [X, i64(0, -1, 2, 0, -1, 1)], (1,), attrs={"mode": "reflect"}, note="reflect crop"),
    Case("Pad", [X, i64(1, 2), np.float32(7), i64(-1)], (1, 3), note="dynamic value"),
    Case("Pad", [ints(0, 9, 3, 4), i64(0, 1, 1, 0), np.int32(7)], (1, 2), note="int"),
    Case("Pad", [X], attrs={"pads": [0, 1, 0, 0, 0, 2], "value": 3.0}, opset=9),
    Case("Tile", [X, i64(2, 1, 3)], (1,)),
    Case("Tile", [floats(1, 4), i64(3, 2)], (1,), note="of one"),
    *(Case("DepthToSpace", [floats(2, 8, 3, 2)], attrs={"blocksize": 2, "mode": m}) for m in ("DCR", "CRD")),
    Case("SpaceToDepth", [floats(2, 3, 4, 6)], attrs={"blocksize": 2}),
    Case(
        "Resize", [IMAGE, None, np.array([1, 1, 2, 3], np.float32)], (2,), attrs={"mode": "nearest"}, note="half pixel"
    ),
    Case(
        "Resize",
        [IMAGE, None, None, i64(2, 6, 8, 3)],
        (3,),
        attrs={"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "antialias": 0},
    ),
    Case("Upsample", [IMAGE, np.array([1, 1, 2, 2], np.float32)], (1,), attrs={"mode": "nearest"}, opset=9),
]

INDEXING = [
    Case("Gather", [X, ints(-4, 4, 2, 3, dtype=np.int64)], attrs={"axis": 1}),
    Case("Gather", [X, np.int64(-1)], (1,), attrs={"axis": 2}, note="scalar"),
    Case("Gather", [X, np.int64(1)], note="dynamic scalar"),
    Case("GatherElements", [X, ints(-4, 4, 3, 2, 5, dtype=np.int64)], attrs={"axis": 1}),
    Case("GatherND", [X, ints(-3, 3, 6, 2, dtype=np.int64)]),
    Case("GatherND", [X, ints(0, 3, 6, 1, dtype=np.int64)], note="rows"),
    Case("GatherND", [X, ints(-4, 4, 3, 2, 1, dtype=np.int64)], attrs={"batch_dims": 1}),
    Case("OneHot", [ints(-5, 7, 2, 3, dtype=np.int64), np.int64(5), np.array([2, 9], np.float32)], (1,)),
    Case("OneHot", [ints(0, 5, 4, dtype=np.int64), np.int64(5), np.array([0, 1], np.float32)], (1,), attrs={"axis": 0}),
    *(Case("Trilu", [X, np.int64(k)], attrs={"upper": u}) for k in (-1, 0, 2) for u in (0, 1)),
    Case("EyeLike", [floats(3, 5)], attrs={"k": 1, "dtype": TensorProto.INT32}),
    Case("Range", [np.int64(3), np.int64(-9), np.int64(-2)], (0, 1, 2)),
    Case("Range", [np.float32(0.5), np.float32(2), np.float32(0.4)], (0, 1, 2), note="float"),
    Case("Shape", [X]),
    Case("Shape", [X], attrs={"start": -2}),
    Case("Size", [X]),
    Case("Einsum", [X], attrs={"equation": "abc->cab"}),
    Case("Einsum", [X, floats(5, seed=9)], attrs={"equation": "abc,c->abc"}),
    Case("Einsum", [floats(3), floats(4, seed=9)], attrs={"equation": "i,j->ij"}),
    Case("Einsum", [X], attrs={"equation": "abc->b"}),
]

_ANGLES = uniform(0, 3, 50, 4)
_POSITIONS = ints(0, 50, 2, 5, dtype=np.int64)
_CACHES = [np.cos(_ANGLES), np.sin(_ANGLES)]
ROTARY = [
    *(
        Case("RotaryEmbedding", [floats(2, 3, 5, 8), *_CACHES, _POSITIONS], attrs={"interleaved": i}, opset=23)
        for i in (0, 1)
    ),
    Case(
        "RotaryEmbedding",
        [floats(2, 5, 36), *(x[:10].reshape(2, 5, 4) for x in _CACHES)],
        attrs={"num_heads": 3, "rotary_embedding_dim": 8},
        opset=23,
    ),
]

_LOGITS = floats(6, 5, 3)
_LABELS = ints(0, 5, 6, 3, dtype=np.int64)
LOSSES = [
    *(
        Case(
            "SoftmaxCrossEntropyLoss",
            [_LOGITS, _LABELS, *w],
            attrs={"reduction": r, **i},
            outputs=2,
            note=f"{r}{len(w)}{i}",
        )
        for r in ("none", "sum", "mean")
        for w in ((), (uniform(0.5, 2, 5),))
        for i in ({}, {"ignore_index": 2})
    ),
    Case("NegativeLogLikelihoodLoss", [_LOGITS, _LABELS], attrs={"reduction": "mean", "ignore_index": 1}),
]

QUANTISATION = [
    Case("DequantizeLinear", [ints(-99, 99, 3, 4, dtype=np.int8), np.float32(0.1), np.int8(3)]),
    Case("DequantizeLinear", [ints(0, 255, 3, 4, dtype=np.uint8), uniform(0.1, 1, 4), ints(0, 9, 4, dtype=np.uint8)]),
    Case("QuantizeLinear", [floats(3, 4, scale=50), np.float32(0.25), np.int8(3)]),
    Case("QuantizeLinear", [floats(3, 4, scale=50), np.float32(0.25)], attrs={"output_dtype": TensorProto.INT16}),
    Case("QuantizeLinear", [floats(3, 4, scale=50), np.float32(0.25), np.uint8(100)]),
]

CASES = [
    *ELEMENTWISE,
    *ACTIVATIONS,
    *REDUCTIONS,
    *NORMALISATIONS,
    *MOVEMENT,
    *INDEXING,
    *ROTARY,
    *LOSSES,
    *QUANTISATION,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_like_onnx_runtime(case: Case, tmp_path: Path) -> None:
    model, feeds = single(case.op, case.operands, case.outputs, case.opset, case.constants, **case.attrs)
    for found, expected in zip(ours(model, feeds, tmp_path), runtimes(model, feeds), strict=True):
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=case.rtol, atol=case.atol)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64], ids=["f16", "bf16", "f64"])
@pytest.mark.parametrize(
    "family", [ACTIVATIONS, REDUCTIONS, NORMALISATIONS, LOSSES], ids=["act", "reduce", "norm", "loss"]
)
def test_other_floats(family: list[Case], dtype: Any, tmp_path: Path) -> None:
    """The same operators in other float types: of that type, and near what float64 operands give."""
    for case in family:
        if any(isinstance(a, np.ndarray | np.generic) and a.dtype == np.float16 for a in case.operands):
            continue
        floating = [i for i, a in enumerate(case.operands) if a is not None and np.asarray(a).dtype == np.float32]
        rounded = [a if i not in floating else np.asarray(a).astype(dtype) for i, a in enumerate(case.operands)]
        exact = [a if i not in floating else np.asarray(a).astype(np.float64) for i, a in enumerate(rounded)]
        results = []
        for operands in (rounded, exact):
            model, feeds = single(case.op, operands, case.outputs, case.opset, case.constants, **case.attrs)
            graph = read(model, tmp_path)
            assert not library_ops(graph), case.id
            results.append([*run_graph(graph, feeds).values()])
        for i, (found, expected) in enumerate(zip(*results, strict=True)):
            if i == 0 and expected.dtype == np.float64:
                assert found.dtype == dtype, case.id
            near = 4 * float(ml_dtypes.finfo(dtype).eps) if expected.dtype == np.float64 else 0
            np.testing.assert_allclose(
                found.astype(np.float64), expected.astype(np.float64), rtol=near, atol=near, err_msg=case.id
            )
