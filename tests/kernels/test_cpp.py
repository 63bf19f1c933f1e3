"""The emitted C++: its helpers against NumPy, its functions at the edges, and one golden source."""

from __future__ import annotations

import ctypes
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.interpret import run_subgraph
from stitchtune.graphs.primitives import COMPARISONS, PRIMITIVES
from stitchtune.graphs.shapes import SUPPORTED
from stitchtune.kernels.build import BuiltPlan, build_plans
from stitchtune.kernels.compile import Artifact, compile_units, find_compiler
from stitchtune.kernels.cpp import VECTOR_MATH, emit, prelude
from stitchtune.kernels.cpp_tables import literal
from stitchtune.kernels.host import host_target
from stitchtune.kernels.loops import Literal
from stitchtune.kernels.lower import lower
from stitchtune.search_space.plan import Plan, Stage

from tests.kernels.calling import run_built
from tests.kernels.hand import Builder, one_group, softmax, softmax_plan

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")

GOLDEN = """
  for (int64_t task = first; task < last; ++task) {
    const int64_t k1 = (task * 2);
    for (int64_t i2 = 0; i2 < 2; ++i2) {
      float v6[8] __attribute__((aligned(64)));
      #pragma omp simd
      for (int64_t l4 = 0; l4 < 8; ++l4) {
        v6[l4] = (-__builtin_inff());
      }
      for (int64_t s9 = 0; s9 < 8; s9 += 8) {
        #pragma omp simd
        for (int64_t l4 = 0; l4 < 8; ++l4) {
          const int64_t i3 = (s9 + l4);
          const float t5 = x0[(((k1 + i2) * 11) + i3)];
          const float t7 = v6[l4];
          v6[l4] = st_max<float>(t7, t5);
        }
      }
"""


def test_golden_source() -> None:
    source = emit(lower(softmax(4, 11), softmax_plan(2, width=8), host_target()), ["k"])
    assert GOLDEN.strip("\n") in source
    assert source.count('extern "C" void k(') == 1


def test_literals_are_exact() -> None:
    assert literal(Literal(0.1, DType.F64)) == "0.1"
    assert literal(Literal(-2.5, DType.F32)) == "(-2.5f)"
    assert float.fromhex(literal(Literal(float(np.float32(0.1)), DType.F32)).strip("(f)")) == np.float32(0.1)
    assert literal(Literal(-math.inf, DType.F32)) == "(-__builtin_inff())"
    assert literal(Literal(-(2**63), DType.I64)) == "(-0x7fffffffffffffffll - 1)"
    assert literal(Literal(2**64 - 1, DType.U64)) == "18446744073709551615ull"


CONVERSIONS = """
extern "C" void run(const float* f, uint16_t* h, uint16_t* b, float* rh, float* rb, int64_t n) {
  #pragma omp simd
  for (int64_t i = 0; i < n; ++i) h[i] = st_narrow_f16(f[i]);
  #pragma omp simd
  for (int64_t i = 0; i < n; ++i) b[i] = st_narrow_bf16(f[i]);
  #pragma omp simd
  for (int64_t i = 0; i < n; ++i) rh[i] = st_widen_f16(h[i]);
  #pragma omp simd
  for (int64_t i = 0; i < n; ++i) rb[i] = st_round_f16(f[i]);
}
"""


def test_half_precision_conversions(tmp_path: Path) -> None:
    compiler = find_compiler()
    assert compiler is not None
    (made,) = compile_units([prelude(False) + CONVERSIONS], compiler, tmp_path)
    assert isinstance(made, Artifact)
    halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
    finite = np.sort(halves[np.isfinite(halves)]).astype(np.float64)
    middle = ((finite[1:] + finite[:-1]) / 2).astype(np.float32)
    bits = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32).view(np.float32)
    f = np.concatenate([halves, middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(9)), bits])
    h, b, rh, rb = (np.empty(f.size, t) for t in (np.uint16, np.uint16, np.float32, np.float32))
    ctypes.CDLL(str(made.library)).run(
        *(ctypes.c_void_p(a.ctypes.data) for a in (f, h, b, rh, rb)), ctypes.c_int64(f.size)
    )
    with np.errstate(all="ignore"):
        half, brain = f.astype(np.float16), f.astype(ml_dtypes.bfloat16)
    same(h.view(np.float16), half)
    same(b.view(ml_dtypes.bfloat16), brain)
    same(rh, half.astype(np.float32))
    same(rb, half.astype(np.float32))


def same(got: NDArray[Any], wanted: NDArray[Any]) -> None:
    """Equal bits but for NaN."""
    a, b = got.astype(np.float32), wanted.astype(np.float32)
    assert (np.isnan(a) == np.isnan(b)).all()
    assert (np.isnan(a) | (a.view(np.uint32) == b.view(np.uint32))).all()


EDGES = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-40, -1e-40, 1e-45, 0.5, -0.5, 1.0, -1.0, 2.0, 0.99999994, 88.7]
EDGES += [89.0, 200.0, -87.4, -104.0, -200.0, 3.4e38, -3.4e38, 1e10, -1e5, 9.0, 1e-20, -1.0000001, 2.5, -1.5]


