"""Evaluating values and reads where a stage needs them.

`value` computes an expression at given positions of the value's axes, following each read to where the plan put
what it reads: a name of this stage, block memory, a buffer, or the expression itself, inlined. Under a bound
(padding, the pieces of a concat) only loads are masked: everything else may run on whatever a masked load gives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from ...graphs.dtypes import DType
from ...graphs.primitives import REDUCTIONS
from ...graphs.subgraph import AxisVar, Bound, FloorDiv, Index, Int, Lookup, Mod, Read, Scalar, Slot, Sum
from ..loops import Apply, Expr, Literal, Load
from .algebra import computing
from .context import Context
from .errors import LoweringError
from .integers import add, divide, maximum, minimum, modulo, mul, number, range_of
from .scope import Scope

EXACT = frozenset("copy neg abs sign floor ceil round trunc min max where piecewise relu".split())
"""Operators whose result is representable when the operands are: nothing to round."""

LONG_CHAIN = 32
"""Operators in a row that are evaluated by recursion."""

Env = Mapping[int, Expr]
"""The position along each axis of the value being evaluated."""


class Blocks(Protocol):
    """Where this group keeps values in block memory."""

    def load(self, value: int, positions: Sequence[Expr], nest: Scope) -> tuple[str, Expr]:
        """The array of `value` and the offset of its element at `positions`."""


N = TypeVar("N", bound=Scope)


class Evaluator(Generic[N]):
    """Evaluates into one nest. `results` are the values this stage has computed so far, at their own positions."""

    def __init__(self, ctx: Context, nest: N, blocks: Blocks) -> None:
        self.ctx = ctx
        self.nest = nest
        self.blocks = blocks
        self.results: dict[int, Expr] = {}
        self.unrounded: dict[tuple[Expr, DType], Expr] = {}
        self._seen: dict[tuple[int, tuple[Expr, ...], Expr | None], Expr] = {}

    # --- values

    def own(self, value: int) -> Expr:
        """The value at its own axes' positions in this stage (no reductions)."""
        env = {a: self.nest.position[a] for a in self.ctx.value(value).axes}
        return self.value(value, env, None)

    def operand(self, value: int) -> Expr:
        """What a reduction accumulates, at the positions of its domain."""
        v = self.ctx.value(value)
        env = {a: self.nest.position[a] for a in v.domain}
        return self.read(value, v.reads[0], env, None)

    def value(self, value: int, env: Env, mask: Expr | None) -> Expr:
        v = self.ctx.value(value)
        key = (value, tuple(env[a] for a in v.axes), mask)
        if key not in self._seen:
            if self.ctx.chain[value] > LONG_CHAIN:
                self._from_below(value, env, mask)
            self._seen[key] = self._evaluate(value, env, mask)
        return self._seen[key]

    def _from_below(self, value: int, env: Env, mask: Expr | None) -> None:
        """Evaluates what is inlined into `value`, producers first: a chain of any length needs no deep recursion."""
        waiting = [(value, env)]
        found: dict[tuple[int, tuple[Expr, ...]], Env] = {}
        while waiting:
            reader, at = waiting.pop()
            v = self.ctx.value(reader)
            if v.op == "piecewise":
                continue  # it may not need all its reads
            for read in v.reads:
                u = self.ctx.value(read.value)
                computed = u.op not in ("input", "const") and not u.reduce and not self.ctx.is_empty(read.value)
                if read.where or not computed or self.ctx.places.get((read.value, reader)) != "inline":
                    continue
                positions = tuple(self.index(i, reader, at, mask) for i in read.index)
                key = (read.value, positions)
                if key not in found and (*key, mask) not in self._seen:
                    found[key] = dict(zip(u.axes, positions, strict=True))
                    waiting.append((read.value, found[key]))
        for (inlined, _), at in sorted(found.items(), key=lambda item: item[0][0]):
            self.value(inlined, at, mask)

    def _evaluate(self, value: int, env: Env, mask: Expr | None) -> Expr:
        v = self.ctx.value(value)
        kind = computing(v.dtype)
        if v.reduce:
            raise LoweringError(f"reduction {value} cannot be inlined")
        if v.op == "iota":
            assert v.position is not None
            return self.cast(self.index(v.position, value, env, mask), v.dtype)
        if v.op == "piecewise":
            return self._piecewise(value, env, mask)
        operands = tuple(self.read(value, r, env, mask) for r in v.reads)
        if v.op in ("argmax", "argmin"):
            return number(0)  # over no axes: the only element
        if v.op == "copy" or v.op in REDUCTIONS:
            return operands[0]
        if v.op == "cast":
            return self.cast(operands[0], v.dtype)
        result = self.nest.bind(Apply("select" if v.op == "where" else v.op, kind, operands))
        return result if v.op in EXACT else self.rounded(result, v.dtype)

    def rounded(self, expr: Expr, dtype: DType) -> Expr:
        """`expr` as an element of `dtype` when every low-precision edge rounds."""
        if not self.ctx.strict or not dtype.is_low_precision:
            return expr
        return self._round(expr, dtype)

    def _round(self, expr: Expr, dtype: DType) -> Expr:
        rounded = self.nest.bind(Apply(f"round_{dtype.value}", DType.F32, (expr,)))
        self.unrounded[rounded, dtype] = expr
        return rounded

    def stored_form(self, expr: Expr, dtype: DType) -> Expr:
        """What to store for `expr` in an array of `dtype`: stores round, so a rounding right before one is left out."""
        return self.unrounded.get((expr, dtype), expr)

    def cast(self, expr: Expr, dtype: DType) -> Expr:
        kind = computing(dtype)
        if expr.dtype is not kind:
            expr = self.nest.bind(Apply("cast", kind, (expr,)))
        if dtype.is_low_precision:
            expr = self._round(expr, dtype)
        return expr

    def _piecewise(self, value: int, env: Env, mask: Expr | None) -> Expr:
        v = self.ctx.value(value)
        pieces: list[tuple[Expr | None, Expr]] = []
        # aliased pieces are in the storage already; whoever stores the others leaves them alone
        reads = [r for r in v.reads if self.ctx.places.get((r.value, value)) != "alias"]
        for k, read in enumerate(reads):
            condition = self.bounds(read.where, value, env, mask)
            if condition is False:
                continue
            guard = None if condition is True else condition
            if guard is None or k == len(reads) - 1:
                # the last piece needs no test of its own, but must not load where it is not valid
                pieces.append((None, self._valid(value, read, env, self.both(mask, guard))))
                break
            pieces.append((guard, self._valid(value, read, env, self.both(mask, guard))))
        if not pieces:
            return Literal(0, computing(v.dtype))
        result = pieces[-1][1]
        for guard, piece in reversed(pieces[:-1]):
            assert guard is not None
            result = self.nest.bind(Apply("select", computing(v.dtype), (guard, piece, result)))
        return result

    # --- reads

    def read(self, reader: int, read: Read, env: Env, mask: Expr | None) -> Expr:
        """What `reader` gets from `read` at `env`."""
        dtype = self.ctx.value(read.value).dtype
        condition = self.bounds(read.where, reader, env, mask)
        if condition is True:
            return self._valid(reader, read, env, mask)
        fill = literal(0 if read.fill is None else read.fill, dtype)
        if condition is False:
            return fill
        inside = self._valid(reader, read, env, self.both(mask, condition))
        return self.nest.bind(Apply("select", computing(dtype), (condition, inside, fill)))

    def _loaded(self, value: int, reader: int, positions: tuple[Expr, ...]) -> bool:
        """True for an input that a stage has loaded for `reader`, which reads it at its own position here."""
        own = tuple(self.nest.position.get(a) for a in self.ctx.value(value).axes)
        return (value, reader) in self.ctx.places and positions == own

    def _valid(self, reader: int, read: Read, env: Env, mask: Expr | None) -> Expr:
        u = self.ctx.value(read.value)
        if u.op == "const":
            fill = u.attr("value")
            assert not isinstance(fill, str | None)
            return literal(fill, u.dtype)
        if self.ctx.is_empty(read.value):
            return literal(0, u.dtype)
        positions = tuple(self.index(i, reader, env, mask) for i in read.index)
        if u.op == "input" and not self._loaded(read.value, reader, positions):
            return self.stored(read.value, positions, mask)
        place = self.ctx.place(read.value, reader)
        match place:
            case "inline":
                return self.value(read.value, dict(zip(u.axes, positions, strict=True)), mask)
            case "register" | "shuffle":
                return self.in_register(read.value, positions, reader)
            case "block":
                array, offset = self.blocks.load(read.value, positions, self.nest)
                return self.load(array, offset, u.dtype, mask)
            case "cluster":
                raise LoweringError("the place `cluster` is reserved")
            case "alias":
                raise LoweringError(f"value {read.value} is stored in {reader}, which is evaluated elsewhere")
            case "global":
                if read.value not in self.ctx.finished:
                    raise LoweringError(f"value {read.value} is read from global memory before it is there")
                return self.stored(read.value, positions, mask)

    def in_register(self, value: int, positions: tuple[Expr, ...], reader: int) -> Expr:
        """What this stage keeps in a register of `value`, which `reader` may only read at the stage's own positions."""
        own = tuple(self.nest.position[a] for a in self.ctx.value(value).axes)
        if value not in self.results or positions != own:
            raise LoweringError(f"value {value} is not in a register where {reader} reads it")
        return self.results[value]

    def stored(self, value: int, positions: Sequence[Expr], mask: Expr | None) -> Expr:
        if value not in self.ctx.stored:
            raise LoweringError(f"value {value} is in no buffer")
        array = self.ctx.stored[value]
        return self.load(array, self.ctx.layouts[array].offset(positions), self.ctx.value(value).dtype, mask)

    def load(self, array: str, offset: Expr, dtype: DType, mask: Expr | None) -> Expr:
        return self.nest.bind(Load(array, offset, computing(dtype), mask))

    # --- indices and bounds

    def index(self, index: Index, reader: int, env: Env, mask: Expr | None) -> Expr:
        match index:
            case AxisVar(axis):
                return env[axis]
            case Int(value):
                return number(value)
            case Slot(slot):
                return self.ctx.slot(slot)
            case Sum(terms):
                total: Expr = number(0)
                for coefficient, term in terms:
                    total = add(total, mul(self.index(term, reader, env, mask), number(coefficient)))
                return total
            case FloorDiv(term, divisor):
                inner = self.nest.bind(self.index(term, reader, env, mask))
                return divide(inner, number(divisor), range_of(inner, self.nest.ranges))
            case Mod(term, divisor):
                inner = self.nest.bind(self.index(term, reader, env, mask))
                return modulo(inner, number(divisor), range_of(inner, self.nest.ranges))
            case Lookup(read, axis):
                return self._lookup(read, axis, reader, env, mask)

    def _lookup(self, read: Read, axis: int, reader: int, env: Env, mask: Expr | None) -> Expr:
        """The index that a tensor gives; clamped, since it may come from anybody."""
        extent = self.ctx.extent(axis)
        given = self.cast(self.read(reader, read, env, mask), DType.I64)
        zero = number(0)
        negative = self.nest.bind(Apply("lt", DType.BOOL, (given, zero)))
        counted = self.nest.bind(Apply("select", DType.I64, (negative, add(given, extent), given)))
        clamped = self.nest.bind(minimum(maximum(counted, zero), add(extent, number(-1))))
        if isinstance(extent, Literal):
            self.nest.ranges[clamped] = (0, max(0, int(extent.value) - 1))
        return clamped

    def bounds(self, bounds: Sequence[Bound], reader: int, env: Env, mask: Expr | None) -> Expr | bool:
        """Whether all hold: True or False when that is known, else a name for the test."""
        test: Expr | None = None
        for bound in bounds:
            index = self.nest.bind(self.index(bound.index, reader, env, mask))
            extent = self.ctx.extent(bound.axis)
            reach = range_of(index, self.nest.ranges)
            size = int(extent.value) if isinstance(extent, Literal) else None
            if size == 0 or (reach is not None and (reach[1] < 0 or (size is not None and reach[0] >= size))):
                return False
            if reach is None or reach[0] < 0:
                test = self.both(test, self.nest.bind(Apply("ge", DType.BOOL, (index, hidden(number(0))))))
            if reach is None or size is None or reach[1] >= size:
                test = self.both(test, self.nest.bind(Apply("lt", DType.BOOL, (index, hidden(extent)))))
        return True if test is None else test

    def both(self, a: Expr | None, b: Expr | None) -> Expr | None:
        if a is None or b is None or a == b:
            return b if a is None else a
        return self.nest.bind(Apply("and", DType.BOOL, (a, b)))


def hidden(limit: Expr) -> Expr:
    """A limit of a mask whose value compilers must not know.

    g++ before 14 turns a load under a mask that is constant (after unrolling) into one of whole vectors, which reads
    outside the array (its bug 110237).
    """
    return Apply("hidden", DType.I64, (limit,)) if isinstance(limit, Literal) else limit


def literal(value: Scalar, dtype: DType) -> Literal:
    """A constant of a value's dtype in its computing dtype (low-precision constants are rounded at their dtype)."""
    kind = computing(dtype)
    if dtype is DType.BOOL:
        return Literal(bool(value), kind)
    if kind.is_float:
        import numpy as np

        with np.errstate(over="ignore"):
            return Literal(float(np.float64(value).astype(dtype.numpy)), kind)
    return Literal(int(value), kind)
