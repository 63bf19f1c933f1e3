"""Cutting a stage's loops where a bound changes: the pieces of a concat, the borders of a padding.

Where every bound of a read compares one loop's position with constants, the stage is lowered once for each interval
between two such constants. Inside an interval every such bound is known, so nothing is masked, and of a concat only the
piece that is there is evaluated. Bounds on other indices keep their masks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from ...graphs.subgraph import AxisVar, Bound, Index, Int, Read, Sum
from ...search_space.plan import Stage
from ..loops import Literal
from .context import Context

Window = tuple[int, int]
"""Positions from the first to before the second."""

MASKED_PIECES = 3
"""Up to so many pieces along the vector loop are loaded through masks: measured faster than a short loop for each."""
MOST_PIECES = 64
"""Stages are not cut into more pieces than this: code grows with each."""


def windows(
    ctx: Context, stage: Stage, pays: Callable[[int, Sequence[int]], bool] | None = None
) -> Iterator[dict[int, Window]]:
    """The intervals to lower the stage for, by axis; one empty dictionary when nothing is to be cut.

    `pays` tells whether to cut an axis at these positions; by default the rule of the CPU's vector loops.
    """
    cuts = {axis: points for axis, points in _cuts(ctx, stage).items() if _may_cut(ctx, stage, axis)}
    pieces = 1
    for axis in list(cuts):
        masked = axis == stage.vector and len(cuts[axis]) < MASKED_PIECES
        refused = masked if pays is None else not pays(axis, cuts[axis])
        if refused or pieces * (len(cuts[axis]) + 1) > MOST_PIECES:
            del cuts[axis]
        else:
            pieces *= len(cuts[axis]) + 1
    parts: list[list[tuple[int, Window]]] = []
    for axis, points in sorted(cuts.items()):
        edges = [0, *points, ctx.sub.extents[axis]]
        parts.append([(axis, window) for window in itertools.pairwise(edges)])
    for choice in itertools.product(*parts):
        yield dict(choice)


def _may_cut(ctx: Context, stage: Stage, axis: int) -> bool:
    """Every value of the stage has the axis as its own, so that nothing is computed twice or summed in pieces."""
    return axis in stage.order and all(axis in ctx.value(v).axes for v in (*stage.values, *stage.combine))


def _cuts(ctx: Context, stage: Stage) -> dict[int, list[int]]:
    """The positions where bounds change, strictly inside each axis."""
    found: dict[int, set[int]] = {}
    seen: set[int] = set()
    pending = [v for v in stage.values if not ctx.value(v).reduce]
    pending += [v for v in stage.values if ctx.value(v).reduce]
    while pending:
        v = pending.pop()
        if v in seen:
            continue
        seen.add(v)
        for read in ctx.value(v).reads:
            for bound in read.where:
                _note(ctx, bound, found)
            if ctx.places.get((read.value, v)) == "inline" and _same_axes(ctx, read):
                pending.append(read.value)
    return {a: sorted(points) for a, points in found.items() if points}


def _same_axes(ctx: Context, read: Read) -> bool:
    """True when the value read is evaluated at the reader's own positions, so that its bounds mean the same loops."""
    return read.index == tuple(AxisVar(a) for a in ctx.value(read.value).axes)


def _note(ctx: Context, bound: Bound, found: dict[int, set[int]]) -> None:
    shifted = _shift(bound.index)
    size = ctx.extent(bound.axis)
    if shifted is None or not isinstance(size, Literal):
        return
    axis, shift = shifted
    extent = ctx.extent(axis)
    if isinstance(extent, Literal):
        points = (-shift, int(size.value) - shift)
        found.setdefault(axis, set()).update(p for p in points if 0 < p < int(extent.value))


def _shift(index: Index) -> tuple[int, int] | None:
    """An index as an axis plus a constant."""
    terms: Sequence[tuple[int, Index]] = index.terms if isinstance(index, Sum) else ((1, index),)
    axes = [t.axis for c, t in terms if isinstance(t, AxisVar) and c == 1]
    constants = [c * t.value for c, t in terms if isinstance(t, Int)]
    if len(axes) != 1 or len(constants) != len(terms) - 1:
        return None
    return axes[0], sum(constants)
