"""The version of the code generator: a hash of the sources that decide what code a plan becomes."""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent
_SOURCES = frozenset({".py", ".h", ".hpp", ".c", ".cpp", ".cu", ".cuh"})
_SHARED = ("graphs/dtypes.py", "graphs/primitives.py", "graphs/subgraph.py", "search_space/plan.py")
"""Outside kernels/: what the meaning of a plan and of a subgraph rests on."""


@functools.cache
def generator_version() -> str:
    """12 hex digits that change with any source in kernels/ or the definitions it lowers; 1 to 2 ms, once a process."""
    files = [f for f in (_ROOT / "kernels").rglob("*") if f.suffix in _SOURCES and "__pycache__" not in f.parts]
    return hash_sources(_ROOT, [*files, *(_ROOT / name for name in _SHARED)])


def hash_sources(root: Path, files: list[Path]) -> str:
    """A hash of the files' paths below `root` and their contents, whatever order they are listed in."""
    total = hashlib.sha256()
    for file in sorted(files, key=lambda f: f.relative_to(root).as_posix()):
        text = file.read_bytes().replace(b"\r\n", b"\n")  # a checkout on Windows is the same generator
        total.update(f"{file.relative_to(root).as_posix()} {len(text)}\n".encode() + text)
    return total.hexdigest()[:12]
