"""Plans between machines: a portable file of plans, merging of whole databases, and pruning.

The file is JSON lines. The first is a header, each other one row with a checksum of its canonical text:

    {"stitchtune-plans": 1, "rows": 2, "source": "lab-3"}
    {"row": "structure", "sum": "9f86d0...", "data": {"digest": ..., "subgraph": ...}}
    {"row": "measurement", "sum": "60303a...", "data": {...}}

A file is a stranger's: rows that are damaged, too large, of a newer schema or with odd names are skipped and counted
by reason, and nothing that a row says is run. What an imported row may do is decided in choice.py: it never replaces a
plan measured here that is as fast, and lookups ask for a check of it before its first use.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from ..graphs.digest import structural_digest
from ..graphs.errors import InputError, VerifyError
from ..graphs.subgraph import Subgraph
from ..graphs.verify_subgraph import verify_subgraph
from ..search_space import codec
from .database import Database
from .records import Measurement, PlanKey
from .rows import settle

FORMAT = 1
"""Version of the file; a newer one is refused as a whole."""
MAX_LINE = 2 << 20
MAX_ROWS = 1_000_000
_BATCH = 200

_NAME = re.compile(r"[\w.:+-]{0,80}")
_DIGEST = re.compile(r"[0-9a-f]{8,128}")


@dataclass(frozen=True)
class Imported:
    """What an import did.

    added    measurements that are new here; known: those that were here already
    used     keys whose lookups now give an imported plan
    skipped  (reason, count) of rows passed over, commonest first
    """

    added: int = 0
    known: int = 0
    used: int = 0
    skipped: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class _Structure:
    digest: str
    subgraph: Subgraph


@dataclass(frozen=True)
class _Header:
    rows: int
    source: str = ""


@dataclass
class _Reader:
    """Rows of a file as they pass, and why others did not."""

    skipped: Counter[str] = field(default_factory=Counter)

    def rows(self, file: BinaryIO) -> Iterator[Measurement | _Structure]:
        for number, line in enumerate(_lines(file), 1):
            if number > MAX_ROWS:
                raise InputError(f"{file.name}: more than {MAX_ROWS} rows; split the file")
            if line is None:
                self.skipped["too large"] += 1
                continue
            try:
                yield _row(line)
            except codec.NewerSchema:
                self.skipped["written by a newer version"] += 1
            except codec.CodecError as error:
                self.skipped[error.reason if error.reason in _REASONS else "not in the form of a plan"] += 1


_REASONS = frozenset({"checksum does not match", "odd name", "inconsistent subgraph"})


def export_plans(
    db: Database, path: Path, keys: Iterable[PlanKey] | None = None, *, everything: bool = False, source: str = ""
) -> int:
    """Write the plan in use of each key (all, or those given), its unfused baseline, and what is needed to replay them.

    `everything` takes every measurement of the keys, failures too. `source` names this machine for whoever imports the
    file. Returns the number of measurements written; the file appears whole or not at all. Raises InputError when it
    cannot be written.
    """
    wanted = None if keys is None else set(keys)
    held = [s for s in db.measurements() if wanted is None or s.measurement.key in wanted]
    if everything:
        chosen = [s.measurement for s in held]
    else:
        in_use = db.in_use_ids()
        baseline: dict[PlanKey, Measurement] = {}
        for stored in held:
            one = stored.measurement
            if one.ok and one.kind == "unfused" and one.origin == "" and stored.id not in in_use:
                baseline[one.key] = one
        chosen = [s.measurement for s in held if s.id in in_use]
        chosen += [m for m in baseline.values() if any(m.key == c.key for c in chosen)]
    structures = db.structures({m.key.digest for m in chosen})
    lines = [_line("structure", _Structure(d, sub)) for d, sub in sorted(structures.items(), key=lambda item: item[0])]
    lines += [_line("measurement", replace(m, origin="")) for m in chosen]
    head = codec.to_json(_Header(len(lines), _clean(source)))
    _write(path, [codec.text_of({"stitchtune-plans": FORMAT, **head}), *lines])
    return len(chosen)


def import_plans(db: Database, path: Path) -> Imported:
    """Take in a file that `export_plans` wrote. Raises InputError when it is none, or newer than this version."""
    before = db.in_use_ids()
    added = known = 0
    reader = _Reader()
    try:
        with path.open("rb") as file:
            header = _header(file, path)
            origin = _clean(header.source) or _clean(path.name) or "imported"
            for batch in _batches(reader.rows(file)):
                new, old = _take(db, batch, origin, reader.skipped)
                added, known = added + new, known + old
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    return Imported(added, known, len(db.in_use_ids() - before), _counted(reader.skipped))


def merge(db: Database, other: Database, origin: str = "") -> Imported:
    """Take in everything of another database: measurements, structures, devices, runs and graphs.

    What is here already stays as it is. Damaged rows of `other` are passed over with a warning.
    """
    before = db.in_use_ids()
    label = _clean(origin) or _clean(Path(other.name).name) or "imported"
    found: list[Measurement | _Structure] = [_Structure(d, sub) for d, sub in other.structures().items()]
    found += [s.measurement for s in other.measurements()]
    added = known = 0
    skipped: Counter[str] = Counter()
    passed: list[Measurement | _Structure] = []
    for one in found:
        try:
            passed.append(_checked(one))
        except codec.CodecError as error:
            skipped[error.reason] += 1
    for batch in _batches(passed):
        new, old = _take(db, batch, label, skipped)
        added, known = added + new, known + old
    here = {model.target for model in db.devices()}
    for model in other.devices():
        if model.target not in here:
            db.save_device(model)
    runs = {run.id for run in db.runs()}
    for run in other.runs():
        if run.id not in runs:
            db.save_run(run)
    graphs = {graph.run for graph in db.graphs()}
    for graph in other.graphs():
        if graph.run not in graphs:
            db.save_graph(graph)
    return Imported(added, known, len(db.in_use_ids() - before), _counted(skipped))


@dataclass(frozen=True)
class Pruned:
    """Rows that `prune` removed."""

    measurements: int
    damaged: int


def prune(db: Database, *, generator: str | None = None, days: float | None = None) -> Pruned:
    """Remove damaged measurements, and those no longer needed: made by another generator version than `generator`, or
    more than `days` old. Plans in use, confirmed or pinned stay, as do the unfused baselines beside them.
    """
    kept, damaged = db.scan()
    held = db.in_use_ids(held=True)
    used_keys = {s.measurement.key for s in kept if s.id in held}
    oldest = -1.0 if days is None else time.time() - days * 86400
    stale = [
        s.id
        for s in kept
        if s.id not in held
        and not (s.measurement.kind == "unfused" and s.measurement.ok and s.measurement.key in used_keys)
        and ((generator is not None and s.measurement.key.generator != generator) or s.measurement.created < oldest)
    ]
    db.delete([*stale, *damaged])
    return Pruned(len(stale), len(damaged))


def _take(
    db: Database, batch: Sequence[Measurement | _Structure], origin: str, skipped: Counter[str]
) -> tuple[int, int]:
    """Store a batch: the numbers of measurements added and known."""
    for one in batch:
        if isinstance(one, _Structure):
            db.save_structure(one.digest, one.subgraph)
    rows = [replace(one, origin=origin) for one in batch if isinstance(one, Measurement)]
    known = db.structures({row.key.digest for row in rows})
    sizes = {(row.key.digest, row.key.extents, row.key.slots) for row in rows}
    odd = {one for one in sizes if one[0] in known and not _possible(known[one[0]], one[1], one[2])}
    kept = [row for row in rows if (row.key.digest, row.key.extents, row.key.slots) not in odd]
    skipped["impossible sizes"] += len(rows) - len(kept)
    distinct = list(dict.fromkeys(kept))
    fresh = [row for row, old in zip(distinct, db.known(distinct), strict=True) if not old]
    if fresh:
        db.record_all(fresh)
    return len(fresh), len(kept) - len(fresh)


def _counted(skipped: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple((reason, count) for reason, count in skipped.most_common() if count)


def _possible(sub: Subgraph, extents: tuple[int, ...], slots: tuple[int, ...]) -> bool:
    """False for sizes that a structure cannot have."""
    if (len(extents), len(slots)) != (len(sub.extents), len(sub.slots)):
        return False
    try:
        verify_subgraph(sub.resized(extents, slots))
    except VerifyError:
        return False
    return True


def _batches(rows: Iterable[Measurement | _Structure]) -> Iterator[list[Measurement | _Structure]]:
    batch: list[Measurement | _Structure] = []
    for row in rows:
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


# --- the file


def _line(kind: str, value: Measurement | _Structure) -> str:
    data = codec.to_json(value)
    return codec.text_of({"row": kind, "sum": _sum(codec.text_of(data)), "data": data})


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _write(path: Path, lines: Sequence[str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / "plans"
            made.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
            os.replace(made, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def _lines(file: BinaryIO) -> Iterator[bytes | None]:
    """Lines without reading more than `MAX_LINE` at a time; None stands for one that is longer."""
    while line := file.readline(MAX_LINE + 1):
        if len(line) <= MAX_LINE:
            if line.strip():
                yield line
            continue
        while line and not line.endswith(b"\n"):
            line = file.readline(MAX_LINE + 1)
        yield None


def _header(file: BinaryIO, path: Path) -> _Header:
    refusal = InputError(f"{path} is not a file of plans; `plans export` writes one")
    try:
        data = codec.parse(file.readline(4096), 4096)
    except codec.CodecError:
        raise refusal from None
    version = data.pop("stitchtune-plans", None) if isinstance(data, dict) else None
    if type(version) is not int:
        raise refusal
    if version > FORMAT:
        raise InputError(f"{path} has format {version}, newer than {FORMAT}: upgrade stitchtune to import it")
    try:
        return codec.from_json(_Header, data)
    except codec.CodecError:
        raise refusal from None


def _row(line: bytes) -> Measurement | _Structure:
    """The value of a line. Raises CodecError."""
    outer = codec.parse(line, MAX_LINE)
    if not isinstance(outer, dict) or outer.keys() != {"row", "sum", "data"}:
        raise codec.CodecError("not a row")
    if outer["sum"] != _sum(codec.text_of(outer["data"])):
        raise codec.CodecError("checksum does not match")
    if outer["row"] == "structure":
        return _checked(codec.from_json(_Structure, outer["data"]))
    if outer["row"] == "measurement":
        return _checked(codec.from_json(Measurement, outer["data"]))
    raise codec.CodecError("unknown kind of row")


def _checked(row: Measurement | _Structure) -> Measurement | _Structure:
    """The row, its names harmless in file names, terminals and pages. Raises CodecError."""
    digest = row.digest if isinstance(row, _Structure) else row.key.digest
    if not _DIGEST.fullmatch(digest):
        raise codec.CodecError("odd name")
    if isinstance(row, _Structure):
        try:
            verify_subgraph(row.subgraph)
        except VerifyError:
            raise codec.CodecError("inconsistent subgraph") from None
        if structural_digest(row.subgraph) != digest:
            raise codec.CodecError("inconsistent subgraph")
        return row
    target, key = row.key.target, row.key
    texts = (target.kind, target.name, target.arch, key.generator, row.run)
    if not all(_NAME.fullmatch(text) for text in texts) or not key.compiler.isprintable() or len(key.compiler) > 300:
        raise codec.CodecError("odd name")
    if any(e < 0 for e in key.extents):
        raise codec.CodecError("negative extent")
    if row.created <= 0:
        raise codec.CodecError("a measurement without a date")
    message = "".join(c if c.isprintable() else " " for c in row.message)
    try:
        return settle(replace(row, message=message))
    except ValueError as error:
        raise codec.CodecError(str(error)) from None


def _clean(text: str) -> str:
    """A name with nothing in it that a path, a terminal or a page could take for more."""
    return re.sub(r"[^\w.+-]+", "-", text).strip(".-")[:80]
