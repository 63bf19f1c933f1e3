"""Connections of the plan database: URLs, SQLite's settings, and its errors as one line for the user."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import platformdirs
import sqlalchemy as sa
from sqlalchemy.pool import NullPool, StaticPool

from ..graphs.errors import InputError, StitchtuneError

BUSY_SECONDS = 60.0
"""How long a writer waits for the others of an SQLite file; each holds it for milliseconds."""


MAX_CELL_BYTES = 16 << 20
"""Largest text that SQLite hands over: a hostile file cannot fill the memory."""


class DatabaseError(StitchtuneError):
    """The plan database cannot be used; the message names it and says what to do."""


class DatabaseWarning(UserWarning):
    """Something in the plan database was passed over; the work went on without it."""


def default_path() -> Path:
    """The database when the user names none: in the user's data folder (XDG on Linux)."""
    return Path(platformdirs.user_data_dir("stitchtune", appauthor=False)) / "plans.db"


def as_url(place: str | Path | None) -> sa.URL:
    """The URL of a database: None is the default one, a text without "://" a path of an SQLite file.

    Raises InputError for a URL of no form or database that there is.
    """
    if place is None or isinstance(place, Path) or "://" not in place:
        path = default_path() if place is None else Path(place).expanduser()
        return sa.URL.create("sqlite", database=str(path.absolute()))
    try:
        url = sa.make_url(place)
        # the driver of the extra `postgresql`, not the one that SQLAlchemy would take
        url = url.set(drivername="postgresql+psycopg") if url.drivername in ("postgresql", "postgres") else url
        url.get_dialect()
    except (sa.exc.ArgumentError, ValueError):  # the latter for a port that is no number
        raise InputError("not a database URL; give a file name or a URL such as sqlite:///plans.db") from None
    except ModuleNotFoundError:
        return url  # the driver is missed when it is wanted, by `one_line`
    return url


def shown(url: sa.URL) -> str:
    """A URL for messages: the path of an SQLite file, or the URL without its password."""
    if url.get_backend_name() == "sqlite" and url.database:
        return url.database
    return url.render_as_string(hide_password=True)


def is_file(url: sa.URL) -> bool:
    """True for an SQLite file: something that may not exist yet."""
    return url.get_backend_name() == "sqlite" and url.database not in (None, "", ":memory:")


def make_engine(url: sa.URL, *, create: bool) -> sa.Engine:
    """An engine on `url`. With `create` a missing SQLite file (and its folder) is made.

    No connection is kept between transactions, so that threads and forked processes never share one.
    """
    if url.get_backend_name() != "sqlite":
        return sa.create_engine(url, poolclass=NullPool)
    if not is_file(url):
        engine = sa.create_engine("sqlite://", poolclass=StaticPool)
    else:
        path = Path(str(url.database))
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        query = {"uri": "true", **_mode(path, create)}
        opened = sa.URL.create("sqlite", database=path.absolute().as_uri(), query=query)
        engine = sa.create_engine(opened, poolclass=NullPool, connect_args={"timeout": BUSY_SECONDS})
    sa.event.listen(engine, "connect", _configure)
    sa.event.listen(engine, "begin", _begin)
    return engine


def _mode(path: Path, create: bool) -> dict[str, str]:
    if create:
        return {"mode": "rwc"}
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return {"mode": "rw"}
    # WAL needs a writable folder for its index; without one only a file at rest can be read
    at_rest = not path.with_name(path.name + "-wal").exists()
    return {"mode": "ro", "immutable": "1"} if at_rest else {"mode": "ro"}


def _configure(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # transactions begin where `_begin` says, not at the first change
    connection.text_factory = _decode
    connection.execute("PRAGMA synchronous=FULL")  # a committed row outlives a power cut as well as kill -9
    connection.execute("PRAGMA trusted_schema=OFF")  # a file from elsewhere may hold triggers and views
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL_BYTES)


def _decode(raw: bytes) -> str:
    """Damaged text becomes a replacement character, so that one row is refused and not the whole query."""
    return raw.decode("utf-8", "replace")


def _begin(connection: sa.Connection) -> None:
    # A transaction that reads first and then writes cannot wait for another writer: take the lock at once.
    write = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def use_wal(engine: sa.Engine) -> None:
    """Put an SQLite file in WAL mode, which lets readers and a writer work side by side; it is kept in the file."""
    deadline = time.monotonic() + BUSY_SECONDS
    raw = engine.raw_connection()
    try:
        cursor = raw.cursor()
        while cursor.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
            try:
                cursor.execute("PRAGMA journal_mode=WAL")
            except sqlite3.OperationalError as error:  # SQLite does not wait here by itself
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
    finally:
        raw.close()


@contextlib.contextmanager
def one_line(url: sa.URL) -> Iterator[None]:
    """Turn what SQLAlchemy, the driver and the file system raise into a DatabaseError of one line."""
    try:
        yield
    except (sa.exc.SQLAlchemyError, sqlite3.Error, OSError) as error:
        cause = getattr(error, "orig", None) or error
        text = " ".join(str(cause).split())[:200]
        raise DatabaseError(f"plan database {shown(url)}: {text}{_mend(text)}") from error
    except ModuleNotFoundError as error:
        raise DatabaseError(
            f"plan database {shown(url)}: the driver {error.name} is not installed"
            + ("; pip install 'stitchtune[postgresql]'" if "psycopg" in str(error.name) else "")
        ) from error


def _mend(text: str) -> str:
    if "not a database" in text or "malformed" in text:
        return "; move the file away or give another one with --db"
    if "locked" in text:
        return "; another process has held it for a minute"
    if "readonly" in text or "unable to open" in text or "ermission" in text:
        return "; give one that can be written with --db"
    return ""
