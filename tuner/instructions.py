"""What the tasks of a group compute: processor seconds from operators, irregular addresses and loop starts.

Rates come from the device model; how a compiler handles the end of a vector loop, and how long a reduction waits for
itself, are the two things that rates alone do not tell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..graphs.subgraph import FloorDiv, Index, Lookup, Mod, Sum
from ..search_space.access import walk
from ..search_space.plan import Stage
from .view import View, unit_axis


def instructions(view: View, stage: Stage, sizes: Mapping[int, float], tiles: Mapping[int, int]) -> tuple[float, float]:
    """Processor seconds of a stage in one task: operators, irregular loads, dependent accumulation, loop starts."""
    seconds = 0.0
    for root in stage.values:
        value = view.sub.values[root]
        seconds += _operator(view, stage, sizes, tiles, root, frozenset(value.domain))
        done: set[tuple[int, tuple[Index, ...]]] = set()
        for access in walk(view.sub, root, view.inlined):
            source = view.sub.values[access.value]
            if view.inlined(access.value, access.reader) and source.op not in ("input", "const"):
                if (access.value, access.index) not in done:
                    done.add((access.value, access.index))
                    seconds += _operator(view, stage, sizes, tiles, access.value, access.axes)
            elif source.op != "const" and stage.vector in access.axes:
                unit = unit_axis(access.index[-1]) if access.index else -1
                count = _executions(stage, sizes, access.axes)
                irregular = unit != stage.vector or any(_is_irregular(i) for i in access.index)
                seconds += count / view.rate("gather") if irregular else 0.5 * count / view.rate("add")
        if root in view.kept and stage.vector in value.axes and stage.vector != value.axes[-1]:
            seconds += 2 * _executions(stage, sizes, frozenset(value.axes)) / view.rate("gather")
    innermost = math.prod(sizes[a] for a in stage.order[:-1])
    return seconds, innermost / view.rate("loop")


def _vector_steps(extent: int, width: int, native: int) -> float:
    """Native vector operations that a loop of `extent` elements takes; the rest runs in halves, quarters and singly."""
    full = extent // width * width
    rest = extent - full
    steps = full / native * (1.0 if width >= native else 1.1)
    lanes = native
    while lanes > 4 and rest > 0:
        steps += rest // lanes
        rest -= rest // lanes * lanes
        lanes //= 2
    return steps + rest


def _is_irregular(index: Index) -> bool:
    """True for what is not a sum of axes: lookups and divisions need an address per element."""
    match index:
        case Sum(terms):
            return any(_is_irregular(t) for _, t in terms)
        case FloorDiv() | Mod() | Lookup():
            return True
        case _:
            return False


def _executions(stage: Stage, sizes: Mapping[int, float], axes: frozenset[int]) -> float:
    """How often something runs that depends on `axes`: it is hoisted out of the loops inside its innermost axis."""
    last = max((i for i, a in enumerate(stage.order) if a in axes), default=-1)
    return math.prod(sizes[a] for a in stage.order[: last + 1])


def _operator(
    view: View,
    stage: Stage,
    sizes: Mapping[int, float],
    tiles: Mapping[int, int],
    number: int,
    axes: frozenset[int],
) -> float:
    """Processor seconds that evaluating a value takes in one task, where it depends on `axes`."""
    value = view.sub.values[number]
    operands = [view.sub.values[r.value].dtype.size for r in value.reads]
    item = max(4 if value.dtype.is_low_precision else value.dtype.size, *operands, 1)
    native = max(1, view.model.target.vector_bytes // item)
    count = _executions(stage, sizes, axes)
    weight = len(value.reads) if value.op == "piecewise" else 1
    name = {"sum": "add", "prod": "add", "max": "maximum", "min": "minimum", "piecewise": "where"}.get(
        value.op, value.op
    )
    vectorised = stage.vector >= 0 and stage.vector in axes and stage.width > 1
    if not count or (vectorised and not view.sub.extents[stage.vector]):
        return 0.0
    if not vectorised:
        seconds = weight * count / view.scalar_rate(name)
    else:
        extent = view.sub.extents[stage.vector]
        tile = min(extent, tiles.get(stage.vector, extent))
        steps = extent // tile * _vector_steps(tile, stage.width, native)
        steps += _vector_steps(extent % tile, stage.width, native)
        # `steps` is over all tiles of the vector axis, `count` is within the average one
        seconds = weight * count / extent * steps * native / (view.rate(name) * 4 / item)
    if value.reduce and stage.order and stage.order[-1] in value.reduce:
        # each step of the innermost loop waits for the one before it
        reduction = view.plan.reduction(number)
        chains = reduction.accumulators * (stage.width if vectorised else 1)
        seconds = max(seconds, count / chains / view.rate("chain"))
        seconds += count / sizes[stage.order[-1]] * 4 / view.rate("chain")
        if reduction.coupled >= 0:
            seconds += count / (view.rate("div") if vectorised else view.scalar_rate("div"))
    return seconds
