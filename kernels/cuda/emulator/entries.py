"""The text of a unit of the emulator: CUDA source between the header that lets a C++ compiler read it and one entry
point per kernel."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent
RUNTIME = FOLDER.parent.parent / "runtime"

BARRIER_LINE = 1_000_001
"""Where the lines of grid_barrier.h start, so that they are not taken for lines of the source."""

_GRID = """
#define st_sync_grid(word) (st_enter_grid(), (st_sync_grid)(word), st_runtime->leave_grid(__LINE__))
"""


def unit(source: str, symbols: Sequence[str], *, barrier: str | None = None, before: str = "") -> str:
    """A whole unit. Lines of `source` keep their numbers; register arrays are poisoned where they are declared.

    barrier   another text instead of grid_barrier.h
    before    text before everything else
    """
    parts = [
        before,
        header(),
        f'#line {BARRIER_LINE} "grid_barrier.h"\n',
        barrier if barrier is not None else _read(RUNTIME / "grid_barrier.h"),
        _GRID,
        '#line 1 "kernels.cu"\n',
        _ARRAY.sub(r"\1 st_poison(\2);", source),
        "\n",
        *(entry(symbol) for symbol in symbols),
    ]
    return "".join(parts)


_ARRAY = re.compile(r"^( *\w+ (\w+)\[\d+\];)$", re.MULTILINE)
"""A register array, not initialised: in the emulator it starts with NaN, or -1."""


def header() -> str:
    """What stands before the source, but for the grid barrier."""
    names = (FOLDER / "interface.h", FOLDER / "emulator.h", RUNTIME / "arithmetic.h")
    return "".join(_read(path) for path in names)


def entry(symbol: str) -> str:
    """The function that the runtime calls for each thread, with one pointer to each parameter."""
    return f'extern "C" void st_enter_{symbol}(void** at) {{ st_call({symbol}, at); }}\n'


def runtime_source() -> str:
    """The runtime's library, as one unit."""
    return "".join(_read(FOLDER / name) for name in _RUNTIME)


_RUNTIME = (
    "interface.h",
    "runtime.h",
    "fiber.h",
    "counts.h",
    "shadow.h",
    "state.h",
    "waiting.cpp",
    "accesses.cpp",
    "launching.cpp",
    "runtime.cpp",
)


@cache
def _read(path: Path) -> str:
    return path.read_text()
