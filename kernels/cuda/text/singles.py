"""Register arrays of one element that are written once become names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ....graphs.dtypes import DType
from ...loops import (
    Apply,
    Declare,
    Expr,
    For,
    If,
    Let,
    Load,
    LoadPack,
    Local,
    Stmt,
    Store,
    StorePack,
    expressions,
    statements,
    within,
)
from .rewriting import rewrite_statement


def singles(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    """The body without the arrays of one element whose only store stands in the block that all loads are behind."""
    small = {s.array: s.dtype for s in statements(body) if isinstance(s, Declare) and s.size == 1}
    stores = Counter(s.array for s in statements(body) if isinstance(s, Store))
    packed = {name for s in statements(body) for name in _packed(s)}
    chosen = {a: t for a, t in small.items() if stores[a] == 1 and a not in packed and _is_behind(body, a)}
    return tuple(_body(body, chosen)) if chosen else tuple(body)


def _body(body: Sequence[Stmt], chosen: Mapping[str, DType]) -> Iterator[Stmt]:
    for given in body:
        match rewrite_statement(given, lambda expr: _named(expr, chosen)):
            case Declare(array) if array in chosen:
                continue
            case Store(array, _, value) if array in chosen:
                yield Let(Local(array, chosen[array]), value)
            case For(body=inner) | If(body=inner) as outer:
                yield replace(outer, body=tuple(_body(inner, chosen)))
            case statement:
                yield statement


def _named(expr: Expr, chosen: Mapping[str, DType]) -> Expr:
    match expr:
        case Load(array) if array in chosen:
            return Local(array, chosen[array])
        case Load(array, offset, dtype, mask):
            return Load(array, _named(offset, chosen), dtype, None if mask is None else _named(mask, chosen))
        case Apply(op, dtype, operands):
            return Apply(op, dtype, tuple(_named(o, chosen) for o in operands))
    return expr


def _packed(statement: Stmt) -> tuple[str, ...]:
    """The register array that a statement moves as a whole."""
    match statement:
        case LoadPack(into):
            return (into,)
        case StorePack(_, _, source):
            return (source,)
    return ()


def _is_behind(body: Sequence[Stmt], array: str) -> bool:
    """True when every load of `array` is in the block of its store and behind it, and none has a mask."""
    for number, statement in enumerate(body):
        if isinstance(statement, Store) and statement.array == array:
            later = [e for s in statements(body[number + 1 :]) for e in _loads(s, array)]
            return not _loaded(body[: number + 1], array) and all(e.mask is None for e in later)
        inner = statement.body if isinstance(statement, For | If) else ()
        if any(isinstance(s, Store) and s.array == array for s in statements(inner)):
            outside = [*body[:number], *body[number + 1 :]]
            return not _loaded(outside, array) and _is_behind(inner, array)
    return False


def _loaded(body: Sequence[Stmt], array: str) -> bool:
    return any(True for s in statements(body) for _ in _loads(s, array))


def _loads(statement: Stmt, array: str) -> Iterator[Load]:
    for expr in expressions(statement):
        yield from (e for e in within(expr) if isinstance(e, Load) and e.array == array)
