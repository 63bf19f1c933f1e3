"""How good the emulator is as a judge: every mutant of emitted kernels must be caught.

A mutant is caught when the emulator finds something, the result is not the reference's, or the run does not end well.
One that is not caught has to mean the same, by an argument that says so: the altered expression never had another
value, or was never evaluated; or, for a synchronisation, no two threads touch a byte, one of them to write it, between
the synchronisations around it. What is left has survived.

`python -m tests.kernels.cuda.mutations` runs all and lists the survivors.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from stitchtune.graphs.tolerance import Expected, compare, expect
from stitchtune.kernels.compile import Artifact, BuildFailure, Compiler, compile_units, find_compiler
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.emulator.emulate import build_emulated, run_launches
from stitchtune.kernels.cuda.emulator.entries import unit
from stitchtune.kernels.cuda.emulator.library import kernel_compiler, load_kernels
from stitchtune.kernels.cuda.emulator.machine import Settings

from tests.kernels.cuda.mutants import Mutant, mutants
from tests.kernels.cuda.mutation_subjects import Array, Subject, subjects

PER_UNIT = 24
"""Mutants that are compiled together."""

SECONDS = 60
"""A mutant that runs longer hangs; watching one may take as long."""

STEPS = 20_000_000


@dataclass(frozen=True)
class Verdict:
    """`how` a mutant was caught: kinds of findings, "wrong result", "crash", "hang", "does not compile"; or why it
    means the same; or "survived"."""

    mutant: Mutant
    caught: bool
    how: str


def settings(built: BuiltCuda) -> tuple[Settings, ...]:
    """The runs that judge a subject: few blocks, so that each does several tasks, and the grid of the launch."""
    plain = Settings(steps=STEPS, findings=4)
    if any(k.resident for k in built.kernels):
        return (plain, replace(plain, seed=1))
    return (replace(plain, grid=1), replace(plain, grid=2, seed=1), plain)


@dataclass(frozen=True)
class Trial:
    """A subject, built, with what is right for it."""

    subject: Subject
    built: BuiltCuda
    inputs: tuple[Array, ...]
    expected: Expected

    def run(self, image: Path, prefix: str, source: str, how: Settings) -> str:
        """What is wrong with a run of the kernels whose symbols start with `prefix`; "" when nothing is."""
        sub = self.subject.sub
        outputs = [np.empty(sub.shape(v), sub.values[v].dtype.numpy) for v in sub.outputs]
        launches = [replace(launch, symbol=prefix + launch.symbol) for launch in self.built.launches]
        ran = run_launches(
            image,
            source,
            launches,
            self.inputs,
            outputs,
            scratch_bytes=self.built.scratch_bytes,
            arguments=self.built.arguments,
            settings=how,
        )
        if ran.findings:
            return ", ".join(sorted({f.kind for f in ran.findings}))
        return "" if compare(self.expected, outputs).ok else "wrong result"

    def all_runs(self, image: Path, prefix: str, source: str) -> str:
        """The first thing that is wrong with any of the runs."""
        return next(filter(None, (self.run(image, prefix, source, how) for how in settings(self.built))), "")


def trial(subject: Subject, cache: Path) -> Trial:
    """Raises RuntimeError when the unaltered kernels are not right."""
    (built,) = build_emulated([(subject.sub, subject.plan)], subject.target, cache=cache)
    if isinstance(built, BuildFailure):
        raise RuntimeError(f"{subject.name} does not compile: {built.message}")
    made = Trial(subject, built, subject.inputs, expect(subject.sub, subject.inputs))
    if wrong := made.all_runs(built.image, "", built.source):
        raise RuntimeError(f"{subject.name} is not right as it is: {wrong}")
    return made


def judge(one: Trial, chosen: Sequence[Mutant], compiler: Compiler, cache: Path) -> list[Verdict]:
    """Every mutant of a subject, run."""
    verdicts = []
    for group in _batches(chosen):
        for mutant, image, prefix in _compiled(one, group, compiler, cache):
            if isinstance(image, BuildFailure):
                verdicts.append(Verdict(mutant, True, "does not compile"))
                continue
            wrong = _apart(lambda image=image, prefix=prefix, m=mutant: one.all_runs(image, prefix, m.source))
            verdicts.append(Verdict(mutant, bool(wrong), wrong))
    return _argued(one, verdicts, compiler, cache)


def _argued(one: Trial, verdicts: Sequence[Verdict], compiler: Compiler, cache: Path) -> list[Verdict]:
    """What was not caught, with the argument that it means the same where there is one."""
    left = [v.mutant for v in verdicts if not v.caught]
    why: dict[Mutant, str] = {}
    if any(m.kind in _SCOPES for m in left):
        for mutant in left:
            if mutant.kind in _SCOPES:
                plain = replace(mutant, source=one.built.source)
                ((_, found),) = _watch(one, [plain], compiler, cache, lambda w: _orders_nothing(w))
                why[mutant] = found
    probed = [replace(m, source=m.probe) for m in left if m.probe]
    for mutant, found in _watch(one, probed, compiler, cache, _never_differs):
        why.update((m, found) for m in left if m.probe == mutant.source)
    # Which elements a thread takes part with depends on no data: equal bits mean equal elements where nothing less is
    # read.
    asked = [m for m in left if m.kind in ("guard", "stride") and not why.get(m)]
    if asked:
        unaltered = replace(asked[0], source=one.built.source)
        ((_, right), *others) = _watch(one, [unaltered, *asked], compiler, cache, _traces)
        why.update((mutant, _same_traces(right, found)) for mutant, found in others)
    return [v if v.caught else replace(v, how=why.get(v.mutant, "") or "survived") for v in verdicts]


_SCOPES = {"grid barrier": 3, "block barrier": 2, "warp synchronisation": 1}


@dataclass(frozen=True)
class Watch:
    """A trial of one source with everything noted (watching.h)."""

    one: Trial
    mutant: Mutant
    image: Path
    prefix: str

    def run(self, how: Settings, line: int = 0, scope: int = 0) -> str:
        """One run, in which synchronisations in `line` count as of `scope` only."""
        load_kernels(self.image)["st_watch"](line, scope)
        return self.one.run(self.image, self.prefix, self.mutant.source, how)

    def ask(self, what: str, *arguments: int) -> int:
        function = load_kernels(self.image)[what]
        function.restype = ctypes.c_longlong
        return int(function(*arguments))


def _watch(
    one: Trial, group: Sequence[Mutant], compiler: Compiler, cache: Path, ask: Callable[[Watch], str]
) -> Iterator[tuple[Mutant, str]]:
    """What `ask` says of each source; "" when it does not compile or crashes."""
    for part in _batches(group):
        for mutant, image, prefix in _compiled(one, part, compiler, cache, watched=True):
            if isinstance(image, Path):
                said = _apart(lambda image=image, prefix=prefix, m=mutant: ask(Watch(one, m, image, prefix)))
                yield mutant, "" if said in ("crash", "hang") else said
            else:
                yield mutant, ""


def _never_differs(watch: Watch) -> str:
    evaluated = 0
    for how in settings(watch.one.built):
        if watch.run(how) or watch.ask("st_probe", 1):
            return ""
        evaluated += watch.ask("st_probe", 0)
    return f"the same value in all {evaluated} evaluations" if evaluated else "never evaluated at these shapes"


def _orders_nothing(watch: Watch) -> str:
    """The argument for a synchronisation that is not there, or is one of a narrower scope."""
    scope = {"": 0, "st_sync_warp();": 1, "st_sync_block();": 2}[watch.mutant.new]
    for how in settings(watch.one.built):
        if watch.run(how, watch.mutant.line, scope) or watch.ask("st_conflicts"):
            return ""
    return "no two threads touch a byte, one of them to write it, that other synchronisations do not order"


def _traces(watch: Watch) -> str:
    """What threads store, what is read, and what the results are, in each run that judges."""
    runs = ((watch.run(how), *map(watch.ask, _TRACES)) for how in settings(watch.one.built))
    return " ".join(":".join(map(str, run)) for run in runs)


_TRACES = ("st_stores", "st_reads", "st_results")


def _same_traces(right: str, found: str) -> str:
    pairs = [(a.split(":"), b.split(":")) for a, b in zip(right.split(), found.split(), strict=False)]
    if not pairs or any(a[2] != b[2] for a, b in pairs):
        return ""
    if all(a == b for a, b in pairs):
        return "the same places are read, and every thread stores the same bits at the same places in the same order"
    if all(a[3] == b[3] != "0" for a, b in pairs):
        return "the same places are read, and each place that is written only ever gets the bits that it gets anyway"
    return ""


def _batches(chosen: Sequence[Mutant]) -> Iterator[Sequence[Mutant]]:
    for start in range(0, len(chosen), PER_UNIT):
        yield chosen[start : start + PER_UNIT]


def _compiled(
    one: Trial, group: Sequence[Mutant], compiler: Compiler, cache: Path, watched: bool = False
) -> Iterator[tuple[Mutant, Path | BuildFailure, str]]:
    """Each mutant's library and the prefix of its symbols: all in one unit, or each in its own when that fails."""
    made = _compile(_unit(one, [(f"m{i}_", m.source) for i, m in enumerate(group)], watched), compiler, cache)
    if isinstance(made, Path):
        yield from ((m, made, f"m{i}_") for i, m in enumerate(group))
        return
    for mutant in group:
        yield mutant, _compile(_unit(one, [("m_", mutant.source)], watched), compiler, cache), "m_"


