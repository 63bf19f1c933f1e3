"""`plans replay`: one stored candidate built, checked and timed again, and its source with a driver of its own."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from numpy.typing import NDArray

from .. import feeds
from ..devices import emulated, present, resolve_target
from ..graphs.errors import InputError, VerifyError
from ..graphs.subgraph import Subgraph
from ..graphs.tolerance import check_outputs, expect
from ..graphs.verify_subgraph import verify_subgraph
from ..kernels.build import BuiltPlan, build_plans
from ..kernels.compile import BuildFailure
from ..kernels.cuda.built import BuiltCuda
from ..results.database import Database
from ..results.records import Measurement
from ..results.rows import Stored
from ..search_space import legality
from ..search_space.plan import Plan
from ..search_space.target import Target
from ..settings import cache_folder
from ..tuner.device import prepare_device
from ..tuner.measure import Measurer, write_subject
from ..tuner.protocol import Outcome
from ..tuner.reference import Reference
from ..tuner.task import unbuilt
from . import driver_source, options


def replay(database: Database, stored: Stored, out: Path | None, as_json: bool, *, emulate: bool = False) -> int:
    """Prints what becomes of the candidate today; with `out` its source is written there. Exit code 1 when it fails.

    `emulate` checks a CUDA plan on the emulator, with nothing timed. Raises InputError when the row holds no plan, the
    database not the subgraph, or the device is not here and nobody asked to emulate it.
    """
    one = stored.measurement
    sub = _structure(database, stored)
    if one.plan is None:
        raise InputError(f"measurement {stored.id} has no plan: {one.message or one.status}")
    target = _target(stored, emulate)
    inputs = feeds.for_subgraph(sub)
    reasons = legality.check(sub, one.plan, target)
    file = None
    if reasons:
        outcome = Outcome("illegal", str(reasons[0]))
    elif emulate:
        outcome = _emulated(sub, one.plan, target, one)
        file = _write_for(sub, one, one.key.target, inputs, out, stored.id)
    else:
        [built] = build_plans([(sub, one.plan)], target, precision=one.key.precision, cache=cache_folder(), jobs=1)
        if isinstance(built, BuildFailure):
            outcome = unbuilt(built)
        else:
            file = driver_source.write(built, inputs, out, stored.id) if out else None
            reference = Reference(expect(sub, inputs, one.key.precision))
            with TemporaryDirectory() as folder, Measurer(prepare_device(target, cache_folder())) as measurer:
                measurer.load(write_subject(Path(folder), sub, inputs, reference))
                outcome = measurer.measure(built).candidates[0]
    _tell(stored, outcome, file, as_json)
    return 0 if outcome.status in ("ok", "predicted") else 1


def _target(stored: Stored, emulate: bool) -> Target:
    """What the candidate is built for. Raises InputError, one line, when that cannot run here."""
    wanted = stored.measurement.key.target
    if wanted.kind == "cpu":
        if emulate:
            raise InputError(f"measurement {stored.id} is for {wanted.name}: only plans for CUDA are emulated")
        return resolve_target("cpu")
    if emulate:
        return emulated(wanted)
    if not present(wanted):
        raise InputError(
            f"measurement {stored.id} is for {wanted.name}, which is not here: --emulate checks its result without it"
        )
    return wanted


def _emulated(sub: Subgraph, plan: Plan, target: Target, one: Measurement) -> Outcome:
    """The outcome of one run on the emulator, every access watched; "predicted" when all is right, since no time is."""
    import numpy as np

    from ..kernels.cuda.emulator import emulate

    [built] = emulate.build_emulated([(sub, plan)], target, precision=one.key.precision, cache=cache_folder())
    if isinstance(built, BuildFailure):
        return unbuilt(built)
    inputs = feeds.for_subgraph(sub)
    outputs = [np.empty(sub.shape(v), sub.values[v].dtype.numpy) for v in sub.outputs]
    found = emulate.run(built, inputs, outputs)
    if found.findings:
        first = found.findings[0]
        return Outcome("trapped", f"{first.kind} in {first.kernel}: {first.where}")
    message = check_outputs(sub, inputs, outputs, one.key.precision).message
    return Outcome("wrong", message) if message else Outcome("predicted", "the emulator finds its result right")


def _write_for(
    sub: Subgraph, one: Measurement, target: Target, inputs: list[NDArray[Any]], out: Path | None, ident: int
) -> Path | None:
    """The source as the device would compile it, where that can be said here."""
    if out is None or one.plan is None:
        return None
    [built] = build_plans([(sub, one.plan)], target, precision=one.key.precision, cache=cache_folder(), jobs=1)
    return driver_source.write(built, inputs, out, ident) if isinstance(built, BuiltPlan | BuiltCuda) else None


def _structure(database: Database, stored: Stored) -> Subgraph:
    key = stored.measurement.key
    sub = database.structure(key.digest, key.extents, key.slots)
    if sub is None:
        raise InputError(f"{database.name} does not hold the subgraph of measurement {stored.id}; tune its graph again")
    try:
        verify_subgraph(sub)
    except VerifyError as error:
        raise InputError(f"the subgraph of measurement {stored.id} is damaged: {error}") from error
    return sub


def _tell(stored: Stored, outcome: Outcome, file: Path | None, as_json: bool) -> None:
    seconds = outcome.timing.seconds if outcome.timing else None
    then = stored.measurement
    if as_json:
        options.print_json(
            {
                "id": stored.id,
                "status": outcome.status,
                "message": outcome.message,
                "seconds": seconds,
                "stored_status": then.status,
                "stored_seconds": then.seconds,
                "stored_predicted": then.predicted,
                "source": str(file) if file else None,
            }
        )
        return
    before = then.predicted if then.status == "predicted" else then.seconds
    options.echo(f"stored: {then.status}, {options.duration(before)}")
    options.echo(f"now:    {outcome.status}, {options.duration(seconds)} {outcome.message}".rstrip())
    if file is not None:
        options.echo(f"source with a driver: {file} (its first lines say how to build it)")
