"""Values that are stored straight into their consumer's storage: the pieces of a concat, the source of a copy.

The consumer's read of the value must be invertible: each index is one axis of the consumer plus a constant, every
axis once. Where the value then lies is checked at the subgraph's own sizes and slots, since a store outside the
consumer's storage would be a store anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...graphs.dtypes import DType
from ...graphs.subgraph import AxisVar, Index, Int, Read, Slot, Sum
from ..loops import Apply, Expr, Literal, Stmt, Store
from .context import Context
from .errors import LoweringError
from .integers import add, mul, number, sub
from .scope import Scope


def aliased_reads(ctx: Context, consumer: int) -> list[Read]:
    """The reads of `consumer` whose values are in its storage already."""
    reads = [r for r in ctx.value(consumer).reads if ctx.places.get((r.value, consumer)) == "alias"]
    if reads and ctx.value(consumer).op not in ("piecewise", "copy"):
        raise LoweringError(f"value {consumer} is no place to store another in")
    if reads and (consumer not in ctx.stored or ctx.has_place(consumer, "block")):
        raise LoweringError(f"value {consumer} has no storage of its own that others could store in")
    return reads


def alias_stores(ctx: Context, value: int, consumer: int, stored: Expr, at: Mapping[int, Expr]) -> tuple[Stmt, ...]:
    """Stores of the element of `value` at `at` (position by axis) into the consumer, once for each read of it."""
    array = ctx.stored[consumer] if aliased_reads(ctx, consumer) else ""
    stores = []
    for read in ctx.value(consumer).reads:
        if read.value != value:
            continue
        position: dict[int, Expr] = {}
        for own, index in zip(ctx.value(value).axes, read.index, strict=True):
            axis, constants = _shift(index)
            shift: Expr = number(0)
            known = 0
            for coefficient, term in constants:
                shift = add(shift, mul(_constant(ctx, term), number(coefficient)))
                known += coefficient * (term.value if isinstance(term, Int) else ctx.sub.slots[term.slot])
            if axis in position or not 0 <= -known <= ctx.sub.extents[axis] - ctx.sub.extents[own]:
                raise LoweringError(f"value {value} does not fit into {consumer}")
            position[axis] = sub(at[own], shift)
        axes = ctx.value(consumer).axes
        if set(position) != set(axes):
            raise LoweringError(f"value {value} does not fill its part of {consumer}")
        stores.append(Store(array, ctx.layouts[array].offset([position[a] for a in axes]), stored))
    return tuple(stores)


def _shift(index: Index) -> tuple[int, list[tuple[int, Int | Slot]]]:
    """An index as one axis plus constants. Raises LoweringError when it is something else."""
    terms = index.terms if isinstance(index, Sum) else ((1, index),)
    axes = [t.axis for c, t in terms if isinstance(t, AxisVar) and c == 1]
    constants = [(c, t) for c, t in terms if isinstance(t, Int | Slot)]
    if len(axes) != 1 or len(constants) != len(terms) - 1:
        raise LoweringError(f"index {index} cannot be turned around")
    return axes[0], constants


def _constant(ctx: Context, term: Int | Slot) -> Expr:
    return number(term.value) if isinstance(term, Int) else ctx.slot(term.slot)


def invert(nest: Scope, condition: Expr | bool) -> Expr:
    """The negation of a test."""
    if isinstance(condition, bool):
        return Literal(not condition, DType.BOOL)
    return nest.bind(Apply("not", DType.BOOL, (condition,)))
