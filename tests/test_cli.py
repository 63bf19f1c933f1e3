"""The command line: every verb, what it prints where, and with which exit code."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.command_line import ROOT, CommandLine, Done, block


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


# --- tuning; later tests build on what the first one finds


@pytest.fixture(scope="module")
def tuned(tune_py: CommandLine, graph: Path) -> Done:
    """The graph tuned once into a database of its own, with a report."""
    return tune_py(
        *("tune", graph, "--budget", 25, "--effort", "quick", "--trials", 4),
        *("--db", "plans.db", "--out", "report", "--json"),
    )


def test_tune_measures_and_remembers(tune_py: CommandLine, tuned: Done, graph: Path) -> None:
    assert tuned.code == 0, tuned.err
    [found] = tuned.document["results"]
    assert found["measured"] > 0
    assert found["synthetic"]
    assert all(one["best"] is not None for one in found["subgraphs"])
    assert (tune_py.home / "report" / "report.html").stat().st_size > 10_000
    assert "budget" not in tuned.out.splitlines()[0], "nothing but JSON on standard output"
    assert "s left" in tuned.err

    again = tune_py("tune", graph, "--db", "plans.db", "--effort", "quick")
    assert again.code == 0
    assert "nothing was measured" in again.out
    assert again.out.splitlines()[0] == f"target cpu {again.out.splitlines()[0].partition('cpu ')[2]}"
    assert "plans.db" in again.out.splitlines()[0]


def test_run_uses_the_plans_found(tune_py: CommandLine, tuned: Done, graph: Path) -> None:
    assert tuned.code == 0
    done = tune_py("run", graph, "--db", "plans.db", "--require-plan", "--check", "--json")
    assert done.code == 0, done.err
    assert {one["how"] for one in done.document["subgraphs"]} == {"exact"}


def test_report_from_the_database(tune_py: CommandLine, tuned: Done) -> None:
    assert tuned.code == 0
    found = tune_py("report", "--db", "plans.db", "--out", "again", "--json").document
    assert (tune_py.home / found["page"]).exists()
    assert tune_py("report", "--db", "plans.db", "--graph", "nobody", "--out", "again").code == 2


def test_plans_are_listed_shown_pinned_and_pruned(tune_py: CommandLine, tuned: Done) -> None:
    assert tuned.code == 0
    listed = tune_py("plans", "list", "--db", "plans.db", "--json").document["plans"]
    assert {one["status"] for one in listed} == {"ok"}
    ident = listed[0]["id"]
    shown = tune_py("plans", "show", ident, "--db", "plans.db", "--json").document
    assert shown["plan"]["kernels"]
    assert "kernel 0" in tune_py("plans", "show", ident, "--db", "plans.db").out
    assert tune_py("plans", "pin", ident, "--db", "plans.db").code == 0
    assert "pinned" in tune_py("plans", "list", "--db", "plans.db").out
    assert tune_py("plans", "pin", ident, "--off", "--db", "plans.db").code == 0
    assert tune_py("plans", "prune", "--days", 100, "--db", "plans.db", "--json").document["measurements"] == 0


def test_plans_travel(tune_py: CommandLine, tuned: Done, graph: Path) -> None:
    assert tuned.code == 0
    assert tune_py("plans", "export", "travel.jsonl", "--db", "plans.db").code == 0
    found = tune_py("plans", "import", "travel.jsonl", "--db", "other.db", "--json").document
    assert found["added"] > 0
    assert found["used"] > 0
    merged = tune_py("plans", "merge", "plans.db", "--db", "merged.db", "--json").document
    assert merged["added"] >= found["added"]
    # an imported plan is checked once before its first use, then it is as good as any
    for _ in range(2):
        done = tune_py("run", graph, "--db", "other.db", "--require-plan", "--check", "--json")
        assert done.code == 0, done.err


def test_a_stored_candidate_is_replayed(tune_py: CommandLine, tuned: Done) -> None:
    assert tuned.code == 0
    ident = tune_py("plans", "list", "--db", "plans.db", "--json").document["plans"][0]["id"]
    done = tune_py("plans", "replay", ident, "--db", "plans.db", "--out", "replay", "--json")
    assert done.code == 0, done.err
    assert done.document["status"] == "ok"
    source = Path(tune_py.home / done.document["source"])
    command = source.read_text().splitlines()[0].removeprefix("// ")
    subprocess.run(command, shell=True, check=True, cwd=source.parent)
    ran = subprocess.run([source.with_suffix("")], check=True, cwd=source.parent, capture_output=True, text=True)
    assert "us on one thread" in ran.stdout


def test_a_database_of_something_else_is_told_apart(tune_py: CommandLine, graph: Path) -> None:
    (tune_py.home / "text.db").write_text("no database" * 100)
    done = tune_py("run", graph, "--db", "text.db")
    assert done.code == 0
    assert "going on without stored plans" in done.err
    done = tune_py("tune", graph, "--db", "text.db", "--budget", 1)
    assert done.code == 1
    assert "text.db" in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


def test_ctrl_c_keeps_what_was_found(tune_py: CommandLine, graph: Path) -> None:
    arguments = [sys.executable, str(ROOT / "tune.py"), "tune", str(graph), "--db", "broken-off.db", "--effort", "max"]
    with subprocess.Popen(
        [*arguments, "--budget", "120"], env=tune_py.environment(), cwd=tune_py.home, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "trials, best" in line and "best -" not in line:
                break
        process.send_signal(signal.SIGINT)
        process.stderr.read()
        assert process.wait(60) == 130
    assert tune_py("plans", "list", "--db", "broken-off.db", "--all", "--json").document["plans"]
