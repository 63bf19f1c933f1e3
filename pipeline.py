"""The whole story of a graph: load, canonicalise, partition, key, look up or search, build, execute."""

from __future__ import annotations

import atexit
import functools
import hashlib
import math
import shutil
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from . import feeds
from .devices import present, require
from .graphs.digest import structural_digest
from .graphs.errors import InputError, StitchtuneError
from .graphs.ir import Graph
from .graphs.onnx_reader import load
from .graphs.partition import Component, Partition, partition
from .graphs.simplify import simplify
from .graphs.subgraph import Subgraph
from .graphs.tolerance import check_outputs
from .kernels.build import build_plans
from .kernels.compile import BuildFailure, find_compiler, prepare_cache
from .kernels.cuda.built import BuiltCuda
from .kernels.cuda.device import LaunchError
from .kernels.cuda.launch import CudaLauncher
from .kernels.cuda.nvrtc import FLAGS as NVRTC_FLAGS
from .kernels.cuda.nvrtc import find_nvrtc
from .kernels.cuda.opening import EMULATED, open_device
from .kernels.executor import Executor, compile_graph
from .kernels.launch import Launcher
from .kernels.team import build_runtime, shared_team
from .results.database import Database
from .results.generator import generator_version
from .results.lookup import Found, find_all, remember_check
from .results.records import PlanKey
from .search_space import legality, stitch
from .search_space.adapt import adapt
from .search_space.plan import Plan
from .search_space.target import Target
from .settings import LARGEST_SEED, LARGEST_TRIALS, OFF, Effort, Settings

if TYPE_CHECKING:
    from .tuner.events import Event, TuneResult


class MissingPlan(StitchtuneError):
    """A plan was required and the database has none. Exit code 1."""


@dataclass(frozen=True)
class Decision:
    """What one component runs as: the plan and where it comes from."""

    component: Component
    key: PlanKey
    plan: Plan
    found: Found


@dataclass(frozen=True)
class Compiled:
    """A graph ready to run, and what was decided on the way. `loaded` is the graph before simplification."""

    loaded: Graph
    partition: Partition
    decisions: tuple[Decision, ...]
    executor: Executor


def compile_file(path: Path, dims: Mapping[str, int], settings: Settings, *, require_plan: bool = False) -> Compiled:
    """The graph of a file, ready to run with the plans that the database holds; nothing is measured.

    Raises InputError for a device that is not here, GraphError for the file, MissingPlan when `require_plan` and a plan
    is not there.
    """
    require(settings.target)
    settings = with_usable_cache(settings)
    loaded, parted = read(path, dims)
    decisions = decide(parted, settings, database(settings))
    if require_plan:
        _require(decisions)
    return Compiled(loaded, parted, decisions, build(parted, decisions, settings))


