"""Races, divergence and deadlocks: each is found whatever the order in which threads run, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.kernels.cuda.handwritten import kernel, run

EMPTY = np.empty(64, np.float32)

SEEDS = [0, 1, 2, 3]


def exchange(sync: str, distance: int) -> str:
    """Each thread writes a place of shared memory, then reads that of the thread `distance` on."""
    return kernel(
        f"""  float* s = ST_SHARED(float, 0);
  st_shared_store(s, thread, 1.0f);
  {sync}
  st_store(y0, thread, st_shared_load(s, thread ^ {distance}));""",
        "float* y0",
        64,
    )


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    ("sync", "distance", "kinds"),
    [
        ("", 0, set()),  # its own place
        ("", 1, {"race", "uninitialised"}),
        ("", 32, {"race", "uninitialised"}),
        ("st_sync_warp();", 1, set()),
        ("st_sync_warp();", 32, {"race", "uninitialised"}),
        ("st_sync_block();", 1, set()),
        ("st_sync_block();", 32, set()),
        ("st_shuffle_xor(1.0f, 1);", 1, {"race"}),  # a shuffle orders no memory
    ],
)
def test_what_orders_two_threads(cache: Path, sync: str, distance: int, kinds: set[str], seed: int) -> None:
    ran = run(cache, exchange(sync, distance), [], [EMPTY], shared_bytes=256, seed=seed)
    assert set(ran.kinds) <= kinds, ran.where
    assert ("race" in ran.kinds) == ("race" in kinds)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sync", ["", "st_sync_warp();", "st_sync_block();"])
def test_reusing_a_place_needs_a_second_synchronisation(cache: Path, sync: str, seed: int) -> None:
    text = kernel(
        f"""  float* s = ST_SHARED(float, 0);
  for (int i = 0; i < 3; ++i) {{
    st_shared_store(s, thread, (float)i);
    st_sync_block();
    st_store(y0, thread, st_shared_load(s, 63 - thread));
    {sync}
  }}""",
        "float* y0",
        64,
    )
    ran = run(cache, text, [], [EMPTY], shared_bytes=256, seed=seed)
    assert set(ran.kinds) == (set() if "block" in sync else {"race"}), ran.where


READERS = {
    "one": "thread == 40",
    "of a warp": "thread < 5",
    "of two warps": "thread == 3 || thread == 40",
}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("readers", READERS)
@pytest.mark.parametrize("writer", [3, 40, 50])
def test_a_write_after_readers(cache: Path, readers: str, writer: int, seed: int) -> None:
    """A write races with every reader but the writer itself."""
    text = kernel(
        f"""  if ({READERS[readers]}) st_store(y0, thread, st_load_cg(g0, 0));
  if (thread == {writer}) st_store(g0, 0, 2.0f);""",
        "float* y0, float* g0",
        64,
    )
    first = kernel("  if (thread == 0) st_store(g0, 0, 1.0f);", "float* g0").replace("k(", "first(")
    ran = run(cache, first + text, [], [EMPTY], scratch_bytes=[4], seed=seed)
    assert set(ran.kinds) == (set() if (readers, writer) == ("one", 40) else {"race"}), ran.where


@pytest.mark.parametrize("seed", SEEDS)
def test_two_writers_of_one_value(cache: Path, seed: int) -> None:
    text = kernel("  st_store(y0, thread / 2, 1.0f);", "float* y0")
    ran = run(cache, text, [], [EMPTY], seed=seed)
    assert ran.kinds == ["race"]
    assert "block 0 thread" in ran.where


def test_blocks_of_one_launch_are_not_ordered(cache: Path) -> None:
    text = kernel("  if (thread == 0) st_store(y0, 0, 1.0f);", "float* y0")
    assert run(cache, text, [], [EMPTY], blocks=2).kinds == ["race"]
    reading = kernel("  st_store(y0, st_block() * 32 + thread, st_load(x0, 0));")
    assert not run(cache, reading, [EMPTY[:1]], [EMPTY], blocks=2).kinds


def test_launches_are_ordered(cache: Path) -> None:
    text = kernel("  st_store(y0, thread, 1.0f);", "float* y0")
    assert not run(cache, text, [], [EMPTY], repeat=3).kinds


def test_bytes_beside_one_another_are_no_race(cache: Path) -> None:
    text = kernel("  st_store(y0, thread, (uint8_t)1);", "uint8_t* y0")
    assert not run(cache, text, [], [np.empty(32, np.uint8)]).kinds
    shared = kernel(
        """  st_shared_store(ST_SHARED(float, 64), thread, 1.0f);
  st_shared_store(ST_SHARED(uint8_t, 0), thread, (uint8_t)thread);
  st_store(y0, thread, st_shared_load(ST_SHARED(uint8_t, 0), thread));""",
        "uint8_t* y0",
    )
    ran = run(cache, shared, [], [np.empty(32, np.uint8)], shared_bytes=256)
    assert not ran.kinds
    assert (ran.outputs[0] == np.arange(32)).all()


def test_a_pack_races_with_an_element_of_it(cache: Path) -> None:
    text = kernel(
        """  if (thread == 0) st_store_pack<4>(y0, 4, st_pack<4, float>{});
  if (thread == 40) st_store(y0, 6, 1.0f);""",
        "float* y0",
        64,
    )
    assert run(cache, text, [], [EMPTY]).kinds == ["race"]
    assert not run(cache, text.replace("6, 1.0f", "8, 1.0f"), [], [EMPTY]).kinds


def test_loads_by_the_first_level_cache_of_what_others_write(cache: Path) -> None:
    text = kernel(
        """  if (thread == 0) st_store(g0, st_block(), 1.0f);
  st_sync_grid(barrier);
  st_store(y0, st_block() * 32 + thread, st_load(g0, 1 - st_block()));""",
        "float* y0, float* g0, unsigned* barrier",
    )
    assert run(cache, text, [], [EMPTY], scratch_bytes=[8], blocks=2).kinds == ["stale"]
    right = text.replace("st_load(g0", "st_load_cg(g0")
    assert not run(cache, right, [], [EMPTY], scratch_bytes=[8], blocks=2).kinds


# --- threads that do not meet


def stuck(cache: Path, body: str, threads: int = 64, **more: int) -> tuple[list[str], str]:
    ran = run(cache, kernel(body, "float* y0, unsigned* barrier", threads), [], [EMPTY], **more)
    return ran.kinds, ran.where


@pytest.mark.parametrize("seed", SEEDS)
def test_two_barriers_are_not_one(cache: Path, seed: int) -> None:
    kinds, where = stuck(cache, "  if (thread < 32) st_sync_block();\n  else st_sync_block();", seed=seed)
    assert kinds == ["divergence"]
    assert "line 4" in where
    assert "line 5" in where


@pytest.mark.parametrize("seed", SEEDS)
def test_a_barrier_that_some_do_not_reach(cache: Path, seed: int) -> None:
    kinds, where = stuck(cache, "  if (thread != 7) st_sync_block();", seed=seed)
    assert kinds == ["exited"], where
    kinds, where = stuck(cache, "  if (thread == 7) return;\n  st_shuffle_xor(1.0f, 1);", seed=seed)
    assert kinds == ["exited"], where


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "body",
    [
        "  st_shuffle_xor(1.0f, thread == 5 ? 2 : 1);",
        "  if (thread == 5) st_shuffle_xor(1.0f, 1);\n  else st_shuffle_xor(1.0f, 1);",
        "  if (thread == 5) st_sync_warp();\n  else st_shuffle_xor(1.0f, 1);",
        "  st_shuffle_xor(1.0f, 32);",
        "  if (thread == 5) st_sync_block();\n  else st_sync_warp();",
        "  if (thread == 5) st_sync_block();\n  else st_sync_grid(barrier);",
    ],
)
def test_different_synchronisations_in_a_warp(cache: Path, body: str, seed: int) -> None:
    assert stuck(cache, body, 32, seed=seed)[0] == ["divergence"]


def test_a_trip_more_than_others(cache: Path) -> None:
    kinds, _ = stuck(cache, "  for (int i = thread / 32; i < 2; ++i) st_sync_block();")
    assert kinds == ["exited"]
    kinds, _ = stuck(cache, "  for (int i = thread % 2; i < 2; ++i) st_shuffle_xor(1.0f, 1);\n  st_sync_block();")
    assert kinds == ["divergence"]


def test_more_blocks_than_fit_never_meet(cache: Path) -> None:
    body = "  st_sync_grid(barrier);"
    assert stuck(cache, body, blocks=5) == ([], "")
    kinds, where = stuck(cache, body, blocks=5, resident_blocks=4)
    assert kinds == ["deadlock"]
    assert "1 threads from 0 on wait at a grid barrier in line 4" in where
    assert "block 1" in where


def test_a_block_that_leaves_before_a_grid_barrier(cache: Path) -> None:
    kinds, where = stuck(cache, "  if (st_block() != 1) st_sync_grid(barrier);", blocks=3)
    assert kinds == ["deadlock"]
    assert "block 2" in where
