"""Constants of a CUDA device, measured: copies from DRAM and L2, launches, barriers, shared memory.

What is not measured (latencies, instruction rates) stays what is published of the most alike profile. The benchmarks
are subgraphs with plans, so the constants hold for what the tuner compiles. They run in a process of their own: one
that has a CUDA device open cannot fork, and the tuner does.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ...graphs.subgraph import Subgraph
from ...kernels.cuda.built import BuiltCuda
from ...kernels.cuda.device import Device, DeviceArray, contiguous
from ...kernels.cuda.launch import Bound, CudaLauncher
from ...kernels.cuda.opening import EMULATED
from ...search_space.devices import DEVICES
from ...search_space.plan import Edge, Group, Kernel, Phase, Plan, Stage
from ...search_space.stitch import heuristic
from ...search_space.target import DeviceModel, Target
from ..device import CudaDevice, DeviceError
from ..microbench import chain, elementwise
from ..profiles import profile_model
from ..protocol import Channel
from ..spawn import Spawned

MEASURING = 120.0
"""Seconds that building and running the benchmarks may take."""

BARRIERS = 8
STAGES = 16
THREADS = 128
SAMPLES = 7
LARGEST = 1 << 30
"""Most bytes that a copy may touch."""


@dataclass(frozen=True)
class Bench:
    """What runs; its time in seconds goes by this name."""

    name: str
    sub: Subgraph
    plan: Plan
    batch: int = 1


def measure_cuda(device: CudaDevice, cache: Path) -> DeviceModel:
    """The model of a device; that of an emulated one is published. Raises DeviceError when it cannot be used."""
    if device.target.name == EMULATED:
        return nearest_model(device.target)
    worker = Spawned("cuda_measure.microbench")
    try:
        worker.channel.send((device, cache))
        found = worker.channel.receive(device.opening + MEASURING)
    except (TimeoutError, EOFError, BrokenPipeError):
        found = "the process that measures the device died or hangs"
    finally:
        worker.end()
    if isinstance(found, DeviceModel):
        return found
    raise DeviceError(f"{device.target.name} cannot be measured: {found}")


def main(read_fd: int, write_fd: int) -> None:
    """The process that measures: it is told the device and the cache, and answers with the model or a line."""
    channel = Channel(read_fd, write_fd)
    device, cache = channel.receive()
    try:
        channel.send(measure_opened(device.open(), cache))
    except Exception as error:  # noqa: BLE001  a boundary: whatever goes wrong here is one line there
        channel.send(str(error))


def measure_opened(device: Device, cache: Path, largest: int = LARGEST) -> DeviceModel:
    """The model of an open device; copies touch at most `largest` bytes. Raises DeviceError when a benchmark does not
    build, LaunchError when one does not run."""
    target = device.target
    benches = benchmarks(target, largest)
    built = device.build([(b.sub, b.plan) for b in benches], precision="strict", cache=cache, per_unit=len(benches))
    times: dict[str, float] = {}
    for bench, item in zip(benches, built, strict=True):
        if not isinstance(item, BuiltCuda):
            raise DeviceError(f"microbenchmark {bench.name} does not build: {item.message}")
        bound, held = _bind(device, item)
        times[bench.name] = min(bound.time(SAMPLES, batch=bench.batch)) * 1e-9 / bench.batch
        if bench.name == "launch":
            times["stream"] = _by_stream(device, bound)
        del bound, held
    return model_of(target, times, largest)


def model_of(target: Target, times: dict[str, float], largest: int = LARGEST) -> DeviceModel:
    """What follows from seconds per run of the benchmarks, in a model that is published otherwise."""
    base = nearest_model(target)
    launch = times["launch"]
    far, near = copied(target, largest)
    dram = far / max(times["dram"] - launch, 1e-9)
    cache = near / max(times["cache"] - launch, 1e-9)
    few, many = _grids(target)
    slope = max((times["many"] - times["few"]) / BARRIERS / (many - few), 0.0)
    barrier = max((times["few"] - launch) / BARRIERS - slope * few, 0.0)
    moved = 8 * _elements(target) * STAGES
    return replace(
        base,
        target=target,
        dram_bandwidth=dram,
        cache_bandwidth=cache,
        dram_stream=base.dram_stream * dram / base.dram_bandwidth,
        cache_stream=base.cache_stream * cache / base.cache_bandwidth,
        block_bandwidth=moved / max(times["block"] - times["blocks"], 1e-9),
        launch=max(times["stream"], launch),
        serial_launch=max(times["stream"], launch),
        graph_launch=launch,
        barrier=barrier,
        barrier_per_block=slope,
        source="measured: copies, launches, barriers, shared memory; else " + base.source,
        sources=tuple((name, text) for name, text in base.sources if name not in _MEASURED),
    )


_MEASURED = ("dram_bandwidth", "cache_bandwidth", "block_bandwidth", "launch", "barrier")


def nearest_model(target: Target) -> DeviceModel:
    """The published constants of the device most like `target`: of its architecture, else of the nearest one."""
    if target.name in DEVICES or any(t.arch == target.arch for t in DEVICES.values()):
        return profile_model(target)
    number = int(target.arch.removeprefix("sm_"))
    alike = min(DEVICES.values(), key=lambda t: abs(int(t.arch.removeprefix("sm_")) - number))
    model = profile_model(alike)
    return replace(model, target=target, source=f"profile {alike.name}: {model.source}")


def benchmarks(target: Target, largest: int = LARGEST) -> tuple[Bench, ...]:
    """All of them, for one device."""
    tiny = elementwise("neg", 32)
    far, near = (elementwise("neg", size // 8) for size in copied(target, largest))
    barriers = [
        (name, chain(BARRIERS + 1, 32 * grid)) for name, grid in zip(("few", "many"), _grids(target), strict=True)
    ]
    stages = {name: chain(length, _elements(target)) for name, length in (("blocks", 1), ("block", 1 + STAGES))}
    return (
        Bench("launch", tiny, heuristic(tiny, target), batch=100),
        Bench("dram", far, heuristic(far, target)),
        Bench("cache", near, heuristic(near, target), batch=4),
        *(Bench(name, sub, _phases(sub), batch=4) for name, sub in barriers),
        *(Bench(name, sub, _through_shared_memory(sub), batch=4) for name, sub in stages.items()),
    )


def copied(target: Target, largest: int = LARGEST) -> tuple[int, int]:
    """Bytes that the copies read and write: far more than L2 holds, and half of it."""
    return min(largest, max(8 * target.cache_bytes, 256 << 20)), min(largest, target.cache_bytes // 2) // 32 * 32


def _grids(target: Target) -> tuple[int, int]:
    """Blocks of the two kernels with barriers."""
    return target.processors, 4 * target.processors


def _elements(target: Target) -> int:
    """Elements that pass through shared memory: several blocks' worth for each multiprocessor."""
    return 8 * target.processors * THREADS * 8


