"""The tables of the plan database, and how an older database becomes a current one.

Every row is data. What SQL has to filter or sort by is a column of its own; the rest is JSON text that `codec` checks
on reading. Migrations are listed by the version they start from and run one after the other in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import BigInteger, Column, Connection, Double, ForeignKey, Index, Integer, MetaData, String, Table, Text

SCHEMA = 1
"""Version of the tables; a database with a newer one is left alone."""

METADATA = MetaData()
_ID = BigInteger().with_variant(Integer, "sqlite")  # SQLite counts up only a column declared INTEGER

meta = Table("meta", METADATA, Column("name", String(64), primary_key=True), Column("value", Text, nullable=False))

devices = Table(
    "devices",
    METADATA,
    Column("id", String(64), primary_key=True, doc="hash of the target"),
    Column("text", Text, nullable=False, doc="DeviceModel"),
    Column("created", Double, nullable=False),
)

structures = Table(
    "structures",
    METADATA,
    Column("digest", String(128), primary_key=True),
    Column("text", Text, nullable=False, doc="Subgraph, at the extents it was first seen with"),
)

keys = Table(
    "keys",
    METADATA,
    Column("id", String(64), primary_key=True, doc="records.key_id"),
    Column("digest", String(128), nullable=False, index=True),
    Column("target", String(200), nullable=False, doc="Target.name, for people"),
    Column("precision", String(16), nullable=False),
    Column("text", Text, nullable=False, doc="PlanKey"),
)

plans = Table(
    "plans",
    METADATA,
    Column("id", String(64), primary_key=True, doc="records.plan_id"),
    Column("text", Text, nullable=False, doc="Plan"),
)

runs = Table(
    "runs",
    METADATA,
    Column("id", String(80), primary_key=True),
    Column("graph", Text, nullable=False),
    Column("started", Double, nullable=False),
    Column("text", Text, nullable=False, doc="Run"),
)

graphs = Table(
    "graphs",
    METADATA,
    Column("run", String(80), primary_key=True),
    Column("name", Text, nullable=False),
    Column("text", Text, nullable=False, doc="GraphRecord"),
)

measurements = Table(
    "measurements",
    METADATA,
    Column("id", _ID, primary_key=True, autoincrement=True),
    Column("uid", String(64), nullable=False, unique=True, doc="hash of the content: one row, however often merged"),
    Column("key", String(64), ForeignKey("keys.id"), nullable=False),
    Column("plan", String(64), ForeignKey("plans.id")),
    Column("status", String(32), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("seconds", Double),
    Column("spread", Double),
    Column("cold", Double),
    Column("cold_spread", Double),
    Column("samples", Integer, nullable=False),
    Column("traffic", BigInteger),
    Column("predicted", Double),
    Column("assignment", Text, nullable=False),
    Column("trial", Integer, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("run", String(80), nullable=False, index=True),
    Column("elapsed", Double, nullable=False),
    Column("synthetic", Integer, nullable=False),
    Column("facts", Text, nullable=False),
    Column("message", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("origin", String(200), nullable=False),
    Index("measurements_by_key", "key", "status", "seconds"),
    sqlite_autoincrement=True,  # ids are never used twice, so one in a note stays the same row
)

choices = Table(
    "choices",
    METADATA,
    Column("key", String(64), ForeignKey("keys.id"), primary_key=True),
    Column("best", _ID, doc="measurement that lookups use unless one is pinned"),
    Column("chosen", _ID, doc="what the tuner confirmed at the end of a run"),
    Column("pinned", _ID, doc="what a user froze"),
)

checks = Table(
    "checks",
    METADATA,
    Column("key", String(64), primary_key=True, doc="key the plan was checked under, not the one it was found under"),
    Column("plan", String(64), primary_key=True),
    Column("passed", Integer, nullable=False),
    Column("message", Text, nullable=False),
    Column("created", Double, nullable=False),
)

Migration = Callable[[Connection], None]
MIGRATIONS: Mapping[int, Migration] = {}
"""From version v to v + 1."""


def create(connection: Connection) -> None:
    """Make all tables and write the version; the caller's transaction makes it all or nothing."""
    METADATA.create_all(connection)
    connection.execute(meta.insert().values(name="schema", value=str(SCHEMA)))


def migrate(connection: Connection, found: int, migrations: Mapping[int, Migration] = MIGRATIONS) -> None:
    """Bring tables of version `found` to the newest that `migrations` lead to."""
    while found in migrations:
        migrations[found](connection)
        found += 1
    connection.execute(meta.update().where(meta.c.name == "schema").values(value=str(found)))
