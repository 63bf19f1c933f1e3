"""The Python API: `tune` fills the plan database, `compile` makes a model that runs with the plans found there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import feeds as inputs_of
from . import pipeline
from .devices import resolve_target
from .graphs.errors import InputError
from .graphs.onnx_reader import exported_dims, exported_inputs
from .settings import Precision, Settings, cache_folder, stitched

if TYPE_CHECKING:
    from .tuner.events import TuneResult

Graphs = str | os.PathLike[str]


def compile(
    graph: Graphs,
    *,
    target: str | None = None,
    db: str | None = None,
    dims: Mapping[str, int] | None = None,
    precision: Precision = "strict",
    require_plan: bool = False,
) -> Model:
    """A model of an exported graph that runs with the plans of the database; it never measures.

    target        device; None is the best one of this machine
    db            path or SQLAlchemy URL of the plan database; None is the one in the user's data folder
    dims          sizes of symbolic dimensions; those left out are bound by the arrays of each call
    precision     "strict" rounds at every low-precision edge of the graph, "fast" only at casts and subgraph outputs
    require_plan  refuse to run a subgraph without a stored plan

    Raises GraphError for a file that cannot be used, InputError for options, MissingPlan under `require_plan`.
    """
    settings = Settings(resolve_target(target), db, cache_folder(), precision, stitched=stitched())
    return Model(Path(graph), dict(dims or {}), settings, require_plan)


def tune(
    graph: Graphs,
    *,
    target: str | None = None,
    db: str | None = None,
    dims: Mapping[str, int] | None = None,
    precision: Precision = "strict",
    budget: float = 60.0,
    trials: int | None = None,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    seed: int = 0,
) -> TuneResult:
    """Searches plans for the subgraphs of an exported graph and keeps every measurement in the plan database.

    budget   seconds for everything; trials: plans measured per subgraph at most
    inputs   arrays by name to tune with; without them indices are drawn in range and masks are 0 and 1

    For a `target` that is not here, such as "cuda:h200", plans are predicted by the cost model and nothing is run. The
    other arguments are those of `compile`. Raises GraphError, InputError, DeviceError when nothing can be measured
    here, and DatabaseError when results cannot be kept. A KeyboardInterrupt ends the search and gives what was found.
    """
    search = pipeline.Search(budget, trials, seed=seed)
    settings = Settings(resolve_target(target), db, cache_folder(), precision, stitched=stitched())
    loaded, parted = pipeline.read(Path(graph), dims or {})
    if inputs is None:
        given = inputs_of.synthetic(loaded, seed)
    else:
        arrays = {name: np.asarray(array) for name, array in inputs.items()}
        inputs_of.check(loaded, arrays, "inputs")
        given = inputs_of.Feeds(arrays, False, "inputs given")
    return pipeline.tune(parted, given, settings, search, lambda event: None)


class Model:
    """A compiled graph: a dict of arrays in, a dict of arrays out. Calls from several threads are safe.

    With symbolic dimensions left open, every combination of sizes that calls bring is compiled once and kept.
    """

    def __init__(self, path: Path, dims: Mapping[str, int], settings: Settings, require_plan: bool = False) -> None:
        self._path, self._dims, self._settings, self._require = path, dims, settings, require_plan
        self._shapes = exported_inputs(path)
        _check_dims(path, dims)
        self._open = {d for shape in self._shapes.values() for d in shape if isinstance(d, str)} - dims.keys()
        self._instances: dict[tuple[tuple[str, int], ...], pipeline.Compiled] = {}
        self._only = None if self._open else self._instance({}).executor

    def __call__(
        self, feeds: Mapping[str, Any], out: Mapping[str, NDArray[Any]] | None = None
    ) -> dict[str, NDArray[Any]]:
        """The outputs by name: fresh arrays, or those of `out`. Raises InputError when the arrays do not fit."""
        for what, given in (("the inputs", feeds), ("out", {} if out is None else out)):
            if not isinstance(given, Mapping):
                raise InputError(f"{what} must be a dict of arrays by name, not {type(given).__name__}")
        if self._only is not None:
            return self._only(feeds, out)
        return self._instance(self._sizes(feeds)).executor(feeds, out)

    def report(self) -> str:
        """What each subgraph runs as, and from which plan; for every combination of sizes compiled so far."""
        return "\n".join(_describe(sizes, compiled) for sizes, compiled in self._instances.items())

    def _sizes(self, feeds: Mapping[str, Any]) -> dict[str, int]:
        """The open dimensions as the arrays of a call have them. Raises InputError where they disagree."""
        sizes: dict[str, int] = {}
        for name, shape in self._shapes.items():
            given = getattr(feeds.get(name), "shape", None)
            if given is None or len(given) != len(shape):
                raise InputError(f"input {name!r} must be an array of shape {list(shape)}")
            for dim, size in zip(shape, given, strict=True):
                if dim in self._open and isinstance(dim, str) and sizes.setdefault(dim, size) != size:
                    raise InputError(f"dimension {dim} is {sizes[dim]} in one input and {size} in {name!r}")
        return sizes

    def _instance(self, sizes: Mapping[str, int]) -> pipeline.Compiled:
        key = tuple(sorted(sizes.items()))
        if key not in self._instances:
            dims = {**self._dims, **sizes}
            self._instances[key] = pipeline.compile_file(self._path, dims, self._settings, require_plan=self._require)
        return self._instances[key]


def _check_dims(path: Path, dims: Mapping[str, int]) -> None:
    """Raises InputError for sizes that no call could use; the reader checks them only once all are bound."""
    known = exported_dims(path)
    for name, size in dims.items():
        if name not in known:
            raise InputError(f"{path}: there is no dimension {name!r} to bind: it has {', '.join(known) or 'none'}")
        if not isinstance(size, int | np.integer) or size < 0:
            raise InputError(f"{path}: dimension {name} cannot be {size!r}: give a number of at least 0")


def _describe(sizes: tuple[tuple[str, int], ...], compiled: pipeline.Compiled) -> str:
    bound = ", ".join(f"{name}={size}" for name, size in sizes)
    stats = compiled.executor.stats()
    head = f"{compiled.loaded.name}{f' with {bound}' if bound else ''}: {stats.library_ops} library ops, "
    lines = [f"{head}{len(compiled.decisions)} subgraphs in {stats.kernels} kernels"]
    for number, decision in enumerate(compiled.decisions):
        kernels, barriers = len(decision.plan.kernels), decision.plan.barriers
        lines.append(
            f"  {number}: {decision.key.digest[:12]} {kernels} kernels, {barriers} barriers; {decision.found.why}"
        )
    return "\n".join([*lines, *(f"  {note}" for note in stats.notes)])
