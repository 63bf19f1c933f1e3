"""Mutants of emitted kernels are caught: some subjects here, all by `python -m tests.kernels.cuda.mutations`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from stitchtune.kernels.compile import find_compiler

from tests.kernels.cuda.mutants import Mutant, mutants
from tests.kernels.cuda.mutation_subjects import subjects
from tests.kernels.cuda.mutations import judge, report, share, trial

FLOOR = 0.95

QUICK = {"softmax_rows": 2, "column_sum": 1, "layer_norm_backward": 6, "softmax_split": 4}
"""Subjects that are run here, and one mutant in how many of each."""

TEXT = """extern "C" __global__ void __launch_bounds__(64, 1)
k(const float* __restrict__ x0, float* __restrict__ y0, unsigned* barrier) {
  const int thread = st_thread();
  for (int block = st_block(); block < 8; block += st_grid()) {
    float* b0 = ST_SHARED(float, 0);
    float* b1 = ST_SHARED(float, 64);
    const int k1 = st_min(32, 100 - block * 32);
    float a2 = -ST_INFINITY;
    for (int i3 = thread / 2; i3 < k1; i3 += 32) {
      a2 = st_max(a2, i3 < 9 ? st_load(x0, block * 32 + i3) : 0.0f);
    }
    const float t4 = st_max(a2, st_shuffle_xor(a2, 16));
    st_sync_warp();
    if (t4 > 3.0f) {
      st_store(y0, block, t4);
    }
    st_sync_block();
  }
  st_sync_grid(barrier);
}
"""


@pytest.fixture(scope="module")
def made() -> list[Mutant]:
    return mutants(TEXT)


def test_what_is_altered(made: list[Mutant]) -> None:
    titles = [m.title for m in made]
    assert titles == [
        "guard, line 4: `block < 8` -> `block <= 8`",
        "guard, line 4: `block < 8` -> `block + 1 < 8`",
        "stride, line 4: `block += st_grid()` -> `block += 2 * st_grid()`",
        "stride, line 4: `block += st_grid()` -> `block += 1`",
        "slot, line 6: `64` -> `0`",
        "guard, line 7: `st_min(32, 100 - block * 32)` -> `(32)`",
        "stride, line 7: `32` -> `33`",
        "initial value, line 8: `-ST_INFINITY` -> `ST_INFINITY`",
        "guard, line 9: `i3 < k1` -> `i3 <= k1`",
        "guard, line 9: `i3 < k1` -> `i3 + 1 < k1`",
        "stride, line 9: `i3 += 32` -> `i3 += 2 * 32`",
        "stride, line 9: `i3 += 32` -> `i3 += 16`",
        "stride, line 9: `2` -> `4`",
        "guard, line 10: `i3 < 9` -> `true`",
        "guard, line 10: `i3 < 9` -> `i3 <= 9`",
        "guard, line 10: `i3 < 9` -> `i3 + 1 < 9`",
        "stride, line 10: `32` -> `33`",
        "shuffle, line 12: `16` -> `8`",
        "warp synchronisation, line 13: `st_sync_warp();` -> ``",
        "block barrier, line 17: `st_sync_block();` -> ``",
        "block barrier, line 17: `st_sync_block();` -> `st_sync_warp();`",
        "grid barrier, line 19: `st_sync_grid(barrier);` -> ``",
        "grid barrier, line 19: `st_sync_grid(barrier);` -> `st_sync_block();`",
    ]


def test_probes_evaluate_both(made: list[Mutant]) -> None:
    lines = {m.title: m.probe.splitlines()[m.line - 1].strip() for m in made if m.probe}
    assert lines["guard, line 4: `block < 8` -> `block <= 8`"].startswith(
        "for (int block = st_block(); st_same(block < 8, block <= 8); block += st_grid())"
    )
    assert lines["stride, line 9: `i3 += 32` -> `i3 += 16`"].endswith(
        "i3 < k1; st_same(false, (i3 + 32 < k1 || i3 + 16 < k1)), i3 += 32) {"
    )
    assert lines["stride, line 7: `32` -> `33`"] == (
        "const int k1 = st_min(32, st_same(100 - block * 32, 100 - block * 33));"
    )
    assert "st_same(i3 < 9, true) ? st_load" in lines["guard, line 10: `i3 < 9` -> `true`"]


def test_comparisons_of_data_are_left_alone(made: list[Mutant]) -> None:
    assert not [m for m in made if m.line == 14]


def test_each_mutant_differs_in_one_line(made: list[Mutant]) -> None:
    before = TEXT.splitlines()
    for mutant in made:
        after = mutant.source.splitlines()
        assert [i + 1 for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b] == [mutant.line]


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
@pytest.mark.parametrize("name", QUICK)
def test_mutants_are_caught(name: str, cache: Path, record_property: Callable[[str, object], None]) -> None:
    compiler = find_compiler()
    assert compiler is not None
    (subject,) = subjects([name])
    one = trial(subject, cache)
    verdicts = judge(one, mutants(one.built.source)[:: QUICK[name]], compiler, cache)
    text = "\n".join(report(name, verdicts))
    record_property("summary", text)
    assert share(verdicts) >= FLOOR, text
    assert not Counter(v.how for v in verdicts)["does not compile"], text
