"""Sections "suite", "predicted" and "occupancy": the suite against its peers, our models against the device."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ... import feeds
from ...graphs.dtypes import DType
from ...graphs.errors import StitchtuneError
from ...graphs.tolerance import check_outputs
from ...kernels.compile import BuildFailure
from ...kernels.cuda.built import BuiltCuda
from ...kernels.cuda.device import LaunchError
from ...search_space import legality
from ...search_space.knobs import Choice, Knob
from ...search_space.plan import Plan
from ...search_space.space import Space
from ...search_space.stitch import heuristic, unfused
from ...tuner.cost import bytes_needed, predict
from ...tuner.profiles import profile_model
from ..suite import SUITE
from ..suite.subject import Sizes, Subject, canonical, component
from . import peers
from .peers import Contestant
from .session import Item, Session
from .store import Section

ROUNDS = 9
BURST_SECONDS = 4e-3
SEARCHED = 6
"""Random plans of each subject that the cost model is judged by, beside the heuristic and the unfused one."""
CLOSE = {DType.F32: 1e-3, DType.F16: 1e-2}
"""How far results of contestants may be apart, of their norm."""
EMULATED_ROW = 4096
"""Elements that a dry run has at most: sizes are halved until they fit."""


def sizes_of(session: Session, subject: Subject) -> Sizes:
    """The subject's own sizes on a device, tiny ones in a dry run."""
    if not session.emulated:
        return subject.sizes
    sizes = list(subject.small)
    while math.prod(sizes) > EMULATED_ROW:
        at = max(range(len(sizes)), key=lambda i: sizes[i])
        sizes[at] = max(2, sizes[at] // 2)
    return tuple(sizes)


def chosen(session: Session) -> tuple[Subject, ...]:
    return SUITE[::6] if session.emulated else SUITE


def plans(session: Session, subject: Subject) -> list[Item]:
    """The heuristic plan, the unfused one, then random legal ones."""
    sub = canonical(subject.graph(sizes_of(session, subject)))
    target = session.target
    rng = random.Random(subject.name)

    def ask(knob: Knob) -> Choice:
        return rng.choice(knob.choices)

    found: dict[Plan, str] = {heuristic(sub, target): "heuristic"}
    found.setdefault(unfused(sub, target), "unfused")
    space = Space(sub, target)
    for _ in range(20 * SEARCHED):
        if len(found) >= 2 + (1 if session.emulated else SEARCHED):
            break
        plan = space.suggest(ask).plan
        if not legality.check(sub, plan, target):
            found.setdefault(plan, f"searched {len(found)}")
    return [Item(f"{subject.name}, {how}", sub, plan) for plan, how in found.items()]


def suite_items(session: Session) -> list[Item]:
    return [item for subject in chosen(session) for item in plans(session, subject)[:2]]


def predicted_items(session: Session) -> list[Item]:
    return [item for subject in chosen(session) for item in plans(session, subject)]


# --- against peers


def suite(session: Session, section: Section) -> None:
    """Every subject with all peers but TorchInductor first, then TorchInductor while time lasts."""
    names = peers.PEERS if not session.emulated else ()
    if session.emulated:
        section.why = "peers run on the device only"
    entries = {subject.name: _ours(session, subject) for subject in chosen(session)}
    for wave in (tuple(n for n in names if n != "inductor"), ("inductor",) if names else ()):
        for subject in chosen(session):
            if session.left < 0:
                section.state, section.why = "partial", f"time ran out before {subject.name} with {', '.join(wave)}"
                break
            row = next((r for r in section.rows if r["subject"] == subject.name), None)
            if row is None or wave == ("inductor",):
                made, trouble = entries[subject.name]
                found = _contest(session, subject, made, wave) if made else {}
                if row is None:
                    size = bytes_needed(canonical(subject.graph(sizes_of(session, subject))))
                    row = {"subject": subject.name, "sizes": sizes_of(session, subject), "bytes": size}
                    row |= {"trouble": trouble, "contestants": {}}
                    section.rows.append(row)
                row["contestants"] |= {f"{k} again" if k in row["contestants"] else k: v for k, v in found.items()}
                row["ok"] = agree(row["contestants"], CLOSE[subject.dtype])
        if session.emulated:
            break
    section.summary = {} if session.emulated else _geomeans(section.rows)


def _ours(session: Session, subject: Subject) -> tuple[list[tuple[str, BuiltCuda]], str]:
    found: list[tuple[str, BuiltCuda]] = []
    trouble = ""
    for name, item in zip(("stitched", "unfused"), plans(session, subject)[:2], strict=False):
        [built] = session.build([item])
        if isinstance(built, BuildFailure):
            trouble = f"{item.name}: {built.stage}: {built.message}"
        else:
            found.append((name, built))
    return found, trouble


def _contest(
    session: Session, subject: Subject, ours: list[tuple[str, BuiltCuda]], names: tuple[str, ...]
) -> dict[str, dict[str, Any]]:
    """Times of all contestants in turns: `call` back to back with one wait, `kernel` from a recorded graph."""
    graph = subject.graph(sizes_of(session, subject))
    arrays = _arrays(subject, graph)
    failures: dict[str, dict[str, Any]] = {}
    ready: list[Contestant] = []
    makers: list[tuple[str, Callable[[], Contestant]]] = [
        (name, partial(_stitched, session, name, built, subject, arrays)) for name, built in ours
    ]
    makers += [(n, partial(peers.make, n, graph, [arrays[i] for i in graph.inputs])) for n in names]
    results: list[list[NDArray[Any]]] = []
    for name, maker in makers:
        try:
            contestant = maker()
            results.append(contestant.outputs())
            ready.append(contestant)
        except (ImportError, RuntimeError, TypeError, ValueError, StitchtuneError) as error:
            failures[name] = {"failure": " ".join(str(error).split())[:300] or type(error).__name__}
    calls: dict[str, list[float]] = {c.name: [] for c in ready}
    kernels: dict[str, list[float]] = {c.name: [] for c in ready}
    times = {c.name: max(1, min(200, int(BURST_SECONDS / max(1e-9, c.burst(2))))) for c in ready}
    for turn in range(2 if session.emulated else ROUNDS):
        for contestant in ready:
            calls[contestant.name].append(contestant.burst(1 if session.emulated else times[contestant.name]))
            if contestant.kernel is not None and turn < 3:
                try:
                    kernels[contestant.name].append(contestant.kernel(1 if session.emulated else 20))
                except (RuntimeError, LaunchError) as error:
                    failures[f"{contestant.name} graph"] = {"failure": " ".join(str(error).split())[:300]}
    found: dict[str, dict[str, Any]] = {}
    for c in ready:
        found[c.name] = {"call": _spread(calls[c.name]), "kernel": _spread(kernels[c.name])}
    for contestant, result in zip(ready, results, strict=True):
        found[contestant.name]["differs"] = _differs(results[0], result)
    return {**found, **failures}


def _arrays(subject: Subject, graph: Any) -> dict[str, NDArray[Any]]:
    arrays = dict(feeds.synthetic(graph, 0).arrays)
    return arrays | {name: np.abs(arrays[name]) for name in subject.positive}


def _stitched(
    session: Session, name: str, built: BuiltCuda, subject: Subject, arrays: dict[str, NDArray[Any]]
) -> Contestant:
    graph = subject.graph(sizes_of(session, subject))
    part = component(graph)
    sub = built.sub
    memory = {**graph.constants, **arrays}
    host = [np.ascontiguousarray(memory[n]).reshape(sub.shape(v)) for n, v in zip(part.inputs, sub.inputs, strict=True)]
    results = [np.empty(sub.shape(v), sub.values[v].dtype.numpy) for v in sub.outputs]
    held = session.on_device([*host, *results])
    bound = session.bind(built, held[: len(host)], held[len(host) :])
    shapes = dict(zip(part.outputs, (graph.types[n].shape for n in part.outputs), strict=True))

    def outputs() -> list[NDArray[Any]]:
        bound.launch()
        bound.synchronize()
        found = dict(zip(part.outputs, held[len(host) :], strict=True))
        return [np.asarray(found[n].get()).reshape(shapes[n]) for n in graph.outputs if n in found]

    return Contestant(
        name, bound.launch, bound.synchronize, outputs, lambda batch: bound.time(1, batch=batch)[0] * 1e-9 / batch
    )


def _spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    middle = statistics.median(values)
    return {"median": middle, "spread": statistics.median(abs(v - middle) for v in values), "samples": len(values)}


def _differs(wanted: list[NDArray[Any]], found: list[NDArray[Any]]) -> float | None:
    """Norm of the difference over the norm, the worst output; None when shapes differ."""
    worst = 0.0
    for a, b in zip(wanted, found, strict=False):
        if a.shape != b.shape:
            return None
        x, y = a.astype(np.float64), b.astype(np.float64)
        finite = np.isfinite(x) & np.isfinite(y)
        norm = float(np.linalg.norm(x[finite]))
        worst = max(worst, float(np.linalg.norm(x[finite] - y[finite])) / (norm or 1.0))
    return worst


def agree(contestants: dict[str, dict[str, Any]], close: float) -> bool | None:
    """Whether all that were timed gave one result; None where only one was."""
    found = [one["differs"] for one in contestants.values() if "differs" in one]
    return all(d is not None and d <= close for d in found) if len(found) > 1 else None


def _geomeans(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Geometric means of each peer's time over the stitched one's."""
    ratios: dict[str, list[float]] = {}
    for row in rows:
        ours = row["contestants"].get("stitched", {})
        for name, one in row["contestants"].items():
            for what in ("call", "kernel"):
                if name != "stitched" and one.get(what) and ours.get(what):
                    ratios.setdefault(f"{name} {what}", []).append(one[what]["median"] / ours[what]["median"])
    return {name: math.exp(statistics.fmean(map(math.log, values))) for name, values in ratios.items()}


# --- against the occupancy rules


def occupancy(session: Session, section: Section) -> None:
    """Blocks that a multiprocessor holds by our rules, by which grids with barriers are cut, and by the driver's."""
    items = suite_items(session)
    for item, built in zip(items, session.build(items), strict=True):
        if isinstance(built, BuildFailure):
            section.rows.append({"plan": item.name, "message": f"{built.stage}: {built.message}"})
            continue
        for launch, kernel in zip(built.launches, session.here().load(built), strict=True):
            found = session.here().resident(kernel)
            row = {"plan": item.name, "kernel": launch.symbol, "rules": launch.resident, "driver": found}
            section.rows.append(row | {"ok": launch.resident <= found})
    known = [(row["rules"], row["driver"]) for row in section.rows if "driver" in row]
    section.summary = {"kernels": len(known), "equal": sum(a == b for a, b in known)}


# --- against the cost model


def predicted(session: Session, section: Section) -> None:
    model = profile_model(session.target)
    for subject in chosen(session):
        if session.left < 0:
            section.state, section.why = "partial", f"time ran out before {subject.name}"
            break
        items = plans(session, subject)
        for item, built in zip(items, session.build(items), strict=True):
            if isinstance(built, BuildFailure):
                section.rows.append({"plan": item.name, "failure": f"{built.stage}: {built.message}"})
                continue
            cost = predict(item.sub, item.plan, model, [launch.report for launch in built.launches])
            try:
                taken = _seconds(session, built)
            except LaunchError as error:
                section.rows.append({"plan": item.name, "failure": str(error)})
                if error.sticky:
                    section.state, section.why = "failed", f"the device was lost at {item.name}"
                    return
                continue
            section.rows.append(
                {"plan": item.name, "subject": subject.name, "predicted": cost.seconds, "measured": taken}
            )
    section.summary = {} if session.emulated else _quality(section.rows)


def _seconds(session: Session, built: BuiltCuda) -> float:
    from .micro import seconds

    return seconds(session, built, 5)


def _quality(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The median rank correlation within a subject, and quantiles of measured over predicted."""
    by_subject: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if "measured" in row:
            by_subject.setdefault(row["subject"], []).append((row["predicted"], row["measured"]))
    ranks = [_spearman(pairs) for pairs in by_subject.values() if len(pairs) >= 4]
    ratios = sorted(m / p for pairs in by_subject.values() for p, m in pairs)
    quantiles = {f"ratio_{int(100 * q)}": ratios[int(q * (len(ratios) - 1))] for q in (0.1, 0.5, 0.9)} if ratios else {}
    return {"subjects": len(by_subject), "spearman": statistics.median(ranks) if ranks else None, **quantiles}


def _spearman(pairs: list[tuple[float, float]]) -> float:
    ranks = [np.argsort(np.argsort([pair[i] for pair in pairs])) for i in (0, 1)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


# --- ten kernels under tools


def ten(session: Session) -> list[tuple[Subject, Item]]:
    """Ten subjects at their small sizes, by their heuristic plans."""
    target = session.target
    found = []
    for subject in SUITE[:2] if session.emulated else SUITE[:10]:
        sizes = sizes_of(session, subject) if session.emulated else subject.small
        sub = canonical(subject.graph(sizes))
        found.append((subject, Item(f"{subject.name} small", sub, heuristic(sub, target))))
    return found


def run_ten(session: Session) -> list[dict[str, Any]]:
    """Each of the ten once, checked against the reference."""
    rows = []
    for _, item in ten(session):
        [built] = session.build([item])
        if isinstance(built, BuildFailure):
            rows.append({"kernel": item.name, "message": f"{built.stage}: {built.message}"})
            continue
        inputs = feeds.for_subgraph(item.sub)
        outputs = session.outputs(built)
        bound = session.bind(built, inputs, outputs)
        bound.launch()
        bound.synchronize()
        rows.append({"kernel": item.name, "message": check_outputs(item.sub, inputs, outputs).message})
    return rows
