"""Index arithmetic in 32 bits, which takes half the registers and instructions of 64 on a GPU.

1. Walk the program with the range of every integer: tasks, threads, loops, lets; data is anything.
2. Index arithmetic (never that of data, which wraps) whose operands and result all fit is done in 32 bits; where it
   meets 64-bit data, it is widened.
3. A kernel some of whose offsets, loops or tasks need more stays as it is, and counts as one of 64 bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....graphs.dtypes import DType
from ...loops import (
    THREAD,
    Apply,
    Argument,
    Assign,
    Declare,
    Expr,
    For,
    GroupProgram,
    If,
    Let,
    Literal,
    Load,
    LoadPack,
    Local,
    LoopKernel,
    Stmt,
    Store,
    StorePack,
    evaluate,
)
from ..integers import Range, combine_ranges
from .crossing import CROSSING

INDEX = frozenset("plus minus times quotient rest quotient_u32 rest_u32 floordiv remainder min max".split())
COMPARISONS = frozenset("eq ne lt le gt ge".split())
_ANY = (-(2**63), 2**63 - 1)
_LIMIT = 2**31 - 1
_SLACK = 2**20
"""Loop variables and task numbers grow by at most this before they are compared."""


class _Wide(Exception):
    """An offset, a loop bound or a number of tasks that needs 64 bits."""


def narrow(kernel: LoopKernel, slots: Mapping[int, Range]) -> LoopKernel:
    """`kernel` with 32-bit indices where they suffice. `slots`: the range of each launch argument that has one."""
    try:
        phases = tuple(
            replace(phase, groups=tuple(_Narrowing(group, kernel.threads, slots).run() for group in phase.groups))
            for phase in kernel.phases
        )
        blocks = [sum(evaluate(g.tasks) for g in phase.groups) for phase in kernel.phases]
    except (_Wide, IndexError):
        return kernel
    return replace(kernel, phases=phases, index_bits=32) if max(blocks) < 2**30 else kernel


def _fits(reach: Range) -> bool:
    return reach[0] >= -_LIMIT and reach[1] <= _LIMIT


class _Narrowing:
    def __init__(self, group: GroupProgram, threads: int, slots: Mapping[int, Range]) -> None:
        self.group = group
        self.slots = slots
        self.ranges: dict[str, Range] = {THREAD.name: (0, threads - 1)}
        self.wide: set[str] = set()
        tasks = evaluate(group.tasks)
        self.ranges[group.task.name] = (0, max(0, tasks - 1))
        if tasks + _SLACK > _LIMIT:
            raise _Wide

    def run(self) -> GroupProgram:
        self._measure(self.group.body)
        task = Local(self.group.task.name, DType.I32)
        return replace(self.group, task=task, body=self._body(self.group.body))

    # --- ranges

    def _measure(self, body: tuple[Stmt, ...]) -> None:
        for statement in body:
            match statement:
                case Let(local, value, mutable) if local.dtype is DType.I64:
                    reach = _ANY if mutable else self.range(value)
                    self._note(local, reach, _fits(reach))
                case For(local, start, stop, inner, step):
                    first, end = self.range(start), self.range(stop)
                    reach = (first[0], max(first[0], end[1] - 1))
                    if not _fits((reach[0], reach[1] + step + _SLACK)):
                        raise _Wide
                    self._note(local, reach, True)
                    self._measure(inner)
                case If(_, inner):
                    self._measure(inner)
                case _:
                    pass

    def _note(self, local: Local, reach: Range, fit: bool) -> None:
        """What is known of a name; a copy of a loop's body defines it again."""
        old = self.ranges.get(local.name, reach)
        self.ranges[local.name] = (min(old[0], reach[0]), max(old[1], reach[1]))
        if not fit:
            self.wide.add(local.name)

    def range(self, expr: Expr) -> Range:
        """Of an integer expression."""
        match expr:
            case Literal(value):
                return int(value), int(value)
            case Local(name):
                return self.ranges.get(name, _ANY)
            case Argument(position):
                return self.slots.get(position, _ANY)
            case Apply("hidden", _, (inner,)):
                return self.range(inner)
            case Apply("select", _, (_, a, b)):
                p, q = self.range(a), self.range(b)
                return min(p[0], q[0]), max(p[1], q[1])
            case Apply(op, DType.I64, (a, b)) if op in INDEX:
                return combine_ranges(op, self.range(a), self.range(b)) or _ANY
            case Load(array) if array.startswith(CROSSING):
                return self.ranges.get(array.removeprefix(CROSSING), _ANY)
            case _:
                return _ANY

    # --- types

    def _short(self, name: str) -> bool:
        """True for a name whose every definition fits."""
        return name in self.ranges and name not in self.wide and _fits(self.ranges[name])

    def short(self, expr: Expr) -> Expr:
        """An index in 32 bits."""
        made = self.expr(expr)
        if made.dtype is not DType.I64:
            return made
        if not _fits(self.range(expr)):
            raise _Wide
        return Apply("cast", DType.I32, (made,))

    def long(self, expr: Expr) -> Expr:
        """A 64-bit integer as one; anything else as it is."""
        if expr.dtype is not DType.I64 or isinstance(expr, Literal):
            return expr if isinstance(expr, Literal) else self.expr(expr)
        made = self.expr(expr)
        return made if made.dtype is DType.I64 else Apply("cast", DType.I64, (made,))

    def expr(self, expr: Expr) -> Expr:
        """The same value; a 64-bit integer that fits may come in 32 bits."""
        match expr:
            case Literal(value, DType.I64):
                return Literal(value, DType.I32) if _fits((int(value), int(value))) else expr
            case Local(name, DType.I64):
                return Local(name, DType.I32) if self._short(name) else expr
            case Argument():
                return Apply("cast", DType.I32, (expr,)) if _fits(self.range(expr)) else expr
            case Load(array, offset, dtype, mask):
                crossed = array.startswith(CROSSING) and self._short(array.removeprefix(CROSSING))
                kind = DType.I32 if crossed and dtype is DType.I64 else dtype
                return Load(array, self.short(offset), kind, None if mask is None else self.expr(mask))
            case Apply():
                return self._apply(expr)
            case _:
                return expr

    def _apply(self, expr: Apply) -> Expr:
        op, dtype, operands = expr.op, expr.dtype, expr.operands
        values = operands[1:] if op == "select" else operands
        free = (op in INDEX or op in ("select", "hidden")) and dtype is DType.I64
        if free or (op in COMPARISONS and values[0].dtype is DType.I64):
            reaches = [self.range(v) for v in values]
            if all(_fits(r) for r in reaches) and (not free or _fits(self.range(expr))):
                made = tuple(self.short(o) if o.dtype is DType.I64 else self.expr(o) for o in operands)
                return Apply(op, DType.I32 if free else dtype, made)
        if op == "cast":
            (source,) = map(self.expr, operands)
            return source if source.dtype is dtype else Apply(op, dtype, (source,))
        return Apply(op, dtype, tuple(self.long(o) for o in operands))

    # --- statements

    def _body(self, body: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
        return tuple(self._statement(s) for s in body)

    def _statement(self, statement: Stmt) -> Stmt:
        match statement:
            case Let(local, value, mutable):
                if local.dtype is DType.I64 and not mutable and self._short(local.name):
                    return Let(Local(local.name, DType.I32), self.short(value))
                return Let(local, self.long(value), mutable)
            case Assign(local, value):
                return Assign(local, self.long(value))
            case Store(array, offset, value):
                short = array.startswith(CROSSING) and self._short(array.removeprefix(CROSSING))
                return Store(array, self.short(offset), self.short(value) if short else self.long(value))
            case For(local, start, stop, body):
                local = Local(local.name, DType.I32)
                return replace(
                    statement, local=local, start=self.short(start), stop=self.short(stop), body=self._body(body)
                )
            case If(condition, body):
                return If(self.expr(condition), self._body(body))
            case Declare(array, DType.I64, size):
                short = array.startswith(CROSSING) and self._short(array.removeprefix(CROSSING))
                return Declare(array, DType.I32 if short else DType.I64, size)
            case LoadPack(_, _, offset) | StorePack(_, offset):
                return replace(statement, offset=self.short(offset))
            case _:
                return statement
