"""The stated cases on emulated CUDA: under heuristic plans and, but for the largest, unfused ones; nothing is found.

Kernels of a batch of cases are compiled together. The heuristic's plans are made for two devices: one whose blocks hold
long rows, and an older one with a quarter of the shared memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
from stitchtune.graphs.onnx_reader import load
from stitchtune.graphs.partition import Component, Partition, partition
from stitchtune.graphs.simplify import simplify
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.compile import BuildFailure, find_compiler
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.emulator import emulate
from stitchtune.kernels.cuda.executor import compile_cuda
from stitchtune.search_space.devices import device_target
from stitchtune.search_space.legality import check
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.stitch import heuristic, unfused
from stitchtune.search_space.target import Target

from tests.cases import CASES, Case, Setup
from tests.compare import assert_agree
from tests.emulated import run_graph
from tests.kernels.cuda.on_devices import device_of, fetched, put

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")

Planner = Callable[[Subgraph, Target], Plan]
PLANNERS: dict[str, Planner] = {"heuristic": heuristic, "unfused": unfused}
SMALL = tuple(c for c in CASES if not c.large)
LARGE = tuple(c for c in CASES if c.large)
BATCH = 12


@dataclass(frozen=True)
class Batch:
    device: str
    how: str
    cases: tuple[Case, ...]

    def __str__(self) -> str:
        return f"{self.device} {self.how}: {self.cases[0].name} to {self.cases[-1].name}"


def batches() -> Iterator[Batch]:
    for device, how in (("cuda:h200", "heuristic"), ("cuda:h200", "unfused"), ("cuda:t4", "heuristic")):
        for start in range(0, len(SMALL), BATCH):
            yield Batch(device, how, SMALL[start : start + BATCH])
    for case in LARGE:
        yield Batch("cuda:h200", "heuristic", (case,))


def read(setup: Setup, folder: Path) -> Partition:
    path = folder / "case.onnx"
    onnx.save(setup.model, path)
    return partition(simplify(load(path)))


@pytest.mark.parametrize("batch", tuple(batches()), ids=str)
def test_cases(batch: Batch, tmp_path: Path) -> None:
    target, planner = device_target(batch.device), PLANNERS[batch.how]
    setups = [case.make() for case in batch.cases]
    graphs = [read(setup, tmp_path) for setup in setups]
    subs = [[step.subgraph for step in parts.steps if isinstance(step, Component)] for parts in graphs]
    items = [(sub, planner(sub, target)) for graph in subs for sub in graph]
    assert [check(sub, plan, target) for sub, plan in items] == [()] * len(items)
    made = iter(emulate.build_emulated(items, target, cache=tmp_path, per_unit=len(items)))
    for case, setup, parts, own in zip(batch.cases, setups, graphs, subs, strict=True):
        built = [next(made) for _ in own]
        good = [b for b in built if isinstance(b, BuiltCuda)]
        assert len(good) == len(built), [b.message for b in built if isinstance(b, BuildFailure)]
        try:
            first = run_graph(parts, good, setup.feeds)
            assert_agree(first, setup.wanted)
            if not case.large:
                again = run_graph(parts, good, setup.feeds, seed=3)
                assert all(first[name].tobytes() == again[name].tobytes() for name in first), "two runs differ"
        except AssertionError as error:
            raise AssertionError(f"{case.name}: {error}") from error


@pytest.mark.parametrize("case", [c for c in SMALL if c.make().alias], ids=lambda c: c.name)
def test_an_output_in_the_memory_of_an_input(case: Case, tmp_path: Path) -> None:
    setup, device = case.make(), device_of("emulated")
    parts = read(setup, tmp_path)
    plans = [heuristic(component.subgraph, device.target) for component in parts.components]
    run = compile_cuda(parts, plans, device, precision="strict", cache=tmp_path)
    there = {name: put(device, array) for name, array in setup.feeds.items()}
    got = run(there, {output: there[source] for output, source in setup.alias})
    assert all(there[source] is got[output] for output, source in setup.alias)
    assert_agree({name: fetched(device, array) for name, array in got.items()}, setup.wanted)
