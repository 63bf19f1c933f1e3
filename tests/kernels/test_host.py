"""Detection of the machine, from made-up system files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stitchtune.kernels.host import arch_name, cache_sizes, host_target, isa_features, usable_processors, vector_bytes


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)


def test_host_target_is_plausible() -> None:
    target = host_target()
    assert target.kind == target.name == "cpu"
    assert target.processors >= 1
    assert target.vector_bytes in (16, 32, 64)
    assert 1 << 12 <= target.l1_bytes <= target.cache_bytes
    assert target == host_target()


def test_nothing_known_gives_safe_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sysconf_names", {})
    target = host_target(tmp_path)
    assert target.vector_bytes == 16
    assert (target.l1_bytes, target.block_bytes, target.cache_bytes) == (32 << 10, 128 << 10, 4 << 20)


@pytest.mark.usefixtures("cpu")
def test_caches_from_sysfs(tmp_path: Path) -> None:
    base = "sys/devices/system/cpu/cpu0/cache"
    files = {}
    for index, (level, kind, size) in enumerate(
        [(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2048K"), (3, "Unified", "36M")]
    ):
        files |= {
            f"{base}/index{index}/level": f"{level}\n",
            f"{base}/index{index}/type": kind,
            f"{base}/index{index}/size": size,
        }
    assert cache_sizes(write(tmp_path, files)) == (48 << 10, 2 << 20, 36 << 20)


@pytest.mark.usefixtures("cpu")
def test_a_second_level_without_a_third_is_the_last(tmp_path: Path) -> None:
    base = "sys/devices/system/cpu/cpu0/cache/index0"
    files = {f"{base}/level": "2", f"{base}/type": "Unified", f"{base}/size": "1M"}
    assert cache_sizes(write(tmp_path, files))[1:] == (1 << 20, 1 << 20)


@pytest.mark.usefixtures("cpu")
def test_siblings_count_once_and_the_quota_limits(tmp_path: Path) -> None:
    files = {
        f"sys/devices/system/cpu/cpu{i}/topology/thread_siblings_list": text
        for i, text in enumerate(["0,2", "1,3", "0,2", "1,3"])
    }
    assert usable_processors(write(tmp_path, files)) == 2
    assert usable_processors(write(tmp_path, {"sys/fs/cgroup/cpu.max": "150000 100000\n"})) == 2
    assert usable_processors(write(tmp_path, {"sys/fs/cgroup/cpu.max": "50000 100000\n"})) == 1
    assert usable_processors(write(tmp_path, {"sys/fs/cgroup/cpu.max": "max 100000\n"})) == 2


def test_features_and_names() -> None:
    features = isa_features("processor : 0\nflags : fpu avx2 fma f16c bmi2 hypervisor sse4_2\n")
    assert features == {"avx2", "fma", "f16c", "bmi2", "sse4_2"}
    assert vector_bytes(features) == 32
    assert arch_name("x86_64", features).startswith("x86-64-v3-")
    assert arch_name("x86_64", features) != arch_name("x86_64", features | {"avx512f"})
    assert arch_name("aarch64", isa_features("Features : fp asimd\n")).startswith("aarch64-")
