"""CUDA C++ becomes a cubin: NVRTC through NVIDIA's cuda-bindings, with or without a driver, and a cache by content.

The only module that imports cuda.bindings. Functions may be called from several threads.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache as once
from importlib import metadata
from pathlib import Path
from typing import Any

from ..compile import BuildFailure, is_private, prepare_cache

ARITHMETIC = ("--ftz=false", "--prec-div=true", "--prec-sqrt=true", "--fmad=false")
"""Subnormals, division and square roots as IEEE 754 has them. No contraction to fused multiply-add, as on the CPU: a
lane that fused its own product into a fold would have other bits than its partners."""

FLAGS = ("-std=c++17", *ARITHMETIC, "--ptxas-options=-v")
"""The assembler reports what each kernel needs."""

MISSING = "CUDA kernels need NVRTC: pip install 'stitchtune[cuda13]' (or [cuda12])"

_RUNTIME = Path(__file__).parent.parent / "runtime"
_HEADERS = ("device.h", "arithmetic.h", "grid_barrier.h")


@dataclass(frozen=True)
class Compiled:
    """A unit in the cache: its cubin, and the compiler's log, with the assembler's report of each kernel."""

    image: Path
    log: str


@dataclass(frozen=True)
class Nvrtc:
    """The compiler: its version with the wheel's where that is known ("13.0 (13.0.88)"), and what it makes code for."""

    version: str
    architectures: tuple[int, ...]


@once
def find_nvrtc() -> Nvrtc | None:
    """The compiler of this environment; None when the extra is not installed. Asked once a process."""
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
        _, architectures = nvrtc.nvrtcGetSupportedArchs()
    except (ImportError, RuntimeError):  # no bindings, or no library for them
        return None
    wheel = next((w for name in (f"nvidia-cuda-nvrtc-cu{major}", "nvidia-cuda-nvrtc") if (w := _wheel(name))), "")
    return Nvrtc(f"{major}.{minor}" + f" ({wheel})" * bool(wheel), tuple(architectures))


def _wheel(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@once
def headers() -> str:
    """What stands before emitted text: the device's functions, arithmetic, the grid barrier."""
    return "\n".join((_RUNTIME / name).read_text() for name in _HEADERS)


def unit_digest(source: str, arch: str, compiler: Nvrtc) -> str:
    """The content address of a unit, headers included."""
    text = "\0".join((headers(), source, arch, " ".join(FLAGS), compiler.version))
    return hashlib.sha256(text.encode()).hexdigest()


def compile_unit(source: str, arch: str, cache: Path) -> Compiled | BuildFailure:
    """Emitted text as a cubin of `arch` ("sm_90") in `cache`, compiled where it is not there yet.

    Raises OSError when the cache folder cannot be used.
    """
    return compile_units([source], arch, cache, 1)[0]


def compile_units(sources: Sequence[str], arch: str, cache: Path, jobs: int = 2) -> list[Compiled | BuildFailure]:
    """Each source as a cubin, in parallel; equal ones once."""
    compiler = find_nvrtc()
    if compiler is None:
        return [BuildFailure("compiler", MISSING) for _ in sources]
    if int(arch.removeprefix("sm_")) not in compiler.architectures:
        return [BuildFailure("compiler", _unsupported(arch, compiler)) for _ in sources]
    prepare_cache(cache)
    unique = list(dict.fromkeys(sources))
    with ThreadPoolExecutor(max_workers=max(1, jobs)) as pool:
        made = dict(zip(unique, pool.map(lambda s: _compile(s, arch, compiler, cache), unique), strict=True))
    return [made[source] for source in sources]


def _unsupported(arch: str, compiler: Nvrtc) -> str:
    least = min(compiler.architectures)
    mend = ": install stitchtune[cuda12] instead" if int(arch.removeprefix("sm_")) < least else ": install a newer one"
    return f"NVRTC {compiler.version} makes no code for {arch} (it starts at sm_{least}){mend}"


# --- the cache


def _compile(source: str, arch: str, compiler: Nvrtc, cache: Path) -> Compiled | BuildFailure:
    digest = unit_digest(source, arch, compiler)
    image, log, seal = (cache / f"{digest}{end}" for end in (".cubin", ".log", ".sha256"))
    known = _recall(image, log, seal)
    if known is not None:
        return known
    made = _run(source, arch)
    if isinstance(made, BuildFailure):
        return made
    code, report = made
    # The seal goes last: what it does not match, such as files of two racing builders, is built again.
    for path, content in ((image, code), (log, report.encode()), (seal, _seal(code, report).encode())):
        with tempfile.NamedTemporaryFile(dir=cache, prefix="tmp-", delete=False) as file:
            file.write(content)
        os.replace(file.name, path)
    return Compiled(image, report)


def _recall(image: Path, log: Path, seal: Path) -> Compiled | None:
    if not all(is_private(path) for path in (image, log, seal)):
        return None
    try:
        report = log.read_text()
        return Compiled(image, report) if seal.read_text() == _seal(image.read_bytes(), report) else None
    except (OSError, UnicodeDecodeError):
        return None


def _seal(code: bytes, report: str) -> str:
    return hashlib.sha256(b"\0".join((code, report.encode()))).hexdigest()


# --- the compiler


def _run(source: str, arch: str) -> tuple[bytes, str] | BuildFailure:
    """The cubin and the log, or the compiler's first error."""
    from cuda.bindings import nvrtc

    text = f'{headers()}\n#line 1 "unit.cu"\n{source}'
    error, program = nvrtc.nvrtcCreateProgram(text.encode(), b"unit.cu", 0, [], [])
    if error:
        return BuildFailure("compiler", f"NVRTC: {_name(error)}")
    try:
        options = [option.encode() for option in (f"-arch={arch}", *FLAGS)]
        (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _steady(_bytes(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program))
        if error:
            lines = [line for line in log.splitlines() if "error" in line]
            return BuildFailure("compiler", lines[0] if lines else f"NVRTC: {_name(error)}")
        return _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _steady(log: bytes) -> str:
    """A log without what differs from run to run."""
    lines = log.rstrip(b"\0 \n").decode().splitlines()
    return "\n".join(line for line in lines if "Compile time" not in line)


def _bytes(size: Any, get: Any, program: Any) -> bytes:
    """What a pair of NVRTC's functions gives: a size, then so many bytes."""
    count: int = size(program)[1]
    buffer: bytes = b" " * count
    get(program, buffer)
    return buffer


def _name(error: Any) -> str:
    from cuda.bindings import nvrtc

    return str(nvrtc.nvrtcGetErrorString(error)[1].decode())
