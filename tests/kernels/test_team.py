"""The thread team: every thread runs, barriers hold, forks and failures are survived, neighbours are left alone."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stitchtune.kernels.team import (
    RUNTIME,
    Counts,
    Eviction,
    Record,
    Team,
    build_runtime,
    function_address,
    records,
)

SOURCE = """
#include "team.h"
#include <atomic>
extern "C" {
// every thread marks its own number, its count of threads and its block memory
void mark(void* const* b, const int64_t* a, char* block, int32_t t, int32_t n, st_team*) {
    int64_t* out = (int64_t*)b[0];
    out[3 * t] += 1;
    out[3 * t + 1] = n;
    out[3 * t + 2] = (int64_t)block % 64;
    for (int64_t i = 0; i < a[0]; i++) block[i] = (char)i;
}
// prefix sums in rounds: each round reads what every thread wrote in the round before
void rounds(void* const* b, const int64_t* a, char*, int32_t t, int32_t n, st_team* team) {
    int64_t* x = (int64_t*)b[0];
    for (int64_t r = 0; r < a[0]; r++) {
        int64_t sum = 0;
        for (int32_t i = 0; i < n; i++) sum += x[(r % 2) * n + i];
        x[(1 - r % 2) * n + t] = sum % 1000003 + t;
        team->barrier(team, t);
    }
}
void wait(void* const*, const int64_t* a, char*, int32_t, int32_t, st_team*) {
    for (volatile int64_t i = 0; i < a[0]; i = i + 1) {}
}
}
"""


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = build_runtime(tmp_path_factory.mktemp("runtime"))
    assert isinstance(library, ctypes.CDLL)
    return library


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("kernels")
    (folder / "k.cpp").write_text(SOURCE)
    command = ["g++", "-O2", "-shared", "-fPIC", f"-I{RUNTIME}", str(folder / "k.cpp"), "-o", str(folder / "k.so")]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "k.so"))


@pytest.fixture(params=[(1, 50_000), (2, 50_000), (5, 50_000), (3, 0)])
def team(runtime: ctypes.CDLL, request: pytest.FixtureRequest) -> Iterator[Team]:
    threads, wait = request.param
    made = Team(runtime, threads, busy_ns=wait, idle_ns=wait)
    yield made
    made.close()


class Launch:
    """A record with its own buffer of `words` integers and one argument."""

    def __init__(self, kernel: object, words: int, argument: int, *, wide: bool = True, block: int = 0) -> None:
        self.data = (ctypes.c_int64 * max(1, words))()
        self.table = (ctypes.c_void_p * 1)(ctypes.addressof(self.data))
        self.args = (ctypes.c_int64 * 1)(argument)
        self.record = Record(
            function_address(kernel), ctypes.addressof(self.table), ctypes.addressof(self.args), block, wide, True
        )


def test_every_thread_runs_once_with_memory_of_its_own(team: Team, kernels: ctypes.CDLL) -> None:
    launch = Launch(kernels.mark, 15, 100_000, block=100_000)
    team.run(records([launch.record] * 3))
    for thread in range(team.threads):
        assert launch.data[3 * thread : 3 * thread + 3] == [3, team.threads, 0]
    assert not any(launch.data[3 * team.threads :])


def test_a_narrow_record_runs_on_the_caller_alone(team: Team, kernels: ctypes.CDLL) -> None:
    launch = Launch(kernels.mark, 15, 64, wide=False, block=64)
    team.run(records([launch.record]))
    assert launch.data[:] == [1, 1, 0, *[0] * 12]


def expected_rounds(threads: int, rounds: int) -> list[int]:
    row = [0] * threads
    for _ in range(rounds):
        row = [sum(row) % 1000003 + t for t in range(threads)]
    return row


@pytest.mark.parametrize("wide", [True, False])
def test_barriers_separate_rounds_and_are_counted(team: Team, kernels: ctypes.CDLL, wide: bool) -> None:
    launch = Launch(kernels.rounds, 2 * team.threads, 50, wide=wide)
    counts = Counts()
    team.run(records([launch.record]), counts=counts)
    threads = team.threads if wide else 1
    assert launch.data[:threads] == expected_rounds(threads, 50)
    assert counts[:] == [1, 50]


def test_only_counted_records_count(team: Team, kernels: ctypes.CDLL) -> None:
    first, second = Launch(kernels.rounds, 10, 3), Launch(kernels.rounds, 10, 4)
    second.record.counted = 0
    counts = Counts()
    team.run(records([first.record, second.record, first.record]), counts=counts)
    assert counts[:] == [2, 6]


def test_sleeping_workers_wake_up(team: Team, kernels: ctypes.CDLL) -> None:
    launch = Launch(kernels.mark, 15, 0)
    items = records([launch.record])
    for _ in range(3):
        team.run(items)
        time.sleep(0.005)
    assert launch.data[0] == 3
    assert launch.data[3 * (team.threads - 1)] == 3


def test_idle_workers_use_no_processor_time(runtime: ctypes.CDLL, kernels: ctypes.CDLL) -> None:
    team = Team(runtime, 4)
    launch = Launch(kernels.mark, 15, 0)
    team.run(records([launch.record]))
    time.sleep(0.01)
    before = resource.getrusage(resource.RUSAGE_SELF)
    time.sleep(0.1)
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.02
    team.close()


def test_callers_from_several_threads_take_turns(team: Team, kernels: ctypes.CDLL) -> None:
    wrong: list[list[int]] = []

    def call() -> None:
        for _ in range(50):
            launch = Launch(kernels.rounds, 2 * team.threads, 10)
            team.run(records([launch.record]))
            if launch.data[: team.threads] != expected_rounds(team.threads, 10):
                wrong.append(launch.data[:])

    callers = [threading.Thread(target=call) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_child_of_a_fork_starts_workers_of_its_own(team: Team, kernels: ctypes.CDLL) -> None:
    launch = Launch(kernels.rounds, 2 * team.threads, 10)
    team.run(records([launch.record]))
    child = os.fork()
    if child == 0:
        again = Launch(kernels.rounds, 2 * team.threads, 10)
        team.run(records([again.record]))
        os._exit(0 if again.data[: team.threads] == expected_rounds(team.threads, 10) else 1)
    assert os.waitpid(child, 0)[1] == 0
    team.run(records([launch.record]))


def test_no_memory_for_the_block_is_an_error(team: Team, kernels: ctypes.CDLL) -> None:
    launch = Launch(kernels.mark, 15, 0, block=1 << 60)
    with pytest.raises(OSError, match="memory"):
        team.run(records([launch.record]))
    launch.record.block_bytes = 0
    team.run(records([launch.record]))


def test_samples_are_timed_in_batches_and_stop_at_the_limit(team: Team, kernels: ctypes.CDLL) -> None:
    launch = Launch(kernels.mark, 15, 0)
    items = records([launch.record])
    assert len(team.time(items, 7, batch=3, evict=Eviction(1 << 20))) == 7
    assert launch.data[0] == 21
    slow = Launch(kernels.wait, 1, 1_000_000)
    samples = team.time(records([slow.record]), 100, limit_ns=1)
    assert len(samples) == 1
    assert samples[0] > 10_000


def test_a_team_has_a_thread(runtime: ctypes.CDLL) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Team(runtime, 0)
