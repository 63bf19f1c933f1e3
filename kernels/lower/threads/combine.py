"""Combining the partial results of a split reduction: a loop over the parts, in task order.

Threads of the block that the stage leaves idle share the parts; what each has merged is then folded across them. Which
they are follows from the plan alone.
"""

from __future__ import annotations

from ....search_space.plan import Stage
from ...loops import Expr, Literal, Load, Local
from ..algebra import Algebra
from ..context import Context, Split
from ..integers import add, mul, number
from ..nest import Axis
from .fold import Components, Scratch
from .nest import Location, ThreadNest
from .reduce import Accumulation, accumulate

PART = -2
"""The axis of the parts."""
SERIAL = 8
"""Fewer parts than this are not worth sharing."""
UNROLLED = 4


def parts_of(split: Split) -> Expr:
    count: Expr = number(1)
    for c in split.counts:
        count = mul(count, c)
    return count


def part_lanes(ctx: Context, stage: Stage, threads: int) -> int:
    """How many threads share the parts of a combining stage: a power of two, 1 where sharing does not pay."""
    busy = 1
    for _, count in stage.lanes:
        busy *= count
    counts = [parts_of(ctx.splits[v]) for v in stage.combine if v in ctx.splits]
    least = min((int(c.value) for c in counts if isinstance(c, Literal)), default=0)
    if len(counts) < len(stage.combine) or least < SERIAL or busy & (busy - 1) or threads & (threads - 1):
        return 1
    share = threads // busy
    while share > 1 and share * 2 > least:
        share //= 2
    return share if share * busy == threads else 1


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
    nest.put(once, loop.assemble)
    for part in found[0]:
        assert isinstance(part, Local)
        nest.where[part.name] = where
    return where, found[0]
