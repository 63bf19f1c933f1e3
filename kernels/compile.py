"""Source text becomes a shared library: the compiler, its flags, and a cache addressed by content.

The key of an artifact is the source, the resolved flags, and the versions of the compiler and the C library.
Libraries are published by atomic rename, each with its digest beside it; one that does not match its digest, or that
somebody else could have written, is built again and never loaded.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shlex
import shutil
import signal
import stat
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from .host import host_target

COMPILERS = ("g++", "clang++")
"""Looked for in this order."""

BASE_FLAGS = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-fno-tree-vectorize",
    "-ftree-slp-vectorize",
    "-fopenmp-simd",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-semantic-interposition",
)
"""Without -ffast-math: NaN, infinities, signed zeros and subnormals keep their meaning, and nothing is reassociated.
No contraction to fused multiply-add, so that a result does not depend on which loop computed it. Loops that the plan
vectorizes say so (omp simd); g++ 12 takes no others, since it got outer loops and jammed ones wrong when it did."""

TIMEOUT_S = 120


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler and what it makes here.

    machine      the flags that -march=native stands for on this machine
    resolved     what those flags mean, where they are not spelled out (clang): for keys
    vector_math  the C library has vector forms of exp and its like, and the compiler calls them
    """

    path: str
    version: str
    libc: str
    machine: tuple[str, ...]
    vector_math: bool
    resolved: str = ""

    @property
    def flags(self) -> tuple[str, ...]:
        return (*BASE_FLAGS, *self.machine)

    @property
    def libraries(self) -> tuple[str, ...]:
        return ("-lmvec", "-lm") if self.vector_math else ("-lm",)

    @property
    def identity(self) -> str:
        """What of the compiler decides a result, as one line for keys."""
        return "; ".join((self.version, self.libc, " ".join(self.flags), " ".join(self.libraries), self.resolved))


@dataclass(frozen=True)
class BuildFailure:
    """A unit that did not compile: the stage and the compiler's first error line."""

    stage: str
    message: str


@dataclass(frozen=True)
class Artifact:
    """A compiled library in the cache."""

    library: Path
    digest: str


_found: dict[str | None, Compiler | None] = {}


def find_compiler(command: str | None = None, memory: Path | None = None) -> Compiler | None:
    """The C++ compiler of this machine (or `command`); None when there is none that works. Asked once a process.

    memory   a cache folder in which the answer is kept for later processes, since asking takes some 0.2 s
    """
    if command not in _found:
        paths = [path for name in ((command,) if command else COMPILERS) if (path := shutil.which(name))]
        found = (compiler for path in paths if (compiler := _recall(path, memory)) is not None)
        _found[command] = next(found, None)
    return _found[command]


def forget_compilers() -> None:
    """Makes the next `find_compiler` look again."""
    _found.clear()


def _recall(path: str, memory: Path | None) -> Compiler | None:
    """What `memory` says of the compiler at `path`, or what it says itself."""
    if memory is None:
        return _examine(path)
    record, facts = memory / "compiler.json", _facts(path)
    known = _read_record(record, facts)
    if known is not None:
        return known
    compiler = _examine(path)
    if compiler is not None:
        _write_record(record, facts, compiler)
    return compiler


def _facts(path: str) -> list[str]:
    """What must be as it was for a remembered answer to hold: the compiler, the processor, the C library."""
    status = os.stat(path)
    binary = f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"
    return [path, binary, host_target().arch, " ".join(platform.libc_ver())]


def _read_record(record: Path, facts: list[str]) -> Compiler | None:
    """The compiler that a record of this user describes; None unless it is about `facts` and holds nothing odd."""
    if not (is_private(record.parent) and is_private(record)):
        return None
    try:
        data = json.loads(record.read_text())
        known = Compiler(
            facts[0], data["version"], facts[3], tuple(data["machine"]), data["vector_math"] is True, data["resolved"]
        )
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    texts = (known.version, known.resolved, *known.machine)
    whole = all(isinstance(text, str) for text in texts) and data.get("facts") == facts
    return known if whole and all(_MACHINE_WORD.fullmatch(word) for word in known.machine) else None


_MACHINE_WORD = re.compile(r"-m(arch|tune|no-|)[\w.=+-]*|--param|[\w-]+=\d+")


def _write_record(record: Path, facts: list[str], compiler: Compiler) -> None:
    """Keeps an answer; a folder that cannot be used keeps nothing."""
    data = {
        "facts": facts,
        "version": compiler.version,
        "machine": compiler.machine,
        "vector_math": compiler.vector_math,
        "resolved": compiler.resolved,
    }
    try:
        prepare_cache(record.parent)
        with tempfile.NamedTemporaryFile("w", dir=record.parent, prefix="tmp-", delete=False) as file:
            json.dump(data, file)
        os.replace(file.name, record)
    except OSError:
        return


def _examine(path: str) -> Compiler | None:
    version = _output([path, "--version"])
    if version is None:
        return None
    libc = " ".join(platform.libc_ver())
    machine, resolved = machine_flags(_output([path, "-march=native", "-###", "-E", "-x", "c++", "/dev/null"]))
    plain = Compiler(path, version.splitlines()[0].strip(), libc, machine, False, resolved)
    return replace(plain, vector_math=_has_vector_math(plain))