def with_usable_cache(settings: Settings) -> Settings:
    """`settings`, with a folder of this process where the kernel cache cannot be used; a warning says why."""
    try:
        prepare_cache(settings.cache)
    except OSError as error:
        warnings.warn(f"{error}; kernels are compiled for this run only", stacklevel=3)
        folder = Path(tempfile.mkdtemp(prefix="stitchtune-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        return replace(settings, cache=folder)
    return settings


@dataclass(frozen=True)
class Search:
    """How long and how thoroughly to search: `budget` in seconds, `trials` per subgraph (None: as the effort says)."""

    budget: float = 60.0
    trials: int | None = None
    effort: Effort = "normal"
    seed: int = 0
    retune: bool = False
    more: bool = False

    def __post_init__(self) -> None:
        """Raises InputError for numbers that mean nothing."""
        if not (math.isfinite(self.budget) and self.budget >= 0):
            raise InputError(f"a budget of {self.budget} s: give a number of seconds, at least 0")
        if self.trials is not None and not 1 <= self.trials <= LARGEST_TRIALS:
            raise InputError(f"{self.trials} trials: give a number from 1 to {LARGEST_TRIALS}")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise InputError(f"a seed of {self.seed}: give a number from 0 to {LARGEST_SEED}")


def tune(
    parted: Partition, given: feeds.Feeds, settings: Settings, search: Search, progress: Callable[[Event], None]
) -> TuneResult:
    """Searches plans for every subgraph that has no finished search, on the inputs `given`; all goes to the database.

    Where the device is not here plans are predicted: compiled and ranked by the cost model, and nothing is run.

    Raises InputError with stitching switched off, DeviceError when nothing can be measured here, DatabaseError when
    results cannot be kept.
    """
    from .tuner.effort import Options
    from .tuner.loop import tune_graph  # with Optuna, which running a graph does without

    if not settings.stitched:
        raise InputError(f"{OFF}=off switches stitching off, so there is nothing to tune: unset it")
    if settings.target.name == EMULATED:
        raise InputError(f"times on {EMULATED} mean nothing: tune for a profile such as --target cuda:h200 instead")
    how = Options(
        settings.cache,
        search.budget,
        search.trials,
        settings.compilers,
        search.seed,
        search.effort,
        settings.precision,
        search.retune,
        search.more,
        given.synthetic,
        present(settings.target),
    )
    return tune_graph(
        parted, given.arrays, database(settings), settings.target, lambda sub: make_key(sub, settings), how, progress
    )


def database(settings: Settings) -> Database:
    """The plan database that the settings name; nothing is opened yet."""
    return Database.open(settings.database)


def read(path: Path, dims: Mapping[str, int]) -> tuple[Graph, Partition]:
    """The graph of a file as it was exported, in primitives, and the same partitioned. Raises GraphError."""
    loaded = load(path, dims)
    return loaded, partition(simplify(loaded))


def make_key(sub: Subgraph, settings: Settings) -> PlanKey:
    """Everything that decides which plan is best for `sub` here."""
    return PlanKey(
        digest=_digest(without_slots(sub)),
        extents=sub.extents,
        slots=sub.slots,
        target=settings.target,
        compiler=compiler_name(settings.target, settings.cache),
        generator=generator_version(),
        precision=settings.precision,
    )


def without_slots(sub: Subgraph) -> Subgraph:
    """The subgraph as far as plans depend on it: they hold for whatever its slots hold."""
    return sub.resized(sub.extents, (0,) * len(sub.slots))


@functools.lru_cache(4096)
def _digest(sub: Subgraph) -> str:
    """The digest of a subgraph whose slots were blanked: many of a graph differ in nothing else."""
    return structural_digest(sub)


def compiler_name(target: Target, cache: Path) -> str:
    """What builds the kernels of a target: compiler and libraries by version, flags by digest; "none" without any."""
    if target.kind == "cuda" and target.name != EMULATED:
        nvrtc = find_nvrtc()
        flags = hashlib.sha256(" ".join(NVRTC_FLAGS).encode()).hexdigest()[:12]
        return f"NVRTC {nvrtc.version}; flags {flags}" if nvrtc is not None else "none"
    compiler = find_compiler(memory=cache)
    if compiler is None:
        return "none"
    return f"{compiler.version}; {compiler.libc}; flags {hashlib.sha256(compiler.identity.encode()).hexdigest()[:12]}"


def decide(parted: Partition, settings: Settings, database: Database) -> tuple[Decision, ...]:
    """The plan of every component: the database's where it has one that is legal and right, else the heuristic one.

    With `settings.stitched` False every operator is a kernel of its own. Where the device is not here no plan is tried.
    """
    found: dict[Subgraph, Decision] = {}
    parts = parted.components
    subs = list(dict.fromkeys(part.subgraph for part in parts))
    keys = [make_key(sub, settings) for sub in subs]
    if settings.stitched:
        by_key = dict(zip(keys, subs, strict=True))
        answers = find_all(database, keys, lambda key, plan, _: _fitted(by_key[key], plan, settings))
    else:
        answers = [Found(None, "heuristic")] * len(keys)
    for part in parts:
        sub = part.subgraph
        if sub not in found:
            position = subs.index(sub)
            found[sub] = _decision(part, keys[position], answers[position], settings, database)
    return tuple(replace(found[part.subgraph], component=part) for part in parts)


def _fitted(sub: Subgraph, plan: Plan, settings: Settings) -> Plan | None:
    """A stored plan made to fit `sub`, or None: a row is data that anybody may have written."""
    fitted = adapt(plan, sub)
    return None if legality.check(sub, fitted, settings.target) else fitted


def _decision(part: Component, key: PlanKey, found: Found, settings: Settings, database: Database) -> Decision:
    sub, plan = part.subgraph, found.plan
    if plan is not None and found.needs_check and present(settings.target):
        trouble = try_once(sub, plan, settings)
        remember_check(database, key, plan, not trouble, trouble)
        if trouble:
            plan, found = None, replace(found, plan=None, how="heuristic")
    if plan is None:
        make = stitch.heuristic if settings.stitched else stitch.unfused
        plan = make(sub, settings.target)
    return Decision(part, key, plan, found)


def try_once(sub: Subgraph, plan: Plan, settings: Settings) -> str:
    """Runs a plan once on made-up inputs against the reference: "" when it is right, else one line on what is not."""
    [built] = build_plans([(sub, plan)], settings.target, precision=settings.precision, cache=settings.cache, jobs=1)
    if isinstance(built, BuildFailure):
        return built.message
    inputs = feeds.for_subgraph(sub)
    outputs = [np.empty(sub.shape(v), sub.values[v].dtype.numpy) for v in sub.outputs]
    if isinstance(built, BuiltCuda):
        try:
            CudaLauncher(built, open_device(settings.target)).bind(inputs, outputs).launch()
        except LaunchError as error:
            return str(error)
    else:
        library = build_runtime(settings.cache)
        if isinstance(library, BuildFailure):
            return library.message
        Launcher(built, shared_team(library, settings.target.processors)).bind(inputs, outputs).launch()
    return check_outputs(sub, inputs, outputs, settings.precision).message


def build(parted: Partition, decisions: Sequence[Decision], settings: Settings) -> Executor:
    """The executor of a partitioned graph with a plan for each component."""
    plans = [decision.plan for decision in decisions]
    jobs = settings.jobs or settings.target.processors
    return compile_graph(parted, plans, settings.target, cache=settings.cache, precision=settings.precision, jobs=jobs)


def _require(decisions: Sequence[Decision]) -> None:
    lacking = [(n, d) for n, d in enumerate(decisions) if d.found.plan is None]
    if lacking:
        number, first = lacking[0]
        raise MissingPlan(
            f"{len(lacking)} of {len(decisions)} subgraphs have no plan (first: subgraph {number}, {first.found.why}); "
            "run `tune.py tune` on this graph, or leave out --require-plan"
        )
