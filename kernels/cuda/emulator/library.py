"""The emulator's runtime and compiled kernels as loaded libraries: what is passed between Python and them."""

from __future__ import annotations

import ctypes
import subprocess
from dataclasses import replace
from functools import cache as once
from pathlib import Path

from ...compile import Artifact, BuildFailure, Compiler, compile_units, find_compiler
from .entries import runtime_source

FLAGS = ("-O1", "-fwrapv", "-fno-exceptions", "-fno-strict-aliasing", "-fsanitize=bounds")
"""For kernels: compiles fast, keeps 16-byte accesses whole, and no index overflow lets the compiler assume anything.
Indices of register arrays are checked by the compiler's own code; what it calls is in emulator.h."""


class Buffer(ctypes.Structure):
    _fields_ = (
        ("base", ctypes.c_void_p),
        ("bytes", ctypes.c_uint64),
        ("element", ctypes.c_int32),
        ("initialised", ctypes.c_int32),
    )


class LaunchRecord(ctypes.Structure):
    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("bind", ctypes.c_void_p),
        ("at", ctypes.c_void_p),
        ("blocks", ctypes.c_int64),
        ("threads", ctypes.c_int32),
        ("shared_bytes", ctypes.c_int32),
        ("resident", ctypes.c_int32),
        ("check", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("most_findings", ctypes.c_int32),
        ("seed", ctypes.c_uint64),
        ("steps", ctypes.c_uint64),
        ("writable", ctypes.c_void_p),
    )


class FindingRecord(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_int32),
        ("line", ctypes.c_int32),
        ("block", ctypes.c_int32),
        ("thread", ctypes.c_int32),
        ("phase", ctypes.c_int32),
        ("terminal", ctypes.c_int32),
        ("text", ctypes.c_char * 240),
    )


class TrafficRecord(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("sectors", "bytes", "block_sectors", "requests", "request_sectors", "request_bytes")
    )


class CountsRecord(ctypes.Structure):
    _fields_ = (
        ("phase", ctypes.c_int32),
        ("position", ctypes.c_int32),
        ("reads", TrafficRecord),
        ("writes", TrafficRecord),
        ("conflicts", ctypes.c_int64),
    )


def kernel_compiler(compiler: Compiler) -> Compiler:
    """`compiler` with the flags that kernels of the emulator are compiled with."""
    poison = _POISON if _knows(compiler.path, _POISON) else ()
    return replace(compiler, machine=(*FLAGS, *poison), vector_math=False)


_POISON = ("-ftrivial-auto-var-init=pattern",)
"""Registers that nothing was written to hold odd values (g++ 12 and later, clang 8 and later)."""


@once
def _knows(path: str, flags: tuple[str, ...]) -> bool:
    done = subprocess.run([path, *flags, "-E", "-x", "c++", "/dev/null"], capture_output=True, check=False)
    return done.returncode == 0


def runtime(cache: Path) -> ctypes.CDLL:
    """The emulator's runtime, compiled into `cache` when it is not there. Raises OSError when it cannot be."""
    compiler = find_compiler()
    if compiler is None:
        raise OSError("no C++ compiler works here: install g++ or clang++")
    (made,) = compile_units([runtime_source()], replace(compiler, vector_math=False), cache)
    match made:
        case BuildFailure(_, message):
            raise OSError(f"the emulator does not compile: {message}")
        case Artifact(library, _):
            return _load_runtime(library)


@once
def _load_runtime(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    library.st_open.restype = ctypes.c_void_p
    library.st_open.argtypes = (ctypes.c_void_p, ctypes.c_int)
    library.st_launch.restype = ctypes.c_int
    library.st_launch.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.st_findings.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.st_findings.restype = None
    library.st_counts.argtypes = (ctypes.c_void_p, ctypes.c_void_p)
    library.st_counts.restype = ctypes.c_int
    library.st_close.argtypes = (ctypes.c_void_p,)
    library.st_close.restype = None
    return library


@once
def load_kernels(path: Path) -> ctypes.CDLL:
    """Compiled kernels; they stay loaded."""
    return ctypes.CDLL(str(path))


def address(library: ctypes.CDLL, symbol: str) -> int:
    return ctypes.cast(library[symbol], ctypes.c_void_p).value or 0