def _unit(one: Trial, sources: Sequence[tuple[str, str]], watched: bool = False) -> str:
    """A unit of several versions of the kernels, each with a prefix to its symbols."""
    symbols = [launch.symbol for launch in one.built.launches]
    names = re.compile(r"\b(" + "|".join(map(re.escape, symbols)) + r")\(")
    texts = [f'#line 1 "kernels.cu"\n{names.sub(lambda m, p=p: f"{p}{m[1]}(", text)}' for p, text in sources]
    entered = [prefix + symbol for prefix, _ in sources for symbol in symbols]
    before, behind = _HEADERS if watched else ("", "")
    return unit(behind + "\n".join(texts), entered, before=before)


_HEADERS = tuple((Path(__file__).parent / name).read_text() for name in ("watching.h", "watched.h"))


def _compile(text: str, compiler: Compiler, cache: Path) -> Path | BuildFailure:
    (made,) = compile_units([text], kernel_compiler(compiler), cache)
    return made.library if isinstance(made, Artifact) else made


def _apart(work: Callable[[], str]) -> str:
    """What `work` says in a process of its own, which may crash or hang."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            os.write(writing, work().encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    ready, _, _ = select.select([reading], [], [], SECONDS)
    text = os.read(reading, 4096).decode() if ready else "hang"
    os.close(reading)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return text if not ready or status == 0 else "crash"


# --- the report


def report(name: str, verdicts: Sequence[Verdict]) -> Iterator[str]:
    caught = sum(v.caught for v in verdicts)
    same = [v for v in verdicts if not v.caught and v.how != "survived"]
    lost = [v for v in verdicts if v.how == "survived"]
    yield f"{name}: {len(verdicts)} mutants, {caught} caught, {len(same)} mean the same, {len(lost)} survived"
    for v in lost:
        yield f"  survived: {v.mutant.title}"


def share(verdicts: Sequence[Verdict]) -> float:
    """Caught, of those that change the meaning. What does not compile counts as neither."""
    counted = [v for v in verdicts if v.how != "does not compile"]
    caught = sum(v.caught for v in counted)
    survived = sum(v.how == "survived" for v in counted)
    return caught / max(1, caught + survived)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="subjects (all by default)")
    parser.add_argument("--all", action="store_true", help="list what means the same as well, with the argument")
    parser.add_argument("--cache", type=Path, help="a folder for compiled units")
    given = parser.parse_args()
    compiler = find_compiler()
    if compiler is None:
        print("no C++ compiler works here: install g++ or clang++", file=sys.stderr)
        return 1
    found: list[Verdict] = []
    with tempfile.TemporaryDirectory() as scratch:
        for subject in subjects(given.names):
            start = time.perf_counter()
            one = trial(subject, given.cache or Path(scratch))
            verdicts = judge(one, mutants(one.built.source), compiler, given.cache or Path(scratch))
            print("\n".join(report(subject.name, verdicts)), f"({time.perf_counter() - start:.0f} s)", flush=True)
            for v in verdicts if given.all else ():
                if not v.caught and v.how != "survived":
                    print(f"  the same: {v.mutant.title}: {v.how}")
            found += verdicts
    for kind, number in sorted(Counter(v.mutant.kind for v in found).items()):
        print(f"{kind:22} {number:5} {share([v for v in found if v.mutant.kind == kind]):8.1%}")
    print("; ".join(f"{how} {n}" for how, n in Counter(v.how for v in found if v.caught).most_common()))
    print(f"caught {share(found):.1%} of the mutants that change the meaning")
    return 0


if __name__ == "__main__":
    sys.exit(main())
