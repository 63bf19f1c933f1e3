"""The verb `plans`: look at the plan database, carry plans between machines, keep it small, freeze or replay a plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..graphs.errors import InputError
from ..results.records import FAULTS, Measurement, plan_id
from ..results.rows import Stored
from ..search_space import codec
from .options import Amount, common, duration, echo, print_json, table

if TYPE_CHECKING:
    from ..results.database import Database

db = click.option("--db", help="Plan database: a path or SQLAlchemy URL.  [default: in the user's data folder]")


def _database(place: str | None) -> Database:
    from ..results.database import Database

    return Database.open(place)


@click.group()
def plans() -> None:
    """The plan database: list, show, export, import, merge, prune, pin, replay."""


@plans.command("list")
@click.option("--all", "everything", is_flag=True, help="Every measurement, not only the plans in use.")
@click.option("--digest", default="", help="Only structures whose digest starts so.")
@db
@common
def list_(everything: bool, digest: str, db: str | None, as_json: bool) -> int:
    """Plans in use, or every measurement, failures too."""
    database = _database(db)
    used = database.in_use_ids()
    stored = [s for s in database.measurements() if s.measurement.key.digest.startswith(digest)]
    pinned = _pinned(database, stored)
    shown = [s for s in stored if everything or s.id in used]
    if as_json:
        found = [{**_summary(s, s.id in used), "pinned": s.id in pinned} for s in shown]
        print_json({"database": database.name, "plans": found})
        return 0
    echo(f"database {database.name}")
    labels = {part.key: part.label for record in database.graphs() for part in record.parts}
    rows = [
        (
            s.id,
            s.measurement.key.digest[:12],
            labels.get(s.measurement.key) or "x".join(map(str, s.measurement.key.extents))[:40],
            s.measurement.key.target.name,
            s.measurement.kind,
            s.measurement.status,
            _time(s.measurement),
            "pinned" if s.id in pinned else "in use" if s.id in used else "",
            s.measurement.origin,
        )
        for s in shown
    ]
    table(("id", "structure", "subgraph", "target", "kind", "status", "time", "", "from"), rows)
    counts = Counter(s.measurement.status for s in stored if s.measurement.status in FAULTS)
    faults = ", ".join(f"{n} {status}" for status, n in counts.most_common())
    echo(f"{len(used)} plans in use, {len(stored)} measurements" + (f", faults: {faults}" if faults else ""))
    return 0


def _time(one: Measurement) -> str:
    return f"{duration(one.predicted)} predicted" if one.status == "predicted" else duration(one.seconds)


def _pinned(database: Database, stored: Sequence[Stored]) -> frozenset[int]:
    rows, _ = database.in_use({s.measurement.key.digest for s in stored}, ())
    return frozenset(row.id for row in rows if row.pinned is not None)


@plans.command()
@click.argument("ident", metavar="ID", type=click.IntRange(0, (1 << 63) - 1))
@db
@common
def show(ident: int, db: str | None, as_json: bool) -> int:
    """One measurement: its key, its plan and what came of it."""
    stored = _stored(_database(db), ident)
    one = stored.measurement
    if as_json:
        print_json({**_summary(stored, None), "key": codec.to_json(one.key), "plan": codec.to_json(one.plan)})
        return 0
    for name, value in _summary(stored, None).items():
        echo(f"{name:10} {value}")
    for name, value in one.facts:
        echo(f"{name:10} {value}")
    if one.plan is not None:
        from ..search_space.describe import describe

        echo(describe(one.plan))
    return 0


@plans.command("export")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--all", "everything", is_flag=True, help="Every measurement, not only the plans in use.")
@click.option("--source", default="", help="Name of this machine, for whoever imports the file.")
@db
@common
def export_(file: Path, everything: bool, source: str, db: str | None, as_json: bool) -> int:
    """Write plans to a file that another machine can import."""
    from ..results.transfer import export_plans

    count = export_plans(_database(db), file, everything=everything, source=source)
    return _told(as_json, {"file": str(file), "measurements": count}, f"{count} measurements written to {file}")


@plans.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@db
@common
def import_(file: Path, db: str | None, as_json: bool) -> int:
    """Take in a file of plans; a better plan measured here stays in use."""
    from ..results.transfer import import_plans

    return _told_import(import_plans(_database(db), file), as_json)


@plans.command()
@click.argument("other", metavar="DATABASE")
@db
@common
def merge(other: str, db: str | None, as_json: bool) -> int:
    """Take in everything of another plan database (a path or URL)."""
    from ..results import transfer

    source = _database(other)
    if not source.exists():
        raise InputError(f"{source.name}: no such database")
    return _told_import(transfer.merge(_database(db), source), as_json)


@plans.command()
@click.option("--days", type=Amount(0), help="Also remove measurements older than this.")
@click.option("--versions", is_flag=True, help="Also remove measurements of other versions of the code generator.")
@db
@common
def prune(days: float | None, versions: bool, db: str | None, as_json: bool) -> int:
    """Remove damaged rows, and old ones if asked; plans in use stay."""
    from ..results import transfer
    from ..results.generator import generator_version

    done = transfer.prune(_database(db), generator=generator_version() if versions else None, days=days)
    line = f"{done.measurements} measurements and {done.damaged} damaged rows removed"
    return _told(as_json, codec.to_json(done), line)


@plans.command()
@click.argument("ident", metavar="ID", type=click.IntRange(0, (1 << 63) - 1))
@click.option("--off", is_flag=True, help="Let the key of this measurement follow the best plan again.")
@db
@common
def pin(ident: int, off: bool, db: str | None, as_json: bool) -> int:
    """Freeze the plan of a measurement for its key."""
    database = _database(db)
    one = _stored(database, ident).measurement
    if not off and one.status in (*FAULTS, "illegal"):
        raise InputError(f"measurement {ident} ended as {one.status}: such a plan is never used and cannot be pinned")
    database.pin(one.key, None if off else ident)
    return _told(as_json, {"id": ident, "pinned": not off}, f"measurement {ident} {'unpinned' if off else 'pinned'}")


@plans.command()
@click.argument("ident", metavar="ID", type=click.IntRange(0, (1 << 63) - 1))
@click.option("--out", type=click.Path(path_type=Path), help="Folder for a standalone source file with a driver.")
@click.option("--emulate", is_flag=True, help="Check a CUDA plan without the device, every access watched; slow.")
@db
@common
def replay(ident: int, out: Path | None, emulate: bool, db: str | None, as_json: bool) -> int:
    """Rebuild, check and time one stored candidate, failed ones too."""
    from . import replaying

    database = _database(db)
    return replaying.replay(database, _stored(database, ident), out, as_json, emulate=emulate)


def _stored(database: Any, ident: int) -> Stored:
    found: Stored | None = database.measurement(ident)
    if found is None:
        raise InputError(f"{database.name} has no measurement {ident}; `tune.py plans list --all` lists them")
    return found


def _summary(stored: Stored, used: bool | None) -> dict[str, Any]:
    one: Measurement = stored.measurement
    found = {
        "id": stored.id,
        "digest": one.key.digest,
        "extents": list(one.key.extents),
        "target": one.key.target.name,
        "precision": one.key.precision,
        "kind": one.kind,
        "status": one.status,
        "seconds": one.seconds,
        "spread": one.spread,
        "predicted": one.predicted,
        "plan_id": plan_id(one.plan) if one.plan is not None else None,
        "synthetic": one.synthetic,
        "origin": one.origin,
        "created": one.created,
        "message": one.message,
    }
    return found if used is None else {**found, "in_use": used}


def _told_import(done: Any, as_json: bool) -> int:
    skipped = "".join(f", {count} skipped ({reason})" for reason, count in done.skipped)
    line = f"{done.added} measurements added, {done.known} known already, {done.used} keys now use them{skipped}"
    return _told(as_json, codec.to_json(done), line)


def _told(as_json: bool, document: Any, line: str) -> int:
    if as_json:
        print_json(document)
    else:
        echo(line)
    return 0
