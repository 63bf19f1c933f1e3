"""The peers compute what the primitives mean, and subgraphs are cut out whole."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray
from stitchtune import feeds, pipeline
from stitchtune.benchmarks.contest import difference, environment
from stitchtune.benchmarks.extract import alone, exported
from stitchtune.benchmarks.peers import numpy_like
from stitchtune.benchmarks.task import ratio
from stitchtune.graphs.builder import GraphBuilder
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.interpret import run_graph
from stitchtune.graphs.ir import Graph
from stitchtune.graphs.primitives import COMPARISONS, PRIMITIVES
from stitchtune.graphs.verify import verify_graph

from tests.command_line import block

FLOATS = (
    "neg abs sign floor ceil round trunc sqrt recip exp log log1p expm1 sin cos tanh erf tan asin acos atan".split()
)
FLOATS += "sinh cosh asinh acosh atanh copy add sub mul minimum maximum div mod fmod pow".split()


def every_primitive() -> Graph:
    """Each primitive once or more, over float32, int64 and bool operands; every result is an output."""
    b = GraphBuilder()
    x, y = b.input("x", DType.F32, (3, 4, 5)), b.input("y", DType.F32, (3, 4, 5))
    i, j = b.input("i", DType.I64, (3, 4)), b.input("j", DType.I64, (3, 4))
    half = b.op("mul", x, b.full(0.5, DType.F32, (3, 4, 5)))
    inside = b.op("tanh", half)
    shifted = {"acosh": b.op("add", b.op("abs", x), b.full(1, DType.F32, (3, 4, 5))), "log1p": inside}
    shifted |= dict.fromkeys(("asin", "acos", "atanh"), inside)
    shifted |= {name: b.op("abs", x) for name in ("sqrt", "log", "pow")}
    found = []
    for name in FLOATS:
        first = shifted.get(name, x)
        found.append(b.op(name, first, *([y] if PRIMITIVES[name].arity == 2 else [])))
    for name in "add sub mul div mod fmod minimum maximum bitand bitor bitxor neg abs sign bitnot".split():
        found.append(b.op(name, i, *([j] if PRIMITIVES[name].arity == 2 else [])))
    found += [b.op(name, b.op("abs", i), b.full(2, DType.I64, (3, 4))) for name in ("shl", "shr")]
    flags = [b.op(name, x, y) for name in sorted(COMPARISONS)] + [b.op("isnan", x), b.op("isinf", x)]
    found += [*flags, b.op("not", flags[0]), *(b.op(name, *flags[:2]) for name in ("and", "or", "xor"))]
    found += [b.op("where", flags[0], x, y), b.cast(x, DType.I32), b.cast(i, DType.F32)]
    found += [b.op(name, x, axes=(0, 2)) for name in ("sum", "max", "min")] + [b.op("prod", inside, axes=(1,))]
    found += [b.op(n, x, axes=(1,), select_last=last) for n in ("argmax", "argmin") for last in (False, True)]
    found += [b.transpose(x, (2, 0, 1)), b.reshape(x, (12, 5)), b.broadcast(x, (2, 3, 4, 5)), b.slice(x, 1, 3, 4, -1)]
    found += [b.slice(x, 2, 1, 2, 2), b.op("concat", x, y, axis=1)]
    found += [b.op("pad", x, before=(0, 1, 0), after=(0, -1, 2), value=1.5)]
    found += [b.op("gather", x, b.op("mod", i, b.full(3, DType.I64, (3, 4))), axis=0)]
    found += [b.op("gather_elements", i, b.op("mod", j, b.full(4, DType.I64, (3, 4))), axis=1)]
    found += [b.op("iota", axis=1, dtype=DType.F32, sizes=(2, 6))]
    for name in dict.fromkeys(found):
        b.output(name)
    graph = b.build()
    verify_graph(graph)
    return graph


def arrays() -> list[NDArray[Any]]:
    rng = np.random.default_rng(0)
    floats = [rng.standard_normal((3, 4, 5)).astype(np.float32) for _ in range(2)]
    floats[1][np.abs(floats[1]) < 0.1] = 0.5
    return [*floats, rng.integers(-9, 9, (3, 4)), rng.integers(1, 7, (3, 4))]


def assert_right(found: list[NDArray[Any]]) -> None:
    graph = every_primitive()
    wanted = run_graph(graph, dict(zip(graph.inputs, arrays(), strict=True)))
    producers = graph.producers()
    for name, got in zip(graph.outputs, found, strict=True):
        np.testing.assert_allclose(
            np.asarray(got, np.float64),
            np.asarray(wanted[name], np.float64),
            rtol=2e-5,
            atol=1e-6,
            err_msg=str(producers[name]),
        )


def test_numpy() -> None:
    graph = every_primitive()
    given = {**graph.constants, **dict(zip(graph.inputs, arrays(), strict=True))}
    assert_right(numpy_like.evaluate(graph, given, numpy_like.table(np, np.vectorize(math.erf, otypes=[np.float32]))))


def test_xla() -> None:
    jax = pytest.importorskip("jax", reason="the peer is optional")
    jax.config.update("jax_enable_x64", True)
    graph = every_primitive()
    given = {**graph.constants, **dict(zip(graph.inputs, map(jax.numpy.asarray, arrays()), strict=True))}
    table = numpy_like.table(jax.numpy, jax.scipy.special.erf)
    assert_right([np.asarray(a) for a in numpy_like.evaluate(graph, given, table)])


def test_inductor() -> None:
    torch = pytest.importorskip("torch", reason="the peer is optional")
    from stitchtune.benchmarks.peers.inductor import table

    graph = every_primitive()
    given = {name: torch.from_numpy(np.array(a)) for name, a in graph.constants.items()}
    given |= {name: torch.from_numpy(a) for name, a in zip(graph.inputs, arrays(), strict=True)}
    assert_right([a.numpy() for a in numpy_like.evaluate(graph, given, table(torch))])


def test_subgraphs_are_cut_out_in_both_forms(tmp_path: Path) -> None:
    path = block(tmp_path)
    loaded, parted = pipeline.read(path, {})
    given = feeds.synthetic(loaded).arrays
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    everything = run_graph(parted.graph, given, lambda node, inputs: [inputs[0] @ inputs[1]])
    assert difference(session.run(["y"], dict(given))[0], everything["y"]) < 1e-5
    for component in parted.components:
        part = alone(parted, component)
        verify_graph(part.graph)
        rng = np.random.default_rng(1)
        inputs = {
            name: np.asarray(given[name] if name in given else rng.standard_normal(part.graph.types[name].shape))
            .astype(part.graph.types[name].dtype.numpy)
            .reshape(part.graph.types[name].shape)
            for name in component.inputs
        }
        ours = run_graph(part.graph, inputs)
        model = onnxruntime.InferenceSession(exported(path, parted, component), providers=["CPUExecutionProvider"])
        theirs = model.run(list(component.outputs), inputs)
        for name, array in zip(component.outputs, theirs, strict=True):
            assert difference(ours[name], array) < 1e-5


def test_ratios_are_taken_pair_by_pair() -> None:
    found = ratio((1.0, 2.0, 4.0, 8.0), "other", (2.0, 4.0, 8.0, 80.0))
    assert (found.median, found.low, found.high) == (2.0, 2.0, 2.0)


def test_differences_see_shapes_and_nan() -> None:
    assert difference(np.array([1.0, np.nan]), np.array([1.0, np.nan])) == 0
    assert difference(np.array([1.0, np.nan]), np.array([1.0, 2.0])) == math.inf
    assert difference(np.zeros((2, 1)), np.zeros((1, 2))) == math.inf
    assert difference(np.array([3.0, 4.0]), np.array([3.0, 4.5])) == pytest.approx(0.1)


def test_contestants_share_no_settings_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Odd")
    kept = environment(2)
    assert "OPENBLAS_CORETYPE" not in kept
    assert kept["OMP_NUM_THREADS"] == "2"
    assert "MALLOC_TRIM_THRESHOLD_" in kept
