"""Where the threads of a block must wait for one another, derived from who touches what in each stage.

A stage waits for earlier ones when it touches memory that they touched too, one of both wrote it, and not every
element was the same thread's. Within one warp a warp's sync is enough. Folds across warps sync inside their stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal as OneOf

from ...loops import Array, For, If, Literal, Stmt, Sync
from .access import Access

Need = OneOf["", "warp", "block"]


@dataclass
class _Pending:
    """What has been touched since the block's last sync; `warp`: a warp's sync came after it."""

    access: Access
    warp: bool = False


def synchronise(
    stages: Sequence[tuple[Stmt, ...]], accesses: Sequence[Sequence[Access]], arrays: Sequence[Array], again: bool
) -> tuple[Stmt, ...]:
    """The stages of one task with syncs between them; `again`: the block may run another task afterwards."""
    blocks = {a.name: a for a in arrays}
    pending: list[_Pending] = []
    body: list[Stmt] = []
    for statements, touched in zip(stages, accesses, strict=True):
        need = _need(pending, touched, blocks)
        if need:
            body.append(Sync(need))
        if need == "block" or _always_syncs(statements):
            pending = []
        elif need == "warp":
            pending = [_Pending(p.access, True) for p in pending]
        body += statements
        pending += [_Pending(a) for a in touched]
    if again and (any(p.access.array in blocks for p in pending) or arrays):
        body.append(Sync("block"))
    return tuple(body)


def _need(pending: Sequence[_Pending], touched: Sequence[Access], blocks: dict[str, Array]) -> Need:
    need: Need = ""
    for before in pending:
        for now in touched:
            if not (before.access.write or now.write):
                continue
            if before.access.array == now.array:
                if before.access.stays_in_thread(now):
                    continue
                if before.access.stays_in_warp(now):
                    need = need or ("" if before.warp else "warp")
                    continue
                return "block"
            if _overlap(blocks.get(before.access.array), blocks.get(now.array)):
                return "block"
    return need


def _overlap(a: Array | None, b: Array | None) -> bool:
    """True when two arrays of block memory share bytes."""
    if a is None or b is None or a.alone or b.alone:
        return False
    ends = []
    for array in (a, b):
        if not isinstance(array.start, Literal) or not isinstance(array.elements, Literal):
            return True
        start = int(array.start.value)
        ends.append((start, start + int(array.elements.value) * array.dtype.size))
    (first, first_end), (second, second_end) = ends
    return first < second_end and second < first_end


def _always_syncs(body: Sequence[Stmt]) -> bool:
    """True when every thread passes a sync of the block."""
    for statement in body:
        if isinstance(statement, Sync) and statement.scope == "block":
            return True
        if isinstance(statement, For | If) and _always_runs(statement) and _always_syncs(statement.body):
            return True
    return False


def _always_runs(statement: For | If) -> bool:
    if isinstance(statement, If):
        return isinstance(statement.condition, Literal) and bool(statement.condition.value)
    start, stop = statement.start, statement.stop
    return isinstance(start, Literal) and isinstance(stop, Literal) and int(start.value) < int(stop.value)
