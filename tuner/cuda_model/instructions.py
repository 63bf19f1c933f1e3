"""Instructions and registers that a CUDA plan's threads need, from plan and subgraph alone.

Counts per operator are of what NVRTC 13 makes of our device functions for sm_90 without fast math (PTX without moves;
division, root and reciprocal as the assembler expands them). They matter only where arithmetic is no longer hidden
behind memory, so nothing here is finer than an instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...graphs.dtypes import DType
from ...graphs.primitives import PRIMITIVES
from ...graphs.subgraph import FloorDiv, Index, Lookup, Mod, Subgraph, Sum, axes_of
from ...search_space.access import Access
from ...search_space.loading import loaded_axes
from ...search_space.plan import Group
from ..view import View
from .lanes import Shares

COUNTS: dict[str, tuple[float, float]] = {
    "exp": (10, 1),
    "log": (28, 0),
    "log1p": (29, 0),
    "expm1": (29, 1),
    "tanh": (17, 2),
    "erf": (27, 1),
    "sqrt": (9, 1),
    "recip": (9, 1),
    "div": (10, 1),
    "sin": (25, 0),
    "cos": (25, 0),
    "tan": (45, 1),
    "atan": (21, 1),
    "pow": (60, 1),
    "fmod": (40, 1),
    "mod": (42, 1),
    "maximum": (3, 0),
    "minimum": (3, 0),
    "max": (3, 0),
    "min": (3, 0),
    "argmax": (5, 0),
    "argmin": (5, 0),
}
"""Instructions and special functions of an operator on one element; others: the primitive's cost."""

ACCESS, LOOP, LOOKUP = 2.0, 3.0, 6.0
"""Instructions of a request with its address, of a loop's step, of an index that is looked up or divided."""

ROUNDING = 2.0
"""Instructions that round a result to half precision and widen it again."""

COUPLED: dict[str, tuple[float, float]] = {"max": (18, 1), "sum": (30, 1)}
"""Instructions and special functions that a coupled reduction adds to each element, by the first of its pair: the
exponential that rescales; Welford's division, and what keeps the mean exact."""

UNROLLED, LONG_BODY = 4, 64
"""Steps of an innermost loop that the compiler unrolls without being told (seen in CUDA 13's PTX); half as many when an
element's instructions times the width are more."""

BASE_REGISTERS, OVERLAPPED = 20, 2.0
"""Registers of any kernel, and steps whose loads are in registers at a time: most kernels of the suite's heuristics
then come within 16 registers of what NVRTC 13 makes of them for sm_90."""


@dataclass(frozen=True)
class Instructions:
    """Of one thread in one task: instructions, and special functions among them."""

    total: float = 0.0
    special: float = 0.0


def instructions(view: View, shares: Shares) -> Instructions:
    """What a thread with work executes for a stage in one task."""
    stage, total, special = shares.stage, 0.0, 0.0
    done: set[tuple[int, tuple[Index, ...]]] = set()
    for root in stage.values:
        value = view.sub.values[root]
        if value.op == "input":
            continue
        counted = _operator(view.sub, shares, root, frozenset(value.domain))
        total, special = total + counted[0], special + counted[1]
        if root in view.beside:
            more = COUPLED[view.sub.values[view.beside[root]].op]
            points = _points(shares, frozenset(value.domain))
            total, special = total + more[0] * points, special + more[1] * points
        for access, _, share in weighed(view, shares, root):
            source = view.sub.values[access.value]
            if source.op == "const" or (access.value, access.index) in done:
                continue
            done.add((access.value, access.index))
            runs = shares.runs(access.axes & frozenset(stage.order))
            if any(_is_irregular(i) for i in access.index):
                total += LOOKUP * runs * share
            if source.dtype.is_low_precision:
                total += _points(shares, access.axes) * share
            if view.inlined(access.value, access.reader) and source.op != "input":
                counted = _operator(view.sub, shares, access.value, access.axes)
                total, special = total + counted[0] * share, special + counted[1] * share
    total += LOOP * shares.runs(frozenset(stage.order)) / shares.overlap
    return Instructions(total, special)


def weighed(view: View, shares: Shares, root: int) -> Iterator[tuple[Access, float, float]]:
    """Every access of a root with the share of points at which it happens, and at which warps execute it.

    Pieces of a concat take a part each. Where threads of a warp take different pieces, it executes all of them.
    """
    parts: dict[int, tuple[float, float]] = {root: (1.0, 1.0)}
    for access in view.walk(root):
        reader = view.sub.values[access.reader]
        share, executed = parts.get(access.reader, (1.0, 1.0))
        if reader.op == "piecewise" and any(r.value == access.value for r in reader.reads):
            share /= len(reader.reads)
            if not any(axes_of(b.index) & shares.lanes.keys() for r in reader.reads for b in r.where):
                executed /= len(reader.reads)
        before = parts.get(access.value, (0.0, 0.0))
        parts[access.value] = (max(share, before[0]), max(executed, before[1]))
        yield access, share, executed


