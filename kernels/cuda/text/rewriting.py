"""The parts of a loop program, replaced by functions: what passes over programs are made of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...loops import Apply, Assign, Declare, Expr, For, If, Let, Load, LoadPack, Local, Stmt, Store, StorePack

Leaf = Callable[[Local], Expr]
Renamed = Callable[[str], str]


def same(array: str) -> str:
    return array


def rewrite(expr: Expr, leaf: Leaf, array: Renamed = same, node: Callable[[Apply], Expr] | None = None) -> Expr:
    """The expression with `leaf` of its locals and `array` of its arrays; `node` of every application, inside out."""
    match expr:
        case Local():
            return leaf(expr)
        case Apply(op, dtype, operands):
            made = Apply(op, dtype, tuple(rewrite(o, leaf, array, node) for o in operands))
            return made if node is None else node(made)
        case Load(name, offset, dtype, mask):
            masked = None if mask is None else rewrite(mask, leaf, array, node)
            return Load(array(name), rewrite(offset, leaf, array, node), dtype, masked)
    return expr


def rewrite_statement(statement: Stmt, on: Callable[[Expr], Expr], array: Renamed = same) -> Stmt:
    """The statement with `on` of its own expressions and `array` of its arrays; what is inside it stays."""
    match statement:
        case Let(_, value) | Assign(_, value):
            return replace(statement, value=on(value))
        case Store(name, offset, value):
            return Store(array(name), on(offset), on(value))
        case LoadPack(into, name, offset):
            return replace(statement, into=array(into), array=array(name), offset=on(offset))
        case StorePack(name, offset, source):
            return replace(statement, array=array(name), offset=on(offset), source=array(source))
        case Declare(name):
            return replace(statement, array=array(name))
        case For(_, start, stop):
            return replace(statement, start=on(start), stop=on(stop))
        case If(condition):
            return replace(statement, condition=on(condition))
    return statement