@cache
def unary_outputs(folder: Path, dtype: DType, vector_math: bool = True) -> dict[str, NDArray[Any]]:
    """Every function of one float at the edges, in one kernel."""
    b = Builder(dtype)
    x = b.input(len(EDGES))
    (i,) = b.axes(len(EDGES))
    names = [p.name for p in PRIMITIVES.values() if p.kind == "elementwise" and p.arity == 1]
    names = [n for n in names if dtype in SUPPORTED[n] and n not in ("copy", "cast", "isnan", "isinf")]
    outputs = [b.op(name, (i,), (x, (i,))) for name in names]
    sub = b.subgraph(*outputs)
    plan = Plan(one_group([(i, len(EDGES))], Stage(tuple(outputs), (i,), vector=i, width=16)))
    compiler = find_compiler()
    assert compiler is not None
    compiler = replace(compiler, vector_math=vector_math and compiler.vector_math)
    (built,) = build_plans([(sub, plan)], host_target(), cache=folder, compiler=compiler)
    assert isinstance(built, BuiltPlan)
    data = [np.array(EDGES, dtype.numpy)]
    with np.errstate(all="ignore"):
        wanted = run_subgraph(sub, data)
    return {n: np.stack([g, w.astype(g.dtype)]) for n, g, w in zip(names, run_built(built, data), wanted, strict=True)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("units") / "cache"


@pytest.mark.parametrize("dtype", [DType.F32, DType.F64])
@pytest.mark.parametrize("name", ["sign", "round", "sqrt", "recip", "abs", "neg", *VECTOR_MATH])
def test_functions_at_the_edges(name: str, dtype: DType, folder: Path) -> None:
    got, wanted = unary_outputs(folder, dtype)[name]
    huge = np.abs(np.array(EDGES)) > 1e9 if name in ("sin", "cos", "tan") else np.zeros(len(EDGES), bool)
    np.testing.assert_allclose(got[~huge], wanted[~huge], rtol=6e-7 if dtype is DType.F32 else 1e-14, atol=2e-45)
    zero = (wanted == 0) & ~huge
    assert (np.signbit(got[zero]) == np.signbit(wanted[zero])).all()


@pytest.mark.parametrize("name", ["exp", "log", "tanh", "erf"])
def test_functions_without_a_vector_library(name: str, folder: Path) -> None:
    got, wanted = unary_outputs(folder, DType.F32, False)[name]
    np.testing.assert_allclose(got, wanted, rtol=6e-7, atol=2e-45)
    assert (np.signbit(got[wanted == 0]) == np.signbit(wanted[wanted == 0])).all()


def test_vector_width_of_a_plan_is_asked_for() -> None:
    for width, bits in ((4, 128), (8, 256), (16, 512)):
        source = emit(lower(softmax(4, 64), softmax_plan(2, width), host_target()), ["k"])
        assert f"ST_VECTOR({bits}) ST_GROUP" in source


def binary_cases(dtype: DType) -> list[NDArray[Any]]:
    rng = np.random.default_rng(5)
    if dtype.is_float:
        edges = np.array([*EDGES[:15], 3.0, -3.0, -8.0, 7.5])
    else:
        info = np.iinfo(dtype.numpy)
        edges = np.array([0, 1, 2, 3, 7, info.max, info.max - 1] + ([-1, -2, -7, info.min] if info.min else []))
    a, b = (x.ravel() for x in np.meshgrid(edges, edges))
    order = rng.permutation(a.size)
    return [a[order].astype(dtype.numpy), b[order].astype(dtype.numpy)]


@pytest.mark.parametrize("dtype", [d for d in DType if d is not DType.BOOL and not d.is_low_precision])
def test_binary_operators(dtype: DType, folder: Path) -> None:
    data = binary_cases(dtype)
    count = data[0].size
    b = Builder(dtype)
    x, y = b.input(count), b.input(count)
    (i,) = b.axes(count)
    names = [
        p.name for p in PRIMITIVES.values() if p.kind == "elementwise" and p.arity == 2 and dtype in SUPPORTED[p.name]
    ]
    outputs = [b.op(n, (i,), (x, (i,)), (y, (i,)), dtype=DType.BOOL if n in COMPARISONS else dtype) for n in names]
    sub = b.subgraph(*outputs)
    plan = Plan(one_group([(i, count)], Stage(tuple(outputs), (i,), vector=i, width=8)))
    (built,) = build_plans([(sub, plan)], host_target(), cache=folder)
    assert isinstance(built, BuiltPlan)
    with np.errstate(all="ignore"):
        wanted = run_subgraph(sub, data)
    for name, mine, theirs in zip(names, run_built(built, data), wanted, strict=True):
        if name in ("shl", "shr"):
            defined = (data[1] >= 0) & (data[1] < 8 * dtype.size)
            mine, theirs = mine[defined], theirs[defined]
        with np.errstate(all="ignore"):
            theirs = theirs.astype(mine.dtype)
        rtol = 0 if not dtype.is_float else 3e-7 if dtype is DType.F32 else 1e-15
        if name == "pow" and dtype.is_float:
            rtol *= 10
        np.testing.assert_allclose(mine, theirs, rtol=rtol, atol=2e-45 if dtype.is_float else 0, err_msg=name)
