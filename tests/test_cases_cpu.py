"""The stated cases through the whole CPU pipeline: read, simplified, partitioned, planned, compiled, run.

Under the heuristic plans, and under the unfused ones but for the largest. Bad input is tried from the command line:
what each reader refuses stands in tests/graphs/test_bad_input.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from stitchtune.graphs.errors import InputError
from stitchtune.graphs.onnx_reader import load
from stitchtune.graphs.partition import Component, partition
from stitchtune.graphs.simplify import simplify
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.compile import find_compiler
from stitchtune.kernels.executor import Executor, compile_graph
from stitchtune.kernels.host import host_target
from stitchtune.search_space.legality import check
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.stitch import heuristic, unfused
from stitchtune.search_space.target import Target

from tests.cases import CASES, Case, Setup
from tests.command_line import CommandLine
from tests.compare import assert_agree
from tests.graphs.onnx_models import make_model, save, single, with_external

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")

Planner = Callable[[Subgraph, Target], Plan]
PLANNERS: dict[str, Planner] = {"heuristic": heuristic, "unfused": unfused}
CHOSEN = [(case, how) for case in CASES for how in PLANNERS if how == "heuristic" or not case.large]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def compiled(setup: Setup, planner: Planner, folder: Path, cache: Path) -> Executor:
    path = folder / "case.onnx"
    onnx.save(setup.model, path)
    target = host_target()
    parts = partition(simplify(load(path)))
    subs = [step.subgraph for step in parts.steps if isinstance(step, Component)]
    plans = [planner(sub, target) for sub in subs]
    assert [check(sub, plan, target) for sub, plan in zip(subs, plans, strict=True)] == [()] * len(subs)
    return compile_graph(parts, plans, replace(target, processors=2), cache=cache)


@pytest.mark.parametrize(("case", "how"), CHOSEN, ids=lambda x: x.name if isinstance(x, Case) else x)
def test_case(case: Case, how: str, tmp_path: Path, cache: Path) -> None:
    setup = case.make()
    run = compiled(setup, PLANNERS[how], tmp_path, cache)
    given = {name: array.copy() for name, array in setup.feeds.items()}
    first = run(given)
    assert_agree(first, setup.wanted)
    assert all(given[name].tobytes() == array.tobytes() for name, array in setup.feeds.items()), "inputs were changed"
    again = run(given)
    assert all(first[name].tobytes() == again[name].tobytes() for name in first), "two runs differ"
    if setup.alias:
        out = {output: given[source] for output, source in setup.alias}
        assert_agree(run(given, out), setup.wanted)
        assert all(given[source] is out[output] for output, source in setup.alias)
    stats = run.stats()
    assert stats.interpreted == 0, "a component runs without kernels"
    assert stats.library_ops == 0


# --- bad feeds, through the executor


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": None}, "'x' is missing"),
        ({"z": np.zeros(4, np.float32)}, "'z' is no input"),
        ({"x": np.zeros(5, np.float32)}, r"float32\[5\], the graph takes float32\[4\]"),
        ({"x": np.zeros((4, 1), np.float32)}, r"float32\[4, 1\]"),
        ({"x": np.float32(0)}, r"float32\[\]"),
        ({"x": np.zeros(4, np.float16)}, "float16"),
        ({"x": np.zeros(4, np.int32)}, "int32"),
        ({"x": np.zeros(4, ">f4")}, ">f4"),
        ({"x": [0.0] * 4}, "float64"),
        ({"x": np.array([None] * 4)}, "object"),
        ({"x": np.array(["a"] * 4)}, "<U1"),
    ],
)
def test_bad_feeds_are_one_line_and_spoil_nothing(
    change: dict[str, Any], says: str, tmp_path: Path, cache: Path
) -> None:
    setup = next(case for case in CASES if case.name.startswith("9")).make()
    run = compiled(setup, heuristic, tmp_path, cache)
    feeds = {name: array for name, array in {**setup.feeds, **change}.items() if array is not None}
    with pytest.raises(InputError, match=says) as error:
        run(feeds)
    assert "\n" not in str(error.value)
    assert_agree(run(setup.feeds), setup.wanted)


# --- bad models and bad feeds, from the command line

X = np.ones((2, 3), np.float32)


def _truncated(folder: Path) -> Path:
    whole = make_model([helper.make_node("Exp", ["x"], ["y"], "the_node")], {"x": X}, ["y"]).SerializeToString()
    path = folder / "model.onnx"
    path.write_bytes(whole[: len(whole) // 2])
    return path


def _no_onnx(folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_text("a model, honestly\n" * 9)
    return path


def _undefined(folder: Path) -> Path:
    return save(make_model([helper.make_node("Add", ["x", "ghost"], ["y"], "the_node")], {"x": X}, ["y"]), folder)


def _cycle(folder: Path) -> Path:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], "one"), helper.make_node("Exp", ["a"], ["b"], "two")]
    return save(make_model(nodes, {"x": X}, ["b"]), folder)


def _types(folder: Path) -> Path:
    node = helper.make_node("Add", ["x", "w"], ["y"], "the_node")
    return save(make_model([node], {"x": X}, ["y"], {"w": np.ones((2, 3), np.int64)}), folder)


def _dimension(folder: Path, size: int | None) -> Path:
    model = make_model([helper.make_node("Exp", ["x"], ["y"], "the_node")], {"x": X}, ["y"])
    shape = model.graph.input[0].type.tensor_type.shape.dim[0]
    if size is None:
        shape.ClearField("dim_value")
    else:
        shape.dim_value = size
    return save(model, folder)


def _external(folder: Path, spoil: Callable[[Path, onnx.TensorProto], None]) -> Path:
    model = with_external(folder, np.arange(6, dtype=np.float32).reshape(2, 3))
    spoil(folder, model.graph.initializer[0])
    return save(model, folder)


def _outside(folder: Path, tensor: onnx.TensorProto) -> None:
    for entry in tensor.external_data:
        if entry.key == "location":
            entry.value = "../w.bin"


def _length(folder: Path) -> Path:
    model = make_model([helper.make_node("Add", ["x", "w"], ["y"], "the_node")], {"x": X}, ["y"], {"w": X})
    model.graph.initializer[0].raw_data = bytes(20)
    return save(model, folder)


BAD: dict[str, tuple[Callable[[Path], Path], str]] = {
    "truncated": (_truncated, "truncated"),
    "not ONNX": (_no_onnx, "not an ONNX model"),
    "undefined input": (_undefined, "ghost"),
    "cycle": (_cycle, "depends on itself"),
    "types between nodes": (_types, "the_node"),
    "dimension -1": (lambda f: _dimension(f, -1), "'x'"),
    "dimension 0x7fffffff": (lambda f: _dimension(f, 0x7FFFFFFF), "'x'"),
    "dimension missing": (lambda f: _dimension(f, None), "'x'"),
    "external data missing": (lambda f: _external(f, lambda g, t: (g / "w.bin").unlink()), "w.bin"),
    "external data short": (lambda f: _external(f, lambda g, t: (g / "w.bin").write_bytes(b"12") and None), "w.bin"),
    "external data outside": (lambda f: _external(f, _outside), "outside"),
    "initializer's length": (_length, "'w'"),
}


@pytest.fixture(scope="module")
def tune_py(tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    return CommandLine(tmp_path_factory.mktemp("home"))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_model_is_one_line_exit_code_2_and_no_row(name: str, tune_py: CommandLine, tmp_path: Path) -> None:
    make, says = BAD[name]
    path = make(tmp_path)
    done = tune_py(path, "--budget", "5", "--db", tmp_path / "plans.db")
    lines = done.err.splitlines()
    assert done.code == 2, done
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:], done.err
    assert path.name in lines[-1]
    assert says in lines[-1]
    assert not (tmp_path / "plans.db").exists()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"x": None}, "'x' is missing"),
        ({"z": X}, "'z' is no input"),
        ({"x": X[:1]}, "float32[1, 3]"),
        ({"x": X.astype(np.int32)}, "int32"),
    ],
)
def test_bad_feeds_in_a_file_are_one_line_and_exit_code_2(
    change: dict[str, Any], says: str, tune_py: CommandLine, tmp_path: Path
) -> None:
    path = save(make_model([helper.make_node("Exp", ["x"], ["y"], "the_node")], {"x": X}, ["y"]), tmp_path)
    arrays = {name: array for name, array in {"x": X, **change}.items() if array is not None}
    np.savez(tmp_path / "in.npz", **arrays)
    done = tune_py("run", path, "--inputs", tmp_path / "in.npz", "--db", tmp_path / "plans.db")
    assert done.code == 2, done
    assert says in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


def test_an_unknown_domain_loads_and_says_when_run_what_is_missing(tune_py: CommandLine, tmp_path: Path) -> None:
    model, _ = single("Mystery", [X], domain="com.example")
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y0", TensorProto.FLOAT, [2, 3]))
    path = save(model, tmp_path)
    looked = tune_py("inspect", path, "--json")
    assert looked.code == 0, looked
    assert looked.document["library_ops"] == 1
    done = tune_py("run", path)
    assert done.code in (1, 2)
    assert "Mystery" in done.err.splitlines()[-1]
    assert "Traceback" not in done.err
