"""Section "pairs": random graphs with random plans, as the differential test draws them, against the reference."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graphs.tolerance import compare, expect
from ...kernels.compile import BuildFailure
from ...kernels.cuda.device import LaunchError
from .session import Item, Session
from .store import Section

NAME = "pairs"
NUMBERS, EMULATED_NUMBERS = 100, 6
"""Numbers of subjects (some two pairs each) on a device, and in a dry run."""


def drawn(session: Session) -> Iterator[tuple[Any, Item]]:
    """Each subject and its plan, in turn. Raises ImportError outside a checkout."""
    cuda = importlib.import_module("tests.differential.cuda")
    drawing = importlib.import_module("tests.differential.drawing")
    subjects = importlib.import_module("tests.differential.subjects").subjects
    machine = cuda.EmulatedCuda
    for number in range(EMULATED_NUMBERS if session.emulated else NUMBERS):
        turn = 2 * number
        for subject in subjects(number, machine.kinds, *machine.focus):
            for _ in range(subject.plans):
                turn += 1
                plan, _ = drawing.draw(subject.sub, turn, session.target, cuda.CUDA_MUTATIONS)
                precision = "fast" if number % 5 == 4 else "strict"
                yield subject, Item(f"{subject.name}, turn {turn}", subject.sub, plan, precision, number % 3 != 1)


def items(session: Session) -> list[Item]:
    return [item for _, item in drawn(session)]


def run(session: Session, section: Section) -> None:
    pairs = list(drawn(session))
    built = session.build([item for _, item in pairs])
    for place, ((subject, item), made) in enumerate(zip(pairs, built, strict=True)):
        if session.left < 0:
            section.state, section.why = "partial", f"time for {place} of {len(pairs)} pairs"
            break
        if isinstance(made, BuildFailure):
            section.rows.append({"pair": item.name, "state": made.stage, "message": made.message})
            continue
        try:
            outputs = _run(session, made, subject.inputs, shifted=not item.aligned)
        except LaunchError as error:
            section.rows.append({"pair": item.name, "state": error.trouble, "message": str(error)})
            if error.sticky:
                section.state, section.why = "failed", f"the device was lost at pair {item.name}"
                break
            continue
        result = compare(expect(item.sub, subject.inputs, "fast" if item.precision == "fast" else "strict"), outputs)
        wrong = result.worst > 1.0 or (result.comparable and not result.ok)
        state = "wrong" if wrong else "right" if result.comparable else "not comparable"
        section.rows.append({"pair": item.name, "state": state, "worst": result.worst, "message": result.message})
    states = [row["state"] for row in section.rows]
    section.summary = {"pairs": len(states)} | {state: states.count(state) for state in sorted(set(states))}


def _run(session: Session, built: Any, inputs: list[NDArray[Any]], shifted: bool) -> list[NDArray[Any]]:
    """The outputs of one launch; with `shifted` inputs start one element behind an aligned address."""
    given: list[Any] = [session.shifted(a) if shifted and a.size and a.dtype.kind != "V" else a for a in inputs]
    outputs = session.outputs(built)
    bound = session.bind(built, given, outputs)
    bound.launch()
    bound.synchronize()
    return [np.array(a) for a in outputs]