def _output(command: Sequence[str], text: str = "") -> str | None:
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def machine_flags(trace: str | None) -> tuple[tuple[str, ...], str]:
    """What -march=native means, from the compiler's own trace of its steps: flags, and text for keys beside them.

    g++ spells it out in flags for its compiler proper; clang names the processor and features to its own. Without a
    trace the compiler knows no such flag.
    """
    found: list[str] = []
    features: list[str] = []
    for line in (trace or "").splitlines():
        words = shlex.split(line) if "cc1" in line else []
        for word, after in zip(words, [*words[1:], ""], strict=bool(words)):
            if re.fullmatch(r"-m(arch|tune|no-|)[\w.=+-]*", word) and "cc1plus" in line:
                found.append(word)
            elif word == "--param":
                found += [word, after]
            elif word in ("-target-cpu", "-target-feature"):
                features.append(after)
    if any(word.startswith("-march=") for word in found):
        return tuple(found), ""
    return (("-march=native",) if trace is not None else ()), " ".join(features)


_PROBE = """
extern "C" {
#pragma omp declare simd notinbranch
__attribute__((const)) float expf(float) noexcept;
#pragma omp declare simd notinbranch
__attribute__((const)) float erff(float) noexcept;
}
extern "C" void probe(const float* x, float* y, int n) {
#pragma omp simd
  for (int i = 0; i < n; ++i) y[i] = expf(x[i]) + erff(x[i]);
}
"""


def _has_vector_math(compiler: Compiler) -> bool:
    """True when a loop over exp and erf (glibc 2.35) compiles to calls of libmvec that link."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "probe.cpp", Path(folder) / "probe.so"
        source.write_text(_PROBE)
        command = [compiler.path, *compiler.flags, "-Wl,-z,defs", str(source), "-o", str(library), "-lmvec", "-lm"]
        if _output(command) is None or not library.exists():
            return False
        return b"_ZGV" in library.read_bytes()


# --- the cache


def unit_digest(source: str, compiler: Compiler) -> str:
    """The content address of a unit."""
    text = "\0".join((source, compiler.identity))
    return hashlib.sha256(text.encode()).hexdigest()


def compile_units(
    sources: Sequence[str], compiler: Compiler, cache: Path, jobs: int = 2
) -> list[Artifact | BuildFailure]:
    """Each source as a library in `cache`, compiled in parallel where it is not there yet.

    Raises OSError when the cache folder cannot be used.
    """
    prepare_cache(cache)
    unique = list(dict.fromkeys(sources))
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        results = dict(zip(unique, pool.map(lambda s: _compile(s, compiler, cache), unique), strict=True))
    return [results[source] for source in sources]


def prepare_cache(cache: Path) -> None:
    """Makes the folder, for this user alone. Raises OSError when it belongs to somebody else or others may write it."""
    try:
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"kernel cache {cache} cannot be made ({error.strerror}): set XDG_CACHE_HOME to a folder of yours"
        ) from error
    if cache.is_symlink() or not is_private(cache):
        why = "is a link" if cache.is_symlink() else "can be written by others"
        raise PermissionError(f"kernel cache {cache} {why}: remove it, or name another cache folder by XDG_CACHE_HOME")


def is_private(path: Path) -> bool:
    """True for a real file or folder of this user that nobody else may write."""
    try:
        facts = path.lstat()
    except OSError:
        return False
    if stat.S_ISLNK(facts.st_mode):
        return False
    mine = not hasattr(os, "getuid") or facts.st_uid == os.getuid()
    return mine and not facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _compile(source: str, compiler: Compiler, cache: Path) -> Artifact | BuildFailure:
    digest = unit_digest(source, compiler)
    library, seal = cache / f"{digest}.so", cache / f"{digest}.sha256"
    if _intact(library, seal):
        return Artifact(library, digest)
    with tempfile.TemporaryDirectory(dir=cache, prefix="tmp-") as folder:
        text, made, made_seal = Path(folder) / "unit.cpp", Path(folder) / "unit.so", Path(folder) / "unit.sha256"
        text.write_text(source)
        command = [compiler.path, *compiler.flags, str(text), "-o", str(made), *compiler.libraries]
        try:
            code, errors = _run(command)
        except subprocess.TimeoutExpired:
            return BuildFailure("compile", f"the compiler took more than {TIMEOUT_S} s")
        except OSError as error:
            return BuildFailure("compile", f"{compiler.path}: {error.strerror}")
        if code or not made.exists():
            return BuildFailure("compile", _first_error(errors, str(text)))
        made.chmod(0o700)
        made_seal.write_text(hashlib.sha256(made.read_bytes()).hexdigest())
        made_seal.chmod(0o600)
        # The seal goes last: a library without one is built again. Racing builders publish equal contents.
        os.replace(made, library)
        os.replace(made_seal, seal)
    return Artifact(library, digest)


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Exit code and standard error. Raises TimeoutExpired when it takes too long; nothing of it goes on then."""
    nothing = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=nothing, stdout=nothing, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as process:
        try:
            _, errors = process.communicate(timeout=TIMEOUT_S)
        except BaseException:
            for child in _children(process.pid):  # a driver's compiler proper would outlive it
                with contextlib.suppress(OSError):
                    os.kill(child, signal.SIGKILL)
            process.kill()
            raise
    return process.returncode, errors


def _children(pid: int) -> list[int]:
    """The processes that a process has started, where the system tells."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _intact(library: Path, seal: Path) -> bool:
    if not (is_private(library) and is_private(seal)):
        return False
    try:
        return seal.read_text() == hashlib.sha256(library.read_bytes()).hexdigest()
    except OSError:
        return False


def _first_error(stderr: str, path: str) -> str:
    """The first line of a compiler's output that says error, without the temporary path."""
    lines = [line.replace(path, "unit.cpp") for line in stderr.splitlines()]
    return next((line for line in lines if "error" in line), lines[0] if lines else "the compiler failed silently")
