"""Names of a body, numbered anew in order of their declaration, so that no two declarations share one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...loops import THREAD, Apply, Assign, Declare, Expr, For, If, Let, Literal, Local, Stmt
from .rewriting import rewrite, rewrite_statement


def renumber(body: Sequence[Stmt], taken: set[str]) -> tuple[Stmt, ...]:
    """The body with every declaration named by its old letter and a number of its own, none of them in `taken`."""
    return tuple(_body(body, {}, _Names(taken)))


class _Names:
    """Fresh names beside those that are taken."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = set(taken)
        self._count = 0

    def fresh(self, old: str) -> str:
        while True:
            self._count += 1
            name = f"{old[0]}{self._count}"
            if name not in self._taken:
                return name

    def of(self, let: Let) -> str:
        """Two values have names that everybody knows."""
        match let.value:
            case Apply("rest_u32" | "rest", _, (Local(THREAD.name), Literal(32))):
                known = "lane"
            case Apply("quotient_u32" | "quotient", _, (Local(THREAD.name), Literal(32))):
                known = "warp"
            case _:
                return self.fresh(let.local.name)
        if known in self._taken:
            return self.fresh(let.local.name)
        self._taken.add(known)
        return known


def _body(body: Sequence[Stmt], outer: Mapping[str, str], names: _Names) -> Iterator[Stmt]:
    known = dict(outer)

    def local(old: Local) -> Local:
        return replace(old, name=known.get(old.name, old.name))

    def array(name: str) -> str:
        return known.get(name, name)

    def expr(old: Expr) -> Expr:
        return rewrite(old, local, array)

    for given in body:
        if isinstance(given, Declare):
            known[given.array] = names.fresh(given.array)
        statement = rewrite_statement(given, expr, array)
        if isinstance(statement, Let):
            known[statement.local.name] = names.of(statement)
            statement = replace(statement, local=local(statement.local))
        elif isinstance(statement, Assign):
            statement = replace(statement, local=local(statement.local))
        elif isinstance(statement, For):
            name = names.fresh(statement.local.name)
            inner = tuple(_body(statement.body, {**known, statement.local.name: name}, names))
            statement = replace(statement, local=replace(statement.local, name=name), body=inner)
        elif isinstance(statement, If):
            statement = replace(statement, body=tuple(_body(statement.body, known, names)))
        yield statement
