"""Profiles of CUDA devices, so that plans can be made for one that is not present.

What all devices of an architecture share is from "CUDA C++ Programming Guide", table "Technical specifications per
compute capability" (resident threads and blocks, registers, shared memory) and the architectures' tuning guides (size
of the unified L1 and shared memory; one KiB of shared memory per block is the system's from 8.0 on). What a device has
of its own (multiprocessors, L2) is from the document named beside it; bandwidths and times are in `tuner/profiles.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..graphs.errors import InputError
from .target import Target

KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True)
class Architecture:
    """What every multiprocessor of one compute capability has; sizes in bytes.

    oldest, newest   major versions of the CUDA toolkit whose runtime compiler makes code for it; newest 0: still does
    """

    arch: str
    threads: int
    blocks: int
    shared: int
    opt_in: int
    unified: int
    oldest: int
    newest: int = 0


# threads and blocks resident at a time; shared memory of a multiprocessor, and the most one block may opt in to;
# unified L1 and shared memory. All have 65536 registers. NVRTC 13 dropped what is older than sm_75 (CUDA 13.0 release
# notes); sm_89 and sm_90 came with CUDA 11.8, sm_100 with 12.8.
ARCHITECTURES = {
    a.arch: a
    for a in (
        Architecture("sm_70", 2048, 32, 96 * KIB, 96 * KIB, 128 * KIB, 9, 12),
        Architecture("sm_75", 1024, 16, 64 * KIB, 64 * KIB, 96 * KIB, 10),
        Architecture("sm_80", 2048, 32, 164 * KIB, 163 * KIB, 192 * KIB, 11),
        Architecture("sm_86", 1536, 16, 100 * KIB, 99 * KIB, 128 * KIB, 11),
        Architecture("sm_89", 1536, 24, 100 * KIB, 99 * KIB, 128 * KIB, 11),
        Architecture("sm_90", 2048, 32, 228 * KIB, 227 * KIB, 256 * KIB, 11),
        Architecture("sm_100", 2048, 32, 228 * KIB, 227 * KIB, 256 * KIB, 12),
    )
}


@dataclass(frozen=True)
class Profile:
    """A named device: its target, and where multiprocessors and L2 size come from."""

    target: Target
    source: str


def _profile(name: str, arch: str, processors: int, cache_bytes: int, source: str) -> Profile:
    of = ARCHITECTURES[arch]
    return Profile(
        Target(
            "cuda",
            f"cuda:{name}",
            arch,
            processors=processors,
            vector_bytes=16,
            lanes=32,
            block_bytes=of.opt_in,
            l1_bytes=of.unified,
            cache_bytes=cache_bytes,
            resident_threads=of.threads,
            resident_blocks=of.blocks,
            registers=65536,
            shared_bytes=of.shared,
        ),
        source,
    )


_PROFILES = (
    _profile("t4", "sm_75", 40, 4 * MIB, "NVIDIA Turing GPU architecture whitepaper (WP-09183), appendix B: TU104, T4"),
    _profile("v100", "sm_70", 80, 6 * MIB, "NVIDIA Tesla V100 GPU architecture whitepaper (WP-08608), table 1"),
    _profile(
        "a100", "sm_80", 108, 40 * MIB, "NVIDIA A100 Tensor Core GPU architecture whitepaper, table 4; SXM, 80 GB"
    ),
    _profile("a100-40", "sm_80", 108, 40 * MIB, "NVIDIA A100 Tensor Core GPU architecture whitepaper, table 4"),
    _profile("a10", "sm_86", 72, 6 * MIB, "NVIDIA A10 data sheet; GA102 whitepaper for the L2 of a 384-bit part"),
    _profile("rtx3090", "sm_86", 82, 6 * MIB, "NVIDIA Ampere GA102 GPU architecture whitepaper, table 9"),
    _profile("l4", "sm_89", 58, 48 * MIB, "NVIDIA L4 data sheet; Ada GPU architecture whitepaper: AD104"),
    _profile("rtx4090", "sm_89", 128, 72 * MIB, "NVIDIA Ada GPU architecture whitepaper, table 2"),
    _profile("h100-sxm", "sm_90", 132, 50 * MIB, "NVIDIA H100 Tensor Core GPU architecture whitepaper, table 4"),
    _profile("h100-pcie", "sm_90", 114, 50 * MIB, "NVIDIA H100 Tensor Core GPU architecture whitepaper, table 4"),
    _profile("h200", "sm_90", 132, 60 * MIB, "NVIDIA H200 data sheet (GH100); L2 as its device properties report it"),
    _profile("b200", "sm_100", 148, 126 * MIB, "NVIDIA Blackwell tuning guide (L2 126 MB); device properties (148)"),
)

PROFILES: dict[str, Profile] = {p.target.name: p for p in _PROFILES}
"""By the name of the target: "cuda:h200"."""

DEVICES: dict[str, Target] = {name: p.target for name, p in PROFILES.items()}

ALIASES: dict[str, str] = {
    "cuda:sm_70": "cuda:v100",
    "cuda:sm_75": "cuda:t4",
    "cuda:sm_80": "cuda:a100",
    "cuda:sm_86": "cuda:rtx3090",
    "cuda:sm_89": "cuda:rtx4090",
    "cuda:sm_90": "cuda:h100-sxm",
    "cuda:sm_100": "cuda:b200",
}
"""An architecture stands for its commonest device."""


def resolve(name: str) -> tuple[Target, str | None]:
    """The profile that `name` means, and a note for the user when an alias chose it.

    Raises InputError with the known names for any other.
    """
    if name in ALIASES:
        target = DEVICES[ALIASES[name]]
        return target, f"{name} means the profile {target.name} ({target.processors} multiprocessors)"
    if name in DEVICES:
        return DEVICES[name], None
    known = ", ".join((*DEVICES, *ALIASES))
    raise InputError(f"no device profile is called {name!r}; there are {known}")


def device_target(name: str) -> Target:
    """The target of a profile or alias. Raises InputError as `resolve` does."""
    return resolve(name)[0]


def uncompilable(target: Target, toolkit: int) -> str | None:
    """Why the runtime compiler of CUDA `toolkit` (major version) makes no code for `target`; None when it does.

    Such a target can still be ranked by the cost model.
    """
    of = ARCHITECTURES.get(target.arch)
    if of is None or (of.oldest <= toolkit and (not of.newest or toolkit <= of.newest)):
        return None
    needed = f"CUDA {of.newest} (install stitchtune[cuda{of.newest}])" if of.newest else f"CUDA {of.oldest} or later"
    return f"NVRTC of CUDA {toolkit} does not compile for {target.arch} ({target.name}): it needs {needed}"