def _points(shares: Shares, axes: frozenset[int]) -> float:
    """Elements that a thread evaluates of something that depends on `axes`."""
    width = shares.stage.width if shares.stage.vector in axes else 1
    return shares.runs(axes & frozenset(shares.stage.order)) * width


def _operator(sub: Subgraph, shares: Shares, number: int, axes: frozenset[int]) -> tuple[float, float]:
    value = sub.values[number]
    count, special = COUNTS.get(value.op, (float(PRIMITIVES[value.op].cost) if value.op in PRIMITIVES else 1.0, 0.0))
    if value.op == "piecewise":
        count = 3.0 * len(value.reads)
    wide = 2.0 if value.dtype in (DType.F64, DType.I64) else 1.0
    rounded = ROUNDING if value.dtype.is_low_precision else 0.0
    points = _points(shares, axes)
    return (count * wide + rounded) * points, special * wide * points


def _is_irregular(index: Index) -> bool:
    match index:
        case Sum(terms):
            return any(_is_irregular(t) for _, t in terms)
        case FloorDiv() | Mod() | Lookup():
            return True
        case _:
            return False


def own_axes(view: View, value: int) -> tuple[int, ...]:
    """Axes of a value in loops: an input is loaded along those of its readers."""
    source = view.sub.values[value]
    return (loaded_axes(view.sub, view.plan, value) or source.axes) if source.is_input else source.axes


def shares_of(view: View, group: Group) -> list[Shares]:
    """The stages of a group, each with what is in registers around it and how much of it overlaps."""
    reads = [
        {
            a.value
            for root in stage.values
            for a in view.walk(root)
            if view.places.get((a.value, a.reader)) in ("register", "shuffle")
        }
        - set(stage.values)
        - set(stage.combine)
        for stage in group.stages
    ]
    listed = [{*s.values, *s.combine} for s in group.stages]
    found = []
    for number, stage in enumerate(group.stages):
        made = set().union(*listed[:number])
        here, later = reads[number], set().union(*reads[number + 1 :])
        before, after = made & (here | later), (made | listed[number]) & later
        shares = Shares(view.sub, group, stage, frozenset(before), frozenset(after))
        found.append(replace(shares, overlap=_overlap(view, shares, here | (listed[number] & later))))
    return found


def _overlap(view: View, shares: Shares, held: set[int]) -> float:
    """Steps of a thread that overlap: unrolled by the plan, by a register array, or by the compiler on its own.

    `held` are values that the stage leaves to another, or gets from one, in registers.
    """
    stage = shares.stage
    steps = {a: shares.steps(a) for a in stage.order}
    factors = dict(stage.unroll)
    kept = {a for value in held for a in own_axes(view, value)}
    overlapped = 1.0
    for axis in stage.order:
        overlapped *= steps[axis] if axis in kept else min(steps[axis], factors.get(axis, 1))
    inner = next((a for a in reversed(stage.order) if steps[a] > 1), None)
    if inner is not None and inner not in factors and inner not in kept:
        overlapped *= min(_unrolled(view, shares), steps[inner])
    return max(1.0, overlapped)


def _unrolled(view: View, shares: Shares) -> int:
    """Steps that the compiler unrolls of a loop that the plan says nothing of: fewer when its body is long."""
    ops = {a.value for root in shares.stage.values for a in view.walk(root)}
    body = shares.stage.width * sum(
        COUNTS.get(view.sub.values[v].op, (1.0, 0.0))[0] for v in ops | set(shares.stage.values)
    )
    return UNROLLED if body <= LONG_BODY else UNROLLED // 2


@dataclass(frozen=True)
class Registers:
    """Of one thread: what a plan keeps, with addresses and counters, and what only overlaps loads."""

    kept: float
    spare: float


def registers(view: View, shares: Shares) -> Registers:
    """Registers that a stage needs, before anything is compiled.

    An element that is read for the last time leaves its register to the one made from it.
    """
    stage, sub = shares.stage, view.sub
    arrays = max(
        sum(_points(shares, frozenset(own_axes(view, v))) * _words(sub, v) for v in live)
        for live in (shares.before, shares.after)
    )
    reads = {
        a.value
        for root in stage.values
        for a in view.walk(root)
        if view.places.get((a.value, a.reader), "far") in ("far", "global", "block")
        and sub.values[a.value].op != "const"
    }
    overlapped = min(OVERLAPPED, shares.overlap)
    flight = sum(stage.width * overlapped * _words(sub, v) for v in reads)
    reduced = [v for v in stage.values if sub.values[v].reduce]
    accumulators = sum(stage.width * view.plan.reduction(v).accumulators * _words(sub, v) for v in reduced)
    return Registers(BASE_REGISTERS + 2 * len(reads) + arrays, flight + accumulators)


def _words(sub: Subgraph, value: int) -> int:
    return max(1, sub.values[value].dtype.size // 4)
