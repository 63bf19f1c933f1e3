"""Constants of CUDA devices for the cost model, from what others published; nothing here was measured by this project.

Where a device was not measured by anybody we can cite, a figure is scaled from its nearest relative and its source says
so. Three sources recur:

- *gpu-benches*: https://github.com/te42kyfo/gpu-benches (NHR@FAU), result files of V100, A100, A40, L40, H100 PCIe, and
  of a Hopper with 132 multiprocessors. That file is named h200, but its 3.89 TB/s are 97 % of what a GH200 with
  96 GB of HBM3 has (4.02 TB/s): it is read as one, and serves for everything but DRAM of the H200. Bandwidths are from
  gpu-stream ("scale", "read"), L2 from gpu-l2-cache and gpu-small-kernels, latencies from gpu-latency, launches and
  grid barriers from gpu-small-kernels (time per kernel or per barrier of a chain over 64 KiB; of the latter a round
  through L2 is the phase's own).
- *Azure*: https://github.com/Azure/AI-benchmarking-guide, BabelStream (copy, dot) of H200 and A100.
- *white paper*: NVIDIA's architecture white papers and data sheets: clocks and rates per cycle.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..graphs.errors import InputError
from ..search_space.devices import DEVICES
from ..search_space.target import DeviceModel, Target


@dataclass(frozen=True)
class _Chip:
    """One device: terabytes per second, gigahertz, microseconds (latency: of a load; start: of the next block).

    peak     datasheet bandwidth
    copy, stream   share of it that a copy, a stream in one direction reach
    l2, l2_stream  terabytes per second of L2: a copy, reads
    """

    peak: float
    copy: float
    stream: float
    dram_source: str
    l2: float
    l2_stream: float
    l2_source: str
    clock: float
    arithmetic: int
    latency: float
    l2_latency: float
    start: float
    latency_source: str
    launch: float
    graph: float
    launch_source: str
    barrier: float
    barrier_source: str


_HBM3 = "gpu-benches, GH200 with HBM3: 85 % and 97 % of its 4.02 TB/s"
_HOPPER_L2 = (
    "gpu-benches, Hopper with 132 multiprocessors: reads 9.7 TB/s; copies 41 MB in 6.6 us less a 1.2 us barrier"
)
_HOPPER_LAUNCH = "gpu-benches, Hopper: 2.5 us by stream, 2.3 us by graph"
_HOPPER_BARRIER = "gpu-benches, Hopper: 1.24 us per barrier of 132 blocks with a round through L2 (0.15)"
_V100_SLOPE = "each block adds 1.4 ns: AStitch (ASPLOS 2022), 2.5 to 2.7 us from 20 to 160 blocks on a V100"
_HOPPER_LATENCY = (
    "gpu-benches, H100 PCIe: 650 and 265 cycles at 1.755 GHz; turnover: Hopper reads at half occupancy less that"
)
_AMPERE_L2 = "gpu-benches, A40 has none; scaled with multiprocessors and clock from the L40 (15 bytes per cycle)"
_GDDR_LATENCY = "gpu-benches, L40: 631 and 277 cycles at 2.49 GHz; turnover: reads at low occupancy less that"
_ADA_LAUNCH = "gpu-benches, L40: 1.64 us by stream, 0.94 us by graph"
_ADA_BARRIER = "gpu-benches, L40: 0.82 us per barrier of 142 blocks with a round through L2 (0.11)"
_A100_LAUNCH = "gpu-benches, A100: 2.7 us by stream, 1.36 us by graph"

_HOPPER = _Chip(
    peak=3.35,
    copy=0.846,
    stream=0.966,
    dram_source=_HBM3,
    l2=7.5,
    l2_stream=9.7,
    l2_source=_HOPPER_L2,
    clock=1.98,
    arithmetic=128,
    latency=0.37,
    l2_latency=0.151,
    start=0.26,
    latency_source=_HOPPER_LATENCY,
    launch=2.5,
    graph=2.3,
    launch_source=_HOPPER_LAUNCH,
    barrier=0.9,
    barrier_source=f"{_HOPPER_BARRIER}; {_V100_SLOPE}",
)

_A100 = _Chip(
    peak=2.039,
    copy=0.79,
    stream=0.858,
    dram_source="Azure, A100 80 GB: copy 1.61, dot 1.75 TB/s",
    l2=4.1,
    l2_stream=5.4,
    l2_source="gpu-benches, A100: reads 5.4 TB/s; copies 25 MB in 7.6 us less a 1.3 us barrier",
    clock=1.41,
    arithmetic=64,
    latency=0.404,
    l2_latency=0.15,
    start=0.38,
    latency_source="gpu-benches, A100: 570 and 211 cycles at 1.41 GHz; turnover: reads at half occupancy less that",
    launch=2.7,
    graph=1.36,
    launch_source=_A100_LAUNCH,
    barrier=1.04,
    barrier_source=f"gpu-benches, A100: 1.34 us per barrier of 108 blocks with a round through L2; {_V100_SLOPE}",
)

_GDDR = _Chip(
    peak=0.3,
    copy=0.891,
    stream=0.977,
    dram_source="scaled: gpu-benches, L40 reaches 89 % and 98 % of its 0.864 TB/s",
    l2=2.0,
    l2_stream=2.0,
    l2_source="scaled with multiprocessors and clock: gpu-benches, L40 reads and copies 15 bytes per cycle",
    clock=2.04,
    arithmetic=128,
    latency=0.253,
    l2_latency=0.111,
    start=0.21,
    latency_source=_GDDR_LATENCY,
    launch=1.64,
    graph=0.94,
    launch_source=_ADA_LAUNCH,
    barrier=0.51,
    barrier_source=f"{_ADA_BARRIER}; {_V100_SLOPE}",
)

_CHIPS = {
    "cuda:t4": replace(
        _GDDR,
        peak=0.32,
        copy=0.749,
        stream=0.82,
        dram_source="bandwidthTest copies 239.6 GB/s (github.com/router-gao/cuda-demo); reads scaled: L40",
        l2=0.95,
        l2_stream=0.95,
        clock=1.59,
        arithmetic=64,
        latency=0.38,
        l2_latency=0.17,
        latency_source="estimated from the L40's cycles at 1.59 GHz",
        launch=2.5,
        graph=1.5,
        launch_source="estimated: the L40's with the clock",
        barrier=0.8,
        barrier_source=f"estimated: the L40's with the clock; {_V100_SLOPE}",
    ),
    "cuda:v100": _Chip(
        peak=0.9,
        copy=0.891,
        stream=0.962,
        dram_source="gpu-benches, V100: 802 and 866 GB/s",
        l2=1.9,
        l2_stream=2.5,
        l2_source="gpu-benches, V100: reads 2.5 TB/s; copies scaled as on the A100",
        clock=1.53,
        arithmetic=64,
        latency=0.316,
        l2_latency=0.155,
        start=0.35,
        latency_source="gpu-benches, V100: 436 and 214 cycles at 1.38 GHz; turnover: reads at low occupancy less that",
        launch=2.7,
        graph=1.36,
        launch_source=f"estimated as {_A100_LAUNCH}",
        barrier=2.47,
        barrier_source="AStitch (ASPLOS 2022): 2.5 to 2.7 us from 20 to 160 blocks",
    ),
    "cuda:a100": _A100,
    "cuda:a100-40": replace(
        _A100, peak=1.555, copy=0.888, stream=0.958, dram_source="gpu-benches, A100 40 GB: 1381 and 1490 GB/s"
    ),
    "cuda:a10": replace(
        _GDDR,
        peak=0.6,
        copy=0.94,
        stream=0.975,
        dram_source="scaled: gpu-benches, A40 reaches 94 % and 98 % of its 0.696 TB/s",
        l2=1.8,
        l2_stream=1.8,
        l2_source=_AMPERE_L2,
        clock=1.695,
        latency=0.37,
        l2_latency=0.163,
        start=0.22,
        latency_source="the L40's cycles at 1.695 GHz; turnover: gpu-benches, A40 reads at low occupancy less that",
        launch_source=f"estimated as {_ADA_LAUNCH}",
        barrier_source=f"estimated as {_ADA_BARRIER}",
    ),
    "cuda:rtx3090": replace(
        _GDDR,
        peak=0.936,
        copy=0.94,
        stream=0.975,
        dram_source="scaled: gpu-benches, A40 reaches 94 % and 98 % of its 0.696 TB/s",
        l2=2.1,
        l2_stream=2.1,
        l2_source=_AMPERE_L2,
        clock=1.695,
        latency=0.37,
        l2_latency=0.163,
        start=0.22,
        latency_source="the L40's cycles at 1.695 GHz; turnover: gpu-benches, A40 reads at low occupancy less that",
        launch_source=f"estimated as {_ADA_LAUNCH}",
        barrier_source=f"estimated as {_ADA_BARRIER}",
    ),
    "cuda:l4": _GDDR,
    "cuda:rtx4090": replace(
        _GDDR,
        peak=1.008,
        copy=0.913,
        stream=0.977,
        dram_source="copies 920 GB/s (github.com/xytpai/nvbench); reads scaled: gpu-benches, L40",
        l2=4.8,
        l2_stream=4.8,
        clock=2.52,
    ),
    "cuda:h100-sxm": replace(_HOPPER, dram_source=f"scaled: {_HBM3}"),
    "cuda:h100-pcie": replace(
        _HOPPER,
        peak=2.039,
        copy=0.836,
        stream=0.968,
        dram_source="gpu-benches, H100 PCIe: 1704 and 1974 GB/s",
        l2=5.3,
        l2_stream=6.9,
        l2_source="gpu-benches, H100 PCIe: reads 6.9 TB/s; copies scaled as on the SXM",
        clock=1.755,
        start=0.37,
    ),
    "cuda:h200": replace(
        _HOPPER, peak=4.8, copy=0.835, stream=0.933, dram_source="Azure, H200: copy 4.01, dot 4.48 TB/s"
    ),
    "cuda:b200": replace(
        _HOPPER,
        peak=7.672,
        copy=0.835,
        stream=0.933,
        dram_source="scaled: 7.67 TB/s by bus and clock (github.com/pytorch/ao/pull/4002), the H200's shares",
        l2=8.4,
        l2_stream=10.9,
        l2_source=f"scaled with multiprocessors: {_HOPPER_L2}",
        clock=1.965,
        latency=0.43,
        latency_source=f"L2: chipsandcheese.com, B200, 150 ns; DRAM estimated a sixth above {_HOPPER_LATENCY}",
        launch_source=f"estimated as {_HOPPER_LAUNCH}",
        barrier_source=f"estimated as {_HOPPER_BARRIER}; {_V100_SLOPE}",
    ),
}


def _model(target: Target, chip: _Chip) -> DeviceModel:
    cycles = chip.clock * 1e9
    return DeviceModel(
        target=target,
        dram_bandwidth=chip.peak * chip.copy * 1e12,
        cache_bandwidth=chip.l2 * 1e12,
        block_bandwidth=128 * target.processors * cycles,
        launch=chip.launch * 1e-6,
        serial_launch=chip.launch * 1e-6,
        barrier=chip.barrier * 1e-6,
        source="published figures of others, see sources; nothing was measured by this project",
        sources=(
            ("dram_bandwidth", chip.dram_source),
            ("cache_bandwidth", chip.l2_source),
            ("block_bandwidth", "white paper: 128 bytes per cycle and multiprocessor"),
            ("latency", chip.latency_source),
            ("block_latency", "gpu-benches: L1, the same memory, 30 to 36 cycles on V100, A100, H100 and L40"),
            ("launch", chip.launch_source),
            ("barrier", chip.barrier_source),
            ("clock", "white paper: boost clock; issue 4 warps per cycle, 16 special functions per cycle"),
        ),
        dram_stream=chip.peak * chip.stream * 1e12,
        cache_stream=chip.l2_stream * 1e12,
        graph_launch=chip.graph * 1e-6,
        barrier_per_block=1.4e-9,
        latency=chip.latency * 1e-6,
        cache_latency=chip.l2_latency * 1e-6,
        block_latency=34 / cycles,
        turnover=chip.start * 1e-6,
        clock=cycles,
        issue=128.0,
        arithmetic=float(chip.arithmetic),
        special=16.0,
    )


MODELS: dict[str, DeviceModel] = {name: _model(DEVICES[name], chip) for name, chip in _CHIPS.items()}
"""By the name of the target: "cuda:h200"."""


def profile_model(target: Target) -> DeviceModel:
    """The published constants for a CUDA target: its own profile's, else those of the most alike profile.

    A device that is present ("cuda") has a target of its own name, with the numbers that its driver reports; its
    profile is the one of its architecture with the nearest number of multiprocessors. Raises InputError when no profile
    has the architecture.
    """
    if target.name in MODELS:
        return replace(MODELS[target.name], target=target)
    alike = [m for m in MODELS.values() if m.target.arch == target.arch]
    if not alike:
        raise InputError(f"no device profile has the architecture {target.arch} of {target.name}")
    model = min(alike, key=lambda m: abs(m.target.processors - target.processors))
    return replace(model, target=target, source=f"profile {model.target.name}: {model.source}")
