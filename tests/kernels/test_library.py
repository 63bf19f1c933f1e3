"""Library ops in slices on the team, against ONNX Runtime's own run of the same model."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper
from stitchtune.graphs.dtypes import from_numpy
from stitchtune.graphs.exported import ExportedOp
from stitchtune.graphs.ir import Graph, Node, TensorType
from stitchtune.kernels import slices
from stitchtune.kernels.library import Failure, Library, LibraryError, release_pages
from stitchtune.kernels.team import Team, build_runtime, records

Array = NDArray[Any]
DTYPE = helper.np_dtype_to_tensor_dtype
RNG = np.random.default_rng(0)


def draw(*shape: int) -> Array:
    return RNG.standard_normal(shape, np.float32)


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Team:
    library = build_runtime(tmp_path_factory.mktemp("runtime"))
    assert isinstance(library, ctypes.CDLL)
    return Team(library, 2)


def expected(node: onnx.NodeProto, inputs: dict[str, Array]) -> list[Array]:
    graph = helper.make_graph(
        [node],
        "g",
        [
            helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
            for n, a in inputs.items()
        ],
        [onnx.ValueInfoProto(name=n) for n in node.output if n],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)


def run(
    team: Team, node: onnx.NodeProto, inputs: dict[str, Array], constants: tuple[str, ...], like: list[Array]
) -> tuple[list[Array], Library, int]:
    """The outputs of `node` run as a library op; the library; the number of calls it was cut into."""
    names = [n for n in node.output if n]
    outputs = [np.full_like(a, 77) for a in like]
    every = {**inputs, **dict(zip(names, outputs, strict=True))}
    graph = Graph(
        "g",
        tuple(n for n in inputs if n not in constants),
        tuple(names),
        (),
        {n: TensorType(from_numpy(a.dtype), a.shape) for n, a in every.items()},
        {n: inputs[n] for n in constants},
    )
    op = ExportedOp((node.SerializeToString(),), tuple(node.input), tuple(node.output), (("", 17),), 8, node.op_type)
    library = Library(team.library, team.threads)
    numbers = {n: i for i, n in enumerate(every)}
    made = library.prepare(Node("library", tuple(node.input), tuple(node.output), payload=op), graph, numbers)
    table = np.array([a.__array_interface__["data"][0] for a in every.values()], np.uint64)
    failure = Failure()
    record, _state = made.record(table.ctypes.data, failure)
    team.run(records([record]))
    assert not failure.failed, failure.message
    return outputs, library, len(made.calls)


CASES: dict[str, tuple[onnx.NodeProto, dict[str, Array], tuple[str, ...], int]] = {
    "rows": (helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": draw(3, 50, 64), "b": draw(64, 40)}, ("b",), 2),
    "batch": (helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": draw(4, 50, 64), "b": draw(4, 64, 30)}, (), 2),
    "odd batch": (helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": draw(3, 51, 64), "b": draw(3, 64, 30)}, (), 6),
    "constant batch": (
        helper.make_node("MatMul", ["a", "b"], ["y"]),
        {"a": draw(2, 51, 64), "b": draw(2, 64, 40)},
        ("b",),
        2,
    ),
    "broadcast batch": (helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": draw(1, 5, 6), "b": draw(3, 6, 2)}, (), 1),
    "vector": (helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": draw(6), "b": draw(3, 6, 2)}, (), 1),
    "one row": (helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": draw(1, 600), "b": draw(600, 800)}, ("b",), 1),
    "small": (helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": draw(4, 5), "b": draw(5, 3)}, ("b",), 1),
    "same twice": (helper.make_node("MatMul", ["a", "a"], ["y"]), {"a": draw(70, 70)}, (), 2),
    "gemm": (
        helper.make_node("Gemm", ["a", "b", "c"], ["y"], transB=1, alpha=0.5, beta=2.0),
        {"a": draw(71, 64), "b": draw(50, 64), "c": draw(50)},
        ("b", "c"),
        2,
    ),
    "gemm, full bias": (
        helper.make_node("Gemm", ["a", "b", "c"], ["y"]),
        {"a": draw(71, 64), "b": draw(64, 50), "c": draw(71, 50)},
        (),
        2,
    ),
    "gemm, one row": (
        helper.make_node("Gemm", ["a", "b", "c"], ["y"], transB=1),
        {"a": draw(1, 400), "b": draw(600, 400), "c": draw(600)},
        ("b", "c"),
        2,
    ),
    "gemm, one row, scalar bias": (
        helper.make_node("Gemm", ["a", "b", "c"], ["y"], transB=1),
        {"a": draw(1, 400), "b": draw(600, 400), "c": draw(1)},
        ("b",),
        2,
    ),
    "gemm, column bias": (
        helper.make_node("Gemm", ["a", "b", "c"], ["y"]),
        {"a": draw(71, 64), "b": draw(64, 50), "c": draw(71, 1)},
        ("b",),
        2,
    ),
    "gemm, transposed": (
        helper.make_node("Gemm", ["a", "b"], ["y"], transA=1),
        {"a": draw(64, 71), "b": draw(64, 50)},
        ("b",),
        1,
    ),
    "conv, channels": (
        helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1]),
        {"x": draw(1, 16, 20, 21), "w": draw(48, 16, 3, 3), "b": draw(48)},
        ("w", "b"),
        2,
    ),
    "conv, batch": (
        helper.make_node("Conv", ["x", "w"], ["y"], strides=[2, 1]),
        {"x": draw(2, 16, 20, 21), "w": draw(24, 16, 3, 3)},
        ("w",),
        2,
    ),
    "conv, samples one by one": (
        helper.make_node("Conv", ["x", "w", "b"], ["y"], pads=[1, 1, 1, 1]),
        {"x": draw(6, 3, 64, 65), "w": draw(50, 3, 3, 3), "b": draw(50)},
        ("w", "b"),
        6,
    ),
    "conv, large weights": (
        helper.make_node("Conv", ["x", "w", "b"], ["y"]),
        {"x": draw(4, 400, 3, 5), "w": draw(424, 400, 3, 3) / 64, "b": draw(424)},
        ("w", "b"),
        8,
    ),
    "conv, large weights, one sample": (
        helper.make_node("Conv", ["x", "w"], ["y"]),
        {"x": draw(1, 400, 3, 5), "w": draw(1000, 400, 3, 3) / 64},
        ("w",),
        4,
    ),
    "conv, large weights that change": (
        helper.make_node("Conv", ["x", "w"], ["y"]),
        {"x": draw(2, 400, 3, 5), "w": draw(424, 400, 3, 3) / 64},
        (),
        2,
    ),
    "conv, groups of large samples": (
        helper.make_node("Conv", ["x", "w"], ["y"], group=4),
        {"x": draw(6, 16, 60, 71), "w": draw(64, 4, 3, 3)},
        ("w",),
        6,
    ),
    "conv, groups": (
        helper.make_node("Conv", ["x", "w"], ["y"], group=4),
        {"x": draw(1, 16, 40, 41), "w": draw(32, 4, 3, 3)},
        ("w",),
        1,
    ),
    "pool": (helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2, 2]), {"x": draw(1, 15, 60, 60)}, (), 2),
    "pool with positions": (
        helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2]),
        {"x": draw(1, 3, 8, 8)},
        (),
        1,
    ),
    "absent input, threads of its own": (
        helper.make_node("LSTM", ["x", "w", "r", "", "", "h"], ["y", "", "c"], hidden_size=256),
        {"x": draw(5, 2, 40), "w": draw(1, 1024, 40), "r": draw(1, 1024, 256) / 8, "h": draw(1, 2, 256)},
        ("w", "r"),
        1,
    ),
    "small constant": (
        helper.make_node("TopK", ["x", "k"], ["y", "i"]),
        {"x": draw(5, 9), "k": np.array([3], np.int64)},
        ("k",),
        1,
    ),
    "zero size": (helper.make_node("MatMul", ["a", "b"], ["y"]), {"a": draw(0, 5), "b": draw(5, 3)}, (), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_onnxruntime(team: Team, name: str) -> None:
    node, inputs, constants, calls = CASES[name]
    like = expected(node, inputs)
    outputs, library, count = run(team, node, inputs, constants, like)
    library.close()
    assert count == calls
    for got, want in zip(outputs, like, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_child_of_a_fork_runs_library_ops(team: Team) -> None:
    node, inputs, constants, _ = CASES["absent input, threads of its own"]
    like = expected(node, inputs)
    run(team, node, inputs, constants, like)
    child = os.fork()
    if child == 0:
        outputs, _, _ = run(team, node, inputs, constants, like)
        os._exit(0 if np.allclose(outputs[0], like[0], atol=1e-4) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_unknown_operator_is_named_in_one_line(team: Team) -> None:
    node = helper.make_node("Frobnicate", ["x"], ["y"])
    with pytest.raises(LibraryError, match="Frobnicate") as error:
        run(team, node, {"x": draw(2)}, (), [draw(2)])
    assert "\n" not in str(error.value)


def resident(address: int) -> int:
    """Bytes of the mapping at `address` that are in this process's memory."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    inside = False
    for line in lines:
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            begin, end = (int(x, 16) for x in words[0].split("-"))
            inside = begin <= address < end
        elif inside and words[0] == "Rss:":
            return int(words[1]) << 10
    raise AssertionError("no such mapping")


