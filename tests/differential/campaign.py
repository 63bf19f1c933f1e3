"""Many pairs of a subgraph and a plan, built in batches, run under watch, compared with the reference, and counted.

Workers are processes of their own, so that a kernel that crashes costs one worker, and the pair is known. Each takes
every n-th round of numbers (one of each kind of subject); what it finds does not depend on the others.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stitchtune.graphs.rounding import Precision
from stitchtune.graphs.tolerance import compare, expect
from stitchtune.kernels.build import BuiltPlan, build_plans
from stitchtune.kernels.compile import BuildFailure
from stitchtune.kernels.lower import LoweringError, lower
from stitchtune.kernels.team import Team, build_runtime
from stitchtune.search_space.plan import Plan

from tests.coverage import EVERY_PRIMITIVE, STRUCTURES
from tests.differential.drawing import TARGET, Illegal, draw
from tests.differential.marks import EVERY_MARK, marks
from tests.differential.running import Wrong, run_watched
from tests.differential.subjects import KINDS, Subject, subjects
from tests.random_graphs import MOVEMENT

UNIT = 8
"""Plans that are compiled together."""

EVERY_FEATURE: tuple[tuple[str, str], ...] = (*EVERY_PRIMITIVE, *((op, dtype.value) for op, dtype in MOVEMENT))


@dataclass(frozen=True, eq=False)
class Pair:
    subject: Subject
    plan: Plan
    name: str


@dataclass
class Tally:
    """What a campaign did.

    pairs         compared and right
    incomparable  right as far as they could be compared, too many elements being close to a flip: not counted
    features      (primitive, dtype) and marks: in how many of the pairs
    structures    structural features: in how many different graphs
    graphs        the subjects counted in `structures`
    failures      by pair: what went wrong
    """

    pairs: int = 0
    incomparable: int = 0
    features: Counter[tuple[str, str]] = field(default_factory=Counter)
    structures: Counter[str] = field(default_factory=Counter)
    graphs: set[str] = field(default_factory=set)
    failures: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    def merge(self, other: Tally) -> None:
        self.pairs += other.pairs
        self.incomparable += other.incomparable
        self.features += other.features
        self.structures += other.structures
        self.failures |= other.failures

    def to_json(self) -> dict[str, Any]:
        return {
            "pairs": self.pairs,
            "incomparable": self.incomparable,
            "features": [[*key, count] for key, count in self.features.items()],
            "structures": dict(self.structures),
            "failures": self.failures,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> Tally:
        features = Counter({(a, b): n for a, b, n in data["features"]})
        structures = Counter(data["structures"])
        return Tally(data["pairs"], data["incomparable"], features, structures, data["failures"])


def lacking(tally: Tally, floor: int) -> list[str]:
    """Primitives with types, schemes, places and mappings that fewer than `floor` pairs exercised."""
    wanted = (*EVERY_FEATURE, *EVERY_MARK)
    return [f"{a} {b}: {tally.features[a, b]}" for a, b in wanted if tally.features[a, b] < floor]


def table(tally: Tally) -> Iterator[str]:
    """The coverage, a line each."""
    yield f"{tally.pairs} pairs right, {len(tally.failures)} wrong, {tally.incomparable} not comparable"
    for kind in ("scheme", "place", "mapping"):
        counts = [f"{m} {tally.features[k, m]}" for k, m in EVERY_MARK if k == kind]
        yield f"{kind}s: {', '.join(counts)}"
    yield "graphs with " + ", ".join(f"{s}: {tally.structures[s]}" for s in STRUCTURES)
    least = sorted(EVERY_FEATURE, key=lambda f: tally.features[f])
    yield f"{len(EVERY_FEATURE)} primitives with a type; least often: " + ", ".join(
        f"{op} {dtype} {tally.features[op, dtype]}" for op, dtype in least[:6]
    )


# --- one worker


def numbered(number: int, tally: Tally) -> Iterator[Pair]:
    """The pairs of one number."""
    turn = 2 * number
    for subject in subjects(number):
        for _ in range(subject.plans):
            turn += 1
            try:
                plan, path = draw(subject.sub, turn)
            except Illegal as error:
                tally.failures[f"{subject.name}, turn {turn}"] = str(error)
                continue
            yield Pair(subject, plan, f"{subject.name}, turn {turn} ({' + '.join(path)})")


def run_batch(pairs: list[Pair], precision: Precision, cache: Path, team: Team, tally: Tally, log: Log) -> None:
    """Builds pairs in one unit (apart when that fails) and checks each."""
    lowered = {}
    for pair in pairs:
        try:
            lowered[pair.name] = lower(pair.subject.sub, pair.plan, TARGET, precision)
        except LoweringError as error:
            tally.failures[pair.name] = f"does not lower: {error}"
    good = [p for p in pairs if p.name in lowered]
    log({"building": [p.name for p in good]})
    built = _build(good, precision, cache, UNIT)
    for pair, made in zip(good, built, strict=True):
        if not isinstance(made, BuiltPlan):
            [made] = _build([pair], precision, cache, 1)
        if not isinstance(made, BuiltPlan):
            tally.failures[pair.name] = f"does not compile: {made.message}"
            continue
        log({"running": pair.name})
        problem = _problem(pair, made, precision, team, tally)
        if problem:
            log({"wrong": pair.name, "problem": problem})
            tally.failures[pair.name] = problem


def _build(pairs: list[Pair], precision: Precision, cache: Path, unit: int) -> list[Any]:
    items = [(p.subject.sub, p.plan) for p in pairs]
    return build_plans(items, TARGET, precision=precision, cache=cache, jobs=1, per_unit=unit)


def _problem(pair: Pair, built: BuiltPlan, precision: Precision, team: Team, tally: Tally) -> str:
    """What is wrong with a pair; counts it when nothing is."""
    sub = pair.subject.sub
    try:
        outputs = run_watched(built, pair.subject.inputs, team)
    except Wrong as error:
        return str(error)
    result = compare(expect(sub, pair.subject.inputs, precision), outputs)
    if result.worst > 1.0 or (result.comparable and not result.ok):
        return result.message
    if not result.comparable:
        tally.incomparable += 1
        return ""
    tally.pairs += 1
    shown = marks(sub, pair.plan, built.kernels)
    tally.features.update([f for f in pair.subject.features if f[0] != "structure"])
    tally.features.update(shown)
    if pair.subject.name not in tally.graphs:
        tally.graphs.add(pair.subject.name)
        tally.structures.update(b for a, b in pair.subject.features if a == "structure")
    return ""


Log = Callable[[dict[str, Any]], None]


def two_threads(cache: Path) -> Team:
    runtime = build_runtime(cache)
    if isinstance(runtime, BuildFailure):
        raise RuntimeError(runtime.message)
    return Team(runtime, 2)


def work(first: int, step: int, pairs: int, seconds: float, cache: Path, log: Log) -> Tally:
    """Checks the rounds first, first + step, ... of numbers until `pairs` are right or the time is over."""
    team, tally = two_threads(cache), Tally()
    started = time.monotonic()
    waiting: list[Pair] = []
    current, batch = first, 0
    while tally.pairs < pairs and time.monotonic() - started < seconds:
        while len(waiting) < UNIT:
            for number in range(len(KINDS) * current, len(KINDS) * (current + 1)):
                waiting += numbered(number, tally)
            current += step
        now, waiting = waiting[:UNIT], waiting[UNIT:]
        run_batch(now, "fast" if batch % 5 == 4 else "strict", cache, team, tally, log)
        batch += 1
    tally.seconds = time.monotonic() - started
    return tally


# --- many workers


def campaign(pairs: int, seed: int = 0, jobs: int = 2, seconds: float = 3600.0) -> Tally:
    """At least `pairs` right ones by `jobs` worker processes, or what `seconds` allow."""
    started = time.monotonic()
    total = Tally()
    with tempfile.TemporaryDirectory() as folder:
        share = -(-pairs // jobs)
        logs = [Path(folder) / f"worker{i}.jsonl" for i in range(jobs)]
        options = f"--step {jobs} --pairs {share} --seconds {seconds}".split()
        commands = [
            [sys.executable, "-m", "tests.differential", "--worker", str(log), "--first", str(seed + i), *options]
            for i, log in enumerate(logs)
        ]
        root = Path(__file__).parents[2]
        running = [subprocess.Popen(c, cwd=root, stderr=subprocess.PIPE, text=True) for c in commands]
        for process, log in zip(running, logs, strict=True):
            _, error = process.communicate()
            total.merge(_finished(process.returncode, error, log))
    total.seconds = time.monotonic() - started
    return total


def _finished(code: int, error: str, log: Path) -> Tally:
    """A worker's tally; of one that died, a failure that names what it was doing."""
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    last = lines[-1] if lines else {}
    if code == 0 and "tally" in last:
        return Tally.from_json(last["tally"])
    doing = last.get("running") or "; ".join(last.get("building", ["starting"]))
    return Tally(failures={str(doing): f"the worker ended with {code}: {error.strip()[-2000:]}"})
