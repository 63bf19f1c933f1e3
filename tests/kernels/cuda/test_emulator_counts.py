"""Counters of traffic, against what can be told by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from stitchtune.kernels.cuda.emulator.findings import Counters

from tests.kernels.cuda.handwritten import kernel, run


def count(cache: Path, source: str, n: int = 1024, **more: object) -> Counters:
    x = np.zeros(n, np.float32)
    ran = run(cache, source, [x], [x], count=True, **more)
    assert not ran.kinds, ran.where
    return ran.emulation.counters[0]


def reading(index: str, element: str = "st_load(x0, {})") -> str:
    return kernel(f"  st_store(y0, st_block() * 32 + thread, {element.format(index)});")


@pytest.mark.parametrize(
    ("index", "sectors", "useful", "block_sectors"),
    [
        ("st_block() * 32 + thread", 8, 1.0, 8),
        ("st_block() * 32 + 31 - thread", 8, 1.0, 8),
        ("st_block() * 32 + (thread * 5) % 32", 8, 1.0, 8),
        ("0", 1, 4 / 32, 2),
        ("thread", 4, 1.0, 8),  # both blocks read the same
        ("(st_block() * 32 + thread) * 8", 64, 4 / 32, 64),
        ("(st_block() * 32 + thread) * 2", 16, 0.5, 16),
        ("st_block() * 32 + thread + 1", 9, 64 * 4 / (9 * 32), 10),  # five sectors a block, one of them in both
    ],
)
@pytest.mark.parametrize("seed", [0, 3])
def test_sectors(cache: Path, index: str, sectors: int, useful: float, block_sectors: int, seed: int) -> None:
    counters = count(cache, reading(index), blocks=2, seed=seed)
    (phase,) = counters.phases
    x, y = phase.buffers
    assert (x.position, y.position) == (0, 1)
    assert (x.reads.sectors, x.reads.block_sectors) == (sectors, block_sectors)
    assert x.reads.bytes == pytest.approx(useful * 32 * sectors)
    assert (y.writes.sectors, y.writes.bytes) == (8, 256)
    assert (x.reads.requests, y.writes.requests) == (2, 2)
    total = phase.total
    assert total.sectors == counters.U == sectors + 8
    assert total.block_sectors == counters.B == block_sectors + 8
    assert total.requests == counters.R == 4


def test_requests_of_a_thread_per_row_waste_sectors_that_the_phase_does_not(cache: Path) -> None:
    text = kernel("  for (int i = 0; i < 8; ++i) st_store(y0, thread * 8 + i, st_load(x0, thread * 8 + i));")
    (phase,) = count(cache, text).phases
    assert phase.useful == 1.0
    assert phase.request_useful == 4 / 32
    assert (phase.U, phase.R) == (64, 16)


def test_lanes_that_go_different_ways(cache: Path) -> None:
    """The k-th access of a place is one request, whichever lanes make it."""
    text = kernel(
        """  for (int i = 0; i < (thread < 7 ? 3 : 2); ++i) {
    st_store(y0, i * 32 + thread, st_load(x0, i * 32 + thread));
  }
  if (thread == 9) {
    st_store(y0, 200, st_load(x0, 200));
  }"""
    )
    (phase,) = count(cache, text).phases
    assert phase.R == 2 * (3 + 1)
    assert phase.buffers[0].reads.request_sectors == 4 + 4 + 1 + 1


def test_phases_are_counted_apart(cache: Path) -> None:
    text = kernel(
        """  st_store(y0, st_block() * 32 + thread, st_load(x0, thread));
  st_sync_grid(barrier);
  st_store(y0, st_block() * 32 + thread, st_load(x0, thread));""",
        "const float* x0, float* y0, unsigned* barrier",
    )
    counters = count(cache, text, blocks=3)
    assert [(p.U, p.B, p.R) for p in counters.phases] == [(4 + 12, 12 + 12, 6)] * 2
    assert counters.U == 32


@pytest.mark.parametrize(
    ("index", "conflicts"),
    [
        ("thread", 0),
        ("0", 0),  # one word goes to all lanes at once
        ("thread / 2", 0),
        ("thread * 2", 1),
        ("thread * 32", 31),
        ("thread * 33", 0),
        ("(thread % 4) * 32", 3),
        ("(thread * 7) % 32", 0),
    ],
)
def test_bank_conflicts_of_words(cache: Path, index: str, conflicts: int) -> None:
    text = kernel(
        f"""  for (int i = thread; i < 1056; i += 32) st_shared_store(ST_SHARED(float, 0), i, 0.0f);
  st_sync_block();
  st_store(y0, thread, st_shared_load(ST_SHARED(float, 0), {index}));"""
    )
    (phase,) = count(cache, text, shared_bytes=1056 * 4).phases
    assert phase.conflicts == conflicts
    assert phase.shared == 33 + 1


@pytest.mark.parametrize(
    ("pack", "index", "conflicts"),
    [(4, "thread * 4", 0), (2, "thread * 2", 0), (4, "thread * 8", 4), (2, "thread * 4", 2)],
)
def test_bank_conflicts_of_packs(cache: Path, pack: int, index: str, conflicts: int) -> None:
    """A quarter of the warp at a time takes 16 bytes each, half of it 8."""
    text = kernel(f"""  st_shared_store_pack<{pack}>(ST_SHARED(float, 0), {index}, st_pack<{pack}, float>{{}});""")
    (phase,) = count(cache, text, shared_bytes=1024).phases
    assert phase.conflicts == conflicts


def test_bank_conflicts_of_halves(cache: Path) -> None:
    text = kernel("  st_shared_store(ST_SHARED(uint16_t, 0), thread * {}, (uint16_t)0);")
    for stride, conflicts in ((1, 0), (2, 0), (4, 1)):
        (phase,) = count(cache, text.replace("{}", str(stride)), shared_bytes=1024).phases
        assert phase.conflicts == conflicts
