"""Options and output that the verbs share: choices become a Settings, results become tables or one JSON document."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ..devices import present, resolve_target
from ..kernels.cuda.opening import EMULATED
from ..settings import LARGEST_SEED, OFF, Settings, cache_folder, stitched

F = TypeVar("F", bound=Callable[..., Any])


class Amount(click.FloatRange):
    """A finite number of at least `min`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


def common(function: F) -> F:
    """--json, as the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document on standard output.")(function)


def chosen(function: F) -> F:
    """--target and --db."""
    function = click.option(
        "--target",
        help="cpu, cuda, a profile such as cuda:h200, cuda:emulated.  [default: the CUDA device if usable, else cpu]",
    )(function)
    return click.option("--db", help="Plan database: a path or SQLAlchemy URL.  [default: in the user's data folder]")(
        function
    )


def graph(function: F) -> F:
    """GRAPH, --dim and --precision, beside `chosen` and `common`."""
    function = click.option(
        "--precision",
        type=click.Choice(["strict", "fast"]),
        default="strict",
        show_default=True,
        help="Round at every low-precision edge of the graph, or only at casts and outputs of subgraphs.",
    )(function)
    function = click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="Size of a symbolic dimension.")(
        function
    )
    function = click.argument("graph", type=click.Path(path_type=Path))(function)
    return common(chosen(function))


inputs = click.option(
    "--inputs",
    "inputs",
    type=click.Path(path_type=Path),
    metavar="FILE.npz|DIR",
    help="Real inputs; without them they are made up, indices in range and masks of 0 and 1.",
)
seed = click.option(
    "--seed",
    type=click.IntRange(0, LARGEST_SEED),
    default=0,
    show_default=True,
    help="For the search and made-up inputs.",
)
jobs = click.option("--jobs", type=click.IntRange(1), help="Compilers at a time.  [default: one per processor]")


def settings(target: str | None, db: str | None, precision: str = "strict", jobs: int | None = None) -> Settings:
    """The user's choices. Raises InputError for a target that is not there."""
    return Settings(
        target=resolve_target(target),
        database=db,
        cache=cache_folder(),
        precision="fast" if precision == "fast" else "strict",
        jobs=jobs or 0,
        stitched=stitched(),
    )


def announce(chosen: Settings, as_json: bool) -> None:
    """The first line of every verb that uses a target and a database."""
    from ..results.database import Database

    target = chosen.target
    database = Database.open(chosen.database).name
    of = "cores" if target.kind == "cpu" else "multiprocessors"
    away = "; times mean nothing" if target.name == EMULATED else "" if present(target) else "; no such device here"
    line = f"target {target.name} ({target.processors} {of}, {target.arch}{away}), database {database}"
    echo(line + ("" if chosen.stitched else f", {OFF}=off: nothing is stitched"), as_json)


def echo(line: str, as_json: bool = False) -> None:
    """A line on standard output, or on standard error when that is kept for JSON."""
    print(line, file=sys.stderr if as_json else sys.stdout, flush=True)


def print_json(document: Any) -> None:
    """The one JSON document of a verb; numbers that are not finite become null."""
    json.dump(_finite(document), sys.stdout, indent=2, allow_nan=False)
    print(flush=True)
    context = click.get_current_context(silent=True)
    if context is not None and context.obj is not None:
        context.obj["printed"] = True  # so that an error after it prints no second document


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {k: _finite(v) for k, v in value.items()}
        case list() | tuple():
            return [_finite(v) for v in value]
        case float() if value != value or value in (float("inf"), float("-inf")):
            return None
        case _:
            return value


def table(head: Sequence[str], rows: Sequence[Sequence[object]], title: str = "") -> None:
    """A table on standard output, as wide as it needs where that is no terminal."""
    from rich.console import Console
    from rich.table import Table

    shown = Table(title=title or None, title_justify="left", box=None, pad_edge=False, show_header=any(head))
    for number, name in enumerate(head):
        shown.add_column(name, justify="right" if _numeric(rows, number) else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(_text(cell) for cell in row))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    console.print(shown)


def _numeric(rows: Sequence[Sequence[object]], column: int) -> bool:
    return bool(rows) and all(isinstance(row[column], int | float) or row[column] is None for row in rows)


def _text(cell: object) -> str:
    from rich.markup import escape

    if cell is None:
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else escape(str(cell))


def duration(seconds: float | None) -> str:
    """A time for people: 12.3 us, 4.56 ms, 1.23 s."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
