"""The target: the device a plan is for, as facts that belong to a key."""

from __future__ import annotations

from dataclasses import dataclass, field


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

    `source` says where they come from: "measured" or a citation.
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
