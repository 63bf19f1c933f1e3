"""Which measured plan a key uses: the rules, kept up to date as rows arrive so that a lookup reads one row a key.

1. A plan with a fault under the key (or a failed check) after it was last measured right is out, pinned or not.
2. A pinned plan wins.
3. Else the local candidate is the one the tuner confirmed, or the fastest measured here.
4. An imported plan takes its place only where its own times are faster by more than both spreads, and only while the
   plan was never tried here: one try here says more than a number from elsewhere.
5. A measurement that was disturbed (the device was in use otherwise, its clocks moved) never takes the place of one
   that was not, whatever its time.
6. Predicted plans are used where nothing was measured, the best prediction first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..search_space import codec
from .records import DISTURBED, FAULTS


class Attempt(Protocol):
    """The columns of a measurement with a plan that the rules look at."""

    @property
    def id(self) -> int: ...
    @property
    def plan(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def seconds(self) -> float | None: ...
    @property
    def spread(self) -> float | None: ...
    @property
    def predicted(self) -> float | None: ...
    @property
    def origin(self) -> str: ...
    @property
    def facts(self) -> str: ...


def usable(attempts: Sequence[Attempt], failed: frozenset[str]) -> list[Attempt]:
    """Rule 1: the attempts of one key, oldest first, without those that came to nothing. `failed`: plans by check.

    A fault seen elsewhere counts against imported rows only: that machine may be broken.
    """
    faults: dict[tuple[str, bool], int] = {}
    for one in attempts:
        if one.status in FAULTS:
            faults[one.plan, one.origin == ""] = one.id
    return [
        one
        for one in attempts
        if one.status in ("ok", "predicted", "cut-off")
        and one.plan not in failed
        and faults.get((one.plan, True), 0) < one.id
        and (one.origin == "" or faults.get((one.plan, False), 0) < one.id)
    ]


def still(candidates: Sequence[Attempt], ident: int | None) -> int | None:
    """A row number that was chosen before, as long as it is a candidate."""
    return next((ident for one in candidates if one.id == ident), None)


def best(attempts: Sequence[Attempt], candidates: Sequence[Attempt], chosen: int | None) -> int | None:
    """Rules 3 to 6: the row number of the plan to use unless one is pinned; None when there is no plan."""
    timed = [one for one in candidates if one.status == "ok" and _seconds(one) > 0]
    timed = [one for one in timed if not _disturbed(one)] or timed
    tried = {one.plan for one in attempts if one.origin == "" and one.status != "predicted"}
    local = [one for one in timed if one.origin == ""]
    here = next((one for one in local if one.id == chosen), None) or min(local, key=_seconds, default=None)
    away = min((one for one in timed if one.origin and one.plan not in tried), key=_seconds, default=None)
    if here is not None and (away is None or _seconds(away) + _spread(away) >= _seconds(here) - _spread(here)):
        return here.id
    if away is not None:
        return away.id
    predicted = [one for one in candidates if one.status == "predicted" and _number(one.predicted) > 0]
    first = min(predicted, key=lambda one: _number(one.predicted), default=None)
    return None if first is None else first.id


def _disturbed(one: Attempt) -> bool:
    if f'"{DISTURBED}"' not in str(one.facts):  # nearly all, and reading JSON is slow
        return False
    try:
        pairs = codec.parse(one.facts)
    except codec.CodecError:
        return False
    return isinstance(pairs, list) and any(isinstance(p, list) and p[:1] == [DISTURBED] for p in pairs)


def _seconds(one: Attempt) -> float:
    return _number(one.seconds)


def _spread(one: Attempt) -> float:
    return _number(one.spread)


def _number(value: float | None) -> float:
    """A column of a damaged row may hold anything."""
    return value if isinstance(value, float | int) else 0.0
