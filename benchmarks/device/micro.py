"""Sections "barrier" and "bandwidth": what a grid barrier costs by blocks, what a copy reaches by size."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...graphs.builder import GraphBuilder
from ...graphs.dtypes import DType
from ...graphs.subgraph import Subgraph
from ...kernels.compile import BuildFailure
from ...search_space import legality
from ...search_space.plan import Kernel, Plan
from ...search_space.stitch import heuristic, unfused
from ...tuner.profiles import profile_model
from ..suite.subject import canonical
from .session import Item, Session
from .store import Section

PHASES = 17
WAVES = (0.0, 0.25, 1.0, 2.0)
"""Blocks per multiprocessor that barriers are timed with; 0 stands for one block in all."""
SIZES = (1 << 16, 1 << 20, 8 << 20, 32 << 20, 128 << 20, 512 << 20, 2 << 30)
SMALL = (1 << 12, 1 << 16)
SAMPLES = 15


def barrier_items(session: Session) -> list[Item]:
    """For each number of blocks a chain of elementwise steps: as one phase each in one kernel, and as one phase."""
    found = []
    for elements in _elements(session):
        for steps in (PHASES if not session.emulated else 3, 1):
            sub = _chain(steps, elements)
            plan = _phased(unfused(sub, session.target))
            if not legality.check(sub, plan, session.target):
                found.append(Item(f"{steps} phases of {elements} elements", sub, plan))
    return found


def _elements(session: Session) -> Iterator[int]:
    one = 1024
    for waves in WAVES[:2] if session.emulated else WAVES:
        yield one * max(1, round(waves * (2 if session.emulated else session.target.processors)))


def _chain(steps: int, elements: int) -> Subgraph:
    b = GraphBuilder("chain")
    x = b.input("x", DType.F32, (elements,))
    for _ in range(steps):
        x = b.elementwise("sqrt", b.elementwise("abs", x))
    b.output(x)
    return canonical(b.build())


def _phased(plan: Plan) -> Plan:
    """All of a plan's phases in one kernel, with a barrier between each two."""
    phases = tuple(phase for kernel in plan.kernels for phase in kernel.phases)
    return replace(plan, kernels=(Kernel(phases),))


def barriers(session: Session, section: Section) -> None:
    items = barrier_items(session)
    model = profile_model(session.target)
    for pair in zip(items[::2], items[1::2], strict=True):
        times = []
        for item, built in zip(pair, session.build(pair), strict=True):
            if isinstance(built, BuildFailure):
                section.rows.append({"plan": item.name, "message": f"{built.stage}: {built.message}"})
                break
            times.append((built, seconds(session, built)))
        if len(times) == 2:
            (long, slow), (short, quick) = times
            count = sum(len(k.phases) - 1 for k in long.kernels) - sum(len(k.phases) - 1 for k in short.kernels)
            blocks = long.launches[0].blocks
            each = (slow - quick) / max(1, count)
            section.rows.append({"blocks": blocks, "barriers": count, "seconds": each, "profile": model.barrier})
    if not items:
        section.state, section.why = "failed", "no plan with barriers is legal"
    measured = [row["seconds"] for row in section.rows if "seconds" in row]
    if not session.emulated:
        section.summary = {"profile_seconds": model.barrier, "seconds": measured[-1] if measured else None}


def seconds(session: Session, built: Any, batch: int = 20) -> float:
    """Median seconds of a run on device arrays of zeros, hot, replayed from a graph."""
    sub = built.sub
    arrays = [np.zeros(sub.shape(v), sub.values[v].dtype.numpy) for v in (*sub.inputs, *sub.outputs)]
    held = session.on_device(arrays)
    bound = session.bind(built, held[: len(sub.inputs)], held[len(sub.inputs) :])
    bound.launch()
    bound.synchronize()
    batch = 1 if session.emulated else batch
    return statistics.median(bound.time(3 if session.emulated else SAMPLES, batch=batch)) * 1e-9 / batch


# --- bandwidth


def copy_items(session: Session) -> list[Item]:
    found = []
    for size in SMALL if session.emulated else SIZES:
        b = GraphBuilder("copy")
        b.output(b.elementwise("neg", b.input("x", DType.F32, (size // 8,))))
        sub = canonical(b.build())
        found.append(Item(f"copy of {size} bytes", sub, heuristic(sub, session.target)))
    return found


def bandwidth(session: Session, section: Section) -> None:
    """Bytes read plus written per second, by working set; beside it what the device's own copy reaches."""
    items = copy_items(session)
    model = profile_model(session.target)
    for place, item in enumerate(items):
        if session.left < 0:
            section.state, section.why = "partial", f"time for {place} of {len(items)} sizes"
            break
        [built] = session.build([item])
        if isinstance(built, BuildFailure):
            section.rows.append({"plan": item.name, "message": f"{built.stage}: {built.message}"})
            continue
        size = sum(item.sub.bytes(v) for v in (*item.sub.inputs, *item.sub.outputs))
        hot = seconds(session, built, max(1, min(50, (256 << 20) // size)))
        row: dict[str, Any] = {"bytes": size, "seconds": hot, "bandwidth": size / hot}
        own = _own_copy(session, size // 2)
        section.rows.append(row | ({"device_copy": size / own} if own else {}))
    far = [row["bandwidth"] for row in section.rows if row.get("bytes", 0) > session.target.cache_bytes]
    if not session.emulated:
        section.summary = {"dram_bandwidth": max(far, default=None), "profile_dram_bandwidth": model.dram_bandwidth}


def _own_copy(session: Session, size: int) -> float | None:
    """Seconds of the device's own copy of `size` bytes; None where it has none worth timing."""
    if session.emulated:
        return None
    device = session.here()
    to, source = device.allocate(size), device.allocate(size)
    stream = device.current_stream()
    first, last = device.event(), device.event()
    samples: list[float] = []
    for _ in range(SAMPLES):
        device.copy(to.address, source.address, size, stream)
        device.record(first, stream)
        for _ in range(4):
            device.copy(to.address, source.address, size, stream)
        device.record(last, stream)
        samples.append(device.elapsed(first, last) / 4)
    return statistics.median(samples)
