"""Unroll and jam: several iterations of an outer loop at once, their inner loops fused.

Iterations of a plan's loops are independent but for what they accumulate, and each accumulator still sees them in
order wherever it is one element (a column sum). So the copies' statements are interleaved: what stands before the
inner loop for each copy, one inner loop with all bodies, what stands after it for each copy. Values that are loaded and
stored once per inner iteration (a column sum in memory, a row of factors) are then touched once for all copies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..loops import (
    Apply,
    Assign,
    Declare,
    Expr,
    Fold,
    For,
    If,
    Let,
    Literal,
    Load,
    LoadPack,
    Local,
    Stmt,
    Store,
    StorePack,
    Stream,
    Sync,
    statements,
)
from .integers import add, modulo, number, sub
from .names import Names

MOST_STATEMENTS = 400
"""Larger bodies are not copied: they would not fit the registers anyway."""


def jam(loop: For, factor: int, names: Names) -> tuple[Stmt, ...]:
    """`loop` (from 0, step 1) with `factor` iterations jammed, and a loop for the rest."""
    rest = modulo(loop.stop, number(factor), None if isinstance(loop.stop, Literal) else (0, 2**62))
    whole = sub(loop.stop, rest)
    if whole == number(0) or _count(loop.body) * factor > MOST_STATEMENTS or _shares_memory(loop.body):
        return (loop,)
    base = names.fresh("u")
    copies: list[tuple[Stmt, ...]] = []
    for k in range(factor):
        position = names.fresh("i")
        body = (Let(loop.local, add(base, number(k))), *loop.body)
        renamed = {name: f"{name}_{k}" for name in _declared(loop.body)} | {loop.local.name: position.name}
        copies.append(tuple(_rename(s, renamed) for s in body))
    loops: list[Stmt] = [For(base, number(0), whole, _merge(copies), step=factor)]
    if rest != number(0):
        loops.append(replace(loop, start=whole, unroll=1))
    return tuple(loops)


def _shares_memory(body: Sequence[Stmt]) -> bool:
    """True when iterations reuse memory that each fills for itself: a row on its way past the caches, or an accumulator
    in block memory that is set to its start and added to."""
    started: set[str] = set()
    loaded: set[str] = set()
    for statement in statements(body):
        match statement:
            case Stream():
                return True
            case Store(array, _, value):
                if isinstance(value, Literal):
                    started.add(array)
                loaded |= _loaded(value)
            case Let(_, value) | Assign(_, value):
                loaded |= _loaded(value)
            case _:
                pass
    return bool((started & loaded) - _declared(body))


def _loaded(expr: Expr) -> set[str]:
    match expr:
        case Load(array):
            return {array}
        case Apply(_, _, operands):
            return set().union(*(_loaded(o) for o in operands))
        case _:
            return set()


def _count(body: Sequence[Stmt]) -> int:
    return sum(1 + (_count(s.body) if isinstance(s, For | If) else 0) for s in body)


def _declared(body: Sequence[Stmt]) -> set[str]:
    """Names of lets, variables and register arrays; loop variables may be shared."""
    found: set[str] = set()
    for statement in body:
        match statement:
            case Let(local):
                found.add(local.name)
            case Declare(array):
                found.add(array)
            case For() | If():
                found |= _declared(statement.body)
            case _:
                pass
    return found


def _merge(copies: Sequence[tuple[Stmt, ...]]) -> tuple[Stmt, ...]:
    """The copies' straight code one after the other, up to each loop; loops with equal bounds become one."""
    merged: list[Stmt] = []
    start = 0
    for end, side in enumerate(zip(*copies, strict=True)):
        first, loops = side[0], [s for s in side if isinstance(s, For)]
        if isinstance(first, For) and {(s.start, s.stop) for s in loops} == {(first.start, first.stop)}:
            for copy in copies:
                merged += copy[start:end]
            merged.append(replace(first, body=_merge([s.body for s in loops])))
            start = end + 1
    for copy in copies:
        merged += copy[start:]
    return tuple(merged)


def _rename(statement: Stmt, names: Mapping[str, str]) -> Stmt:
    def local(x: Local) -> Local:
        return Local(names.get(x.name, x.name), x.dtype)

    def expr(x: Expr) -> Expr:
        match x:
            case Local():
                return local(x)
            case Apply(op, dtype, operands):
                return Apply(op, dtype, tuple(expr(o) for o in operands))
            case Load(array, offset, dtype, mask):
                return Load(names.get(array, array), expr(offset), dtype, None if mask is None else expr(mask))
            case Fold(op, array, lanes, dtype):
                return Fold(op, names.get(array, array), lanes, dtype)
            case _:
                return x

    match statement:
        case Let(name, value, mutable):
            return Let(local(name), expr(value), mutable)
        case Assign(name, value):
            return Assign(local(name), expr(value))
        case Store(array, offset, value):
            return Store(names.get(array, array), expr(offset), expr(value))
        case Stream(array, offset, source, count):
            return Stream(array, expr(offset), source, expr(count))
        case LoadPack() | StorePack() | Sync():
            raise TypeError("loops shared by threads are not jammed")
        case If(condition, body):
            return If(expr(condition), tuple(_rename(s, names) for s in body))
        case Declare(array, dtype, size):
            return Declare(names.get(array, array), dtype, size)
        case For():
            body = tuple(_rename(s, names) for s in statement.body)
            return replace(statement, start=expr(statement.start), stop=expr(statement.stop), body=body)
