"""The device check, dry: every section on the emulator, with little more than NumPy; and kernels that travel."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from stitchtune.benchmarks import device_check
from stitchtune.benchmarks.device import micro
from stitchtune.benchmarks.device.session import INDEX, Session, carry
from stitchtune.benchmarks.device.store import Section, Store
from stitchtune.benchmarks.device.subjects import agree
from stitchtune.devices import resolve_target
from stitchtune.kernels.compile import BuildFailure, find_compiler
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.device import LaunchError
from stitchtune.kernels.cuda.nvrtc import find_nvrtc

from tests.command_line import ROOT

ABSENT = "sqlalchemy optuna pandas matplotlib click rich platformdirs pytest hypothesis cuda cupy".split()
"""What a machine with a GPU need not have (CuPy it must, but a dry run does without)."""

SECTIONS = "facts cases pairs occupancy barrier bandwidth suite predicted sanitizer sectors".split()


@pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
def test_a_dry_run_of_every_section(tmp_path: Path) -> None:
    for name in ABSENT:
        (tmp_path / f"{name}.py").write_text("raise ImportError('not on this machine')\n")
    found, script = tmp_path / "check.json", ROOT / "benchmarks" / "device_check.py"
    done = subprocess.run(
        [sys.executable, "-S", script, "--device", "emulated", "--seconds", "60", "--out", found],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": f"{tmp_path}:{sysconfig.get_path('purelib')}",
            "HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(found.read_text())
    assert document["emulated"] is True
    sections = {section["name"]: section for section in document["sections"]}
    assert list(sections) == SECTIONS
    assert {s["state"] for s in sections.values()} <= {"done", "partial"}, sections
    assert all(row["ok"] for row in sections["cases"]["rows"])
    assert len(sections["cases"]["rows"]) >= 10
    assert {row["state"] for row in sections["pairs"]["rows"]} <= {"right", "not comparable"}
    assert sections["barrier"]["rows"][-1]["barriers"] > 0
    assert all(row["bytes"] > 0 for row in sections["bandwidth"]["rows"])
    assert all("stitched" in row["contestants"] for row in sections["suite"]["rows"])
    assert all(row["predicted"] > 0 for row in sections["predicted"]["rows"])
    assert all(not row["message"] for row in sections["sanitizer"]["rows"])
    assert all(row["launches"] for row in sections["sectors"]["rows"])


@pytest.mark.skipif(find_nvrtc() is None, reason="NVRTC is not installed (extra cuda13)")
def test_kernels_built_here_are_found_there(tmp_path: Path) -> None:
    target = resolve_target("cuda:h200")
    here = Session(target, None, tmp_path / "cache")
    items = micro.copy_items(here)[:2]
    entries = carry(here, items, tmp_path / "kernels", lambda line: pytest.fail(line))
    (tmp_path / "kernels" / INDEX).write_text(json.dumps({"kernels": entries}))
    there = Session(target, None, tmp_path / "empty", carried=tmp_path / "kernels")
    for mine, theirs in zip(here.build(items), there.build(items), strict=True):
        assert isinstance(mine, BuiltCuda)
        assert isinstance(theirs, BuiltCuda)
        assert theirs.launches == mine.launches
        assert theirs.image.read_bytes() == mine.image.read_bytes()
    [missing] = there.build(micro.copy_items(here)[2:3])
    assert isinstance(missing, BuildFailure)
    assert not (tmp_path / "empty").exists()


class Broken:
    """A device on which a kernel has failed for good."""

    def current_stream(self) -> int:
        return 0

    def synchronize(self, stream: int) -> None:
        raise LaunchError("running kernels: cudaErrorIllegalAddress", "out-of-bounds", sticky=True)


def test_after_a_lost_device_another_process_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    device: Any = Broken()
    target = resolve_target("cuda:h200")
    started: list[list[str]] = []

    def breaks(session: Session, section: Section) -> None:
        session.here().synchronize(0)

    def other(command: list[str], check: bool) -> subprocess.CompletedProcess[bytes]:
        started.append(command)
        return subprocess.CompletedProcess(command, 1)

    parts = [device_check.Part(name, 0.5, lambda session: [], breaks) for name in ("cases", "pairs", "suite")]
    monkeypatch.setattr(device_check, "_parts", lambda again: parts)
    monkeypatch.setattr(device_check, "_session", lambda given, cache: Session(target, device, cache))
    monkeypatch.setattr(subprocess, "run", other)
    out = tmp_path / "check.json"
    assert device_check.main(["--target", "cuda:h200", "--out", str(out), "--seconds", "60"]) == 1
    [command] = started
    assert command[command.index("--sections") + 1] == "pairs,suite"
    assert command[command.index("--out") + 1] == str(out)
    assert command[-1] == "--more"
    assert [(s["name"], s["state"]) for s in json.loads(out.read_text())["sections"]] == [("cases", "failed")]
    resumed = Store(out, {"target": "", "emulated": True, "begun": 0.0, "seconds": 0.0})
    resumed.resume()
    assert resumed.head["target"] == "cuda:h200"
    assert [s.name for s in resumed.sections] == ["cases"]


def test_results_of_contestants_are_compared() -> None:
    assert agree({"stitched": {"differs": 0.0}, "torch": {"differs": 1e-6}, "xla": {"failure": "absent"}}, 1e-3) is True
    assert agree({"stitched": {"differs": 0.0}, "torch": {"differs": 0.1}}, 1e-3) is False
    assert agree({"stitched": {"differs": 0.0}, "torch": {"differs": None}}, 1e-3) is False
    assert agree({"stitched": {"differs": 0.0}}, 1e-3) is None
