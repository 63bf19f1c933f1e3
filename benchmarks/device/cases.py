"""Section "cases": the small graphs that trip fusers (tests/cases.py), with their stated right values, on a device."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graphs.onnx_reader import load
from ...graphs.partition import Component, LibraryStep, Partition, ViewStep, partition
from ...graphs.simplify import simplify
from ...kernels.compile import BuildFailure
from ...kernels.cuda.device import LaunchError
from ...search_space.stitch import heuristic
from .session import Built, Item, Session
from .store import Section

NAME = "cases"


def chosen(session: Session) -> list[tuple[str, Any, Partition]]:
    """The cases: name, what `Case.make` gives, and the steps. Raises ImportError outside a checkout."""
    cases = importlib.import_module("tests.cases").CASES
    found = []
    for case in cases:
        if session.emulated and case.large:
            continue
        setup = case.make()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "case.onnx"
            path.write_bytes(setup.model.SerializeToString())
            found.append((case.name, setup, partition(simplify(load(path)))))
    return found


def items(session: Session) -> list[Item]:
    return [item for name, _, parts in chosen(session) for item in _items(name, parts, session)]


def _items(name: str, parts: Partition, session: Session) -> Iterator[Item]:
    for number, component in enumerate(parts.components):
        sub = component.subgraph
        yield Item(f"{name} ({number})", sub, heuristic(sub, session.target))


def run(session: Session, section: Section) -> None:
    agree = importlib.import_module("tests.compare").assert_agree
    known = chosen(session)
    for place, (name, setup, parts) in enumerate(known):
        if session.left < 0:
            section.state, section.why = "partial", f"time for {place} of {len(known)} cases"
            break
        built = session.build(list(_items(name, parts, session)))
        trouble = next((f"{b.stage}: {b.message}" for b in built if isinstance(b, BuildFailure)), "")
        if not trouble:
            try:
                agree(run_steps(session, parts, built, setup.feeds), setup.wanted)
            except (AssertionError, LaunchError) as error:
                trouble = str(error)
        section.rows.append({"case": name, "ok": not trouble, "message": trouble})
        if trouble and session.lost:
            section.state, section.why = "failed", f"the device was lost at case {name}"
            break
    right = sum(row["ok"] for row in section.rows)
    section.summary = {"cases": len(section.rows), "right": right}


def run_steps(
    session: Session, parts: Partition, built: Sequence[Built], feeds: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The outputs of a graph of components and views. Raises AssertionError for a graph with library ops."""
    graph = parts.graph
    memory: dict[str, NDArray[Any]] = {**graph.constants, **feeds}
    kernels = iter(built)
    for step in parts.steps:
        match step:
            case Component():
                made = next(kernels)
                assert not isinstance(made, BuildFailure)
                sub = step.subgraph
                inputs = [memory[n].reshape(sub.shape(v)) for n, v in zip(step.inputs, sub.inputs, strict=True)]
                outputs = session.outputs(made)
                bound = session.bind(made, inputs, outputs)
                bound.launch()
                bound.synchronize()
                for name, array in zip(step.outputs, outputs, strict=True):
                    memory[name] = array.reshape(graph.types[name].shape)
            case ViewStep():
                memory[step.output] = np.asarray(memory[step.source]).reshape(graph.types[step.output].shape)
            case LibraryStep():
                raise AssertionError(f"{step.node.origin} is a library op")
    return {name: np.asarray(memory[name]) for name in graph.outputs}
