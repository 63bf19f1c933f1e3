"""A built CUDA plan bound to arrays: one suite for the emulator and for a device through CuPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.cuda.arrays import import_arrays
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.device import Device, LaunchError, NoDevice
from stitchtune.kernels.cuda.launch import CudaLauncher
from stitchtune.kernels.cuda.opening import open_device
from stitchtune.kernels.cuda.timing import make_flush
from stitchtune.kernels.launch import Executed
from stitchtune.search_space.devices import device_target
from stitchtune.search_space.plan import Edge, Group, Kernel, Phase, Plan, Stage
from stitchtune.search_space.stitch import heuristic, unfused
from stitchtune.search_space.target import Target

from tests.kernels.cuda.on_devices import DEVICES, Foreign, Spy, Tensor, device_of, fetched, put
from tests.kernels.hand import Builder
from tests.kernels.test_launch import centred, reversed_sum

Choose = Callable[[Subgraph, Target], Plan]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    return device_of(request.param)


def build(device: Device, sub: Subgraph, plan: Plan, cache: Path, aligned: bool = True) -> BuiltCuda:
    [built] = device.build([(sub, plan)], precision="strict", cache=cache, aligned=aligned)
    assert isinstance(built, BuiltCuda), built
    return built


def chain(n: int) -> tuple[Subgraph, Plan]:
    """(x + x) * x in two phases with a grid barrier between them."""
    b = Builder()
    x = b.input(n)
    (i,) = b.axes(n)
    twice = b.op("add", (i,), (x, (i,)), (x, (i,)))
    sub = b.subgraph(b.op("mul", (i,), twice, (x, (i,))))
    phases = tuple(
        Phase((Group(((i, 128),), (Stage((v,), (i,), lanes=((i, 64),)),), threads=64),)) for v in (twice, twice + 1)
    )
    return sub, Plan((Kernel(phases),), (Edge(twice, twice + 1, "global"),))


@pytest.mark.parametrize("choose", [heuristic, unfused])
def test_launch_runs_every_kernel_and_counts(device: Device, cache: Path, choose: Choose) -> None:
    sub = centred(37, 100)
    plan = choose(sub, device.target)
    x = np.random.default_rng(0).standard_normal((37, 100), np.float32)
    total, y = (put(device, np.empty(shape, np.float32)) for shape in ((37,), (37, 100)))
    bound = CudaLauncher(build(device, sub, plan, cache), device).bind([put(device, x)], [total, y])
    assert bound.launch() == Executed(len(plan.kernels), plan.barriers)
    bound.synchronize()
    np.testing.assert_allclose(fetched(device, total), x.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(fetched(device, y), x - x.sum(1, keepdims=True), rtol=1e-5, atol=1e-4)


def test_barriers_work_launch_after_launch(device: Device, cache: Path) -> None:
    sub, plan = chain(1000)
    x = np.arange(1000, dtype=np.float32)
    given, y = put(device, x), np.empty(1000, np.float32)
    bound = CudaLauncher(build(device, sub, plan, cache), device).bind([given], [y])
    for _ in range(3):
        assert bound.launch() == Executed(1, 1)
        np.testing.assert_array_equal(y, 2 * x * x)
        y[:] = -1


def test_a_failed_launch_leaves_the_barrier_usable(device: Device, cache: Path) -> None:
    sub, plan = chain(1000)
    built = build(device, sub, plan, cache)
    crowded = replace(built, launches=tuple(replace(launch, blocks=1 << 20) for launch in built.launches))
    x, y = np.ones(1000, np.float32), np.empty(1000, np.float32)
    with pytest.raises(LaunchError) as caught:
        CudaLauncher(crowded, device).bind([x], [y]).launch()
    assert (caught.value.trouble, caught.value.sticky) == ("refused", False)
    CudaLauncher(built, device).bind([x], [y]).launch()
    assert (y == 2).all()


def test_arrays_of_numpy_go_there_and_back(device: Device, cache: Path) -> None:
    sub = centred(5, 33)
    x = np.random.default_rng(1).standard_normal((5, 66), np.float32)[:, ::2]
    total, y = np.empty(5, np.float32), np.empty((5, 33), np.float32)
    CudaLauncher(build(device, sub, heuristic(sub, device.target), cache), device).bind([x], [total, y]).launch()
    np.testing.assert_allclose(total, x.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(y, x - x.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_output_on_top_of_an_input_reads_a_copy(device: Device, cache: Path) -> None:
    sub = reversed_sum(4)
    x = put(device, np.arange(4, dtype=np.float32))
    bound = CudaLauncher(build(device, sub, heuristic(sub, device.target), cache), device).bind([x], [x])
    bound.launch()
    bound.synchronize()
    assert fetched(device, x).tolist() == [3, 3, 3, 3]


def test_strided_input_is_copied(device: Device, cache: Path) -> None:
    sub = centred(3, 4)
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    there = Foreign(device, x, strides=(4, 12))
    total, y = np.empty(3, np.float32), np.empty((3, 4), np.float32)
    CudaLauncher(build(device, sub, heuristic(sub, device.target), cache), device).bind([there], [total, y]).launch()
    assert total.tolist() == x.sum(1).tolist()


def test_arrays_at_any_address_get_kernels_of_their_own(device: Device, cache: Path) -> None:
    sub = reversed_sum(1027)
    plan = heuristic(sub, device.target)
    made: list[BuiltCuda] = []

    def unaligned() -> BuiltCuda:
        made.append(build(device, sub, plan, cache, aligned=False))
        return made[-1]

    built = build(device, sub, plan, cache)
    launcher = CudaLauncher(built, device, unaligned)
    x = np.arange(1027, dtype=np.float32)
    for offset in (16, 4, 8):
        given, y = Foreign(device, x, offset=offset), Foreign(device, np.empty_like(x), offset=offset)
        bound = launcher.bind([given], [y])
        bound.launch()
        bound.synchronize()
        assert (y.numpy() == 1026).all()
        assert bound.built is (built if offset == 16 else made[0])
    assert len(made) == 1
    with pytest.raises(ValueError, match="not aligned to 16 bytes"):
        CudaLauncher(built, device).bind([Foreign(device, x, offset=4)], [put(device, x)])


def test_arrays_that_do_not_fit_are_refused(device: Device, cache: Path) -> None:
    sub = reversed_sum(4)
    launcher = CudaLauncher(build(device, sub, heuristic(sub, device.target), cache), device)
    x, y = put(device, np.zeros(4, np.float32)), put(device, np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="0 inputs given for 1"):
        launcher.bind([], [y])
    with pytest.raises(ValueError, match="input 0 is float64 x 4, the plan has float32 x 4"):
        launcher.bind([put(device, np.zeros(4))], [y])
    with pytest.raises(ValueError, match="output 0 is float32 x 5"):
        launcher.bind([x], [put(device, np.zeros(5, np.float32))])
    four = np.zeros(4, np.float32)
    for wrong in (Foreign(device, four, strides=(8,)), Foreign(device, four, read_only=True), four.repeat(2)[::2]):
        with pytest.raises(ValueError, match="output 0 is not a writable"):
            launcher.bind([x], [wrong])


def test_overlapping_outputs_are_refused(device: Device, cache: Path) -> None:
    sub = centred(4, 4)
    launcher = CudaLauncher(build(device, sub, heuristic(sub, device.target), cache), device)
    y = put(device, np.zeros((4, 4), np.float32))

    class Part:
        __cuda_array_interface__ = {**y.__cuda_array_interface__, "shape": (4,)}  # noqa: RUF012

    with pytest.raises(ValueError, match="output 1 shares memory"):
        launcher.bind([put(device, np.zeros((4, 4), np.float32))], [Part(), y])


def test_the_stream_that_an_array_names_is_used_and_others_are_waited_for(cache: Path) -> None:
    device = Spy(device_of("emulated"))
    sub, plan = chain(64)
    built = build(device, sub, plan, cache)
    x = np.ones(64, np.float32)
    for stream, expected in ((1, 0), (2, 2), (77, 77)):
        bound = CudaLauncher(built, device).bind([Foreign(device, x, stream=stream)], [put(device, x)])
        bound.launch()
        assert bound.stream == device.launched[-1] == expected
    assert device.waits == [2, 77]  # for `put`'s arrays, which name the default stream


def test_arrays_by_dlpack_are_asked_for_the_stream_of_the_launch(device: Device, cache: Path) -> None:
    sub, plan = chain(64)
    x, y = Tensor(device, np.full(64, 3, np.float32)), Tensor(device, np.empty(64, np.float32))
    bound = CudaLauncher(build(device, sub, plan, cache), device).bind([x], [y])
    bound.launch()
    bound.synchronize()
    assert (y.numpy() == 18).all()
    assert x.streams == y.streams == [device.current_stream() or 1]


def test_dlpack_types_and_devices(device: Device) -> None:
    shapes = {(2, "<f2"): (2, 3), (0, "<i8"): (4,), (1, "|u1"): (), (6, "|b1"): (5,)}
    for (code, text), shape in shapes.items():
        [found], _ = import_arrays([Tensor(device, np.zeros(shape, text), code=code)], device)
        assert found is not None
        assert (found.dtype, found.shape, found.contiguous) == (np.dtype(text), shape, True)
    [found], _ = import_arrays([Tensor(device, np.zeros(3, np.uint16), code=4)], device)
    assert found is not None
    assert found.dtype == ml_dtypes.bfloat16
    with pytest.raises(ValueError, match="on device 3"):
        import_arrays([Tensor(device, np.zeros(3), number=3)], device)
    with pytest.raises(ValueError, match="DLPack type 5"):
        import_arrays([Tensor(device, np.zeros(3), code=5)], device)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i4", "i8", "u2", "?"])
def test_dlpack_as_a_real_producer_spells_it(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    """NumPy's own capsules, with its memory taken for the device's."""
    monkeypatch.setattr("stitchtune.kernels.cuda.arrays._CUDA", 1)
    array = np.zeros((3, 4), dtype)[:, ::2]

    class Produced:
        def __dlpack_device__(self) -> tuple[int, int]:
            return array.__dlpack_device__()

        def __dlpack__(self, stream: int) -> Any:
            return array.__dlpack__()

    [found], _ = import_arrays([Produced()], device_of("emulated"))
    assert found is not None
    assert (found.address, found.shape, found.strides) == (array.ctypes.data, (3, 2), array.strides)
    assert found.dtype == array.dtype
    assert not found.contiguous


def test_bfloat16_through_the_interface(device: Device, cache: Path) -> None:
    b = Builder(DType.BF16)
    x = b.input(7)
    (i,) = b.axes(7)
    sub = b.subgraph(b.op("add", (i,), (x, (i,)), (x, (i,))))
    given = np.arange(7).astype(ml_dtypes.bfloat16)
    there, y = Foreign(device, given), Foreign(device, given)
    launcher = CudaLauncher(build(device, sub, heuristic(sub, device.target), cache), device)
    bound = launcher.bind([there], [y])
    bound.launch()
    bound.synchronize()
    np.testing.assert_array_equal(y.numpy().astype(np.float32), 2.0 * np.arange(7))


def test_time_samples_batches_hot_and_cold(device: Device, cache: Path) -> None:
    sub, plan = chain(256)
    bound = CudaLauncher(build(device, sub, plan, cache), device).bind(
        [put(device, np.ones(256, np.float32))], [put(device, np.ones(256, np.float32))]
    )
    assert len(bound.time(4, batch=2)) == 4
    assert len(bound.time(2, flush=make_flush(device))) == 2
    assert len(bound.time(50, limit_ns=0)) == 1
    assert all(ns > 0 for ns in bound.time(3))


def test_a_recorded_graph_runs_the_calls_in_order(device: Device, cache: Path) -> None:
    sub = centred(8, 16)
    plan = unfused(sub, device.target)
    x = np.random.default_rng(3).standard_normal((8, 16), np.float32)
    total, y = (put(device, np.zeros(shape, np.float32)) for shape in ((8,), (8, 16)))
    bound = CudaLauncher(build(device, sub, plan, cache), device).bind([put(device, x)], [total, y])
    graph = device.capture(bound.calls)
    bound.synchronize()
    assert not fetched(device, y).any()
    device.replay(graph, bound.stream)
    bound.synchronize()
    np.testing.assert_allclose(fetched(device, y), x - x.sum(1, keepdims=True), rtol=1e-5, atol=1e-5)


def test_a_profile_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoDevice) as caught:
        open_device(replace(device_target("cuda:t4"), processors=7))
    message = str(caught.value)
    assert message.startswith("cuda:t4 cannot run here: ")
    assert message.endswith("use a machine that has it, or --target cpu")
    assert "\n" not in message


def test_what_an_error_of_cuda_means(monkeypatch: Any) -> None:
    from stitchtune.kernels.cuda.cupy_device import meaning

    assert meaning("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered") == ("out-of-bounds", True)
    assert meaning("cudaErrorIllegalAddress: an illegal memory access was encountered") == ("out-of-bounds", True)
    assert meaning("cudaErrorLaunchTimeout: the launch timed out and was terminated") == ("hung", True)
    assert meaning("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE: too many blocks") == ("refused", False)
    assert meaning("cudaErrorNoKernelImageForDevice: no kernel image") == ("failed", False)
