"""What the plan database remembers, as frozen values: the key of a plan, and one attempt to measure a plan under it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Literal, get_args

from ..search_space import codec
from ..search_space.plan import Plan
from ..search_space.target import Target

Precision = Literal["strict", "fast"]

Status = Literal[
    "ok",
    "predicted",
    "illegal",
    "cut-off",
    "compile-failed",
    "crashed",
    "hung",
    "trapped",
    "wrong",
    "out-of-bounds",
    "unwritten",
    "changed-input",
    "nondeterministic",
]
"""How an attempt ended:

ok                measured; `seconds` holds
predicted         not run: `predicted` is all there is (the device is absent, or the cost model ranked it out)
illegal           refused by the legality function, or by what the device compiler says that it needs: no fault
cut-off           right so far, but so slow that its timing was ended early; `seconds` may be a lower bound
compile-failed, crashed, hung, trapped, wrong, out-of-bounds, unwritten, changed-input, nondeterministic
                  a legal plan that did not hold: a fault of ours, and the plan is never used under this key
"""

FAULTS: frozenset[str] = frozenset(get_args(Status)) - {"ok", "predicted", "illegal", "cut-off"}
"""The statuses that say a legal plan did not build, run or compute what it should."""

Kind = Literal["unfused", "heuristic", "search", "imported"]
"""Where the plan of a measurement came from: the two baselines, the search, or another machine's database."""

Fact = int | float | bool | str
"""A scalar that stands beside a measurement: a knob's value, a clock, a driver."""


DISTURBED = "disturbed"
"""Name of the fact that says why a measurement is not to be trusted: somebody else used the device, clocks moved."""


@dataclass(frozen=True)
class PlanKey:
    """Everything that decides which plan is best for one subgraph.

    digest     structural digest of the subgraph (dtypes and layouts are part of it)
    extents    size of each axis; slots: values of its slots
    target     facts of the device
    compiler   name and version of what builds the kernels, libraries included
    generator  version of our own code generator, see generator.py
    aliasing   (output, input) positions that share memory
    alignment  bytes that inputs and outputs are aligned to; 0: to their element
    """

    digest: str
    extents: tuple[int, ...]
    slots: tuple[int, ...]
    target: Target
    compiler: str
    generator: str
    precision: Precision = "strict"
    aliasing: tuple[tuple[int, int], ...] = ()
    alignment: int = 0


@dataclass(frozen=True)
class Measurement:
    """One attempt at one plan; failures are data too. Times are seconds of one run of the whole plan.

    seconds, spread            median and median absolute deviation with hot caches; None unless timed
    cold, cold_spread          the same with the data out of cache
    samples                    timings behind the median
    traffic                    bytes that the plan's kernels move to and from device memory, None when not counted
    predicted                  the cost model's estimate before measuring, None without one
    assignment                 (knob, value) pairs the plan was built from; () for a plan no search proposed
    trial, seed                the trial's number in its study, and the study's seed
    run, elapsed               the tuning run and how far into it, in seconds, this attempt ended
    synthetic                  the inputs were made up, not given
    facts                      driver, clocks, load, what the compiler said of its kernels and what else does not
                               belong to the key, as pairs
    message                    one line: what went wrong
    created                    seconds since 1970, UTC
    origin                     "" when measured through this database, else where the row was imported from
    """

    key: PlanKey
    plan: Plan | None
    status: Status
    kind: Kind = "search"
    seconds: float | None = None
    spread: float | None = None
    cold: float | None = None
    cold_spread: float | None = None
    samples: int = 0
    traffic: int | None = None
    predicted: float | None = None
    assignment: tuple[tuple[str, Fact], ...] = ()
    trial: int = -1
    seed: int = 0
    run: str = ""
    elapsed: float = 0.0
    synthetic: bool = True
    facts: tuple[tuple[str, Fact], ...] = ()
    message: str = ""
    created: float = 0.0
    origin: str = ""

    @property
    def ok(self) -> bool:
        """True when the plan computed the right result and `seconds` is its time."""
        return self.status == "ok" and self.seconds is not None

    @property
    def disturbed(self) -> str:
        """What disturbed the device meanwhile, or ""."""
        return str(dict(self.facts).get(DISTURBED, ""))


@dataclass(frozen=True)
class Run:
    """One call of the tuner: which graph, with which options, on what machine."""

    id: str
    graph: str
    options: tuple[tuple[str, Fact], ...] = ()
    facts: tuple[tuple[str, Fact], ...] = ()
    started: float = 0.0
    seconds: float | None = None
    """Wall time of the whole run; None while it runs, and after it was killed."""


@dataclass(frozen=True)
class Part:
    """One distinct subgraph of a graph: its key and how often the graph holds it.

    label        short name for tables, its shape included ("add-erf-mul 1024x3072")
    nodes        exported nodes that one occurrence covers
    bytes_min    bytes that any plan must move, per occurrence
    kernels      launches of the unfused plan, of the heuristic plan
    operations   primitive operations per run, for the roofline
    """

    key: PlanKey
    occurrences: int
    label: str = ""
    nodes: int = 0
    bytes_min: int = 0
    kernels_unfused: int = 0
    kernels_heuristic: int = 0
    operations: int = 0


@dataclass(frozen=True)
class GraphRecord:
    """What a tuning run found in a graph, so that reports need no model file."""

    run: str
    name: str
    parts: tuple[Part, ...]
    library_ops: int = 0
    nodes: int = 0
    sizes: tuple[tuple[str, int], ...] = ()


def key_id(key: PlanKey) -> str:
    """A short name of a key: equal keys have equal names on every machine."""
    return _name(codec.dumps(key))


def plan_id(plan: Plan) -> str:
    """A short name of a plan; what `plans show ID` takes."""
    return _name(codec.dumps(plan))


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def differing_fields(a: PlanKey, b: PlanKey) -> tuple[str, ...]:
    """The fields in which two keys differ, those of the target as "target.processors"."""
    found = []
    for name in PlanKey.__dataclass_fields__:
        if getattr(a, name) == getattr(b, name):
            continue
        if name == "target" and a.target.kind != b.target.kind:
            found.append("target.kind")  # whatever else differs follows from it
        elif name == "target":
            fields = Target.__dataclass_fields__
            found += [f"target.{f}" for f in fields if getattr(a.target, f) != getattr(b.target, f)]
        else:
            found.append(name)
    return tuple(found)
