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
    needs_check  run the plan once against the reference before use, then tell `remember_check`
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


def remember_check(db: Database, key: PlanKey, plan: Plan, passed: bool, message: str = "") -> None:
    """`Database.record_check` for a run of a graph: where the database cannot be written, a warning, and the check is
    made again next time.
    """
    from .engine import DatabaseError, DatabaseWarning

    try:
        db.record_check(key, plan, passed, message)
    except DatabaseError as error:
        warnings.warn(f"{error}; the check of a plan is not remembered", DatabaseWarning, stacklevel=2)


def find(db: Database, key: PlanKey, adapt: Adapt) -> Found:
    """The plan for one key; see `find_all`, which looks up many at the cost of one."""
    return find_all(db, [key], adapt)[0]


def find_all(db: Database, keys: Sequence[PlanKey], adapt: Adapt) -> list[Found]:
    """The plan for each key, in order. Warns (DatabaseWarning) instead of failing."""
    from .engine import DatabaseError, DatabaseWarning

    names = [key_id(key) for key in keys]
    try:
        raw, checks = db.in_use({key.digest for key in keys}, names)
    except DatabaseError as error:
        warnings.warn(f"{error}; going on without stored plans", DatabaseWarning, stacklevel=2)
        raw, checks = [], {}
    rows: dict[str, list[Any]] = {}
    for one in raw:
        rows.setdefault(one.digest, []).append(one)
    lookup = _Lookup(adapt, checks)
    found = [lookup.find(key, name, rows.get(key.digest, ())) for key, name in zip(keys, names, strict=True)]
    if lookup.troubles:
        first = next(iter(lookup.troubles))
        warnings.warn(
            f"{len(lookup.troubles)} damaged rows of {db.name} passed over (first: {first})",
            DatabaseWarning,
            stacklevel=2,
        )
    return found


@dataclass(frozen=True)
class _Row:
    """The plan in use of one key, not yet decoded."""

    key: PlanKey
    pinned: bool
    raw: Any


class _Lookup:
    """One call of `find_all`: what it decodes once, and the damage it meets."""

    def __init__(self, adapt: Adapt, checks: Mapping[tuple[str, str], bool]) -> None:
        self.adapt = adapt
        self.checks = checks
        self.checked = {name for name, _ in checks}
        self.troubles: dict[str, None] = {}

    def find(self, key: PlanKey, name: str, raw: Sequence[Any]) -> Found:
        """The answer for one key from the rows of its digest. Other keys are decoded only when its own has no plan."""
        own = [_Row(key, one.pinned is not None, one) for one in raw if one.key_id == name]
        for row in own:
            if (found := self._use(key, name, row, 0 if row.pinned else 1)) is not None:
                return found
        others = [self._decode(one) for one in raw if one.key_id != name]
        ranked = sorted(((_rank(key, other), other) for other in others if other is not None), key=lambda pair: pair[0])
        for (tier, *_), row in ranked:
            if tier < len(_ORDER) and (found := self._use(key, name, row, tier)) is not None:
                return found
        nearest = next(iter([*own, *(row for _, row in ranked)]), None)
        if nearest is None:
            return Found(None, "heuristic")
        return Found(None, "heuristic", differing_fields(key, nearest.key), nearest.key, nearest.raw.id)

    def _decode(self, raw: Any) -> _Row | None:
        try:
            return _Row(read_key(raw.key), raw.pinned is not None, raw)
        except CodecError as error:
            self.troubles[f"key of measurement {raw.id}: {error}"] = None
            return None

    def _use(self, key: PlanKey, name: str, row: _Row, tier: int) -> Found | None:
        """The plan of a row for `key`, or None when it is damaged, does not fit or failed its check."""
        try:
            plan = self.adapt(key, read_plan(row.raw.plan), row.key)
        except CodecError as error:
            self.troubles[f"plan of measurement {row.raw.id}: {error}"] = None
            return None
        if plan is None:
            return None
        passed = self.checks.get((name, plan_id(plan))) if name in self.checked else None
        if passed is False:
            return None
        seconds = row.raw.seconds
        return Found(
            plan,
            _ORDER[tier],
            differing_fields(key, row.key),
            row.key,
            row.raw.id,
            seconds if isinstance(seconds, float) else None,
            needs_check=(tier > 1 or row.raw.origin != "" or row.raw.status == "predicted") and passed is None,
            predicted=row.raw.status == "predicted",
        )


_USABLE = frozenset({"compiler", "generator", "alignment"})
"""Fields of the same shape under another version."""


def _rank(key: PlanKey, row: _Row) -> tuple[int, float, int, bool, int]:
    """Sorts the rows of a structure by how near they are: tier, distance of extents, differing fields, age."""
    differs = set(differing_fields(key, row.key))
    distance = shape_distance(key.extents, row.key.extents)
    same_rules = key.precision == row.key.precision and key.aliasing == row.key.aliasing
    if differs <= _USABLE:
        tier = 2
    elif same_rules and key.target == row.key.target and math.isfinite(distance):
        tier = 3
    elif same_rules and key.target.kind == row.key.target.kind and distance == 0:
        tier = 4
    else:
        tier = 5
    return tier, distance, len(differs), row.raw.status == "predicted", -row.raw.id


def shape_distance(a: tuple[int, ...], b: tuple[int, ...]) -> float:
    """Sum over axes of |log(a / b)|, sizes counted from 1 so that empty axes have a place; infinite for other ranks."""
    if len(a) != len(b):
        return math.inf
    return sum(abs(math.log((x + 1) / (y + 1))) for x, y in zip(a, b, strict=True))
