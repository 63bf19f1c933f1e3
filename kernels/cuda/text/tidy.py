"""Loop programs for people: the same program with fewer names, before it is spelled.

1. Names of constants, of other names and of what has a name already give way to what they stand for; arithmetic with
   constants is carried out.
2. A name that is used once gives way to its value where it is used, if that is computed neither more often nor after
   something that could change it, and the expression stays short.
3. Names that nobody uses, empty blocks and conditions that hold go.

What is computed, in which order memory is accessed and where threads meet stays as it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ....graphs.dtypes import DType
from ...loops import (
    THREAD,
    Apply,
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
    expressions,
    statements,
    within,
)
from .renumber import renumber
from .rewriting import rewrite, rewrite_statement
from .singles import singles

LONGEST = 15
"""Most nodes of an expression that a name is inlined into."""

Names = Mapping[str, Expr]


def tidy(kernel: LoopKernel) -> LoopKernel:
    """The same kernel with fewer names."""
    outside = {a.name for a in (*kernel.buffers, *kernel.scratch)} | {f"n{k}" for k in range(kernel.arguments)}

    def group(given: GroupProgram) -> GroupProgram:
        return replace(given, body=tidy_body(given.body, outside | {a.name for a in given.arrays}))

    return replace(kernel, phases=tuple(replace(p, groups=tuple(group(g) for g in p.groups)) for p in kernel.phases))


def tidy_body(given: Sequence[Stmt], taken: set[str]) -> tuple[Stmt, ...]:
    """`taken` are names that mean something outside the body."""
    body = renumber(given, taken)
    variables = {s.local.name for s in statements(body) if isinstance(s, Let) and s.mutable}
    known = _drop(_propagate(singles(body), {}, variables, {}))
    return renumber(_drop(_inline(known, {}, _uses(known), variables)), taken)


# --- 1: constants and copies


def _propagate(
    body: Sequence[Stmt], outer: Names, variables: set[str], given: Mapping[Expr, Local]
) -> tuple[Stmt, ...]:
    names, known = dict(outer), dict(given)
    own = {s.local.name for s in body if isinstance(s, Let) and s.mutable}
    last = {s.local.name: k for k, t in enumerate(body) for s in statements([t]) if isinstance(s, Assign)}
    done: list[Stmt] = []
    for number, before in enumerate(body):
        statement = _with(before, names)
        if isinstance(statement, Let) and not statement.mutable:
            value = known.get(statement.value) or _rejoined(statement.value, known)
            if _stays(value, variables, own, last, number):
                names[statement.local.name] = value
                continue
            if _is_fixed(value, variables):
                known[value] = statement.local
        elif isinstance(statement, For | If):
            statement = replace(statement, body=_propagate(statement.body, names, variables, known))
        done.append(statement)
    return tuple(done)


def _rejoined(value: Expr, known: Mapping[Expr, Local]) -> Expr:
    """x where `value` is x % n + x / n * n, as names of them."""
    match value:
        case Apply("plus", _, (Local() as rest, Apply("times", _, (Local() as quotient, Literal() as n)))):
            meaning = {name: expr for expr, name in known.items()}
            match meaning.get(rest), meaning.get(quotient):
                case Apply("rest_u32", _, (x, m)), Apply("quotient_u32", _, (y, k)) if x == y and m == k == n:
                    return x
    return value


def _stays(value: Expr, variables: set[str], own: set[str], last: Mapping[str, int], number: int) -> bool:
    """True for a constant or a name that keeps its value behind statement `number` of a block: a variable does if it is
    of this very block and not assigned any more."""
    match value:
        case Literal():
            return True
        case Local(name):
            return name not in variables or (name in own and last.get(name, -1) < number)
    return False


# --- 2: names that are used once


@dataclass(frozen=True)
class _Pending:
    """A name that waits for its one use. `fixed`: its value is the same wherever it is computed."""

    let: Let
    fixed: bool


def _inline(
    body: Sequence[Stmt], given: Mapping[str, _Pending], uses: Mapping[str, int], variables: set[str]
) -> tuple[Stmt, ...]:
    pending = dict(given)
    done: list[Stmt] = []

    def settle(names: Iterable[str]) -> None:
        """Those names are needed as names after all."""
        done.extend(pending.pop(name).let for name in [n for n in pending if n in names])

    for statement in body:
        taken = _taken(statement, pending)
        settle([name for name in _mentioned(expressions(statement)) if name not in taken])
        for name in taken:
            del pending[name]
        statement = _with(statement, taken)
        if isinstance(statement, Let) and not statement.mutable and uses[statement.local.name] == 1:
            fixed = _is_fixed(statement.value, variables)
            pending[statement.local.name] = _Pending(statement, fixed)
            continue
        if not isinstance(statement, Let):
            settle([name for name, wait in pending.items() if not wait.fixed])
        if isinstance(statement, For):
            settle(_mentioned(e for s in statements(statement.body) for e in expressions(s)))
            statement = replace(statement, body=_inline(statement.body, {}, uses, variables))
        elif isinstance(statement, If):
            inside = _mentioned(e for s in statements(statement.body) for e in expressions(s))
            passed = {name: pending.pop(name) for name in list(pending) if name in inside}
            statement = replace(statement, body=_inline(statement.body, passed, uses, variables))
        done.append(statement)
    settle(list(pending))
    return tuple(done)


def _taken(statement: Stmt, pending: Mapping[str, _Pending]) -> dict[str, Expr]:
    """The names that give way to their values in a statement: loads and exchanges all together or none, so that what is
    alike looks alike; then the others in order, as long as it stays short."""
    here = {name: pending[name] for name in _mentioned(expressions(statement)) if name in pending}
    if isinstance(statement, Store | Assign) and isinstance(statement.value, Local) and len(here) == 1:
        # a name for what is only stored makes nothing shorter
        wait = here.get(statement.value.name)
        if wait is not None and _size(wait.let.value) <= LONGEST:
            return {wait.let.local.name: wait.let.value}
    size = sum(_size(expr) for expr in expressions(statement))
    guarded = _guarded(expressions(statement))
    moving = {name: wait for name, wait in here.items() if not wait.fixed}
    fixed = {name: wait for name, wait in here.items() if wait.fixed}
    extra = sum(_size(wait.let.value) for wait in moving.values())
    taken: dict[str, Expr] = {}
    if size + extra <= LONGEST and not isinstance(statement, For) and not guarded & moving.keys():
        taken.update((name, wait.let.value) for name, wait in moving.items())
        size += extra
    for name, wait in fixed.items():
        size += _size(wait.let.value)
        if size <= LONGEST:
            taken[name] = wait.let.value
    return taken


def _uses(body: Sequence[Stmt]) -> Counter[str]:
    """How often each name is mentioned."""
    return Counter(e.name for s in statements(body) for x in expressions(s) for e in within(x) if isinstance(e, Local))


def _mentioned(exprs: Iterable[Expr]) -> dict[str, None]:
    """Names in the order of their first mention."""
    return {e.name: None for x in exprs for e in within(x) if isinstance(e, Local)}


def _guarded(exprs: Iterable[Expr]) -> set[str]:
    """Names that are evaluated under a condition only: in branches of selections, behind `and`, `or`, under masks."""
    found: set[str] = set()
    for x in exprs:
        for e in within(x):
            match e:
                case Apply("select" | "and" | "or", _, (_, *rest)):
                    found.update(_mentioned(rest))
                case Load(_, offset, _, mask) if mask is not None:
                    found.update(_mentioned([offset]))
    return found


def _is_fixed(value: Expr, variables: set[str]) -> bool:
    return not any(
        isinstance(e, Load)
        or (isinstance(e, Apply) and e.op == "shuffle_xor")
        or (isinstance(e, Local) and e.name in variables)
        for e in within(value)
    )


def _size(expr: Expr) -> int:
    return sum(1 for _ in within(expr))


# --- 3: what nobody needs


def _drop(body: Sequence[Stmt]) -> tuple[Stmt, ...]:
    while True:
        kept = tuple(_without(body, _uses(body), _read(body)))
        if kept == tuple(body):
            return kept
        body = kept


def _without(body: Sequence[Stmt], uses: Mapping[str, int], read: set[str]) -> Iterator[Stmt]:
    for statement in body:
        match statement:
            case Let(local, value) | Assign(local, value) if not uses[local.name] and not _exchanges(value):
                continue
            case For(body=inner) | If(body=inner):
                kept = tuple(_without(inner, uses, read))
                match statement, kept:
                    case _, ():
                        continue
                    case If(Literal(True)), _:
                        yield from kept
                    case If(outer), (If(more, within_both),) if not any(isinstance(e, Load) for e in within(more)):
                        yield If(Apply("and", DType.BOOL, (outer, more)), within_both)
                    case _:
                        yield replace(statement, body=kept)
            case Declare(array) if array not in read:
                continue
            case _:
                yield statement


def _exchanges(value: Expr) -> bool:
    """True where lanes take part that need this one's."""
    return any(isinstance(e, Apply) and e.op == "shuffle_xor" for e in within(value))


