"""Sections "facts", "sanitizer" and "sectors": the machine, and ten kernels under NVIDIA's tools where they are."""

from __future__ import annotations

import csv
import io
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from ...kernels.compile import BuildFailure
from ...kernels.cuda import driver
from ...kernels.cuda.built import BuiltCuda
from .session import Item, Session
from .store import Section
from .subjects import run_ten, ten

PACKAGES = ("numpy", "cupy-cuda13x", "cupy-cuda12x", "torch", "triton", "jax", "onnx", "onnxruntime", "cuda-bindings")
TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
METRICS = ("lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum", "dram__bytes.sum")


def facts(session: Session, section: Section) -> None:
    """The machine as far as it tells."""
    section.summary = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "devices": [vars(one) for one in driver.devices()],
        "nvidia_smi": _smi(),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _smi() -> str:
    """Driver, clocks and what else uses the device, as nvidia-smi has it."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    fields = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,temperature.gpu,utilization.gpu,memory.used"
    done = subprocess.run(
        [program, f"--query-gpu={fields}", "--format=csv"], capture_output=True, text=True, timeout=20, check=False
    )
    return done.stdout.strip()


def ten_items(session: Session) -> list[Item]:
    return [item for _, item in ten(session)]


def sanitizer(session: Session, section: Section, again: list[str]) -> None:
    """Ten kernels once under each tool of compute-sanitizer. `again` runs them in a process of their own."""
    if session.emulated:
        section.rows = run_ten(session)
        section.why = "the emulator's own checks; compute-sanitizer runs on the device only"
        return
    program = shutil.which("compute-sanitizer")
    if program is None:
        section.state, section.why = "skipped", "compute-sanitizer is not installed here"
        return
    for tool in TOOLS:
        if session.left < 5:
            section.state, section.why = "partial", f"time ran out before {tool}"
            break
        command = [program, "--tool", tool, "--error-exitcode", "9", *again]
        code, text = _run(command, session.left)
        lines = [line for line in text.splitlines() if line.startswith("=========")]
        section.rows.append({"tool": tool, "code": code, "errors": lines[-1:] if code == 0 else lines[:12]})
    section.summary = {row["tool"]: "clean" if row["code"] == 0 else f"exit code {row['code']}" for row in section.rows}


def sectors(session: Session, section: Section, again: list[str]) -> None:
    """Sectors that ncu counts for ten kernels against U and B, which the emulator counts."""
    expected = _emulated(session)
    program = shutil.which("ncu")
    if session.emulated or program is None:
        section.rows = expected
        section.state = "done" if session.emulated else "skipped"
        section.why = "ncu runs on the device only" if session.emulated else "ncu is not installed here"
        return
    code, text = _run([program, "--csv", "--metrics", ",".join(METRICS), *again], session.left)
    table = text[text.find('"ID"') :] if '"ID"' in text else ""
    for row in csv.DictReader(io.StringIO(table)):
        if row.get("Kernel Name", "").startswith("st_"):
            section.rows.append({k: row.get(k, "") for k in ("ID", "Kernel Name", "Metric Name", "Metric Value")})
    section.summary = {"emulated": expected}
    if code or not section.rows:
        section.state, section.why = "failed", f"ncu ended with {code}: {text.strip().splitlines()[-1:]}"


def _emulated(session: Session) -> list[dict[str, Any]]:
    """U, B and R of each of the ten, where the emulator works (it needs a C++ compiler)."""
    from ...kernels.cuda.emulator import emulate

    rows: list[dict[str, Any]] = []
    for _, item in ten(session):
        [built] = emulate.build_emulated([(item.sub, item.plan)], session.target, cache=session.cache)
        if isinstance(built, BuildFailure):
            return [{"message": f"the emulator does not build here: {built.message}"}]
        rows.append({"kernel": item.name, "launches": _counters(built, item)})
    return rows


def _counters(built: BuiltCuda, item: Item) -> list[dict[str, Any]]:
    import numpy as np

    from ... import feeds
    from ...kernels.cuda.emulator import emulate

    sub = item.sub
    outputs = [np.zeros(sub.shape(v), sub.values[v].dtype.numpy) for v in sub.outputs]
    found = emulate.run(built, feeds.for_subgraph(sub), outputs, count=True)
    return [_numbers(counters) for counters in found.counters]


def _numbers(counters: Any) -> dict[str, Any]:
    return {
        name: value for name, value in vars(counters).items() if isinstance(value, int | float | str | list | tuple)
    }


def _run(command: list[str], seconds: float) -> tuple[int, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=max(5.0, seconds), check=False)
    except subprocess.TimeoutExpired:
        return 124, "it took too long"
    return done.returncode, done.stdout + done.stderr


def again_command(script: Path, arguments: list[str]) -> list[str]:
    """The command that runs the ten kernels in a process of their own."""
    return [sys.executable, str(script), *arguments, "--ten"]
