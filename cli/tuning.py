"""The verbs `tune` and `report`: search for plans, and show what the database knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import feeds, pipeline
from ..settings import LARGEST_TRIALS, Effort, Settings, parse_dims
from . import options
from .console import Progress, failures
from .options import duration

if TYPE_CHECKING:
    from ..tuner.events import Part, TuneResult

BUDGET = 60.0


@click.command()
@options.graph
@options.inputs
@options.seed
@options.jobs
@click.option("--budget", type=options.Amount(0), default=BUDGET, show_default=True, metavar="SECONDS")
@click.option(
    "--trials", type=click.IntRange(1, LARGEST_TRIALS), metavar="N", help="Plans measured per subgraph at most."
)
@click.option("--effort", type=click.Choice(["quick", "normal", "max"]), default="normal", show_default=True)
@click.option("--more", is_flag=True, help="Go on with searches that are finished.")
@click.option("--retune", is_flag=True, help="Start afresh.")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Write the report there.")
def tune(
    graph: Path,
    dims: Sequence[str],
    target: str | None,
    db: str | None,
    precision: str,
    inputs: Path | None,
    seed: int,
    jobs: int | None,
    budget: float,
    trials: int | None,
    effort: Effort,
    more: bool,
    retune: bool,
    out: Path | None,
    as_json: bool,
) -> int:
    """Search, measure and remember the best plan of every subgraph."""
    chosen = options.settings(target, db, precision, jobs)
    sizes = parse_dims(dims)
    search = pipeline.Search(budget / len(sizes), trials, effort, seed, retune=retune, more=more)
    options.announce(chosen, as_json)
    documents, interrupted = [], False
    for bound in sizes:
        loaded, parted = pipeline.read(graph, bound)
        given = feeds.given_or_made(loaded, inputs, seed)
        options.echo(given.note, as_json)
        with Progress() as progress:
            result = pipeline.tune(parted, given, chosen, search, progress)
        documents.append(_document(bound, result))
        if not as_json:
            _print(loaded.name, bound, result)
        interrupted = result.interrupted
        if interrupted:
            break
    page = _report(chosen, out, as_json) if out is not None else None
    if as_json:
        head = {"graph": graph.stem, "target": chosen.target.name, "database": pipeline.database(chosen).name}
        options.print_json({**head, "results": documents, "report": page})
    if interrupted:
        options.echo("interrupted: what was found is kept", as_json)
    return 130 if interrupted else 0


def _document(bound: Mapping[str, int], result: TuneResult) -> dict[str, Any]:
    """One tuning run as JSON data."""
    return {
        "sizes": dict(bound),
        "run": result.run,
        "measured": result.measured,
        "predicted": result.predicted,
        "note": result.note,
        "seconds": result.seconds,
        "interrupted": result.interrupted,
        "synthetic": result.synthetic,
        "unfused": _total(result.parts, "unfused"),
        "best": _total(result.parts, "best"),
        "rank_correlation": result.quality.rank_correlation,
        "regret": result.quality.regret,
        "subgraphs": [_part(part) for part in result.parts],
    }


def _part(part: Part) -> dict[str, Any]:
    one = part.standing
    return {
        "digest": one.key.digest,
        "label": one.label,
        "occurrences": one.occurrences,
        "trials": one.trials,
        "unfused": one.unfused,
        "heuristic": one.heuristic,
        "best": one.best,
        "limit": one.limit,
        "speedup": one.speedup,
        "predicted": one.predicted,
        "won": part.won,
        "kernels": len(part.plan.kernels) if part.plan else None,
        "barriers": part.plan.barriers if part.plan else None,
        "failures": dict(one.failures),
        "stop": one.stop,
    }


def _total(parts: Sequence[Part], what: str) -> float | None:
    """Seconds of all subgraphs of one run of the graph; None while one of them was never measured."""
    seconds = [(getattr(part.standing, what), part.standing.occurrences) for part in parts]
    return sum(s * n for s, n in seconds) if seconds and all(s is not None for s, _ in seconds) else None


def _print(name: str, bound: Mapping[str, int], result: TuneResult) -> None:
    rows = [
        (
            number,
            part.standing.label,
            part.standing.occurrences,
            part.standing.trials,
            duration(part.standing.unfused),
            duration(part.standing.heuristic),
            duration(part.standing.best),
            f"{part.standing.speedup:.2f}x" if part.standing.speedup else "-",
            f"{100 * part.standing.limit / part.standing.best:.0f} %" if part.standing.best else "-",
            len(part.plan.kernels) if part.plan else None,
            part.standing.stop + _came_to(part),
            failures(part.standing.failures),
        )
        for number, part in enumerate(result.parts, 1)
    ]
    head = (
        "",
        "subgraph",
        "times",
        "trials",
        "unfused",
        "heuristic",
        "best",
        "speed-up",
        "of limit",
        "kernels",
        "",
        "",
    )
    at = "".join(f", {dim}={size}" for dim, size in bound.items())
    away = any(part.standing.predicted for part in result.parts)
    options.table(head, rows, title=f"{name}{at}" + (", times are predicted: nothing was run" if away else ""))
    if away:
        _print_predicted(result)
        return
    unfused, best = _total(result.parts, "unfused"), _total(result.parts, "best")
    if unfused and best:
        options.echo(f"all subgraphs: {duration(unfused)} unfused, {duration(best)} stitched, {unfused / best:.2f}x")
    if not result.parts:
        options.echo("no subgraphs to tune: library ops do it all")
    elif _lacking(result) and not result.interrupted:
        options.echo(f"{_lacking(result)} measured in {result.seconds:.1f} s: give a larger --budget")
    elif result.measured == 0 and not result.interrupted:
        options.echo(f"plans found for all {len(result.parts)} subgraphs; nothing was measured")
    else:
        options.echo(f"{result.measured} plans measured in {result.seconds:.1f} s")
    if result.parts and not any(part.won for part in result.parts):
        reasons = Counter(part.standing.stop for part in result.parts).most_common(3)
        options.echo(f"unfused kept everywhere; searches ended by: {', '.join(f'{r} ({n})' for r, n in reasons)}")
    if result.quality.subgraphs:
        options.echo(
            f"cost model: rank correlation {result.quality.rank_correlation:.2f}, "
            f"top-{result.quality.k} regret {100 * result.quality.regret:.1f} %"
        )


def _lacking(result: TuneResult) -> str:
    """How many subgraphs the budget did not reach; "" when it reached all."""
    without = sum(part.plan is None for part in result.parts)
    return f"{without} of {len(result.parts)} subgraphs were not" if without else ""


def _came_to(part: Part) -> str:
    if part.plan is None:
        return ", not measured"
    if part.standing.predicted:
        return ", predicted"
    return "" if part.won else ", unfused kept"


def _print_predicted(result: TuneResult) -> None:
    """What to know of plans for a device that is not here: no speed-ups, which only measuring shows."""
    if result.predicted:
        options.echo(f"{result.predicted} plans predicted in {result.seconds:.1f} s")
    if _lacking(result) and not result.interrupted:
        options.echo(f"{_lacking(result)} predicted in {result.seconds:.1f} s: give a larger --budget")
    elif not result.predicted and not result.interrupted:
        options.echo(f"plans predicted before for all {len(result.parts)} subgraphs")
    if result.note:
        options.echo(f"not compiled, so the cost model alone ranks them: {result.note}")
    options.echo(
        "a machine with the device measures the best of them first: plans export, then plans import and tune there"
    )


@click.command()
@options.common
@click.option("--db", help="Plan database: a path or SQLAlchemy URL.  [default: in the user's data folder]")
@click.option("--graph", help="Only this graph, by its name.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("out"), show_default=True, metavar="DIR")
@click.option(
    "--device-check",
    "checks",
    type=click.Path(path_type=Path),
    multiple=True,
    metavar="FILE",
    help="Show what benchmarks/device_check.py found.  [default: those that came with this version]",
)
def report(db: str | None, graph: str | None, out: Path, checks: Sequence[Path], as_json: bool) -> int:
    """Write tables, plots and one self-contained HTML page from the database."""
    from ..results import device_check
    from ..results.database import Database
    from ..results.report import write_report

    database = Database.open(db)
    options.echo(f"database {database.name}", as_json)
    made = write_report(database, out, graph, checks or device_check.kept())
    if as_json:
        options.print_json({"page": str(made.page), "files": [str(f) for f in made.files], "lines": list(made.lines)})
        return 0
    for line in made.lines:
        options.echo(line)
    options.echo(f"report: {made.page}")
    return 0


def _report(chosen: Settings, out: Path, as_json: bool) -> str:
    from ..results.report import write_report

    page = write_report(pipeline.database(chosen), out).page
    options.echo(f"report: {page}", as_json)
    return str(page)
