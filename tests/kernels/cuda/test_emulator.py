"""The emulator runs CUDA text: threads, blocks, shared memory, shuffles, limits; and sees bad accesses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stitchtune.kernels.compile import BuildFailure
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.emulator.emulate import build_emulated, run_source
from stitchtune.kernels.cuda.emulator.emulate import run as emulate_plan
from stitchtune.kernels.cuda.emulator.machine import Settings

from tests.kernels.cuda.handwritten import kernel, launches, run
from tests.kernels.cuda.mutation_subjects import subjects


def numbers(n: int) -> np.ndarray:
    return np.arange(1, n + 1, dtype=np.float32)


EMPTY = np.empty(32, np.float32)

COPY = kernel("  st_store(y0, st_block() * 32 + thread, st_load(x0, st_block() * 32 + thread));")

ROW_SUM = kernel(
    """  float total = 0.0f;
  float* s = ST_SHARED(float, 0);
  for (int i = thread; i < 1000; i += 64) {
    total += st_load(x0, st_block() * 1000 + i);
  }
  for (int mask = 1; mask < 32; mask *= 2) {
    total += st_shuffle_xor(total, mask);
  }
  if (thread % 32 == 0) {
    st_shared_store(s, thread / 32, total);
  }
  st_sync_block();
  total = st_shared_load(s, 0) + st_shared_load(s, 1);
  for (int i = thread; i < 1000; i += 64) {
    st_store(y0, st_block() * 1000 + i, st_load(x0, st_block() * 1000 + i) / total);
  }""",
    threads=64,
)


def test_a_copy(cache: Path) -> None:
    x = numbers(96)
    ran = run(cache, COPY, [x], [np.empty_like(x)], blocks=3)
    assert not ran.kinds
    np.testing.assert_array_equal(ran.outputs[0], x)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_shuffles_and_shared_memory_in_any_order_of_threads(cache: Path, seed: int) -> None:
    x = np.random.default_rng(1).random((4, 1000), np.float32)
    ran = run(cache, ROW_SUM, [x], [np.empty_like(x)], blocks=4, shared_bytes=8, seed=seed)
    assert not ran.kinds, ran.where
    np.testing.assert_allclose(ran.outputs[0], x / x.sum(1, keepdims=True), rtol=1e-5)


def test_packs_of_sixteen_bytes(cache: Path) -> None:
    text = kernel(
        """  float v[4];
  st_unpack(v, st_load_pack<4>(x0, thread * 4));
  st_store_pack<4>(y0, thread * 4, st_packed<4, float>(v));"""
    )
    x = numbers(128)
    ran = run(cache, text, [x], [np.empty_like(x)], count=True)
    assert not ran.kinds
    np.testing.assert_array_equal(ran.outputs[0], x)
    assert ran.emulation.counters[0].R == 2  # one request each to load and to store


def test_sixteen_bit_elements_and_wide_integers(cache: Path) -> None:
    text = kernel(
        """  st_store(y0, thread, st_narrow_f16(st_widen_f16(st_load(x0, thread)) * 2.0f));
  st_store(y1, thread, st_add<int64_t>(st_load(x1, thread), 1));""",
        "const uint16_t* __restrict__ x0, const int64_t* __restrict__ x1, uint16_t* y0, int64_t* y1",
    )
    half, wide = np.arange(32, dtype=np.float16), np.full(32, 2**62, np.int64)
    ran = run(cache, text, [half, wide], [half, wide])
    assert not ran.kinds
    np.testing.assert_array_equal(ran.outputs[0], half * 2)
    np.testing.assert_array_equal(ran.outputs[1], wide + 1)


def test_shuffles_move_values_of_eight_bytes(cache: Path) -> None:
    text = kernel(
        "  st_store(y0, thread, st_shuffle_xor(st_load(x0, thread), 5));", "const int64_t* __restrict__ x0, int64_t* y0"
    )
    x = np.arange(32, dtype=np.int64) << 40
    ran = run(cache, text, [x], [x])
    np.testing.assert_array_equal(ran.outputs[0], x[np.arange(32) ^ 5])


def test_bounds(cache: Path) -> None:
    x = numbers(95)
    ran = run(cache, COPY, [x], [np.empty(96, np.float32)], blocks=3)
    assert ran.kinds == ["out-of-bounds"]
    assert "block 2 thread 31" in ran.where
    assert "byte 380 of 380" in ran.where
    assert "st_store(y0" in ran.where
    assert ran.outputs[0][95] == 0  # the load gave nothing, the rest went on
    negative = COPY.replace("st_block() * 32 + thread)", "thread - 1)")
    assert run(cache, negative, [x], [EMPTY]).kinds == ["out-of-bounds"]


def test_bounds_of_a_pack(cache: Path) -> None:
    text = kernel("  if (thread == 0) st_store(y0, 0, st_load_pack<4>(x0, 4).x[0]);")
    assert run(cache, text, [numbers(7)], [EMPTY[:1]]).kinds == ["out-of-bounds"]
    assert not run(cache, text, [numbers(8)], [EMPTY[:1]]).kinds


def test_bounds_of_shared_memory(cache: Path) -> None:
    text = kernel("  st_shared_store(ST_SHARED(float, 0), thread, 0.0f);\n")
    assert not run(cache, text, [EMPTY], [EMPTY], shared_bytes=128).kinds
    assert run(cache, text, [EMPTY], [EMPTY], shared_bytes=124).kinds == ["out-of-bounds"]


def test_an_index_beyond_32_bits_touches_only_what_it_reads(cache: Path) -> None:
    text = kernel(
        "  if (thread == 0) st_store(y0, 0, st_load(x0, n0));", "const float* __restrict__ x0, float* y0, int64_t n0"
    )
    far = 3 << 28  # 3 GiB of floats, mapped but never touched
    x = np.zeros(far + 1, np.float32)
    x[far] = 7
    ran = run(cache, text, [x], [EMPTY[:1]], arguments=[far])
    assert not ran.kinds
    assert ran.outputs[0][0] == 7


def test_alignment(cache: Path) -> None:
    text = kernel("  if (thread == 0) st_store(y0, 0, st_load_pack<4>(x0, 0).x[0]);")
    assert not run(cache, text, [numbers(4)], [EMPTY[:1]]).kinds
    assert run(cache, text, [numbers(4)], [EMPTY[:1]], offset_elements=1).kinds == ["misaligned"]
    assert not run(cache, COPY, [numbers(32)], [EMPTY], offset_elements=1).kinds
    off = text.replace("(x0, 0)", "(x0, 2)")
    assert run(cache, off, [numbers(8)], [EMPTY[:1]]).kinds == ["misaligned"]


def test_uninitialised_memory(cache: Path) -> None:
    scratch = kernel("  st_store(y0, thread, st_load_cg(g0, thread));", "float* y0, float* g0")
    assert run(cache, scratch, [], [EMPTY], scratch_bytes=[128]).kinds == ["uninitialised"]
    output = kernel("  st_store(y0, thread, st_load_cg(y0, thread));", "float* y0")
    assert run(cache, output, [], [EMPTY]).kinds == ["uninitialised"]
    shared = kernel("  st_store(y0, thread, st_shared_load(ST_SHARED(float, 0), thread));", "float* y0")
    ran = run(cache, shared, [], [EMPTY], shared_bytes=128)
    assert ran.kinds == ["uninitialised"]
    assert np.isnan(ran.outputs[0]).all()


def test_shared_memory_of_an_earlier_block_is_gone(cache: Path) -> None:
    text = kernel(
        """  if (st_block() == 0) st_shared_store(ST_SHARED(float, 0), thread, 1.0f);
  st_store(y0, st_block() * 32 + thread, st_shared_load(ST_SHARED(float, 0), thread));""",
        "float* y0",
    )
    ran = run(cache, text, [], [np.empty(64, np.float32)], shared_bytes=128, blocks=2)
    assert ran.kinds == ["uninitialised"]
    assert "block 1" in ran.where
    assert np.isnan(ran.outputs[0][32:]).all()


def test_scratch_of_an_earlier_launch_is_still_there(cache: Path) -> None:
    first = kernel("  st_store(g0, thread, 3.0f);", "float* g0").replace("k(", "first(")
    second = kernel("  st_store(y0, thread, st_load(g0, 31 - thread));", "float* y0, const float* g0")
    ran = run(cache, first + second, [], [EMPTY], scratch_bytes=[128])
    assert not ran.kinds
    assert (ran.outputs[0] == 3).all()


def test_writing_what_is_const(cache: Path) -> None:
    text = kernel("  st_store((float*)x0, thread, 1.0f);")
    assert run(cache, text, [numbers(32)], [EMPTY]).kinds == ["const"]


def test_a_pointer_to_nothing(cache: Path) -> None:
    text = kernel("  st_store(y0, thread, st_load((const float*)64, thread));")
    assert run(cache, text, [EMPTY], [EMPTY]).kinds == ["out-of-bounds"]


def test_endless_loops_meet_the_limit(cache: Path) -> None:
    text = kernel("  for (int i = 0; i >= 0;) st_store(y0, thread, 0.0f);", "float* y0")
    assert run(cache, text, [], [EMPTY], steps=10_000).kinds == ["limit"]


def test_too_many_findings_end_a_launch(cache: Path) -> None:
    lines = "\n".join(f"  st_store(y0, thread + {32 + i}, 0.0f);" for i in range(10))
    ran = run(cache, kernel(lines, "float* y0"), [], [EMPTY], findings=4)
    assert ran.kinds == ["out-of-bounds"] * 4 + ["limit"]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"threads": 33}, "33 threads"),
        ({"threads": 2048}, "2048 threads"),
        ({"blocks": 2**31}, "2147483648 blocks"),
        ({"blocks": 0}, "0 blocks"),
        ({"shared_bytes": 300_000}, "300000 bytes of shared memory"),
    ],
)
def test_limits_of_a_launch(cache: Path, change: dict[str, int], why: str) -> None:
    (launch,) = launches(COPY, 1, 1, 1)
    made = run_source(COPY, [replace(launch, **change)], [EMPTY], [np.copy(EMPTY)], cache=cache)
    assert not isinstance(made, BuildFailure)
    (finding,) = made.findings
    assert finding.kind == "limit"
    assert why in finding.where


def test_text_that_does_not_compile(cache: Path) -> None:
    made = run_source(COPY.replace("thread)", "nobody)"), launches(COPY, 1, 1, 1), [EMPTY], [EMPTY], cache=cache)
    assert isinstance(made, BuildFailure)
    assert "kernels.cu" in made.message


def test_a_large_grid_runs_block_after_block(cache: Path) -> None:
    x = numbers(32 * 20_000)
    ran = run(cache, COPY, [x], [np.empty_like(x)], blocks=20_000)
    assert not ran.kinds
    np.testing.assert_array_equal(ran.outputs[0], x)


def test_settings_are_values() -> None:
    assert Settings(seed=1) == Settings(seed=1) != Settings()


def test_bounds_of_an_array_in_registers(cache: Path) -> None:
    text = kernel(
        """  float v[4] = {};
  const int i = (int)n0;
  v[i] = 1.0f;
  st_store(y0, thread, v[0] + v[3]);""",
        "float* y0, int64_t n0",
    )
    assert not run(cache, text, [], [EMPTY], arguments=[3]).kinds
    ran = run(cache, text, [], [EMPTY], arguments=[4])
    assert ran.kinds == ["out-of-bounds"]
    assert "v[i] = 1.0f" in ran.where


def test_an_array_in_registers_that_nothing_was_written_to(cache: Path) -> None:
    text = kernel(
        "  float v[4];\n  v[0] = 1.0f;\n  st_store(y0, thread, st_max<float>(v[0], v[n0]));", "float* y0, int64_t n0"
    )
    assert run(cache, text, [], [EMPTY], arguments=[0]).outputs[0][0] == 1
    assert np.isnan(run(cache, text, [], [EMPTY], arguments=[1]).outputs[0]).all()


@pytest.mark.parametrize("name", ["softmax_rows", "softmax_split"])
def test_kernels_without_a_loop_over_blocks(cache: Path, name: str) -> None:
    """As a device gets them where a block is there for every virtual one."""
    (subject,) = subjects([name])
    sub = subject.sub
    loops, once = (build_emulated([(sub, subject.plan)], subject.target, cache=cache, once=o)[0] for o in (False, True))
    assert isinstance(loops, BuiltCuda)
    assert isinstance(once, BuiltCuda)
    assert "; block += st_grid()" in loops.source
    assert "if (const int block = st_block(); " in once.source
    results = []
    for built in (loops, once):
        outputs = [np.empty(sub.shape(v), sub.values[v].dtype.numpy) for v in sub.outputs]
        assert not emulate_plan(built, subject.inputs, outputs).findings
        results.append(outputs[0])
    np.testing.assert_array_equal(*results)
