"""The plan database: every measurement ever made, failures included, and which plan to use for which key.

Each method is one transaction: when it returns the rows are on disk, and a process killed in the middle of it
leaves nothing behind. Any number of threads and processes may use one database at a time; a `Database` may be shared by
threads and across a fork. Nothing is opened before the first call, and reading never creates a file.
"""

from __future__ import annotations

import contextlib
import math
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa

from ..graphs.subgraph import Subgraph
from ..search_space import codec
from ..search_space.plan import Plan
from ..search_space.target import DeviceModel, Target
from . import queries, rows, schema
from .engine import DatabaseError, DatabaseWarning, as_url, is_file, make_engine, one_line, shown, use_wal
from .records import GraphRecord, Measurement, PlanKey, Run, differing_fields, key_id, plan_id
from .rows import Choice, Stored

T = TypeVar("T")


class Database:
    """A plan database by URL. Every method raises DatabaseError (one line) when it cannot be used."""

    def __init__(self, url: sa.URL) -> None:
        self.url = url
        self._read: sa.Engine | None = None
        self._write: sa.Engine | None = None
        self._checked = False

    @classmethod
    def open(cls, place: str | Path | None = None) -> Database:
        """The database at a path or SQLAlchemy URL; None: the one in the user's data folder. Touches nothing yet."""
        return cls(as_url(place))

    @property
    def name(self) -> str:
        """Path or URL, without a password."""
        return shown(self.url)

    def exists(self) -> bool:
        """False for a file that is not there yet; a server is asked only when it is used."""
        return not is_file(self.url) or Path(str(self.url.database)).exists()

    # --- transactions

    @contextlib.contextmanager
    def reading(self) -> Iterator[sa.Connection | None]:
        """A transaction that sees one state of the database; None when there is no database yet."""
        with one_line(self.url):
            if not self.exists():
                yield None
                return
            if self._write is None and self._read is None:
                self._read = make_engine(self.url, create=False)
            with (self._write or self._read or make_engine(self.url, create=False)).connect() as connection:
                connection.begin()
                yield connection if self._current(connection) else None

    @contextlib.contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that commits at the end of the block; makes or migrates the tables first where needed."""
        with one_line(self.url):
            if self._write is None:
                self._write = self._read if not is_file(self.url) and self._read else make_engine(self.url, create=True)
                if is_file(self.url):
                    self._refuse_newer_file()
                    use_wal(self._write)
            with self._write.connect().execution_options(write=True) as connection, connection.begin():
                if connection.dialect.name == "postgresql":
                    connection.execute(sa.text("SELECT pg_advisory_xact_lock(7338151)"))  # tables are made once
                if not self._checked:
                    found = self._version(connection)
                    if found is None:
                        schema.create(connection)
                    elif found < schema.SCHEMA:
                        schema.migrate(connection, found)
                yield connection
            self._checked = True

    def _refuse_newer_file(self) -> None:
        """So that not even the journal mode of a foreign file is changed."""
        path = Path(str(self.url.database))
        if path.exists() and path.stat().st_size:
            engine = make_engine(self.url, create=False)
            with engine.connect() as connection:
                self._version(connection)

    def _current(self, connection: sa.Connection) -> bool:
        """True when the tables are there. Raises DatabaseError for a schema that has to be migrated first."""
        if not self._checked:
            found = self._version(connection)
            if found is None:
                return False
            if found < schema.SCHEMA:
                raise DatabaseError(
                    f"plan database {self.name} has the old schema {found}; `tune.py plans list` migrates it"
                )
            self._checked = True
        return True

    def _version(self, connection: sa.Connection) -> int | None:
        """The version of the tables, None when there are none. Raises DatabaseError for a foreign or newer database."""
        tables = sa.inspect(connection).get_table_names()
        if "meta" not in tables:
            if is_file(self.url) and tables:
                raise DatabaseError(f"{self.name} is a database of something else; give another one with --db")
            return None
        text = connection.scalar(sa.select(schema.meta.c.value).where(schema.meta.c.name == "schema"))
        if text is None or not str(text).isdecimal():
            raise DatabaseError(f"plan database {self.name} has no schema version; give another one with --db")
        if int(text) > schema.SCHEMA:
            raise DatabaseError(
                f"plan database {self.name} has schema {text}, newer than {schema.SCHEMA}; upgrade stitchtune or give "
                "another one with --db"
            )
        return int(text)

    # --- measurements

    def record(self, measurement: Measurement) -> int:
        """Store one attempt and return its row number (that of the equal row, when it is there already)."""
        return self.record_all([measurement])[0]

    def record_all(self, measurements: Sequence[Measurement]) -> list[int]:
        """Store attempts in one transaction; the best plan of each key follows. Returns their row numbers, in order."""
        settled = [rows.settle(m) for m in measurements]
        values = [rows.row(m) for m in settled]
        found: list[int] = []
        with self.writing() as connection:
            queries.insert_missing(connection, schema.keys, [rows.key_row(m.key) for m in settled])
            plans = [rows.plan_row(m.plan) for m in settled if m.plan is not None]
            queries.insert_missing(connection, schema.plans, plans)
            table = schema.measurements
            for value in values:
                known = connection.scalar(sa.select(table.c.id).where(table.c.uid == value["uid"]))
                if known is None:
                    known = connection.scalar(table.insert().values(**value).returning(table.c.id))
                found.append(int(str(known)))
            for key in dict.fromkeys(value["key"] for value in values):
                queries.update_choice(connection, key)
        return found

    def measurement(self, ident: int) -> Stored | None:
        """The measurement with this row number, or None. Raises DatabaseError when the row is damaged."""
        with self.reading() as connection:
            if connection is None:
                return None
            query = queries.MEASUREMENTS.where(schema.measurements.c.id == ident)
            found = connection.execute(query).mappings().one_or_none()
        try:
            return None if found is None else rows.read(found)
        except codec.CodecError as error:
            raise DatabaseError(f"measurement {ident} of {self.name} is damaged: {error}") from error

    def measurements(
        self, key: PlanKey | None = None, *, run: str | None = None, status: str | None = None
    ) -> list[Stored]:
        """Measurements in the order they were stored, all or those of a key, run or status. Damaged rows warn."""
        table = schema.measurements
        query = queries.MEASUREMENTS.order_by(table.c.id)
        if key is not None:
            query = query.where(table.c.key == key_id(key))
        if run is not None:
            query = query.where(table.c.run == run)
        if status is not None:
            query = query.where(table.c.status == status)
        with self.reading() as connection:
            found = [] if connection is None else list(connection.execute(query).mappings())
        return self._decoded(found, rows.read, "measurements")

    def predictions(self, key: PlanKey) -> list[Stored]:
        """Predicted plans of this shape and target, whoever predicted them, under other versions too; best first."""
        query = queries.MEASUREMENTS.where(schema.measurements.c.status == "predicted")
        query = query.where(schema.keys.c.digest == key.digest, schema.keys.c.target == key.target.name)
        with self.reading() as connection:
            found = [] if connection is None else list(connection.execute(query).mappings())
        rows_: list[Stored] = self._decoded(found, rows.read, "measurements")
        alike = [one for one in rows_ if {*differing_fields(key, one.measurement.key)} <= {"compiler", "generator"}]
        return sorted(alike, key=lambda one: (one.measurement.predicted or math.inf, one.id))

    def scan(self) -> tuple[list[Stored], list[int]]:
        """All measurements that can be read, and the row numbers of those that cannot."""
        kept: list[Stored] = []
        damaged: list[int] = []
        with self.reading() as connection:
            found = [] if connection is None else list(connection.execute(queries.MEASUREMENTS).mappings())
        for one in found:
            try:
                kept.append(rows.read(one))
            except codec.CodecError:
                damaged.append(int(one["id"]))
        return kept, damaged

    def known(self, measurements: Sequence[Measurement]) -> list[bool]:
        """For each measurement whether it is stored already, here measured or imported."""
        uids = [rows.uid(rows.settle(m)) for m in measurements]
        table = schema.measurements.c
        with self.reading() as connection:
            query = sa.select(table.uid).where(table.uid.in_(uids))
            held = set() if connection is None else set(connection.scalars(query))
        return [uid in held for uid in uids]

    def delete(self, idents: Sequence[int]) -> None:
        """Remove measurements, and the plans and keys that nothing refers to any more."""
        with self.writing() as connection:
            queries.delete(connection, idents)

    def _decoded(self, found: Sequence[Mapping[Any, Any]], read: Any, what: str) -> list[Any]:
        kept, bad = [], []
        for one in found:
            try:
                kept.append(read(one))
            except codec.CodecError as error:
                bad.append(str(error))
        if bad:
            warnings.warn(
                f"{len(bad)} damaged {what} of {self.name} passed over (first: {bad[0]})", DatabaseWarning, stacklevel=3
            )
        return kept

    # --- which plan to use

    def best(self, key: PlanKey) -> Stored | None:
        """The measurement whose plan a lookup of exactly this key uses (rules in choice.py), or None."""
        with self.reading() as connection:
            ident = None if connection is None else queries.current_choice(connection, key_id(key))
        return None if ident is None else self.measurement(ident)

    def choices(self) -> dict[str, Choice]:
        """Which measurements stand for each key, by records.key_id."""
        table = schema.choices
        with self.reading() as connection:
            found = [] if connection is None else list(connection.execute(sa.select(table)))
        return {one.key: Choice(one.best, one.chosen, one.pinned) for one in found}

    def in_use_ids(self, *, held: bool = False) -> frozenset[int]:
        """Row numbers of the plans in use, one a key; with `held` also those confirmed or pinned."""
        found = self.choices().values()
        named = {c.in_use for c in found} | (
            {i for c in found for i in (c.best, c.chosen, c.pinned)} if held else set()
        )
        return frozenset(ident for ident in named if ident is not None)

    def choose(self, key: PlanKey, ident: int) -> None:
        """The tuner's confirmed winner for a key: a row that was measured again beyond the noise."""
        self._set_choice(key, chosen=ident)

    def pin(self, key: PlanKey, ident: int | None) -> None:
        """Freeze the plan of measurement `ident` for a key, until pinned with None."""
        self._set_choice(key, pinned=ident)

    def _set_choice(self, key: PlanKey, **values: int | None) -> None:
        name = key_id(key)
        with self.writing() as connection:
            table = schema.measurements
            for ident in values.values():
                held = connection.execute(sa.select(table.c.key, table.c.plan).where(table.c.id == ident)).one_or_none()
                if ident is not None and (held is None or held.key != name or held.plan is None):
                    raise DatabaseError(f"measurement {ident} of {self.name} is no plan for this key")
            queries.insert_missing(connection, schema.choices, [{"key": name}])
            connection.execute(schema.choices.update().where(schema.choices.c.key == name).values(**values))
            queries.update_choice(connection, name)

    def record_check(self, key: PlanKey, plan: Plan, passed: bool, message: str = "") -> None:
        """Remember how a plan that was not measured under `key` did when it was first run under it.

        After a pass, lookups hand it out without asking for the check again; after a failure, never again.
        """
        value = {"key": key_id(key), "plan": plan_id(plan), "passed": int(passed)}
        value |= {"message": message[: rows.MAX_MESSAGE], "created": time.time()}
        with self.writing() as connection:
            queries.insert_missing(connection, schema.keys, [rows.key_row(key)])
            queries.replace_row(connection, schema.checks, value)
            queries.update_choice(connection, str(value["key"]))

    def in_use(self, digests: Iterable[str], keys: Iterable[str]) -> tuple[list[Any], dict[tuple[str, str], bool]]:
        """For lookups: the undecoded row in use of every key with one of the digests, and the checks under some keys.

        Rows have digest, key_id, key, id, pinned, status, origin, seconds and plan; checks are (key id, plan id) ->
        passed.
        """
        with self.reading() as connection:
            if connection is None:
                return [], {}
            return list(queries.in_use(connection, digests)), queries.checks(connection, keys)

    # --- what stands beside measurements

    def save_structure(self, digest: str, sub: Subgraph) -> None:
        """Keep the canonical form behind a digest, so that plans can be replayed without the model."""
        with self.writing() as connection:
            queries.insert_missing(connection, schema.structures, [{"digest": digest, "text": codec.dumps(sub)}])

    def structure(self, digest: str, extents: tuple[int, ...] = (), slots: tuple[int, ...] = ()) -> Subgraph | None:
        """The subgraph of a digest, at `extents` when given. Its caller verifies it. None when unknown."""
        found: list[Subgraph] = self._texts(schema.structures, schema.structures.c.digest == digest, Subgraph)
        return next((sub.resized(extents, slots) if extents else sub for sub in found), None)

    def structures(self, digests: Iterable[str] | None = None) -> dict[str, Subgraph]:
        """The subgraphs behind some digests, or all that are known."""
        table = schema.structures
        with self.reading() as connection:
            found = [] if connection is None else list(connection.execute(sa.select(table)).mappings())
        wanted = None if digests is None else set(digests)
        found = [one for one in found if wanted is None or one["digest"] in wanted]
        pairs: list[tuple[str, Subgraph]] = self._decoded(
            found, lambda row: (row["digest"], codec.loads(Subgraph, rows.text(row["text"]))), "structures"
        )
        return dict(pairs)

    def save_device(self, model: DeviceModel) -> None:
        """Keep (or replace) the measured constants of a target."""
        ident = rows.target_id(model.target)
        value = {"id": ident, "text": codec.dumps(model), "created": time.time()}
        with self.writing() as connection:
            queries.replace_row(connection, schema.devices, value)

    def device(self, target: Target) -> DeviceModel | None:
        """The constants of exactly this target, or None."""
        found: list[DeviceModel] = self._texts(
            schema.devices, schema.devices.c.id == rows.target_id(target), DeviceModel
        )
        return next(iter(found), None)

    def devices(self) -> list[DeviceModel]:
        return self._texts(schema.devices, sa.true(), DeviceModel)

    def save_run(self, run: Run) -> None:
        """Keep (or replace) a tuning run: once when it starts, once when it ends."""
        value = {"id": run.id, "graph": run.graph, "started": run.started, "text": codec.dumps(run)}
        with self.writing() as connection:
            queries.replace_row(connection, schema.runs, value)

    def runs(self, graph: str | None = None) -> list[Run]:
        """Tuning runs, all or those of a graph, oldest first."""
        table = schema.runs
        return self._texts(table, sa.true() if graph is None else table.c.graph == graph, Run, table.c.started)

    def save_graph(self, graph: GraphRecord) -> None:
        """Keep (or replace) what a run found in its graph."""
        value = {"run": graph.run, "name": graph.name, "text": codec.dumps(graph)}
        with self.writing() as connection:
            queries.replace_row(connection, schema.graphs, value)

    def graphs(self, name: str | None = None) -> list[GraphRecord]:
        """What each run found in its graph, all or those of one graph."""
        table = schema.graphs
        return self._texts(table, sa.true() if name is None else table.c.name == name, GraphRecord)

    def _texts(
        self, table: sa.Table, where: sa.ColumnElement[bool], cls: type[T], order: sa.Column[Any] | None = None
    ) -> list[T]:
        query = sa.select(table.c.text).where(where)
        with self.reading() as connection:
            query = query if order is None else query.order_by(order)
            found = [] if connection is None else list(connection.execute(query).mappings())
        return self._decoded(found, lambda row: codec.loads(cls, rows.text(row["text"])), table.name)
