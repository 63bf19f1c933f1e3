"""Combining the partial results of a split reduction: a loop over the parts, in task order.

Threads of the block that the stage leaves idle share the parts; what each has merged is then folded across them. Which
they are follows from the plan alone.
"""

from __future__ import annotations

import math

from ....search_space.plan import Stage
from ....search_space.target import WARP
from ...loops import Expr, Literal, Load, Local
from ..algebra import Algebra
from ..context import Context, Split
from ..integers import add, mul, number
from ..nest import Axis
from .assemble import nested
from .fold import Components, Scratch
from .nest import Location, ThreadNest
from .reduce import Accumulation, accumulate

PART = -2
"""The axis of the parts."""
COPY = -3
"""The axis of threads that do the same as others."""
SERIAL = 8
"""Fewer parts than this are not worth sharing."""
FEW = 8
"""Up to so many parts for each thread of a warp, a warp shares them."""
UNROLLED = 8


def parts_of(split: Split) -> Expr:
    count: Expr = number(1)
    for c in split.counts:
        count = mul(count, c)
    return count


def part_lanes(ctx: Context, stage: Stage, threads: int) -> tuple[tuple[int, int], ...]:
    """How threads share the parts of a combining stage, slowest first; nothing where sharing does not pay.

    A warp at least when the stage is smaller, else the whole block. Threads that are too many do the same as others.
    """
    busy = math.prod(count for _, count in stage.lanes)
    counts = [parts_of(ctx.splits[v]) for v in stage.combine if v in ctx.splits]
    least = min((int(c.value) for c in counts if isinstance(c, Literal)), default=0)
    if len(counts) < len(stage.combine) or least < SERIAL or busy & (busy - 1) or threads & (threads - 1):
        return ()
    whole = WARP if busy < WARP and least <= FEW * WARP // busy else threads
    share = min(whole // busy, 1 << (least.bit_length() - 1))
    return ((COPY, whole // (busy * share)), (PART, share)) if share > 1 else ()


def combine(
    nest: ThreadNest, value: int, own: tuple[int, ...], alg: Algebra, split: Split, scratch: Scratch
) -> tuple[Location, Components]:
    """The combined accumulator of `value`, and where it is in `nest`."""
    where = nest.home(own)
    count = parts_of(split)
    once = where._replace(element=False)
    loop = nest.child((PART,), once, extra={PART: Axis(number(0), count, count)})
    loop.unroll = {PART: UNROLLED}
    base = split.layout.offset([*(number(0) for _ in split.counts), *(nest.position[a] for a in own)])
    # partial results are row-major over the counts, so part k lies k times the innermost stride further
    offset = add(base, mul(loop.local[PART], split.layout.strides[len(split.counts) - 1]))
    place = Location(1, False, where.element)
    element = tuple(loop.name(Load(n, offset, t), place) for n, t in zip(split.arrays, alg.dtypes, strict=True))
    found: list[Components] = []
    accumulate(loop, Accumulation(value, own, (PART,), alg), element, place, scratch, lambda _n, _w, c: found.append(c))
    nest.put(once, nested(loop))
    for part in found[0]:
        assert isinstance(part, Local)
        nest.where[part.name] = where
    return where, found[0]
