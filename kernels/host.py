"""What the machine we run on is, as a Target.

Everything comes from files and calls that cost microseconds, never from a compiler, so that a plan can be looked up
without one. Facts that a container hides get safe values: small caches, and vectors that every CPU of the kind has.
"""

from __future__ import annotations

import hashlib
import math
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path

from ..search_space.target import Target

_SYSTEM = Path("/sys/devices/system/cpu")
_DEFAULT_L1, _DEFAULT_L2, _DEFAULT_LLC = 32 << 10, 256 << 10, 4 << 20

_CODE_FEATURES = re.compile(
    r"sse|ssse|avx|fma|f16c|bmi|abm|popcnt|movbe|aes|vaes|pclmul|vpclmul|sha|gfni|adx|amx|fsgsbase|rdrnd|lzcnt"
)
"""x86 flags of /proc/cpuinfo that change what a compiler may emit; the others are facts of kernel and hypervisor."""

_LEVELS = (
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    ("x86-64-v3", {"avx2", "fma", "f16c", "bmi2"}),
    ("x86-64-v2", {"sse4_2", "popcnt"}),
    ("x86-64", set[str]()),
)


def host_target(root: Path = Path("/")) -> Target:
    """The Target `cpu` of this machine. `root` stands for the file system root, for tests."""
    features = isa_features(_read(root / "proc/cpuinfo"))
    processors = usable_processors(root)
    l1, l2, llc = cache_sizes(root)
    return Target(
        kind="cpu",
        name="cpu",
        arch=arch_name(platform.machine(), features),
        processors=processors,
        vector_bytes=vector_bytes(features),
        lanes=1,
        block_bytes=l2 // 2,  # the other half is left to what streams through
        l1_bytes=l1,
        cache_bytes=llc,
    )


def isa_features(cpuinfo: str) -> frozenset[str]:
    """Features of the instruction set that /proc/cpuinfo text names ("flags" on x86, "Features" on Arm)."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        match name.strip():
            case "flags":
                return frozenset(f for f in value.split() if _CODE_FEATURES.match(f))
            case "Features":
                return frozenset(value.split())
    return frozenset()


def arch_name(machine: str, features: Iterable[str]) -> str:
    """A readable level and a digest of the exact feature set: "x86-64-v4-0123abcd", "aarch64-0123abcd"."""
    names = sorted(features)
    level = machine
    if machine in ("x86_64", "AMD64"):
        level = next(level for level, needed in _LEVELS if needed <= set(names))
    return f"{level}-{hashlib.sha256(' '.join(names).encode()).hexdigest()[:8]}"


def vector_bytes(features: frozenset[str]) -> int:
    """Bytes of the widest vector register; 16 (SSE2, NEON) where nothing more is known."""
    if "avx512f" in features:
        return 64
    return 32 if "avx2" in features else 16


def usable_processors(root: Path = Path("/")) -> int:
    """Physical cores that this process may run on, within its affinity mask and its control group's quota."""
    # macOS and Windows have no mask
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    system = root / _SYSTEM.relative_to("/")
    cores = {_read(system / f"cpu{cpu}/topology/thread_siblings_list").strip() or str(cpu) for cpu in allowed}
    return max(1, min(len(cores), _quota(root)))


def _quota(root: Path) -> int:
    """Processors that the control group's quota amounts to, rounded up; a large number where there is none."""
    limit, _, period = _read(root / "sys/fs/cgroup/cpu.max").strip().partition(" ")
    if not period:
        limit = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us").strip()
        period = _read(root / "sys/fs/cgroup/cpu/cpu.cfs_period_us").strip()
    if limit.isdigit() and period.isdigit() and int(period) > 0:
        return max(1, math.ceil(int(limit) / int(period)))
    return 1 << 16


def cache_sizes(root: Path = Path("/")) -> tuple[int, int, int]:
    """Bytes of the first-level data cache, of the second level, and of the last level, as one core sees them."""
    cpu = min(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    found: dict[int, int] = {}
    for entry in sorted((root / _SYSTEM.relative_to("/") / f"cpu{cpu}/cache").glob("index*")):
        level, size = _read(entry / "level").strip(), _size(_read(entry / "size"))
        if level.isdigit() and size and _read(entry / "type").strip() != "Instruction":
            found[int(level)] = size
    l1 = found.get(1) or _sysconf("SC_LEVEL1_DCACHE_SIZE") or _DEFAULT_L1
    l2 = found.get(2) or _sysconf("SC_LEVEL2_CACHE_SIZE") or max(_DEFAULT_L2, l1)
    last = max((size for level, size in found.items() if level > 2), default=0)
    llc = last or (0 if 2 in found else _sysconf("SC_LEVEL3_CACHE_SIZE")) or max(l2, 0 if 2 in found else _DEFAULT_LLC)
    return l1, l2, llc


def _size(text: str) -> int:
    """Bytes of a size as sysfs writes it ("32K", "16M"); 0 when it is no size."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip())
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]] if match else 0


def _sysconf(name: str) -> int:
    """A value of os.sysconf; 0 where the system does not know it."""
    if name not in getattr(os, "sysconf_names", {}):
        return 0
    try:
        return max(0, os.sysconf(name))
    except (OSError, ValueError):
        return 0


def _read(path: Path) -> str:
    """The text of a small file; empty where it is missing or may not be read."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
