"""NVRTC where there is no driver, and the cache of what it made."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from stitchtune.kernels.compile import BuildFailure
from stitchtune.kernels.cuda import nvrtc
from stitchtune.kernels.cuda.nvrtc import Compiled, compile_unit, compile_units, find_nvrtc
from stitchtune.kernels.cuda.report import parse
from stitchtune.kernels.cuda.text.emit import Bounds, emit

from tests.kernels.cuda.programs import BUFFERS, kernel, row_sums, scale

installed = pytest.mark.skipif(find_nvrtc() is None, reason="no NVRTC")
SCALE = emit([kernel((scale(),), buffers=BUFFERS)], ["st_k0"]).source


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvrtc, "find_nvrtc", lambda: None)
    made = compile_unit(SCALE, "sm_90", tmp_path / "cache")
    assert made == BuildFailure("compiler", "CUDA kernels need NVRTC: pip install 'stitchtune[cuda13]' (or [cuda12])")


@installed
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_a_kernel_with_a_grid_barrier_compiles(arch: str, tmp_path: Path) -> None:
    made = compile_unit(emit([row_sums()], ["st_k0"], [Bounds(8)]).source, arch, tmp_path / "cache")
    assert isinstance(made, Compiled), made
    assert made.image.read_bytes()[:4] == b"\x7fELF"
    [report] = parse(made.log).values()
    assert report.registers <= 64
    assert report.stack_bytes == report.spill_store_bytes == report.static_shared_bytes == 0


@installed
def test_architectures_that_nvrtc_has_left_behind_or_does_not_know(tmp_path: Path) -> None:
    old, new = (compile_unit(SCALE, arch, tmp_path / "cache") for arch in ("sm_50", "sm_999"))
    assert isinstance(old, BuildFailure)
    assert isinstance(new, BuildFailure)
    assert "makes no code for sm_50" in old.message
    assert "stitchtune[cuda12]" in old.message
    assert "newer" in new.message


@installed
def test_what_does_not_compile_is_one_line(tmp_path: Path) -> None:
    made = compile_unit('extern "C" __global__ void k() {\n  int x = y;\n}\n', "sm_90", tmp_path / "cache")
    assert isinstance(made, BuildFailure)
    assert made.message == 'unit.cu(2): error: identifier "y" is undefined'
    assert not list((tmp_path / "cache").glob("*.cubin"))


@installed
def test_the_cache_is_addressed_by_content_and_rebuilds_what_is_damaged(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    made = compile_unit(SCALE, "sm_90", cache)
    assert isinstance(made, Compiled)
    good = made.image.read_bytes()
    stamp = made.image.stat().st_mtime_ns
    assert compile_unit(SCALE, "sm_90", cache) == made
    assert made.image.stat().st_mtime_ns == stamp
    assert compile_unit(SCALE, "sm_80", cache) != made

    log = made.image.with_suffix(".log")
    for damage in (
        lambda: made.image.write_bytes(good[:-1]),
        lambda: log.write_text("Used 1 registers"),
        lambda: log.unlink(),
        lambda: made.image.with_suffix(".sha256").write_text(""),
        lambda: made.image.chmod(0o666),
    ):
        damage()
        again = compile_unit(SCALE, "sm_90", cache)
        assert isinstance(again, Compiled)
        assert again.image == made.image
        assert again.image.read_bytes()[:4] == good[:4]
        assert len(again.image.read_bytes()) >= len(good) - 64  # two runs of the assembler may differ a little
    assert not list(cache.glob("tmp-*"))


@installed
def test_a_cache_of_somebody_else_is_refused(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    os.chmod(cache, 0o777)
    with pytest.raises(PermissionError, match="written by others"):
        compile_unit(SCALE, "sm_90", cache)


@installed
def test_threads_may_compile_at_once(tmp_path: Path) -> None:
    sources = [SCALE.replace("2.0f", f"{k}.0f") for k in range(6)]
    with ThreadPoolExecutor(3) as pool:
        alone = list(pool.map(lambda s: compile_unit(s, "sm_90", tmp_path / "a"), sources))
    together = compile_units([*sources, sources[0]], "sm_90", tmp_path / "b", jobs=2)
    for one, other in zip(alone, together, strict=False):
        assert isinstance(one, Compiled)
        assert isinstance(other, Compiled)
        assert one.image.name == other.image.name
        assert parse(one.log) == parse(other.log)
    assert together[0] == together[-1]
