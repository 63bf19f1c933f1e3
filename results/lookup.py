"""The plan cache: from the keys of a graph's subgraphs to the plans the database knows for them.

For each key, the first that holds:

1. pinned          the plan a user froze for exactly this key
2. exact           the best plan of exactly this key
3. other version   same shape, under other compiler or generator versions
4. nearest shape   same structure on the same target, at the nearest extents
5. other target    same structure and shape on a target of the same kind (another machine's database)
6. heuristic       nothing usable: the caller makes the heuristic plan

All keys are looked up by two queries. A lookup never fails: a database that is missing, damaged, newer or out of
reach, and every damaged row, is a miss and a warning.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from ..search_space.codec import CodecError
from ..search_space.plan import Plan
from .records import PlanKey, differing_fields, key_id, plan_id
from .rows import read_key, read_plan

if TYPE_CHECKING:
    from .database import Database

How = Literal["pinned", "exact", "other version", "nearest shape", "other target", "heuristic"]
_ORDER: tuple[How, ...] = ("pinned", "exact", "other version", "nearest shape", "other target")

Adapt = Callable[[PlanKey, Plan, PlanKey], Plan | None]
"""(wanted key, plan found, key it was found under) -> a plan legal for the wanted key, or None.

Called for every plan before it is handed out, exact ones too: a row is data that anybody may have written."""


@dataclass(frozen=True)
class Found:
    """What a lookup gives for one key.

    plan         the adapted plan, None: use the heuristic
    differs      fields in which the key of the row used differs from the wanted one; on a miss, those of the nearest
                 row, () when the database knows nothing of this structure
    source       key of that row; measurement: its number; seconds: the time measured under that key
    needs_check  run the plan once against the reference before use, then tell `Database.record_check`
    predicted    the plan was never measured
    """

    plan: Plan | None
    how: How
    differs: tuple[str, ...] = ()
    source: PlanKey | None = None
    measurement: int | None = None
    seconds: float | None = None
    needs_check: bool = False
    predicted: bool = False

    @property
    def why(self) -> str:
        """One line for people: where the plan comes from, or what the nearest row lacks."""
        if self.plan is not None:
            text = f"{self.how}, measurement {self.measurement}" + (", predicted" if self.predicted else "")
            return text + (f"; differs in {', '.join(self.differs)}" if self.differs else "")
        if self.source is None:
            return "heuristic: no plan for this structure in the database"
        if not self.differs:
            return f"heuristic: no legal plan, measurement {self.measurement} under this very key included"
        return f"heuristic: the nearest plan (measurement {self.measurement}) differs in {', '.join(self.differs)}"


@dataclass(frozen=True)
class _Row:
    """The plan in use of one key, not yet decoded."""

    key: PlanKey
    measurement: int
    pinned: bool
    status: str
    origin: str
    seconds: float | None
    plan_text: Any


def find(db: Database, key: PlanKey, adapt: Adapt) -> Found:
    """The plan for one key; see `find_all`, which looks up many at the cost of one."""
    return find_all(db, [key], adapt)[0]


def find_all(db: Database, keys: Sequence[PlanKey], adapt: Adapt) -> list[Found]:
    """The plan for each key, in order. Warns (DatabaseWarning) instead of failing."""
    from .engine import DatabaseError, DatabaseWarning

    troubles: list[str] = []
    try:
        rows, checks = _query(db, keys, troubles)
    except DatabaseError as error:
        warnings.warn(f"{error}; going on without stored plans", DatabaseWarning, stacklevel=2)
        rows, checks = {}, {}
    found = [_choose(key, rows.get(key.digest, ()), checks, adapt, troubles) for key in keys]
    if troubles:
        distinct = list(dict.fromkeys(troubles))
        warnings.warn(
            f"{len(distinct)} damaged rows of {db.name} passed over (first: {distinct[0]})",
            DatabaseWarning,
            stacklevel=2,
        )
    return found


def _query(
    db: Database, keys: Sequence[PlanKey], troubles: list[str]
) -> tuple[dict[str, list[_Row]], dict[tuple[str, str], bool]]:
    """The rows in use of every key with one of the digests, by digest; and the checks made under the wanted keys."""
    raw, checks = db.in_use({key.digest for key in keys}, map(key_id, keys))
    found: dict[str, list[_Row]] = {}
    for one in raw:
        try:
            key = read_key(one.key)
        except CodecError as error:
            troubles.append(f"key of measurement {one.id}: {error}")
            continue
        seconds = one.seconds if isinstance(one.seconds, float) else None
        row = _Row(key, one.id, one.pinned is not None, one.status, str(one.origin), seconds, one.plan)
        found.setdefault(one.digest, []).append(row)
    return found, checks


def _choose(
    key: PlanKey,
    rows: Sequence[_Row],
    checks: Mapping[tuple[str, str], bool],
    adapt: Adapt,
    troubles: list[str],
) -> Found:
    ranked = sorted(((_rank(key, row), row) for row in rows), key=lambda pair: pair[0])
    name = key_id(key) if ranked else ""
    for (tier, *_), row in ranked:
        if tier >= len(_ORDER):
            break
        try:
            plan = adapt(key, read_plan(row.plan_text), row.key)
        except CodecError as error:
            troubles.append(f"plan of measurement {row.measurement}: {error}")
            continue
        if plan is None:
            continue
        foreign = row.key != key or row.origin != ""
        passed = checks.get((name, plan_id(plan))) if foreign or checks else None
        if passed is False:
            continue
        differs = differing_fields(key, row.key)
        return Found(
            plan,
            _ORDER[tier],
            differs,
            row.key,
            row.measurement,
            row.seconds,
            needs_check=foreign and passed is None,
            predicted=row.status == "predicted",
        )
    if not ranked:
        return Found(None, "heuristic")
    nearest = ranked[0][1]
    return Found(None, "heuristic", differing_fields(key, nearest.key), nearest.key, nearest.measurement)


_USABLE = frozenset({"compiler", "generator", "alignment"})
"""Fields of the same shape under another version."""


def _rank(key: PlanKey, row: _Row) -> tuple[int, float, int, bool, int]:
    """Sorts the rows of a structure by how near they are: tier, distance of extents, differing fields, age."""
    differs = set(differing_fields(key, row.key))
    distance = shape_distance(key.extents, row.key.extents)
    same_rules = key.precision == row.key.precision and key.aliasing == row.key.aliasing
    if not differs:
        tier = 0 if row.pinned else 1
    elif differs <= _USABLE:
        tier = 2
    elif same_rules and key.target == row.key.target and math.isfinite(distance):
        tier = 3
    elif same_rules and key.target.kind == row.key.target.kind and distance == 0:
        tier = 4
    else:
        tier = 5
    return tier, distance, len(differs), row.status == "predicted", -row.measurement


def shape_distance(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    """Sum over axes of |log(a / b)|, sizes counted from 1 so that empty axes have a place; infinite for other ranks."""
    if len(a) != len(b):
        return math.inf
    return sum(abs(math.log((x + 1) / (y + 1))) for x, y in zip(a, b, strict=True))