@pytest.mark.parametrize("how", ["memmap", "buffer"])
def test_pages_of_a_mapped_weight_are_given_back_and_come_again(tmp_path: Path, how: str) -> None:
    path = tmp_path / "weights"
    values = RNG.standard_normal(1 << 18).astype(np.float32)
    values.tofile(path)
    mapped: Array = np.memmap(path, np.float32, "r", offset=4096)
    if how == "buffer":
        with path.open("rb") as file:
            mapped = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.float32, offset=4096)
    assert mapped.sum() != 0
    before = resident(mapped.__array_interface__["data"][0])
    release_pages(mapped.reshape(-1, 512))
    assert resident(mapped.__array_interface__["data"][0]) <= before - mapped.nbytes
    np.testing.assert_array_equal(mapped, values[1024:])


def test_memory_of_others_is_not_touched(tmp_path: Path) -> None:
    values = RNG.standard_normal(1 << 16).astype(np.float32)
    ours = values.copy()
    release_pages(ours)
    np.testing.assert_array_equal(ours, values)
    anonymous = np.frombuffer(mmap.mmap(-1, values.nbytes), np.float32)
    anonymous[:] = values
    release_pages(anonymous)
    np.testing.assert_array_equal(anonymous, values)
    (tmp_path / "weights").write_bytes(values.tobytes())
    private = np.memmap(tmp_path / "weights", np.float32, "c")
    private[:] = 1
    release_pages(private)
    assert private.sum() == len(values)


def test_split_covers_the_extent() -> None:
    assert slices.split(10, 3) == [(0, 3), (3, 3), (6, 4)]
    assert slices.split(2, 4) == [(0, 1), (1, 1)]
    assert slices.split(48, 2, 16) == [(0, 16), (16, 32)]
    assert slices.split(0, 2) == [(0, 0)]
