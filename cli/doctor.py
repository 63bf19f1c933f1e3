"""The verb `doctor`: what this machine has, what is missing, and what to install."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import click

from .. import __version__
from ..kernels.cuda.driver import DriverDevice
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
    findings = [*_versions(), *_onnxruntime(), *_compilers(), *_devices(), *_cuda(), *_paths(), *_optional()]
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
            found.append(Finding(name, "ok", _version(name)))
    return found


def _version(name: str) -> str:
    """Of the distribution that a module comes from: ONNX Runtime's has two names."""
    names = [name, "onnxruntime-gpu"] if name == "onnxruntime" else [name]
    return next((metadata.version(one) for one in names if _installed(one)), "of no known version")


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
    return [Finding("cpu", "ok", f"{cpu.processors} cores, {8 * cpu.vector_bytes}-bit vectors, {cpu.arch}, {caches}")]


def _cuda() -> list[Finding]:
    """What the target cuda has here: tuning for a profile needs NVRTC, running kernels CuPy and a device too."""
    from ..devices import absence, cuda_device, extra_for
    from ..kernels.cuda import driver
    from ..kernels.cuda.nvrtc import find_nvrtc
    from ..search_space.devices import DEVICES

    found = driver.devices()
    extra = extra_for(found[0].driver) if found else "cuda13"
    nvrtc, here = find_nvrtc(), cuda_device()
    names = ", ".join(name.removeprefix("cuda:") for name in DEVICES)
    findings = [
        Finding("cuda compiler", "ok", f"NVRTC {nvrtc.version}, from sm_{min(nvrtc.architectures)} on")
        if nvrtc
        else Finding("cuda compiler", "optional", f"to compile for CUDA: pip install 'stitchtune[{extra}]'"),
        _cupy(extra),
        *(Finding("cuda device", "ok", _device_text(one)) for one in found),
    ]
    if here is None:
        mend = "kernels for it are tuned by prediction, and run on a machine that has one"
        findings.append(Finding("cuda device", "missing" if found else "optional", f"{absence()}; {mend}"))
    else:
        findings.append(Finding("cuda target", "ok", f"{here.name} is the default target"))
    findings.append(Finding("cuda profiles", "ok", f"--target cuda:NAME without the device: {names}"))
    return findings


def _cupy(extra: str) -> Finding:
    installed = sorted({name for dist in metadata.distributions() if (name := dist.name) and name.startswith("cupy")})
    if not installed:
        return Finding("cupy", "optional", f"to run kernels on a GPU: pip install 'stitchtune[{extra}]'")
    if len(installed) > 1:
        return Finding("cupy", "missing", f"{', '.join(installed)} exclude each other: pip uninstall all but one")
    return Finding("cupy", "ok", f"{installed[0]} {metadata.version(installed[0])}")


def _device_text(one: DriverDevice) -> str:
    version = f"CUDA {one.driver // 1000}.{one.driver % 1000 // 10}"
    return f"{one.name}, {one.arch}, {one.processors} multiprocessors, {one.memory >> 30} GB, driver for {version}"


def _onnxruntime() -> list[Finding]:
    """The two builds of ONNX Runtime install the same files: with both, the one installed last is what is there."""
    both = [name for name in ("onnxruntime", "onnxruntime-gpu") if _installed(name)]
    if len(both) < 2:
        return []
    mend = "pip uninstall both, then install one (onnxruntime-gpu for library ops on a GPU)"
    return [Finding("onnxruntime", "missing", f"onnxruntime and onnxruntime-gpu exclude each other: {mend}")]


def _installed(name: str) -> bool:
    try:
        metadata.version(name)
    except metadata.PackageNotFoundError:
        return False
    return True


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
