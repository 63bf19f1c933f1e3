"""Odd and hostile use of the command line and of files: each test is a fault that was found by trying."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import stitchtune as st
from ml_dtypes import bfloat16
from onnx import TensorProto, helper, save
from stitchtune import feeds, pipeline
from stitchtune.cli.main import invoke
from stitchtune.graphs.builder import GraphBuilder
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.errors import InputError
from stitchtune.graphs.ir import Graph
from stitchtune.graphs.partition import partition
from stitchtune.kernels import compile as compile_
from stitchtune.kernels.compile import BuildFailure, Compiler, compile_units, find_compiler, prepare_cache
from stitchtune.kernels.host import host_target
from stitchtune.kernels.lower import lower
from stitchtune.results.database import Database
from stitchtune.results.records import Measurement, PlanKey
from stitchtune.results.transfer import export_plans
from stitchtune.search_space import stitch
from stitchtune.search_space.plan import Kernel, Phase, Plan

from tests.command_line import CommandLine


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def elementwise(path: Path, shape: list[int], operators: list[str]) -> Path:
    """A chain of operators on one float32 input."""
    names = ["x", *(f"t{i}" for i in range(1, len(operators))), "y"]
    nodes = [helper.make_node(op, [names[i]], [names[i + 1]]) for i, op in enumerate(operators)]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "chain", info[:1], info[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


# --- options


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("tune g.onnx --budget nan", "'nan' is not a finite number"),
        ("tune g.onnx --budget inf", "'inf' is not a finite number"),
        ("tune g.onnx --seed -3", "-3 is not in the range"),
        ("tune g.onnx --seed 99999999999999999999999", "not in the range"),
        ("tune g.onnx --trials 99999999999999999999", "not in the range"),
        ("run g.onnx --rtol nan --check", "'nan' is not a finite number"),
        ("run g.onnx --atol -1 --check", "-1.0 is not in the range"),
        ("plans show 99999999999999999999999999", "not in the range"),
        ("plans pin 99999999999999999999999999", "not in the range"),
        ("plans replay 99999999999999999999999999", "not in the range"),
        ("plans prune --days -5", "-5.0 is not in the range"),
        ("plans prune --days nan", "'nan' is not a finite number"),
        ("plans merge nowhere.db", "nowhere.db: no such database"),
        ("inspect .", ".: not a file"),
    ],
)
def test_numbers_out_of_range_and_missing_files_are_bad_input(
    arguments: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(arguments.split()) == 2
    assert says in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize("options", [{"budget": float("nan")}, {"budget": -1.0}, {"trials": 0}, {"seed": -1}])
def test_a_search_without_meaning_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(InputError):
        pipeline.Search(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["://", "abacus://host/db", "postgresql://host:port/db"])
def test_a_database_url_without_meaning_is_bad_input(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["plans", "list", "--db", url]) == 2
    assert "not a database URL" in capsys.readouterr().err.splitlines()[-1]


def test_random_numbers_are_not_compared(tmp_path: Path) -> None:
    noise = helper.make_node("RandomNormalLike", ["x"], ["n"])
    nodes = [noise, helper.make_node("Add", ["x", "n"], ["y"]), helper.make_node("Exp", ["x"], ["z"])]
    info = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 5]) for name in "xyz"}
    graph = helper.make_graph(nodes, "noisy", [info["x"]], [info["y"], info["z"]])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "g.onnx")
    done = CommandLine(tmp_path)("run", "g.onnx", "--check", "--json")
    assert done.code == 0, done.err
    assert [one["output"] for one in done.document["check"]] == ["z"]
    assert "not compared, since random numbers reach them: y" in done.err


def test_no_verb_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([]) == 2
    assert "Commands:" in capsys.readouterr().err.splitlines()


@pytest.mark.parametrize("arguments", ["run missing.onnx", "inspect", "plans show 7", "plans nonsense"])
def test_an_error_is_one_json_document_too(arguments: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = invoke([*arguments.split(), "--json"])
    told = capsys.readouterr()
    assert json.loads(told.out) == {
        "error": told.err.splitlines()[-1].removeprefix("error: "),
        "code": code,
    }


def test_a_failed_check_prints_one_json_document(tmp_path: Path) -> None:
    path = elementwise(tmp_path / "g.onnx", [4, 300], ["Tanh", "Exp"])
    done = CommandLine(tmp_path)("run", path, "--check", "--rtol", 0, "--atol", 0, "--json")
    assert done.document["outputs"]


def test_a_bug_of_ours_is_one_json_document_too(tmp_path: Path) -> None:
    path = elementwise(tmp_path / "g.onnx", [4], ["Tanh"])
    code = "import stitchtune.cli.inspection as i, stitchtune.cli.main as m; i.describe = None; m.main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "inspect", path, "--target", "cpu", "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"error": done.stderr.splitlines()[-1], "code": 1}
    assert "internal error: TypeError" in done.stderr


# --- files


def test_nothing_is_left_where_an_export_cannot_go(tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError):
        export_plans(Database.open(tmp_path / "plans.db"), tmp_path / "taken")
    assert sorted(tmp_path.iterdir()) == before


def script(path: Path, text: str) -> Compiler:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return Compiler(str(path), "fake 1.0", "libc", (), False)


def test_a_compiler_that_takes_too_long_leaves_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compile_, "TIMEOUT_S", 1)
    slow = script(tmp_path / "slow", f"sleep 61 & echo $! > {tmp_path}/child; wait")
    [built] = compile_units(["int x;"], slow, tmp_path / "kernels")
    assert isinstance(built, BuildFailure)
    assert "more than" in built.message
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    assert not child.exists() or child.read_text().split()[2] == "Z"


def test_a_compiler_that_makes_nothing_is_a_failure(tmp_path: Path) -> None:
    idle = script(tmp_path / "idle", "echo fake 1.0")
    [built] = compile_units(["int x;"], idle, tmp_path / "kernels")
    assert isinstance(built, BuildFailure)
    found = find_compiler(idle.path)
    assert found is None or not found.vector_math


def test_an_unusable_kernel_cache_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    for place, says in (("file", "cannot be made"), ("link", "is a link")):
        with pytest.raises(OSError, match=f"{says}.*XDG_CACHE_HOME"):
            prepare_cache(tmp_path / place)


def test_a_model_runs_without_a_usable_kernel_cache(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("in the way")
    path = elementwise(tmp_path / "g.onnx", [4, 5], ["Tanh"])
    with pytest.warns(UserWarning, match="for this run only"):
        model = st.compile(path)
    x = np.ones((4, 5), np.float32)
    np.testing.assert_allclose(model({"x": x})["y"], np.tanh(x), rtol=1e-6)


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"bad\xff dir")
    folder.mkdir()
    path = elementwise(folder / os.fsdecode(b"s m\xfe.onnx"), [4, 300], ["Tanh", "Exp"])
    tune_py = CommandLine(tmp_path)
    options = ("--db", folder / "p.db", "--out", folder / "report", "--json")
    done = tune_py("tune", path, *options, "--budget", 0, env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 0, done.err
    assert done.document["graph"]
    done = tune_py("run", path, "--check", "--db", folder / "p.db", env={"PYTHONIOENCODING": "ascii"})
    assert done.code == 1
    assert "leave out --check" in done.err.splitlines()[-1]


def low() -> Graph:
    b = GraphBuilder()
    b.output(b.elementwise("exp", b.input("x", DType.BF16, (3,))))
    return b.build()


def npz(path: Path, name: str, content: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, content)
    return path


def test_inputs_that_are_no_arrays_are_bad_input(tmp_path: Path) -> None:
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (1 << 50,)})
    sources = [
        npz(tmp_path / "text.npz", "x", b"hello"),
        npz(tmp_path / "text2.npz", "x.npy", b"hello"),
        npz(tmp_path / "claims.npz", "x.npy", header.getvalue()),
    ]
    for flag in (6, 8):  # encrypted; compressed in an unknown way
        damaged = bytearray(npz(tmp_path / "whole.npz", "x.npy", b"hello").read_bytes())
        for at in (flag, damaged.index(b"PK\x01\x02") + flag + 2):
            damaged[at] |= 1 if flag == 6 else 99
        sources.append(tmp_path / f"damaged{flag}.npz")
        sources[-1].write_bytes(damaged)
    for source in sources:
        with pytest.raises(InputError, match=source.name):
            feeds.load(low(), source)


def test_bfloat16_inputs_come_back_from_a_file(tmp_path: Path) -> None:
    array = np.array([1, 2, 3], bfloat16)
    np.savez(tmp_path / "in.npz", x=array)
    np.testing.assert_array_equal(feeds.load(low(), tmp_path / "in.npz").arrays["x"], array)


# --- graphs


def test_zero_size_subgraphs_are_tuned(tmp_path: Path) -> None:
    path = elementwise(tmp_path / "g.onnx", [3, 0, 5], ["Exp", "Softmax"])
    done = CommandLine(tmp_path)("tune", path, "--budget", 15, "--trials", 2, "--effort", "quick", "--json")
    assert done.code == 0, done.err
    assert done.document["results"][0]["subgraphs"]


def test_a_budget_too_small_to_measure_is_told(tmp_path: Path) -> None:
    path = elementwise(tmp_path / "g.onnx", [4, 300], ["Tanh", "Exp"])
    done = CommandLine(tmp_path)("tune", path, "--budget", 0)
    assert done.code == 0, done.err
    assert "1 of 1 subgraphs were not measured" in done.out
    assert "plans found" not in done.out


def test_long_chains_lower_without_deep_recursion() -> None:
    b = GraphBuilder()
    value = b.input("x", DType.F32, (8, 16))
    for k in range(600):
        value = b.elementwise(("neg", "abs", "exp")[k % 3], value)
    b.output(value)
    [part] = partition(b.build()).components
    for make in (stitch.heuristic, stitch.unfused):
        assert lower(part.subgraph, make(part.subgraph, host_target()), host_target(), "strict")


def test_inputs_larger_than_the_memory_are_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> feeds.Feeds:
        raise MemoryError("Unable to allocate 8.00 GiB")

    monkeypatch.setattr(feeds, "given_or_made", full)
    path = elementwise(tmp_path / "g.onnx", [4], ["Tanh"])
    assert invoke(["run", str(path)]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "error: not enough memory: Unable to allocate 8.00 GiB"


# --- the API


def test_options_of_the_api_are_checked_before_a_call(tmp_path: Path) -> None:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", "M"]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Exp", ["x"], ["y"])], "open", info[:1], info[1:])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), tmp_path / "g.onnx")
    for dims in ({"Q": 1}, {"N": -1}, {"N": "a"}, {"N": 4.5}):
        with pytest.raises(InputError, match=next(iter(dims))):
            st.compile(tmp_path / "g.onnx", dims=dims)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'vague'"):
        st.compile(tmp_path / "g.onnx", precision="vague")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="float64"):
        st.tune(tmp_path / "g.onnx", dims={"N": 2, "M": 2}, inputs={"x": [[1.0, 2.0]] * 2}, budget=1)  # type: ignore[dict-item]


# --- the plan database


def test_a_failed_plan_cannot_be_pinned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan((Kernel((Phase(()),)),))
    key = PlanKey("0" * 32, (4,), (), host_target(), "g++ 12", "g1")
    db = Database.open(tmp_path / "plans.db")
    ident = db.record(Measurement(key, plan, "crashed", created=1.0))
    assert invoke(["plans", "pin", str(ident), "--db", str(tmp_path / "plans.db")]) == 2
    assert "ended as crashed" in capsys.readouterr().err
    assert all(choice.pinned is None for choice in db.choices().values())
