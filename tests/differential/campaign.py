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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stitchtune.graphs.tolerance import compare, expect
from stitchtune.kernels.compile import BuildFailure
from stitchtune.kernels.lower import LoweringError, lower

from tests.coverage import EVERY_PRIMITIVE, STRUCTURES
from tests.differential.drawing import Illegal
from tests.differential.machine import Machine, Pair, Setting, Wrong
from tests.differential.marks import Mark
from tests.differential.subjects import subjects
from tests.random_graphs import MOVEMENT

EVERY_FEATURE: tuple[tuple[str, str], ...] = (*EVERY_PRIMITIVE, *((op, dtype.value) for op, dtype in MOVEMENT))


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
        return Tally(data["pairs"], data["incomparable"], features, structures, failures=data["failures"])


def lacking(tally: Tally, wanted: Iterable[Mark], floor: int) -> list[str]:
    """Of the features and marks that are wanted, those that fewer than `floor` pairs exercised."""
    return [f"{a} {b}: {tally.features[a, b]}" for a, b in wanted if tally.features[a, b] < floor]


def table(tally: Tally, wanted: Iterable[Mark]) -> Iterator[str]:
    """The coverage, a line each: marks by kind, structures of graphs, the rarest primitives."""
    yield f"{tally.pairs} pairs right, {len(tally.failures)} wrong, {tally.incomparable} not comparable"
    kinds: dict[str, list[str]] = {}
    for kind, mark in wanted:
        kinds.setdefault(kind, []).append(f"{mark} {tally.features[kind, mark]}")
    yield from (f"{kind}: {', '.join(counts)}" for kind, counts in kinds.items())
    yield "graphs with " + ", ".join(f"{s}: {tally.structures[s]}" for s in STRUCTURES)
    least = sorted(EVERY_FEATURE, key=lambda f: tally.features[f])
    yield f"{len(EVERY_FEATURE)} primitives with a type; least often: " + ", ".join(
        f"{op} {dtype} {tally.features[op, dtype]}" for op, dtype in least[:6]
    )


# --- one worker


def numbered(machine: Machine, number: int, tally: Tally) -> Iterator[Pair]:
    """The pairs of one number."""
    turn = 2 * number
    for subject in subjects(number, machine.kinds, *machine.focus):
        for _ in range(subject.plans):
            turn += 1
            try:
                plan, path = machine.draw(subject.sub, turn)
            except Illegal as error:
                tally.failures[f"{subject.name}, turn {turn}"] = str(error)
                continue
            yield Pair(subject, plan, f"{subject.name}, turn {turn} ({' + '.join(path)})")


def run_batch(machine: Machine, pairs: list[Pair], setting: Setting, tally: Tally, log: Log) -> None:
    """Builds pairs in one unit (apart when that fails) and checks each."""
    good = []
    for pair in pairs:
        try:
            lower(pair.subject.sub, pair.plan, machine.target, setting.precision)
        except LoweringError as error:
            tally.failures[pair.name] = f"does not lower: {error}"
            continue
        good.append(pair)
    log({"building": [p.name for p in good]})
    built = machine.build(good, setting, len(good))
    for pair, made in zip(good, built, strict=True):
        if isinstance(made, BuildFailure):
            [made] = machine.build([pair], setting, 1)
        if isinstance(made, BuildFailure):
            tally.failures[pair.name] = f"does not compile: {made.message}"
            continue
        log({"running": pair.name})
        problem = _problem(machine, pair, made, setting, tally)
        if problem:
            log({"wrong": pair.name, "problem": problem})
            tally.failures[pair.name] = problem


def _problem(machine: Machine, pair: Pair, built: Any, setting: Setting, tally: Tally) -> str:
    """What is wrong with a pair; counts it when nothing is."""
    try:
        outputs = machine.run(built, pair, setting)
    except Wrong as error:
        return str(error)
    result = compare(expect(pair.subject.sub, pair.subject.inputs, setting.precision), outputs)
    if result.worst > 1.0 or (result.comparable and not result.ok):
        return result.message
    if not result.comparable:
        tally.incomparable += 1
        return ""
    tally.pairs += 1
    tally.features.update([f for f in pair.subject.features if f[0] != "structure"])
    tally.features.update(machine.marks(pair, built, setting))
    if pair.subject.name not in tally.graphs:
        tally.graphs.add(pair.subject.name)
        tally.structures.update(b for a, b in pair.subject.features if a == "structure")
    return ""


Log = Callable[[dict[str, Any]], None]


def work(machine: Machine, first: int, step: int, pairs: int, seconds: float, log: Log) -> Tally:
    """Checks the rounds first, first + step, ... of numbers until `pairs` are right or the time is over."""
    tally = Tally()
    started = time.monotonic()
    waiting: list[Pair] = []
    current, batch, round_ = first, 0, len(machine.kinds)
    while tally.pairs < pairs and time.monotonic() - started < seconds:
        while len(waiting) < machine.unit:
            for number in range(round_ * current, round_ * (current + 1)):
                waiting += numbered(machine, number, tally)
            current += step
        now, waiting = waiting[: machine.unit], waiting[machine.unit :]
        run_batch(machine, now, machine.setting(batch), tally, log)
        batch += 1
    tally.seconds = time.monotonic() - started
    return tally


# --- many workers


def campaign(pairs: int, seed: int = 0, jobs: int = 2, seconds: float = 3600.0, target: str = "cpu") -> Tally:
    """At least `pairs` right ones on `target` by `jobs` worker processes, or what `seconds` allow."""
    started = time.monotonic()
    total = Tally()
    with tempfile.TemporaryDirectory() as folder:
        share = -(-pairs // jobs)
        logs = [Path(folder) / f"worker{i}.jsonl" for i in range(jobs)]
        options = f"--step {jobs} --pairs {share} --seconds {seconds} --target {target}".split()
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
