"""The compiler and its cache."""

from __future__ import annotations

import ctypes
import json
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from stitchtune.kernels import compile as compiling
from stitchtune.kernels.compile import (
    Artifact,
    BuildFailure,
    Compiler,
    compile_units,
    find_compiler,
    forget_compilers,
    machine_flags,
    prepare_cache,
    unit_digest,
)

GOOD = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def compiler() -> Compiler:
    found = find_compiler()
    if found is None:
        pytest.skip("no C++ compiler")
    return found


def build(source: str, compiler: Compiler, cache: Path) -> Artifact:
    (made,) = compile_units([source], compiler, cache)
    assert isinstance(made, Artifact)
    return made


def test_builds_once_and_finds_again(compiler: Compiler, tmp_path: Path) -> None:
    made = build(GOOD, compiler, tmp_path / "cache")
    assert ctypes.CDLL(str(made.library)).answer() == 42
    before = made.library.stat().st_mtime_ns
    assert build(GOOD, compiler, tmp_path / "cache").library.stat().st_mtime_ns == before
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    assert not list((tmp_path / "cache").glob("tmp-*"))


def test_failures_are_values(compiler: Compiler, tmp_path: Path) -> None:
    good, bad, same = compile_units([GOOD, "int f( {", GOOD], compiler, tmp_path, jobs=2)
    assert isinstance(bad, BuildFailure)
    assert bad.message.startswith("unit.cpp:1:")
    assert "error" in bad.message
    assert good == same
    (missing,) = compile_units([GOOD + "//"], replace(compiler, path="/nonexistent/g++"), tmp_path)
    assert isinstance(missing, BuildFailure)


def test_a_slow_compiler_is_a_failure(compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o700)
    monkeypatch.setattr(compiling, "TIMEOUT_S", 0.1)
    (made,) = compile_units([GOOD + "//slow"], replace(compiler, path=str(slow)), tmp_path / "cache")
    assert isinstance(made, BuildFailure)


def test_digest_covers_what_decides_the_code(compiler: Compiler) -> None:
    others = [
        replace(compiler, version="g++ 99"),
        replace(compiler, libc="glibc 9"),
        replace(compiler, machine=()),
        replace(compiler, vector_math=not compiler.vector_math),
    ]
    digests = {unit_digest(GOOD, c) for c in (compiler, *others)} | {unit_digest(GOOD + " ", compiler)}
    assert len(digests) == 6
    assert unit_digest(GOOD, compiler) == unit_digest(GOOD, replace(compiler, path="/elsewhere/g++"))


@pytest.mark.parametrize("damage", ["content", "seal", "link", "writable"])
def test_tampered_libraries_are_built_again(damage: str, compiler: Compiler, tmp_path: Path) -> None:
    made = build(GOOD, compiler, tmp_path)
    evil = b"not a library"
    seal = made.library.with_suffix(".sha256")
    if damage == "content":
        made.library.write_bytes(evil)
    elif damage == "seal":
        seal.write_text("0" * 64)
    elif damage == "link":
        moved = tmp_path / "moved.so"
        made.library.rename(moved)
        made.library.symlink_to(moved)
    else:
        made.library.chmod(0o722)
    again = build(GOOD, compiler, tmp_path)
    assert again.library.read_bytes() != evil
    assert not again.library.is_symlink()
    assert not again.library.stat().st_mode & 0o022
    assert ctypes.CDLL(str(again.library)).answer() == 42


def test_a_cache_that_others_can_write_is_refused(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(PermissionError, match="another cache folder"):
        prepare_cache(shared)
    link = tmp_path / "link"
    os.symlink(tmp_path, link)
    with pytest.raises(PermissionError):
        prepare_cache(link)


def test_machine_flags_of_either_compiler() -> None:
    gcc = ' /usr/lib/cc1plus -E -quiet -v /dev/null "-march=znver3" -mavx2 -mno-fma4 --param "l2-cache-size=512"'
    assert machine_flags(f"Using built-in specs.\n{gcc}\n") == (
        ("-march=znver3", "-mavx2", "-mno-fma4", "--param", "l2-cache-size=512"),
        "",
    )
    clang = ' "/usr/bin/clang" "-cc1" "-target-cpu" "znver3" "-target-feature" "+avx2" "-mllvm" "-x"'
    assert machine_flags(f"clang version 15\n{clang}\n") == (("-march=native",), "znver3 +avx2")
    assert machine_flags(None) == ((), "")


@pytest.fixture
def fresh() -> Iterator[None]:
    forget_compilers()
    yield
    forget_compilers()


@pytest.mark.usefixtures("fresh")
def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_compiler() is None


@pytest.mark.usefixtures("fresh")
def test_the_compiler_is_remembered_but_never_trusted_with_flags(tmp_path: Path) -> None:
    """A remembered answer saves asking; one that somebody changed into other flags is asked for again."""
    memory = tmp_path / "kernels"
    asked = find_compiler(memory=memory)
    if asked is None:
        pytest.skip("no C++ compiler")
    record = memory / "compiler.json"
    data = json.loads(record.read_text())
    for changed, wanted in (({"version": "g++ 99"}, "g++ 99"), ({"machine": ["-fplugin=evil.so"]}, asked.version)):
        record.write_text(json.dumps({**data, **changed}))
        forget_compilers()
        found = find_compiler(memory=memory)
        assert found is not None
        assert found.version == wanted
        assert not any("plugin" in flag for flag in found.flags)
