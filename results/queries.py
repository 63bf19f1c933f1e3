"""The SQL that the database's methods share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa

from . import choice, rows, schema

Item = TypeVar("Item", str, int)

_m, _k, _p, _c = schema.measurements.c, schema.keys.c, schema.plans.c, schema.choices.c

MEASUREMENTS = sa.select(
    _m.id,
    _k.id.label("key_id"),
    _k.text.label("key_text"),
    _p.id.label("plan_id"),
    _p.text.label("plan_text"),
    _m.synthetic,
    *(_m[name] for name in (*rows.PLAIN, *rows.PAIRS)),
).select_from(schema.measurements.join(schema.keys, _m.key == _k.id).outerjoin(schema.plans, _m.plan == _p.id))
"""What `rows.read` takes."""

IN_USE = (
    sa.select(
        _k.digest, _k.id.label("key_id"), _k.text.label("key"), _m.id, _c.pinned, _m.status, _m.origin, _m.seconds
    )
    .add_columns(_p.text.label("plan"))
    .select_from(schema.keys.join(schema.choices, _c.key == _k.id))
    .join(schema.measurements, _m.id == sa.func.coalesce(_c.pinned, _c.best))
    .join(schema.plans, _p.id == _m.plan)
)
"""The plan that each key uses: one row a key, whatever was measured under it."""


def in_use(connection: sa.Connection, digests: Iterable[str]) -> Iterator[Any]:
    """Rows of `IN_USE` for keys with one of the digests."""
    for batch in _batches(digests):
        yield from connection.execute(IN_USE.where(_k.digest.in_(batch)))


def checks(connection: sa.Connection, keys: Iterable[str]) -> dict[tuple[str, str], bool]:
    """(key, plan) -> passed, of the checks made under some keys."""
    table = schema.checks.c
    query = sa.select(table.key, table.plan, table.passed)
    found = (connection.execute(query.where(table.key.in_(batch))) for batch in _batches(keys))
    return {(one.key, one.plan): bool(one.passed) for batch in found for one in batch}


def _batches(items: Iterable[Item], size: int = 500) -> Iterator[list[Item]]:
    ordered = sorted(set(items))
    return (ordered[i : i + size] for i in range(0, len(ordered), size))


def insert_missing(connection: sa.Connection, table: sa.Table, values: Sequence[Mapping[str, Any]]) -> None:
    """Insert the rows whose primary key the table does not hold yet; works on every database and under races."""
    (name,) = [column.name for column in table.primary_key]
    unique = {value[name]: value for value in values}
    present = set(connection.scalars(sa.select(table.c[name]).where(table.c[name].in_(list(unique)))))
    for ident in (i for i in unique if i not in present):
        try:
            with connection.begin_nested():
                connection.execute(table.insert().values(**unique[ident]))
        except sa.exc.IntegrityError:  # another writer was first (not on SQLite, where writers take turns)
            continue


def replace_row(connection: sa.Connection, table: sa.Table, value: Mapping[str, Any]) -> None:
    """Insert a row in place of the one with the same primary key."""
    same = [column == value[column.name] for column in table.primary_key]
    connection.execute(table.delete().where(*same))
    connection.execute(table.insert().values(**value))


def current_choice(connection: sa.Connection, key: str) -> int | None:
    """The measurement that a key's lookups use, or None."""
    ident = connection.scalar(sa.select(sa.func.coalesce(_c.pinned, _c.best)).where(_c.key == key))
    return None if ident is None else int(ident)


def update_choice(connection: sa.Connection, key: str) -> None:
    """Apply the rules of choice.py to a key."""
    query = sa.select(_m.id, _m.plan, _m.status, _m.seconds, _m.spread, _m.predicted, _m.origin, _m.facts)
    attempts = connection.execute(query.where(_m.key == key, _m.plan.is_not(None)).order_by(_m.id)).all()
    failed = frozenset(plan for (_, plan), passed in checks(connection, [key]).items() if not passed)
    held = connection.execute(sa.select(schema.choices).where(_c.key == key)).one_or_none()
    usable = choice.usable(attempts, failed)
    chosen = choice.still(usable, held.chosen if held is not None else None)
    pinned = choice.still(usable, held.pinned if held is not None else None)
    best = choice.best(attempts, usable, chosen)
    if best is not None or held is not None:
        replace_row(connection, schema.choices, {"key": key, "best": best, "chosen": chosen, "pinned": pinned})


def delete(connection: sa.Connection, idents: Iterable[int]) -> None:
    """Remove measurements, then the choices, plans and keys that nothing refers to any more."""
    touched: set[str] = set()
    for batch in _batches(idents):
        touched |= set(connection.scalars(sa.select(_m.key).where(_m.id.in_(batch))))
        connection.execute(schema.measurements.delete().where(_m.id.in_(batch)))
    for key in sorted(touched):
        update_choice(connection, key)
    empty = _c.best.is_(None) & _c.pinned.is_(None)
    connection.execute(schema.choices.delete().where(empty))
    connection.execute(schema.plans.delete().where(_p.id.not_in(sa.select(_m.plan).where(_m.plan.is_not(None)))))
    used = sa.union(sa.select(_m.key), sa.select(_c.key), sa.select(schema.checks.c.key))
    connection.execute(schema.keys.delete().where(_k.id.not_in(used)))
