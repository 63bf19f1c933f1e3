"""Runs that are recorded, by the executor or by its caller, and the streams that they follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
from numpy.typing import NDArray
from stitchtune.kernels.cuda.device import LaunchError
from stitchtune.search_space.stitch import unfused

from tests.graphs.onnx_models import make_model
from tests.kernels.cuda.on_devices import Foreign, Spy, device_of, fetched, put
from tests.kernels.cuda.test_executor import compiled
from tests.kernels.test_executor import agree, draw, node, read, reference

Array = NDArray[Any]


def three_kernels() -> tuple[onnx.ModelProto, dict[str, Array]]:
    feeds = {"x": draw(8, 32)}
    return make_model([node("Softmax", ["x"], ["s"]), node("Exp", ["s"], ["y"])], feeds, ["y"]), feeds


def test_kernels_are_recorded_when_their_addresses_come_again(tmp_path: Path, cache: Path) -> None:
    device = Spy(device_of("emulated"))
    model, feeds = three_kernels()
    run = compiled(read(model, tmp_path), device, cache, unfused)
    kernels = run.stats().kernels
    assert kernels > 1
    want = reference(model, feeds)
    x, y = put(device, feeds["x"]), put(device, want["y"])
    for expected in ((0, 0, kernels), (1, 1, kernels), (1, 2, kernels)):
        run({"x": x}, {"y": y})
        agree({"y": fetched(device, y)}, want)
        assert (device.captures, len(device.replayed), len(device.launched)) == expected
    held = [put(device, feeds["x"]) for _ in range(3)]
    for array in held:  # new arrays each time are never recorded
        agree({"y": fetched(device, run({"x": array})["y"])}, want)
    assert device.captures == 1
    assert run.stats().launches == 6 * kernels
    for _ in range(3):  # arrays of NumPy pass through the same memory each time
        agree(run(feeds), want)
    assert device.captures == 2


def test_what_cannot_be_recorded_is_launched_one_by_one(tmp_path: Path, cache: Path) -> None:
    class Forgetful(Spy):
        def capture(self, calls: Any) -> Any:
            raise LaunchError("a cooperative launch cannot be recorded", "refused")

    device = Forgetful(device_of("emulated"))
    model, feeds = three_kernels()
    run = compiled(read(model, tmp_path), device, cache, unfused)
    for _ in range(3):
        agree(run(feeds), reference(model, feeds))
    assert len(device.launched) == run.stats().launches


def test_a_caller_that_records_gets_single_launches(tmp_path: Path, cache: Path) -> None:
    class Recording(Spy):
        def capturing(self, stream: int) -> bool:
            return True

    device = Recording(device_of("emulated"))
    model, feeds = three_kernels()
    run = compiled(read(model, tmp_path), device, cache, unfused)
    for _ in range(3):
        run(feeds)
    assert device.captures == 0
    assert len(device.launched) == run.stats().launches


def test_memory_that_a_caller_has_recorded_is_used_by_nobody_else(tmp_path: Path, cache: Path) -> None:
    class Recording(Spy):
        recorded = 7

        def capturing(self, stream: int) -> bool:
            return stream == self.recorded

    device = Recording(device_of("emulated"))
    model, feeds = three_kernels()
    run = compiled(read(model, tmp_path), device, cache, unfused)
    for stream in (5, 7, 7, 5):  # the first slot goes into one recording, a second one into the other
        run({"x": Foreign(device, feeds["x"], stream=stream)})
    assert device.waits == []  # a stream that is recorded must not wait for work outside
    assert len(run._slots) == 3
    assert [slot.stream for slot in run._free] == [5]


def test_the_stream_of_the_caller_is_used_and_slots_follow_it(tmp_path: Path, cache: Path) -> None:
    device = Spy(device_of("emulated"))
    model, feeds = three_kernels()
    run = compiled(read(model, tmp_path), device, cache, unfused)
    for stream in (5, 5, 9):
        run({"x": Foreign(device, feeds["x"], stream=stream)})
        assert device.launched[-1] == stream
    assert device.waits == [9]  # the one slot was in use on stream 5
    assert len(run._slots) == 1
