"""The target: the device a plan is for, as facts that belong to a key."""

from __future__ import annotations

from dataclasses import dataclass, field

WARP = 32
MOST_THREADS = 1024
MOST_BLOCKS = 2**31 - 1
"""Of CUDA, on every architecture: threads of a warp, most threads of a block, most blocks of a grid (CUDA C++
programming guide, technical specifications per compute capability)."""


@dataclass(frozen=True)
class Target:
    """A device or device profile.

    kind         "cpu" or "cuda": selects emitter and launcher
    name         what a user types and reads: "cpu", "cuda", "cuda:h200"
    arch         what machine code is made for: sorted ISA features digest for the CPU, "sm_90" for CUDA
    processors   cores (threads used) or multiprocessors
    vector_bytes widest vector register (CPU) or per-thread access (CUDA: 16)
    lanes        lanes that exchange values without memory (CPU: 1, CUDA: 32)
    block_bytes  block memory per block: the part of L2 a thread may fill on the CPU, shared memory on CUDA
    cache_bytes  last-level cache that all processors share

    Of one CUDA multiprocessor (0 on the CPU):

    resident_threads, resident_blocks   most that may be resident at a time
    registers                           32-bit registers
    shared_bytes                        shared memory of all resident blocks together, the system's share included
    """

    kind: str
    name: str
    arch: str
    processors: int
    vector_bytes: int
    lanes: int
    block_bytes: int
    l1_bytes: int
    cache_bytes: int
    resident_threads: int = 0
    resident_blocks: int = 0
    registers: int = 0
    shared_bytes: int = 0


@dataclass(frozen=True)
class DeviceModel:
    """Measured (or sourced) constants of a target for the cost model; SI units: bytes per second, seconds.

    `source` says where they come from: "measured" or a citation; `sources` names fields that have one of their own.

    CUDA: dram_bandwidth and cache_bandwidth (L2) are what copies reach, `dram_stream` and `cache_stream` what traffic
    in one direction reaches; block_bandwidth is shared memory's, of all multiprocessors; launch is by stream,
    `graph_launch` by replay, each with what a kernel takes to start and to end.
    """

    target: Target
    dram_bandwidth: float
    cache_bandwidth: float
    block_bandwidth: float
    launch: float
    serial_launch: float
    barrier: float
    throughput: tuple[tuple[str, float], ...] = field(default=())
    """Elements per second and processor of each operator class ("add", "div", "exp", ...), vectorised."""
    triad: tuple[tuple[int, float, float], ...] = field(default=())
    """Working set in bytes and the bandwidth a triad reaches there: with all processors, with one. Ascending."""
    source: str = "measured"
    sources: tuple[tuple[str, str], ...] = field(default=())
    dram_stream: float = 0.0
    cache_stream: float = 0.0
    graph_launch: float = 0.0
    barrier_per_block: float = 0.0
    """Seconds that each block of the grid adds to a barrier."""
    latency: float = 0.0
    """Seconds of a load from DRAM; `cache_latency` of one from L2, `block_latency` from shared memory."""
    cache_latency: float = 0.0
    block_latency: float = 0.0
    turnover: float = 0.0
    """Seconds between the last load of a block and the first of the block that takes its place."""
    clock: float = 0.0
    """Cycles per second of a multiprocessor; the rates below are per cycle and multiprocessor."""
    issue: float = 0.0
    """Instructions (of a thread) issued; `arithmetic` of them float32, `special` of the special function units."""
    arithmetic: float = 0.0
    special: float = 0.0

    @property
    def latency_bytes(self) -> float:
        """Bytes that each multiprocessor must keep in flight to reach the DRAM's bandwidth (Little's law)."""
        return self.latency * max(self.dram_bandwidth, self.dram_stream) / self.target.processors
