"""How many blocks of a kernel one multiprocessor holds at a time.

The rules of NVIDIA's occupancy calculator (Nsight Compute; the same for sm_70 to sm_120) and of the CUDA C++
programming guide's table of compute capabilities: a block is resident when the multiprocessor has room for its warps,
registers and shared memory, and no more than a number of blocks that the architecture fixes.
"""

from __future__ import annotations

from ...search_space.target import WARP, Target

REGISTER_UNIT = 256
"""A warp's registers are allocated in units of so many."""
WARP_UNIT = 4
"""A multiprocessor's warps live in so many partitions, with a quarter of the registers each."""
MOST_REGISTERS = 255
"""A thread addresses no more."""


def resident_blocks(target: Target, threads: int, registers: int, shared_bytes: int) -> int:
    """Blocks of `threads` threads, `registers` registers a thread and `shared_bytes` of shared memory (static and
    dynamic) that one multiprocessor of `target` holds; 0 when not even one fits."""
    warps = -(-threads // WARP)
    by_threads = target.resident_threads // (warps * WARP)
    by_registers = _register_warps(target, registers) // warps
    unit, reserved = shared_unit(target), reserved_shared(target)
    if shared_bytes > target.block_bytes:
        return 0
    footprint = -(-(shared_bytes + reserved) // unit) * unit
    by_shared = target.shared_bytes // footprint if footprint else target.resident_blocks
    return min(target.resident_blocks, by_threads, by_registers, by_shared)


def _register_warps(target: Target, registers: int) -> int:
    """Warps that the register file holds: each partition takes whole warps, each in whole units."""
    if registers > MOST_REGISTERS:
        return 0
    per_warp = -(-max(registers, 1) * WARP // REGISTER_UNIT) * REGISTER_UNIT
    return target.registers // WARP_UNIT // per_warp * WARP_UNIT


def shared_unit(target: Target) -> int:
    """Shared memory is allocated in units of so many bytes: 256 up to sm_75, 128 from sm_80 on."""
    return 256 if _capability(target) < 80 else 128


def reserved_shared(target: Target) -> int:
    """Bytes of shared memory that the system takes of every resident block: 1 KiB from sm_80 on (CUDA C++ programming
    guide, compute capability 8.x)."""
    return 0 if _capability(target) < 80 else 1024


def _capability(target: Target) -> int:
    return int(target.arch.removeprefix("sm_"))