def _phases(sub: Subgraph) -> Plan:
    """Each value in a phase of its own, through global memory, 32 elements a block."""
    stages = [Stage((v,), (1,), lanes=((1, 32),)) for v in sub.computed]
    phases = tuple(Phase((Group(((1, 32),), (stage,), threads=32),)) for stage in stages)
    return Plan((Kernel(phases),), tuple(Edge(a, b, "global") for a, b in itertools.pairwise(sub.computed)))


def _through_shared_memory(sub: Subgraph) -> Plan:
    """Each value in a stage of its own, through shared memory."""
    stages = tuple(Stage((v,), (1,), lanes=((1, THREADS),)) for v in sub.computed)
    group = Group(((1, 8 * THREADS),), stages, threads=THREADS)
    return Plan((Kernel((Phase((group,)),)),), tuple(Edge(a, b, "block") for a, b in itertools.pairwise(sub.computed)))


def _bind(device: Device, built: BuiltCuda) -> tuple[Bound, object]:
    """The plan on arrays that hold ones, and what keeps them."""
    sub = built.sub
    held, arrays = [], []
    for number in (*sub.inputs, *sub.outputs):
        held.append(device.allocate(sub.bytes(number)))
        dtype = sub.values[number].dtype.numpy
        device.upload(held[-1].address, np.ones(sub.elements(number), dtype), device.current_stream())
        arrays.append(_Own(contiguous(held[-1].address, sub.shape(number), dtype)))
    count = len(sub.inputs)
    return CudaLauncher(built, device).bind(arrays[:count], arrays[count:]), held


class _Own:
    """Memory of this module as an array that the launcher takes."""

    def __init__(self, array: DeviceArray) -> None:
        self.__cuda_array_interface__ = {
            "shape": array.shape,
            "typestr": array.dtype.str,
            "data": (array.address, False),
            "strides": None,
            "version": 3,
        }


def _by_stream(device: Device, bound: Bound, launches: int = 200) -> float:
    """Seconds per kernel launched one by one."""

    def once() -> float:
        first, last = device.event(), device.event()
        device.record(first, bound.stream)
        for _ in range(launches):
            device.launch(bound.calls[0], bound.stream)
        device.record(last, bound.stream)
        return device.elapsed(first, last) / launches

    return min(once() for _ in range(3))
