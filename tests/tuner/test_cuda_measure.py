"""Measurement on CUDA: the worker, its child and every way to misbehave; emulated, and on a device where there is one.

Times mean nothing on the emulator: what is tested there is the protocol.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper
from stitchtune.graphs.tolerance import expect
from stitchtune.kernels.compile import Artifact, compile_units, find_compiler
from stitchtune.kernels.cuda import nvrtc
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.device import Device, LaunchError
from stitchtune.kernels.cuda.emulated_device import EmulatedDevice
from stitchtune.kernels.cuda.emulator.entries import unit
from stitchtune.kernels.cuda.emulator.library import kernel_compiler
from stitchtune.kernels.cuda.launch import CudaLauncher
from stitchtune.search_space.devices import device_target
from stitchtune.search_space.stitch import heuristic, unfused
from stitchtune.tuner import recording
from stitchtune.tuner.cuda_measure.bench import DeviceBuffer
from stitchtune.tuner.cuda_measure.microbench import measure_opened, nearest_model
from stitchtune.tuner.cuda_measure.watch import Log, Sample, facts_of, watch_device
from stitchtune.tuner.cuda_measure.worker import Supervisor, load, undisturbed
from stitchtune.tuner.device import CudaDevice, DeviceError, prepare_device
from stitchtune.tuner.measure import Measurer, write_subject
from stitchtune.tuner.memory import GUARD
from stitchtune.tuner.microbench import measure_device
from stitchtune.tuner.protocol import Job, News, Pace, Subject
from stitchtune.tuner.reference import Reference

from tests.kernels.cuda.on_devices import DEVICES, device_of, shared_cache

from .examples import scaled
from .test_loop import graph

N = 1000
SUB = scaled(N)
PACE = Pace(silence=2.5, checks=3, check_seconds=0.01, seconds=0.01, rounds=2, cold=1)

GOOD = f"""
  for (int64_t i = st_block() * THREADS + st_thread(); i < {N}; i += st_grid() * THREADS) {{
    float x = st_load(x0, i);
    st_store(y0, i, expf(x) * x);
  }}"""
FIRST = "if (st_block() == 0 && st_thread() == 0) "
BODIES = {
    "hung": "for (volatile int n = 0;; n = n + 1);",
    "unwritten": GOOD.replace(f"i < {N}", f"i < {N - 3}"),
    "changed-input": GOOD + f"{FIRST}const_cast<float*>(x0)[5] += 1;",
    "wrong": GOOD.replace("* x)", "* x * (i == 7 ? 1.01f : 1.0f))"),
    "out-of-bounds": GOOD + f"{FIRST}y0[{N} + 7] = 1;",
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_cache(tmp_path_factory)


@pytest.fixture(scope="module", params=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    return device_of(request.param)


@pytest.fixture(scope="module")
def good(device: Device, cache: Path) -> BuiltCuda:
    made = built(device, cache, unfused)
    x = np.zeros(N, np.float32)
    CudaLauncher(made, device).bind([x], [x]).launch()  # the emulator itself is compiled at its first launch
    return made


def built(device: Device, cache: Path, choose: Any = heuristic) -> BuiltCuda:
    [made] = device.build([(SUB, choose(SUB, device.target))], precision="strict", cache=cache)
    assert isinstance(made, BuiltCuda)
    return made


def subject(cache: Path) -> Subject:
    inputs = [np.linspace(-2, 2, N, dtype=np.float32)]
    return write_subject(cache / "subject", SUB, inputs, Reference(expect(SUB, inputs)))


@pytest.fixture(scope="module")
def measurer(device: Device, cache: Path) -> Iterator[Measurer]:
    with Measurer(prepare_device(device.target, cache)) as found:
        found.load(subject(cache))
        yield found


def planted(body: str, device: Device, cache: Path) -> BuiltCuda:
    """The heuristic plan with a kernel of this body."""
    like = built(device, cache)
    [launch] = like.launches
    code = body.replace("THREADS", str(launch.threads))
    source = f'extern "C" __global__ void {launch.symbol}(const float* x0, float* y0) {{ {code} }}\n'
    if device.real:
        [made] = nvrtc.compile_units([source], device.target.arch, cache)
        assert isinstance(made, nvrtc.Compiled), made
        return replace(like, image=made.image)
    compiler = find_compiler()
    assert compiler is not None
    [artifact] = compile_units([unit(source, [launch.symbol])], kernel_compiler(compiler), cache)
    assert isinstance(artifact, Artifact), artifact
    return replace(like, image=artifact.library)


def test_a_good_candidate_is_timed_with_its_rivals(good: BuiltCuda, device: Device, cache: Path, measurer: Any) -> None:
    reply = measurer.measure(built(device, cache), [good], PACE)
    [outcome], [rival] = reply.candidates, reply.rivals
    assert (outcome.status, outcome.message) in {("ok", ""), ("cut-off", "")}
    assert outcome.timing is not None
    assert outcome.timing.seconds > 0
    assert rival is not None
    if outcome.status == "ok":
        assert outcome.timing.cold is not None
        assert len(outcome.timing.rounds) == len(rival.rounds) == PACE.rounds


@pytest.mark.parametrize("status", sorted(BODIES))
def test_a_bad_candidate_gets_its_status(
    status: str, good: BuiltCuda, device: Device, measurer: Measurer, cache: Path
) -> None:
    begin = time.monotonic()
    [outcome] = measurer.measure(planted(BODIES[status], device, cache), [good], PACE).candidates
    assert outcome.status == status, outcome
    assert outcome.message
    assert outcome.timing is None
    assert time.monotonic() - begin < 60
    [after] = measurer.measure(good, pace=PACE).candidates
    assert after.status == "ok", after


def test_one_candidate_that_dies_does_not_take_the_others_along(
    good: BuiltCuda, device: Device, measurer: Measurer, cache: Path
) -> None:
    bad = planted(GOOD + f"{FIRST}*(volatile int*)8 = 1;", device, cache)
    reply = measurer.run(Job((good, bad, good), (), PACE))
    assert [outcome.status for outcome in reply.candidates][::2] == ["ok", "ok"]
    assert reply.candidates[1].status in ("crashed", "out-of-bounds")


def test_what_the_emulator_finds_is_the_status(cache: Path) -> None:
    device = device_of("emulated")
    good = built(device, cache)
    cases = {
        GOOD + f"st_store(y0, (int64_t){N}, 1.0f);": "out-of-bounds",
        GOOD + "st_store(y0, (int64_t)7, 1.0f);": "nondeterministic",
        GOOD + f"{FIRST}st_sync_block();": "crashed",
    }
    with Measurer(prepare_device(device.target, cache)) as measurer:
        measurer.load(subject(cache))
        for body, status in cases.items():
            [outcome] = measurer.measure(planted(body, device, cache), [good], PACE).candidates
            assert outcome.status in (status, "hung"), (body, outcome)


def test_a_lost_device_is_opened_again(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = device_of("emulated")
    good, bad = built(device, cache), built(device, cache, unfused)
    opened = cache / "opened"
    launch, open_ = EmulatedDevice.launch, CudaDevice.open

    def lose(self: EmulatedDevice, call: Any, stream: int) -> None:
        if call.kernel.image == bad.image:
            raise LaunchError("an illegal memory access was encountered", "out-of-bounds", sticky=True)
        launch(self, call, stream)

    def count(self: CudaDevice) -> Device:
        with opened.open("a") as file:
            file.write("x")
        return open_(self)

    monkeypatch.setattr(EmulatedDevice, "launch", lose)
    monkeypatch.setattr(CudaDevice, "open", count)
    supervisor = Supervisor(CudaDevice(device.target))
    supervisor.load(subject(cache))
    assert [o.status for o in supervisor.run(Job((good,), (), PACE)).candidates] == ["ok"]
    assert [o.status for o in supervisor.run(Job((good,), (), PACE)).candidates] == ["ok"]
    assert opened.read_text() == "x"
    reply = supervisor.run(Job((good, bad, good), (), PACE))
    assert [o.status for o in reply.candidates] == ["ok", "out-of-bounds", "ok"]
    assert opened.read_text() == "xx"
    supervisor.end()


def test_a_device_that_is_not_there_is_one_line(cache: Path) -> None:
    target = replace(device_target("cuda:t4"), processors=3)
    with Measurer(prepare_device(target, cache)) as measurer:
        measurer.load(subject(cache))
        [outcome] = measurer.measure(built(device_of("emulated"), cache), pace=PACE).candidates
    assert outcome.status == "crashed"
    assert "cuda:t4 cannot run here" in outcome.message


class Watched:
    """A device whose clocks and neighbours are these, one look after the other."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = list(samples)
        self.driver = "580.1"

    def sample(self) -> Sample:
        return self.samples.pop(0) if len(self.samples) > 1 else self.samples[0]