def _read(body: Sequence[Stmt]) -> set[str]:
    """Arrays that are accessed at all."""
    found: set[str] = set()
    for s in statements(body):
        found |= {e.array for x in expressions(s) for e in within(x) if isinstance(e, Load)}
        match s:
            case Store(array) | StorePack(array):
                found.add(array)
            case LoadPack(into, array):
                found |= {into, array}
        if isinstance(s, StorePack):
            found.add(s.source)
    return found


# --- substitution


def _with(statement: Stmt, names: Names) -> Stmt:
    """The statement with names replaced in its own expressions, not in the statements inside it."""

    def leaf(local: Local) -> Expr:
        return names.get(local.name, local)

    return rewrite_statement(statement, lambda expr: rewrite(expr, leaf, node=simplify))


def simplify(expr: Apply) -> Expr:
    """Index arithmetic and logic with constants, carried out where the result is obvious."""
    match expr:
        case Apply("plus" | "minus" | "times", dtype, (Literal(a), Literal(b))):
            x, y = int(a), int(b)
            return Literal({"plus": x + y, "minus": x - y, "times": x * y}[expr.op], dtype)
        case Apply("plus", _, (Literal(0), x)) | Apply("plus" | "minus", _, (x, Literal(0))):
            return x
        case Apply("times", _, (Literal(1), x)) | Apply("times", _, (x, Literal(1))):
            return x
        case Apply("times", dtype, (Literal(0), _)) | Apply("times", dtype, (_, Literal(0))):
            return Literal(0, dtype)
        case Apply("quotient_u32" | "quotient" | "rest_u32" | "rest", dtype, (Literal(0), _)):
            return Literal(0, dtype)
        case Apply("lt", _, (Local(THREAD.name) as thread, Literal(1, dtype))):
            return Apply("eq", DType.BOOL, (thread, Literal(0, dtype)))
        case Apply("and", _, (Literal(True), x)) | Apply("and", _, (x, Literal(True))):
            return x
    return expr
