"""What the cost model thinks a plan moves is what the emulator counts when it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.compile import find_compiler
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.emulator import emulate
from stitchtune.search_space.devices import device_target
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.stitch import heuristic, unfused
from stitchtune.tuner.cuda_model.lanes import SECTOR
from stitchtune.tuner.cuda_model.touch import accesses
from stitchtune.tuner.cuda_model.work import folds_of, task_count
from stitchtune.tuner.profiles import MODELS
from stitchtune.tuner.view import view

from .examples import column_sum, softmax, transposed

TARGET = device_target("cuda:h200")

SUBGRAPHS = {
    "rows": (softmax(32, 1024), unfused),
    "short rows": (softmax(200, 32), heuristic),
    "odd rows": (softmax(5, 1031), heuristic),
    "split rows": (softmax(2, 20000), heuristic),
    "columns": (column_sum(512, 256), heuristic),
    "transposed": (transposed(128, 128), heuristic),
}


Counts = tuple[float, float, float, float]
"""Of a phase, over all tasks: sectors distinct in a block that are read, those written, requests of warps to device
memory and to shared memory."""


def modelled(sub: Subgraph, plan: Plan) -> list[Counts]:
    """What the cost model thinks."""
    seen = view(sub, plan, MODELS[TARGET.name])
    found = []
    for phase in (p for k in plan.kernels for p in k.phases):
        reads = writes = requests = shared = 0.0
        for group in phase.groups:
            tasks, touched = task_count(group, sub.extents), accesses(seen, group)
            far = [t for stage in touched.touches for t in stage if t.place == "far"]
            reads += tasks * sum({t.part: t.task for t in far if not t.store}.values()) / SECTOR
            writes += tasks * sum({t.part: t.task for t in far if t.store}.values()) / SECTOR
            requests += tasks * sum(t.requests for t in far)
            shared += tasks * sum(t.requests for stage in touched.touches for t in stage if t.place == "block")
            shared += tasks * sum(folds_of(seen, share).requests for share in touched.shares)
        found.append((reads, writes, requests, shared))
    return found


def counted(sub: Subgraph, plan: Plan, cache: Path) -> list[Counts]:
    """What the emulator counts."""
    [built] = emulate.build_emulated([(sub, plan)], TARGET, precision="strict", cache=cache)
    assert isinstance(built, BuiltCuda)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(sub.shape(v)).astype(np.float32) for v in sub.inputs]
    outputs = [np.zeros(sub.shape(v), np.float32) for v in sub.outputs]
    done = emulate.run(built, inputs, outputs, count=True)
    assert not done.findings
    found = []
    for phase in (p for launch in done.counters for p in launch.phases):
        reads = sum(b.reads.block_sectors for b in phase.buffers)
        writes = sum(b.writes.block_sectors for b in phase.buffers)
        found.append((float(reads), float(writes), float(phase.R), float(phase.shared)))
    return found


@pytest.mark.skipif(find_compiler() is None, reason="the emulator needs a C++ compiler")
@pytest.mark.parametrize("name", SUBGRAPHS)
def test_bytes_and_requests_are_those_of_the_kernel(name: str, tmp_path: Path) -> None:
    sub, make = SUBGRAPHS[name]
    plan = make(sub, TARGET)
    for expected, found in zip(counted(sub, plan, tmp_path), modelled(sub, plan), strict=True):
        assert found[0] == pytest.approx(expected[0], rel=0.05, abs=8)
        assert found[1] == pytest.approx(expected[1], rel=0.05, abs=8)
        # the last steps of a row that is no multiple of the width are narrower
        assert found[2] == pytest.approx(expected[2], rel=0.3, abs=8)
        assert found[3] == pytest.approx(expected[3], rel=0.1, abs=64)


@pytest.mark.skipif(find_compiler() is None, reason="the emulator needs a C++ compiler")
@pytest.mark.parametrize("pad", [0, 2])
def test_bank_conflicts_are_those_of_the_kernel(pad: int, tmp_path: Path) -> None:
    """A transpose through shared memory, with rows of 32 and 34 elements."""
    sub, make = SUBGRAPHS["transposed"]
    plan = make(sub, TARGET)
    [buffer] = plan.buffers
    plan = replace(plan, buffers=(replace(buffer, pad=pad),))
    [built] = emulate.build_emulated([(sub, plan)], TARGET, precision="strict", cache=tmp_path)
    assert isinstance(built, BuiltCuda)
    arrays = [np.zeros(sub.shape(v), np.float32) for v in (*sub.inputs, *sub.outputs)]
    done = emulate.run(built, arrays[:1], arrays[1:], count=True)
    [group] = plan.kernels[0].phases[0].groups
    stages = accesses(view(sub, plan, MODELS[TARGET.name]), group).touches
    lost = sum(t.cycles - t.ideal for stage in stages for t in stage if t.place == "block")
    assert lost * task_count(group, sub.extents) == done.counters[0].conflicts > 0
