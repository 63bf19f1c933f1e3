"""Occupancy against values of NVIDIA's calculator."""

from __future__ import annotations

import pytest
from stitchtune.kernels.cuda.occupancy import resident_blocks
from stitchtune.search_space.devices import device_target

KIB = 1024


@pytest.mark.parametrize(
    ("device", "threads", "registers", "shared", "blocks"),
    [
        ("a100", 256, 32, 0, 8),  # by threads
        ("a100", 256, 40, 0, 6),  # 40 x 32 = 1280 registers a warp: 12 warps in each partition
        ("a100", 256, 33, 0, 6),  # registers go by units of 256 a warp: 33 cost as much as 40
        ("a100", 256, 64, 0, 4),
        ("a100", 256, 255, 0, 1),
        ("a100", 1024, 64, 0, 1),
        ("a100", 1024, 65, 0, 0),
        ("a100", 32, 16, 0, 32),  # by blocks
        ("a100", 96, 168, 0, 4),  # 5376 registers a warp: 3 warps in each partition, 12 in all
        ("a100", 128, 32, 48 * KIB, 3),  # 49 KiB each of 164
        ("a100", 128, 32, 163 * KIB, 1),
        ("a100", 128, 32, 163 * KIB + 1, 0),
        ("t4", 256, 32, 0, 4),
        ("t4", 64, 32, 0, 16),
        ("t4", 128, 32, 32 * KIB, 2),  # nothing is reserved before sm_80
        ("rtx4090", 256, 32, 0, 6),
        ("rtx4090", 32, 16, 0, 24),
        ("rtx3090", 512, 40, 0, 3),
        ("h100-sxm", 128, 32, 100 * KIB, 2),
        ("h100-sxm", 1024, 32, 227 * KIB, 1),
        ("b200", 512, 64, 0, 2),
    ],
)
def test_resident_blocks(device: str, threads: int, registers: int, shared: int, blocks: int) -> None:
    assert resident_blocks(device_target(f"cuda:{device}"), threads, registers, shared) == blocks
