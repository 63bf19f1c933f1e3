"""Targets by name, with and without a device: what is resolved, what is imported, what is said."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from stitchtune import devices
from stitchtune.devices import resolve_target, target_of
from stitchtune.graphs.errors import InputError
from stitchtune.kernels.cuda import driver
from stitchtune.kernels.cuda.driver import DriverDevice
from stitchtune.kernels.cuda.nvrtc import find_nvrtc
from stitchtune.search_space.devices import DEVICES

from tests.command_line import ROOT, CommandLine, block

H200 = DriverDevice(
    name="NVIDIA H200",
    memory=150_754_820_096,
    driver=12080,
    processors=132,
    cache_bytes=62_914_560,
    resident_threads=2048,
    major=9,
    minor=0,
    shared_bytes=233_472,
    registers=65_536,
    block_bytes=232_448,
    resident_blocks=32,
)


@pytest.fixture(scope="module")
def tune_py(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return block(tmp_path_factory.mktemp("graph"))


def no_driver() -> bool:
    return not driver.driver_files()


@pytest.fixture
def with_h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "devices", lambda: (H200,))
    monkeypatch.setattr(driver, "driver_files", lambda: True)


# --- names


def test_profiles_and_aliases_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert resolve_target("cpu").kind == "cpu"
    assert resolve_target("cuda:h200") is DEVICES["cuda:h200"]
    assert capsys.readouterr().err == ""
    assert resolve_target("cuda:sm_90").name == "cuda:h100-sxm"
    assert "cuda:sm_90 means the profile cuda:h100-sxm" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["cuda:h300", "gpu", "CUDA", ""])
def test_unknown_names_are_told_with_those_that_are_known(name: str) -> None:
    with pytest.raises(InputError, match="cuda:h200"):
        resolve_target(name)


@pytest.mark.skipif(not no_driver(), reason="this machine has an NVIDIA driver")
def test_without_a_device_the_default_is_the_cpu_and_cuda_says_why() -> None:
    assert resolve_target(None).kind == "cpu"
    with pytest.raises(InputError, match=r"no NVIDIA driver; .*cuda:h200") as error:
        resolve_target("cuda")
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("with_h200")
def test_a_device_that_a_profile_describes_is_that_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_spec", lambda name: object())
    assert resolve_target(None) == resolve_target("cuda") == DEVICES["cuda:h200"]
    assert devices.present(DEVICES["cuda:h200"])
    assert not devices.present(DEVICES["cuda:a100"])
    with pytest.raises(InputError, match="the device here is cuda:h200"):
        devices.require(DEVICES["cuda:a100"])


@pytest.mark.usefixtures("with_h200")
def test_a_device_without_cupy_names_the_extra_of_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    assert resolve_target(None).kind == "cpu"
    with pytest.raises(InputError, match=r"NVIDIA H200 needs CuPy: pip install 'stitchtune\[cuda12\]'"):
        resolve_target("cuda")


def test_a_device_without_a_profile_is_its_own_numbers() -> None:
    odd = target_of(replace(H200, name="NVIDIA H20", processors=78))
    assert (odd.name, odd.arch, odd.processors, odd.block_bytes) == ("cuda", "sm_90", 78, 232_448)
    a100 = replace(H200, name="NVIDIA A100-SXM4-40GB", major=8, processors=108, memory=40 << 30)
    assert target_of(a100).name == "cuda:a100-40"
    assert target_of(replace(a100, memory=80 << 30)).name == "cuda:a100"
    assert (
        target_of(replace(H200, name="NVIDIA GeForce RTX 4090", minor=9, major=8, processors=128)).name
        == "cuda:rtx4090"
    )


# --- the command line


@pytest.mark.skipif(not no_driver(), reason="this machine has an NVIDIA driver")
@pytest.mark.parametrize(
    ("target", "says"),
    [("cuda", "no NVIDIA driver"), ("cuda:h200", "nothing can run for cuda:h200"), ("cuda:x", "'cuda:x'")],
)
def test_running_without_the_device_is_one_clear_line(
    target: str, says: str, tune_py: CommandLine, graph: Path
) -> None:
    done = tune_py("run", graph, "--target", target)
    lines = done.err.splitlines()
    assert done.code == 2
    assert says in lines[-1]
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:], done.err


def test_doctor_says_what_cuda_needs(tune_py: CommandLine) -> None:
    findings = [(f["subject"], f["detail"]) for f in tune_py("doctor", "--json").document["findings"]]
    subjects = {subject for subject, _ in findings}
    assert subjects >= {"cuda compiler", "cupy", "cuda device", "cuda profiles"}
    assert "h200" in dict(findings)["cuda profiles"]


def test_tuning_is_refused_while_stitching_is_off(tune_py: CommandLine, graph: Path) -> None:
    done = tune_py("tune", graph, env={"STITCHTUNE": "off"})
    assert done.code == 2
    assert "STITCHTUNE=off" in done.err.splitlines()[-1]


WATCHED = ("cupy", "cuda", "cuda_bindings")
"""What nothing may import for the target cpu."""


@pytest.mark.parametrize(
    "verb", [["inspect"], ["run", "--check"], ["source"], ["tune", "--budget", "4", "--effort", "quick"]]
)
def test_nothing_of_cuda_is_imported_for_the_cpu(verb: list[str], graph: Path, tune_py: CommandLine) -> None:
    script = (
        "import sys, warnings; from stitchtune.cli.main import invoke; code = invoke(sys.argv[1:]); "
        "sys.stderr.write('modules ' + ' '.join(m.partition('.')[0] for m in sys.modules)); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, verb[0], str(graph), *verb[1:], "--target", "cpu"],
        capture_output=True,
        text=True,
        check=True,
        env=tune_py.environment(),
        cwd=ROOT,
    )
    loaded = set(done.stderr.rpartition("modules ")[2].split())
    assert "numpy" in loaded
    assert not loaded & set(WATCHED)


# --- the emulated device, and plans for one that is elsewhere


def test_a_graph_runs_on_the_emulated_device(tune_py: CommandLine, graph: Path) -> None:
    done = tune_py("run", graph, "--target", "cuda:emulated", "--check")
    assert done.code == 0, done.err
    assert "times mean nothing" in done.out.splitlines()[0]
    refused = tune_py("tune", graph, "--target", "cuda:emulated")
    assert refused.code == 2
    assert "mean nothing" in refused.err.splitlines()[-1]


@pytest.mark.skipif(find_nvrtc() is None, reason="NVRTC is not installed (extra cuda13)")
def test_a_predicted_plan_is_replayed_on_the_emulator(tune_py: CommandLine, graph: Path) -> None:
    done = tune_py("tune", graph, "--target", "cuda:h200", "--budget", 15, "--trials", 3, "--db", "plans.db")
    assert done.code == 0, done.err
    ident = tune_py("plans", "list", "--db", "plans.db", "--json").document["plans"][-1]["id"]
    refused = tune_py("plans", "replay", ident, "--db", "plans.db")
    assert refused.code == 2
    assert "cuda:h200, which is not here: --emulate" in refused.err.splitlines()[-1]
    found = tune_py("plans", "replay", ident, "--db", "plans.db", "--emulate", "--out", "replayed", "--json")
    assert found.code == 0, found.err
    assert found.document["message"] == "the emulator finds its result right"
    assert found.document["seconds"] is None
    source = tune_py.home / found.document["source"]
    assert source.read_text().startswith("// nvcc ")
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        command = [nvcc, "-std=c++17", "--ftz=false", "--fmad=false", "-arch=sm_90", source.name, "-o", "driver"]
        subprocess.run(command, check=True, cwd=source.parent, capture_output=True)
    used = tune_py("run", graph, "--target", "cuda:emulated", "--db", "plans.db", "--check")
    assert used.code == 0, used.err
    assert "other target (predicted)" in used.out
