"""The verb `doctor`: what this machine has, what is missing, and what to install."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import click

from .. import __version__
from .options import common, echo, print_json, table

LIBRARIES = ("numpy", "onnx", "onnxruntime", "optuna", "sqlalchemy", "pandas", "matplotlib", "rich", "click")
OPTIONAL = {
    "jax": ("compare with XLA in `bench`", "stitchtune[jax]"),
    "torch": ("compare with TorchInductor in `bench`; export the example", "stitchtune[torch]"),
    "scipy": ("compare with NumPy in `bench`", "scipy"),
    "psycopg": ("plan databases on PostgreSQL", "stitchtune[postgresql]"),
}
"""An optional library, what it is for, and what to install for it."""


@dataclass(frozen=True)
class Finding:
    """One line of the report: "ok", "missing" (the mend is in `detail`) or "optional" (nothing needs it)."""

    subject: str
    state: str
    detail: str


@click.command()
@common
def doctor(as_json: bool) -> int:
    """Compilers, devices, versions and cache paths; what is missing and what to install."""
    findings = [*_versions(), *_compilers(), *_devices(), *_paths(), *_optional()]
    if as_json:
        print_json({"version": __version__, "findings": [asdict(f) for f in findings]})
    else:
        echo(f"stitchtune {__version__}")
        table(("", "", ""), [(f.subject, f.state, f.detail) for f in findings])
    return 0


def _versions() -> list[Finding]:
    found = [Finding("python", "ok", f"{platform.python_version()} ({sys.executable})")]
    for name in LIBRARIES:
        if find_spec(name) is None:
            found.append(Finding(name, "missing", f"pip install {name}"))
        else:
            found.append(Finding(name, "ok", metadata.version(name)))
    return found


def _compilers() -> list[Finding]:
    from ..kernels.compile import COMPILERS, find_compiler

    compiler = find_compiler()
    if compiler is None:
        return [Finding("compiler", "missing", f"none of {', '.join(COMPILERS)} works: apt install g++")]
    header = "no libmvec with exp and erf (glibc 2.35 or later, g++): the inline header is used"
    return [
        Finding("compiler", "ok", f"{compiler.version} ({compiler.path})"),
        Finding("vector math", "ok", "libmvec" if compiler.vector_math else header),
        Finding("C library", "ok", compiler.libc),
    ]


def _devices() -> list[Finding]:
    from ..kernels.host import host_target

    cpu = host_target()
    caches = (
        f"L1 {cpu.l1_bytes >> 10} KB, block memory {cpu.block_bytes >> 10} KB, last level {cpu.cache_bytes >> 20} MB"
    )
    found = [Finding("cpu", "ok", f"{cpu.processors} cores, {8 * cpu.vector_bytes}-bit vectors, {cpu.arch}, {caches}")]
    driver = shutil.which("nvidia-smi")
    if driver is None:
        return [*found, Finding("cuda", "optional", "no NVIDIA driver on this machine")]
    query = [driver, "--query-gpu=name,driver_version", "--format=csv,noheader"]
    listed = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    detail = f"{listed or 'the driver names no device'}; kernels for it are not built by this version"
    return [*found, Finding("cuda", "optional", " ".join(detail.split()))]


def _paths() -> list[Finding]:
    from ..results.engine import default_path
    from ..settings import cache_folder

    return [_path("plan database", default_path()), _cache(cache_folder())]


def _cache(folder: Path) -> Finding:
    from ..kernels.compile import prepare_cache

    try:
        prepare_cache(folder)
    except OSError as error:
        return Finding("kernel cache", "missing", str(error))
    return _path("kernel cache", folder)


def _path(subject: str, path: Path) -> Finding:
    """A file or folder that is made when first needed."""
    standing = next(p for p in (path, *path.parents) if p.exists())
    if not os.access(standing, os.W_OK):
        return Finding(
            subject, "missing", f"{path}: {standing} cannot be written; set XDG_DATA_HOME and XDG_CACHE_HOME"
        )
    size = sum(p.stat().st_size for p in (path.rglob("*") if path.is_dir() else [path]) if p.is_file())
    return Finding(subject, "ok", f"{path} ({f'{size / 1e6:.1f} MB' if path.exists() else 'not there yet'})")


def _optional() -> list[Finding]:
    return [
        Finding(name, "ok", f"{metadata.version(name)}: {use}")
        if find_spec(name)
        else Finding(name, "optional", f"to {use}: pip install '{extra}'")
        for name, (use, extra) in OPTIONAL.items()
    ]
