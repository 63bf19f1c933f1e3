"""The command line: every verb, what it prints where, and with which exit code."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import CommandLine, block


@pytest.fixture(scope="module")
def tune_py(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return block(tmp_path_factory.mktemp("graph"))


# --- errors are one line, and leave nothing behind


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.onnx"], "missing.onnx"),
        (["inspect", "missing.onnx"], "missing.onnx"),
        (["inspect"], "Missing argument 'GRAPH'"),
        (["inspect", "GRAPH", "--dim", "N"], "NAME=N"),
        (["inspect", "GRAPH", "--dim", "N=-1"], "NAME=N"),
        (["inspect", "GRAPH", "--dim", "N=2", "--dim", "N=3"], "given twice"),
        (["run", "GRAPH", "--dim", "N=2,3"], "one size here"),
        (["run", "GRAPH", "--target", "abacus"], "'abacus' is not known"),
        (["run", "GRAPH", "--inputs", "nowhere.npz"], "nowhere.npz"),
        (["run", "GRAPH", "--precision", "vague"], "'vague' is not one of"),
        (["source", "GRAPH", "--subgraph", "99"], "--subgraph 99"),
        (["plans", "show", "7"], "no measurement 7"),
        (["plans", "import", "nowhere.jsonl"], "nowhere.jsonl"),
        (["plans", "nonsense"], "nonsense"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tune_py: CommandLine, graph: Path, arguments: list[str], says: str
) -> None:
    done = tune_py(*[str(graph) if a == "GRAPH" else a for a in arguments])
    lines = done.err.splitlines()
    assert done.code == 2, done
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:], done.err
    assert says in lines[-1]
    assert "Traceback" not in done.err
    assert not (tune_py.home / "data").exists()


def test_debug_shows_a_traceback(tune_py: CommandLine) -> None:
    done = tune_py("inspect", "missing.onnx", "--debug")
    assert done.code != 0
    assert "Traceback" in done.err


def test_a_plan_that_is_required_and_missing_is_a_failed_run(tune_py: CommandLine, graph: Path) -> None:
    done = tune_py("run", graph, "--require-plan")
    assert done.code == 1
    assert "no plan" in done.err.splitlines()[-1]


# --- looking


def test_help_names_every_verb(tune_py: CommandLine) -> None:
    done = tune_py("--help")
    assert done.code == 0
    for verb in ("tune", "inspect", "run", "source", "report", "plans", "bench", "doctor"):
        assert re.search(rf"^  {verb} ", done.out, re.MULTILINE), verb


def test_doctor(tune_py: CommandLine) -> None:
    findings = {f["subject"]: f for f in tune_py("doctor", "--json").document["findings"]}
    assert findings["compiler"]["state"] == "ok"
    assert findings["cpu"]["state"] == "ok"
    assert str(tune_py.home) in findings["plan database"]["detail"]
    assert "python" in tune_py("doctor").out


def test_inspect(tune_py: CommandLine, graph: Path) -> None:
    found = tune_py("inspect", graph, "--json").document
    assert found["nodes"] == 10
    assert found["library_ops"] == 2
    assert found["library_ops_by_type"] == {"MatMul": 2}
    assert {node["reason"] for node in found["library"]} == {"contraction"}
    assert found["kernels_stitched"] <= len(found["subgraphs"]) < found["kernels_unfused"]
    for one in found["subgraphs"]:
        assert one["ops"]
        assert one["bytes_min"] > 0
        assert set(one["schemes"]) >= {"independent", "local", "regional", "global"}
        assert 0 < one["space"]["low"] <= one["space"]["high"]
        assert "refusals" in one
        assert "barriers" in one
    text = tune_py("inspect", graph).out
    assert text.startswith("target cpu")
    assert "2 MatMul" in text


def test_source_is_a_whole_unit(tune_py: CommandLine, graph: Path) -> None:
    done = tune_py("source", graph, "--subgraph", 1)
    assert done.code == 0
    assert 'extern "C"' in done.out
    assert "%0 = input" in done.out
    assert tune_py("source", graph, "--json").document["plan"]["kernels"]


# --- running


def test_run_agrees_with_onnx_runtime_and_counts_launches(tune_py: CommandLine, graph: Path) -> None:
    seen = tune_py("inspect", graph, "--json").document
    done = tune_py("run", graph, "--check", "--repeat", 3, "--json")
    found = done.document
    assert done.code == 0
    assert found["launches"] == seen["kernels_stitched"]
    assert found["barriers"] == seen["barriers"]
    assert found["synthetic"]
    assert "ids: indices below 50" in found["inputs"]
    assert "mask: mask of 0 and 1" in found["inputs"]
    assert [one["ok"] for one in found["check"]] == [True]
    assert found["outputs"] == {"y": {"dtype": "float32", "shape": [24, 32]}}
    assert {one["how"] for one in found["subgraphs"]} == {"heuristic"}


def test_off_runs_every_operator_alone(tune_py: CommandLine, graph: Path) -> None:
    seen = tune_py("inspect", graph, "--json").document
    found = tune_py("run", graph, "--check", "--json", env={"STITCHTUNE": "off"}).document
    assert found["launches"] == seen["kernels_unfused"]
    assert {one["how"] for one in found["subgraphs"]} == {"unfused"}


def test_real_inputs_and_written_outputs(tune_py: CommandLine, graph: Path, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    arrays = {
        "x": rng.standard_normal((24, 32)).astype(np.float32),
        "ids": rng.integers(0, 50, 24),
        "mask": np.ones((24, 32), np.float32),
    }
    np.savez(tmp_path / "in.npz", **arrays)
    done = tune_py("run", graph, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz", "--check")
    assert done.code == 0, done.err
    assert "synthetic" not in done.out
    with np.load(tmp_path / "out.npz") as results:
        assert results["y"].shape == (24, 32)
        assert np.isfinite(results["y"]).all()


def test_a_failed_check_is_exit_code_1(tune_py: CommandLine, graph: Path) -> None:
    done = tune_py("run", graph, "--check", "--rtol", "0", "--atol", "0")
    assert done.code == 1
    assert "differ from ONNX Runtime" in done.err.splitlines()[-1]


def test_symbolic_dimensions_are_bound_by_option(tune_py: CommandLine, tmp_path: Path) -> None:
    path = block(tmp_path, rows="N")
    assert tune_py("run", path, "--dim", "N=5", "--check", "--json").document["outputs"]["y"]["shape"] == [5, 32]
    done = tune_py("run", path)
    assert done.code == 2
    assert "N" in done.err.splitlines()[-1]