def test_disturbed_jobs_are_run_again_and_then_flagged(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = device_of("emulated")
    monkeypatch.setattr("stitchtune.tuner.cuda_measure.watch.INTERVAL", 0.0)
    quiet, busy = Sample(1980, 3201, 0), Sample(1980, 3201, 2)
    for watch, disturbed in (([quiet], ""), ([busy], "2 other processes"), ([busy, quiet], "")):
        log = Log(Watched(watch))
        bench = load(subject(cache), device, log)
        news: list[News] = []
        reply = undisturbed(bench, Job((built(device, cache),), (), PACE), log, news.append)
        assert news
        [outcome] = reply.candidates
        assert outcome.timing is not None
        assert outcome.timing.disturbed == bool(disturbed)
        facts = dict(outcome.timing.facts)
        assert (facts["sm_clock"], facts["driver"]) == (1980, "580.1")
        assert disturbed in str(facts.get("disturbed", ""))


def test_what_samples_say() -> None:
    assert facts_of([]) == facts_of([Sample()]) == ()
    waking = [Sample(210, 405), Sample(1980, 3201), Sample(1965, 3201)]
    assert dict(facts_of(waking)) == {"sm_clock": 1972, "memory_clock": 3201}
    throttled = [*waking, Sample(1410, 3201)]
    assert dict(facts_of(throttled))["disturbed"] == "sm_clock between 1410 and 1980 MHz"


class Nvml(ModuleType):
    """NVIDIA's management library: processes by number, and who of them worked."""

    class NVMLError(Exception):
        pass

    class NVMLError_NotFound(NVMLError):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def __init__(self, running: Sequence[int] | None, worked: Sequence[int] | None) -> None:
        super().__init__("pynvml")
        self.running, self.worked = running, worked

    def nvmlInit(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.1"

    def nvmlDeviceGetHandleByPciBusId(self, bus: bytes) -> str:
        if bus != b"0000:65:00.0":
            raise self.NVMLError("no such device")
        return "handle"

    def nvmlDeviceGetClockInfo(self, handle: str, clock: int) -> int:
        return 1000 * clock

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[Any]:
        if self.running is None:
            raise self.NVMLError("not supported")
        return [SimpleNamespace(pid=pid) for pid in self.running]

    def nvmlDeviceGetProcessUtilization(self, handle: str, since: int) -> list[Any]:
        if self.worked is None:
            raise self.NVMLError("not supported")
        if not self.worked:
            raise self.NVMLError_NotFound("no sample since")
        return [SimpleNamespace(pid=pid, timeStamp=since + 1, smUtil=50) for pid in self.worked]


@pytest.mark.parametrize(
    ("running", "worked", "others"),
    [
        (["own"], ["own"], 0),
        (["own", 7], ["own"], 0),  # 7 only holds memory
        (["own", 7], [], 0),
        (["own", 7], ["own", 7], 1),
        (["own", 7, 8], None, 2),  # who works is not told
        ([3000], [3000], 0),  # in a container this process is called 3000 there
        ([3000, 7], [3000, 7], 1),
        (None, ["own"], None),
    ],
)
def test_who_else_uses_the_device(
    monkeypatch: pytest.MonkeyPatch, running: list[Any] | None, worked: list[Any] | None, others: int | None
) -> None:
    def pids(given: list[Any] | None) -> list[int] | None:
        return None if given is None else [os.getpid() if pid == "own" else pid for pid in given]

    monkeypatch.setitem(sys.modules, "pynvml", Nvml(pids(running), pids(worked)))
    watch = watch_device("0000:65:00.0")
    assert watch.driver == "580.1"
    assert watch.sample() == Sample(1000, 2000, others)


def test_without_the_management_library_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml([], []))
    assert watch_device("0000:01:00.0").sample() == Sample()
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Log(watch_device("0000:65:00.0")).facts() == ()


def test_guard_zones_on_the_device(device: Device) -> None:
    for shift in (0, 16):
        buffer = DeviceBuffer(device, 100, 0, shift)
        assert buffer.span.address % 256 == shift
        buffer.poison(0)
        assert buffer.damage() is None
        kept = buffer.keep()
        assert buffer.same(kept)
        device.fill(buffer.span.address + 50, 0, 1, 0)
        assert not buffer.same(kept)
        assert buffer.host()[49:52].tolist() == [255, 0, 255]
        device.fill(buffer.span.address + 103, 0, 1, 0)
        assert buffer.damage() == 103
    buffer = DeviceBuffer(device, 64, 0)
    device.fill(buffer.span.address - GUARD, 0, 1, 0)
    assert buffer.damage() == -GUARD


def test_microbenchmarks_run(cache: Path) -> None:
    target = replace(device_of("emulated").target, processors=2)
    model = measure_opened(EmulatedDevice(target), cache, largest=1 << 13)
    assert model.target == target
    assert model.source.startswith("measured")
    assert "launch" not in dict(model.sources)
    for name in ("dram_bandwidth", "cache_bandwidth", "block_bandwidth", "launch", "graph_launch", "dram_stream"):
        assert 0 < getattr(model, name) < float("inf")


def test_a_device_that_cannot_be_opened_is_one_line(cache: Path) -> None:
    target = replace(device_target("cuda:t4"), processors=3)
    with pytest.raises(DeviceError, match="cuda:t4 cannot be measured: cuda:t4 cannot run here: ") as error:
        measure_device(target, prepare_device(target, cache), cache)
    assert "\n" not in str(error.value)


def test_inputs_are_recorded_on_the_cpu_once_this_process_has_used_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    target = device_target("cuda:t4")
    monkeypatch.setattr(recording, "_cuda_used", lambda: False)
    assert recording.recording_target(target) is target
    monkeypatch.setattr(recording, "_cuda_used", lambda: True)
    assert recording.recording_target(target).kind == "cpu"


def test_constants_of_an_unknown_architecture_are_the_nearest(cache: Path) -> None:
    target = replace(device_target("cuda:b200"), name="cuda", arch="sm_103")
    assert nearest_model(target).target == target
    assert "cuda:b200" in nearest_model(target).source


def test_a_whole_search_on_the_emulated_device(tmp_path: Path, cache: Path) -> None:
    from stitchtune.graphs.digest import structural_digest
    from stitchtune.results.database import Database
    from stitchtune.results.records import PlanKey
    from stitchtune.tuner.effort import Options
    from stitchtune.tuner.loop import tune_graph

    target = device_of("emulated").target

    def key_of(sub: Any) -> PlanKey:
        return PlanKey(structural_digest(sub), sub.extents, sub.slots, target, "compiler", "generator")

    nodes = [helper.make_node("Softmax", ["x"], ["a"]), helper.make_node("MatMul", ["a", "w"], ["y"])]
    feeds = {"x": np.random.default_rng(0).standard_normal((6, 40), np.float32)}
    parted = graph(tmp_path, nodes, (6, 40))
    db = Database.open(tmp_path / "plans.db")
    result = tune_graph(parted, feeds, db, target, key_of, Options(cache, 60.0, 2, effort="quick"))
    [part] = result.parts
    assert part.plan is not None
    rows = [row.measurement for row in db.measurements()]
    assert {row.status for row in rows} <= {"ok", "cut-off"}
    assert {row.kind for row in rows} >= {"unfused", "heuristic"}
    best = db.best(key_of(parted.components[0].subgraph))
    assert best is not None
    assert best.measurement.plan == part.plan
