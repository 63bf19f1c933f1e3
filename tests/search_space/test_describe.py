"""A plan as text for people: both targets."""

from __future__ import annotations

from stitchtune.search_space.describe import describe
from stitchtune.search_space.plan import Edge, Group, Kernel, Phase, Plan, Stage

from tests.kernels.hand import softmax_plan

ROWS = Stage(values=(0, 1), order=(0, 1), vector=1, width=4, lanes=((0, 8), (1, 32)))
LAST = Stage(values=(5,), order=(0, 1), lanes=((0, 8), (1, 32)))


def _cuda(team: bool = True) -> Plan:
    group = Group(((0, 8),), (ROWS, LAST), threads=256)
    edges = (Edge(0, 1, "register"), Edge(0, 2, "block"), Edge(1, 2, "register"), Edge(2, 3, "inline"))
    return Plan((Kernel((Phase((group,)),), team),), (*edges, Edge(3, 4, "inline"), Edge(3, 5, "inline")))


def test_a_cuda_plan_says_how_threads_share_loops() -> None:
    assert describe(_cuda()).splitlines() == [
        "kernel 0, blocks of 256 threads",
        "  phase 0",
        "    group: tasks over i0 by 8",
        "      stage %0, %1; loops i0 i1; vector i1 x 4; threads i0 x 8, i1 x 32",
        "      stage %5; loops i0 i1; threads i0 x 8, i1 x 32",
        "%0: register to %1; block to %2",
        "%1: register to %2",
        "inline wherever they are read: %2, %3",
    ]
    assert describe(_cuda(team=False)).startswith("kernel 0, blocks of 256 threads, one block\n")


def test_a_cpu_plan_has_no_threads_of_blocks() -> None:
    text = describe(softmax_plan(2))
    assert text.startswith("kernel 0, all threads\n  phase 0\n    group: tasks over i2 by 2\n")
    assert "threads i" not in text
