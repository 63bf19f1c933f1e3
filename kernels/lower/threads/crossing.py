"""Names that one loop over the elements of a strip defines and another one reads become register arrays."""

from __future__ import annotations

from dataclasses import replace

from ...loops import Declare, For, If, Let, Load, Local, Stmt, Store, expressions, locals_of, statements
from .elements import is_element_loop

CROSSING = "w_"
"""Before the name that an array is for."""


def cross(body: tuple[Stmt, ...], width: int) -> tuple[Stmt, ...]:
    """`body` of one stage whose strips are `width` wide, with what passes between element loops in arrays."""
    defined: dict[str, Local] = {}
    wanted: set[str] = set()
    loops = [s for s in statements(body) if isinstance(s, For) and is_element_loop(s)]
    for loop in loops:
        defined.update(_defined(loop))
    for loop in loops:
        own = _defined(loop)
        wanted |= {n for n in _used(loop) if n in defined and n not in own}
    if not wanted:
        return body
    return _rewrite(body, {n: defined[n] for n in wanted}, width)


def _defined(loop: For) -> dict[str, Local]:
    return {s.local.name: s.local for s in statements(loop.body) if isinstance(s, Let)}


def _used(loop: For) -> list[str]:
    """The names that a loop reads, each once, in order."""
    found: dict[str, None] = {}
    for statement in statements(loop.body):
        for expr in expressions(statement):
            found.update((local.name, None) for local in locals_of(expr))
    return list(found)


def _rewrite(body: tuple[Stmt, ...], names: dict[str, Local], width: int) -> tuple[Stmt, ...]:
    done: list[Stmt] = []
    for statement in body:
        if isinstance(statement, For) and is_element_loop(statement):
            own = _defined(statement)
            given = [names[n] for n in own if n in names]
            taken = [names[n] for n in _used(statement) if n in names and n not in own]
            done += [Declare(_array(local), local.dtype, width) for local in given]
            element = statement.local
            loads = tuple(Let(local, Load(_array(local), element, local.dtype)) for local in taken)
            done.append(replace(statement, body=(*loads, *_keep(statement.body, names, element))))
        elif isinstance(statement, For | If):
            done.append(replace(statement, body=_rewrite(statement.body, names, width)))
        else:
            done.append(statement)
    return tuple(done)


def _keep(body: tuple[Stmt, ...], names: dict[str, Local], element: Local) -> tuple[Stmt, ...]:
    done: list[Stmt] = []
    for statement in body:
        if isinstance(statement, If):
            statement = replace(statement, body=_keep(statement.body, names, element))
        done.append(statement)
        if isinstance(statement, Let) and statement.local.name in names:
            done.append(Store(_array(statement.local), element, statement.local))
    return tuple(done)


def _array(local: Local) -> str:
    return CROSSING + local.name
