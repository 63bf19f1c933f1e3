"""The thread team that runs CPU kernels: the Python face of runtime/team.cpp.

One team serves a whole run. Calls release the GIL; several Python threads may use one team, they take turns. After
a fork the child's workers start again at its first launch.
"""

from __future__ import annotations

import ctypes
import functools
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .compile import BuildFailure, compile_units, find_compiler

RUNTIME = Path(__file__).parent / "runtime"

BUSY_NS = 500_000
"""How long a thread waits for others within a run before it sleeps."""

IDLE_NS = 50_000
"""How long the workers wait for the next run before they sleep."""


class Record(ctypes.Structure):
    """One prepared call of a kernel (st_record in runtime/team.h)."""

    _fields_ = (
        ("kernel", ctypes.c_void_p),
        ("buffers", ctypes.c_void_p),
        ("args", ctypes.c_void_p),
        ("block_bytes", ctypes.c_int64),
        ("wide", ctypes.c_int32),
        ("counted", ctypes.c_int32),
    )


Counts = ctypes.c_int64 * 2
"""Launches and barriers executed by counted records."""


class Team:
    """Worker threads that run kernels together; the calling thread is thread 0.

    Threads start at the first launch that is wide. A wait within a run sleeps after `busy_ns`, one after it after
    `idle_ns`.
    """

    def __init__(self, library: ctypes.CDLL, threads: int, busy_ns: int = BUSY_NS, idle_ns: int = IDLE_NS) -> None:
        if threads < 1:
            raise ValueError(f"a team has at least one thread, not {threads}")
        self.threads = threads
        self.library = library
        self.handle: int | None = library.st_create(threads, busy_ns, idle_ns)
        if not self.handle:
            raise MemoryError("no memory for a thread team")
        self._run = library.st_run
        self._finalizer = weakref.finalize(self, library.st_destroy, self.handle)
        # At exit the process ends the threads; a kernel may still be running in a daemon thread.
        self._finalizer.atexit = False

    def run(self, records: ctypes.Array[Record], counts: ctypes.Array[ctypes.c_int64] | None = None) -> None:
        """Runs the records in order and adds what was executed to `counts`."""
        error = self._run(self.handle, records, len(records), counts or Counts())
        if error:
            raise OSError(error, os.strerror(error))

    def time(
        self,
        records: ctypes.Array[Record],
        repeats: int,
        *,
        batch: int = 1,
        evict: Eviction | None = None,
        limit_ns: int = 2**62,
    ) -> list[int]:
        """Nanoseconds of each sample of `batch` runs of the records, timed in C.

        With `evict` the caches hold none of the data before each sample. Sampling stops early once the samples add up
        to more than `limit_ns`; at least one is taken.
        """
        samples = (ctypes.c_int64 * repeats)()
        address, size = (evict.address, evict.bytes) if evict else (None, 0)
        taken = self.library.st_time(
            self.handle, records, len(records), repeats, batch, address, size, limit_ns, samples
        )
        if taken < 0:
            raise OSError(-taken, os.strerror(-taken))
        return samples[:taken]

    def close(self) -> None:
        """Ends the workers. Nobody may be running on the team, now or later."""
        self._finalizer()
        self.handle = None


class Eviction:
    """Memory larger than the last-level cache: writing all of it throws everything else out."""

    def __init__(self, cache_bytes: int) -> None:
        self.bytes = 2 * max(cache_bytes, 1 << 20)
        self._memory = bytearray(self.bytes)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))


def records(items: Sequence[Record]) -> ctypes.Array[Record]:
    """The records as the contiguous array that a team takes."""
    return (Record * len(items))(*items)


def function_address(function: Any) -> int:
    """The address of a function of a loaded library."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None
    return address


def runtime_source() -> str:
    """The whole runtime as one unit of C++, without includes of its own files."""
    texts = [(RUNTIME / name).read_text() for name in ("team.h", "library.h", "team.cpp", "library.cpp")]
    own = ('#include "', "#pragma once")
    return "".join(line for text in texts for line in text.splitlines(True) if not line.startswith(own))


def build_runtime(cache: Path) -> ctypes.CDLL | BuildFailure:
    """The runtime library, compiled into `cache` on first use; a BuildFailure where there is no compiler."""
    compiler = find_compiler()
    if compiler is None:
        return BuildFailure("compiler", "no C++ compiler works here: install g++ or clang++")
    [made] = compile_units([runtime_source()], compiler, cache)
    return made if isinstance(made, BuildFailure) else load_runtime(made.library)


@functools.cache
def shared_team(library: ctypes.CDLL, threads: int) -> Team:
    """The team of this process with `threads` threads: models share it, and so do not compete for processors."""
    return Team(library, threads)


@functools.cache
def load_runtime(path: Path) -> ctypes.CDLL:
    """The runtime library at `path`, with the types of its functions declared."""
    library = ctypes.CDLL(str(path))
    pointer, text, word, half = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_int32
    signatures: dict[str, tuple[Any, list[Any]]] = {
        "st_create": (pointer, [half, word, word]),
        "st_destroy": (None, [pointer]),
        "st_run": (half, [pointer, pointer, word, pointer]),
        "st_time": (word, [pointer, pointer, word, word, word, pointer, word, word, pointer]),
        "st_library_open": (text, [text]),
        "st_session_create": (pointer, [text, word, pointer, word, word, word, text, word]),
        "st_session_release": (None, [pointer]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
