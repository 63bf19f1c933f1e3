"""Whole graphs on a CUDA device against ONNX Runtime, and the promises of a call; emulated and through CuPy."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper
from stitchtune.graphs.errors import InputError
from stitchtune.graphs.partition import Partition
from stitchtune.kernels.compile import BuildFailure
from stitchtune.kernels.cuda.device import Device, LaunchError
from stitchtune.kernels.cuda.executor import CudaExecutor, compile_cuda
from stitchtune.kernels.executor import compile_graph
from stitchtune.kernels.library import LibraryError
from stitchtune.search_space.stitch import heuristic, unfused

from tests.graphs.onnx_models import make_model
from tests.kernels.cuda.on_devices import DEVICES, Foreign, Spy, Tensor, device_of, fetched, put
from tests.kernels.test_executor import agree, block, draw, node, read, reference, structure

Array = NDArray[Any]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    return device_of(request.param)


def compiled(graph: Partition, device: Device, cache: Path, choose: Any = heuristic) -> CudaExecutor:
    plans = [choose(component.subgraph, device.target) for component in graph.components]
    return compile_cuda(graph, plans, device, precision="strict", cache=cache)


def all_fetched(device: Device, arrays: Mapping[str, Any]) -> dict[str, Array]:
    return {name: fetched(device, array) for name, array in arrays.items()}


@pytest.mark.parametrize("choose", [heuristic, unfused])
def test_whole_graph_agrees_with_onnxruntime(tmp_path: Path, device: Device, cache: Path, choose: Any) -> None:
    model, feeds = block()
    run = compiled(read(model, tmp_path), device, cache, choose)
    want = reference(model, feeds)
    for _ in range(3):
        agree(run(feeds), want)
    there = {name: put(device, array) for name, array in feeds.items()}
    for _ in range(3):
        agree(all_fetched(device, run(there)), want)
    stats = run.stats()
    assert stats.runs == 6
    assert stats.launches == 6 * stats.kernels > 0
    assert (stats.library_ops, stats.interpreted, stats.notes) == (4, 0, ())


def test_the_target_chooses_the_executor(tmp_path: Path, cache: Path) -> None:
    target = device_of("emulated").target
    model, feeds = block()
    graph = read(model, tmp_path)
    plans = [heuristic(component.subgraph, target) for component in graph.components]
    run = compile_graph(graph, plans, target, cache=cache)
    assert isinstance(run, CudaExecutor)
    agree(run(feeds), reference(model, feeds))


def test_outputs_of_any_kind_belong_to_the_caller(tmp_path: Path, device: Device, cache: Path) -> None:
    model, feeds = structure()
    run = compiled(read(model, tmp_path), device, cache)
    want = reference(model, feeds)
    first = run(feeds)
    agree(first, want)
    for name, array in first.items():
        for other in (*feeds.values(), *(a for n, a in first.items() if n != name)):
            assert not np.shares_memory(array, other)
        array.fill(7)
    agree(run(feeds), want)
    there = {name: put(device, array) for name, array in feeds.items()}
    second = run(there)
    places = [a.__cuda_array_interface__["data"][0] for a in (*second.values(), *there.values()) if 0 not in a.shape]
    assert len(set(places)) == len(places)
    run({name: put(device, array + 1) for name, array in feeds.items()})
    agree(all_fetched(device, second), want)


def test_inputs_and_outputs_of_other_libraries_are_used_in_place(tmp_path: Path, device: Device, cache: Path) -> None:
    model, feeds = block()
    run = compiled(read(model, tmp_path), device, cache)
    want = reference(model, feeds)
    for offset in (0, 4):  # at 4 the kernels for any address are made
        x = Foreign(device, feeds["x"], offset=offset)
        out = {
            "y": Foreign(device, np.zeros_like(feeds["x"]), offset=offset),
            "weights": Tensor(device, want["weights"]),
        }
        got = run({"x": x}, out)
        assert got["y"] is out["y"]
        assert got["weights"] is out["weights"]
        device.synchronize(0)
        agree({name: array.numpy() for name, array in got.items()}, want)
    wide = Foreign(device, feeds["x"], strides=(16 * 64 * 8, 64 * 8, 8))
    agree(all_fetched(device, run({"x": wide})), want)


def test_given_outputs_are_written_even_on_top_of_inputs_and_each_other(
    tmp_path: Path, device: Device, cache: Path
) -> None:
    model, feeds = block()
    run = compiled(read(model, tmp_path), device, cache)
    want = reference(model, feeds)
    x = put(device, feeds["x"])
    spread = Foreign(device, want["weights"] * 0, strides=(16 * 16 * 8, 16 * 8, 8))
    got = run({"x": x}, {"y": x, "weights": spread})
    assert got["y"] is x
    assert got["weights"] is spread
    agree({"y": fetched(device, x)}, {"y": want["y"]})
    bytes_of = np.empty(want["weights"].size * 8, np.uint8)
    device.download(bytes_of[: 8 * want["weights"].size - 4], spread.address, 0)
    agree({"w": bytes_of.view(np.float32)[::2].reshape(want["weights"].shape)}, {"w": want["weights"]})
    host = {"y": feeds["x"].copy(), "weights": np.empty((2, 16, 32), np.float32)[:, :, ::2]}
    got = run({"x": host["y"]}, host)
    assert got["y"] is host["y"]
    agree(got, want)
    part = np.empty((2, 16, 16), np.float32)
    got = run({"x": put(device, feeds["x"])}, {"weights": part})
    assert got["weights"] is part
    agree({"weights": part, "y": fetched(device, got["y"])}, {"weights": want["weights"], "y": want["y"]})


def test_scalars_empty_arrays_and_reversed_ones(tmp_path: Path, device: Device, cache: Path) -> None:
    feeds = {"x": np.array(3.0, np.float32), "z": draw(0, 3), "w": draw(2, 3)}
    nodes = [
        node("Add", ["x", "w"], ["y"]),
        node("Exp", ["x"], ["s"]),
        node("ReduceSum", ["z"], ["t"], keepdims=0),
    ]
    model = make_model(nodes, feeds, ["y", "s", "t"])
    run = compiled(read(model, tmp_path), device, cache)
    agree(run(feeds), reference(model, feeds))
    there = {name: put(device, array) for name, array in feeds.items()}
    agree(all_fetched(device, run(there)), reference(model, feeds))

    class Reversed(Foreign):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            interface = super().__cuda_array_interface__
            return {**interface, "data": (self.address + 20, False), "strides": (-12, -4)}

    turned = {**feeds, "w": np.ascontiguousarray(feeds["w"][::-1, ::-1])}
    agree(all_fetched(device, run({**there, "w": Reversed(device, feeds["w"])})), reference(model, turned))


@pytest.mark.parametrize(
    ("feeds", "out", "message"),
    [
        ({}, None, "input 'x' is missing; the graph takes x"),
        ({"x": draw(2, 16, 64), "z": draw(1)}, None, "'z' is no input; the graph's inputs are x"),
        ({"x": draw(2, 16, 65)}, None, r"input 'x' is float32\[2, 16, 65\], the graph takes float32\[2, 16, 64\]"),
        ({"x": "text"}, None, "input 'x' is <U4"),
        ({"x": draw(2, 16, 64)}, {"z": draw(1)}, "'z' is no output; the graph's outputs are y, weights"),
        ({"x": draw(2, 16, 64)}, {"y": draw(1)}, r"out\['y'\] is float32\[1\], the graph gives float32\[2, 16, 64\]"),
        ({"x": draw(2, 16, 64)}, {"y": [1]}, r"out\['y'\] is list"),
        ({"x": draw(2, 16, 64)}, {"y": np.broadcast_to(np.float32(0), (2, 16, 64))}, "is read-only"),
    ],
)
def test_arrays_that_do_not_fit_are_one_line(
    tmp_path: Path, device: Device, cache: Path, feeds: dict[str, Any], out: Any, message: str
) -> None:
    run = compiled(read(block()[0], tmp_path), device, cache)
    with pytest.raises(InputError, match=message) as error:
        run(feeds, out)
    assert "\n" not in str(error.value)
    run({"x": draw(2, 16, 64)})


def test_device_arrays_that_do_not_fit_are_one_line(tmp_path: Path, device: Device, cache: Path) -> None:
    run = compiled(read(block()[0], tmp_path), device, cache)
    with pytest.raises(InputError, match=r"input 'x' is float64\[2, 16, 64\]"):
        run({"x": put(device, np.zeros((2, 16, 64)))})
    with pytest.raises(InputError, match="on device 5"):
        run({"x": Tensor(device, draw(2, 16, 64), number=5)})
    with pytest.raises(InputError, match="is read-only"):
        run({"x": draw(2, 16, 64)}, {"y": Foreign(device, draw(2, 16, 64), read_only=True)})


def test_concurrent_calls_do_not_share_memory(tmp_path: Path, device: Device, cache: Path) -> None:
    model, _ = block()
    run = compiled(read(model, tmp_path), device, cache)
    inputs = [{"x": draw(2, 16, 64)} for _ in range(3)]
    want = [reference(model, feeds) for feeds in inputs]
    wrong: list[str] = []

    def call(number: int) -> None:
        for _ in range(3):
            try:
                agree(run(inputs[number]), want[number])
            except AssertionError as error:
                wrong.append(str(error))

    callers = [threading.Thread(target=call, args=(i,)) for i in range(3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong
    assert run.stats().runs == 9


def test_arrays_are_kept_alive_while_queued_work_may_read_them(tmp_path: Path, device: Device, cache: Path) -> None:
    model, feeds = block()
    run = compiled(read(model, tmp_path), device, cache)
    x = Tensor(device, feeds["x"])
    run({"x": x})
    [slot] = run._slots
    arrays, seen = slot.held
    assert arrays[0] is x
    assert seen[0].owner is not None  # the capsule
    run(feeds)
    assert slot.held == ()


def test_a_failed_kernel_leaves_the_graph_usable(tmp_path: Path, cache: Path) -> None:
    class Failing(Spy):
        fail = False

        def launch(self, call: Any, stream: int) -> None:
            if self.fail:
                raise LaunchError("planted", "failed")
            super().launch(call, stream)

    device = Failing(device_of("emulated"))
    model, feeds = block()
    run = compiled(read(model, tmp_path), device, cache)
    device.fail = True
    with pytest.raises(LaunchError, match="planted"):
        run(feeds)
    device.fail = False
    agree(run(feeds), reference(model, feeds))


def test_record_shows_every_component_its_inputs(tmp_path: Path, device: Device, cache: Path) -> None:
    model, feeds = block()
    graph = read(model, tmp_path)
    run = compiled(graph, device, cache)
    seen: dict[int, list[Array]] = {}
    agree(run.record(feeds, lambda i, arrays: seen.update({i: arrays})), reference(model, feeds))
    assert list(seen) == list(range(len(graph.components)))
    for number, component in enumerate(graph.components):
        sub = component.subgraph
        assert [a.shape for a in seen[number]] == [sub.shape(v) for v in sub.inputs]
        for name, array in zip(component.inputs, seen[number], strict=True):
            if name == "x":
                np.testing.assert_array_equal(array.ravel(), feeds["x"].ravel())


def test_library_ops_of_all_kinds(tmp_path: Path, device: Device, cache: Path) -> None:
    feeds = {"a": draw(6, 5), "b": draw(7, 6), "c": draw(7), "x": draw(1, 3, 8, 8), "h": draw(3, 4).astype(np.float16)}
    weights = {"w": draw(4, 3, 3, 3), "v": draw(4, 2).astype(np.float16)}
    nodes = [
        node("Gemm", ["a", "b", "c"], ["g"], transA=1, transB=1, alpha=0.5, beta=2.0),
        node("Conv", ["x", "w"], ["d"]),
        node("Relu", ["d"], ["r"]),
        node("Tanh", ["g"], ["t"]),
        node("MatMul", ["h", "v"], ["m"]),
    ]
    model = make_model(nodes, feeds, ["r", "t", "m"], weights)
    run = compiled(read(model, tmp_path), device, cache)
    for _ in range(2):
        got, want = run(feeds), reference(model, feeds)
        np.testing.assert_allclose(got.pop("m"), want.pop("m"), rtol=1e-2, atol=1e-2)
        agree(got, want)
    if not device.real:
        [note] = run.stats().notes
        assert note.startswith("1 library ops run on the host")
        assert "onnxruntime-gpu" in note


@pytest.mark.parametrize(
    ("left", "right"),
    [((5,), (5,)), ((5,), (5, 3)), ((5,), (2, 5, 3)), ((4, 5), (5,)), ((2, 4, 5), (5,)), ((2, 1, 4, 5), (3, 5, 6))],
)
def test_products_of_vectors_and_batches(
    tmp_path: Path, device: Device, cache: Path, left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    feeds = {"a": draw(*left), "b": draw(*right)}
    model = make_model([node("MatMul", ["a", "b"], ["m"]), node("Neg", ["m"], ["y"])], feeds, ["m", "y"])
    agree(compiled(read(model, tmp_path), device, cache)(feeds), reference(model, feeds))


def test_products_without_their_library_run_on_the_host(tmp_path: Path, cache: Path) -> None:
    class Plain(Spy):
        multiplies = False

    model, feeds = block()
    run = compiled(read(model, tmp_path), Plain(device_of("emulated")), cache)
    agree(run(feeds), reference(model, feeds))
    [note] = run.stats().notes
    assert note.startswith("4 library ops run on the host")
    assert "nvidia-cublas" in note


def test_a_component_that_does_not_compile_is_interpreted(tmp_path: Path, cache: Path) -> None:
    class Refusing(Spy):
        def build(self, *args: Any, **options: Any) -> Any:
            return [BuildFailure("compiler", "planted"), *self._device.build(*args, **options)[1:]]

    device: Any = Refusing(device_of("emulated"))
    model, feeds = block()
    with pytest.warns(UserWarning, match="planted"):
        run = compiled(read(model, tmp_path), device, cache)
    agree(run(feeds), reference(model, feeds))
    assert run.stats().interpreted == 1
    assert run.stats().launches > 0


def test_a_plan_that_the_device_cannot_take_runs_unfused(tmp_path: Path, cache: Path) -> None:
    class Small(Spy):
        tried = 0

        def build(self, *args: Any, **options: Any) -> Any:
            self.tried += 1
            made = self._device.build(*args, **options)
            return made if self.tried > 1 else [BuildFailure("parameters", "too many"), *made[1:]]

    device: Any = Small(device_of("emulated"))
    model, feeds = block()
    graph = read(model, tmp_path)
    with pytest.warns(UserWarning, match="too many.*it runs unfused"):
        run = compiled(graph, device, cache)
    agree(run(feeds), reference(model, feeds))
    assert run.stats().interpreted == 0
    plain = unfused(graph.components[0].subgraph, device.target)
    assert run.stats().launches >= len(plain.kernels)


def test_results_of_unknown_shape_come_from_onnxruntime(tmp_path: Path, device: Device, cache: Path) -> None:
    feeds = {"x": np.maximum(draw(4, 5), 0)}
    nodes = [node("Mul", ["x", "x"], ["y"]), node("NonZero", ["y"], ["where"]), node("Neg", ["y"], ["z"])]
    model = make_model(nodes, feeds, ["where", "z"])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("where", onnx.TensorProto.INT64, [2, None]))
    run = compiled(read(model, tmp_path), device, cache)
    agree(run(feeds), reference(model, feeds))
    agree(all_fetched(device, run({"x": put(device, feeds["x"])})), reference(model, feeds))


def test_missing_operator_is_named_when_the_graph_runs(tmp_path: Path, device: Device, cache: Path) -> None:
    feeds = {"x": draw(4, 5)}
    nodes = [node("Frobnicate", ["x"], ["f"], domain="com.example", name="odd"), node("Neg", ["x"], ["z"])]
    model = make_model(nodes, feeds, ["f", "z"])
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("f", onnx.TensorProto.FLOAT, [4, 5]))
    with pytest.raises(LibraryError, match=r"com\.example\.Frobnicate|odd"):
        compiled(read(model, tmp_path), device, cache)(feeds)
