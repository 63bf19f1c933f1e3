"""Loads and stores of the neighbouring elements of a strip become accesses of several elements at once.

1. A load whose offset grows by one with the element, under a mask that is the same for all of them, is done before
   the loop over the elements, into registers.
2. Such a store leaves its value in registers, which are written behind the loop.
3. Both only where array and offset are surely multiples of two elements or more: then as wide as that allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...loops import (
    Array,
    Declare,
    Expr,
    For,
    If,
    Let,
    Literal,
    Load,
    LoadPack,
    Stmt,
    Store,
    StorePack,
    statements,
)
from ..algebra import computing
from ..integers import number
from ..names import Names
from .divisors import Divisors, at_zero, coefficient, depends
from .elements import is_element_loop

BYTES = 16
"""The widest access of a thread, and how arrays in block memory and scratch are aligned at least."""


def pack(
    body: Sequence[Stmt], arrays: Mapping[str, Array], names: Names, aligned: bool, known: Divisors | None = None
) -> tuple[Stmt, ...]:
    """A task's `body` with packs. `arrays`: those outside registers; `aligned`: the caller's too start at `BYTES`."""
    known = known or Divisors()
    done: list[Stmt] = []
    for statement in body:
        known.learn((statement,))
        if isinstance(statement, For) and is_element_loop(statement):
            done += _Loop(statement, arrays, names, aligned, known).run()
        elif isinstance(statement, For | If):
            done.append(replace(statement, body=pack(statement.body, arrays, names, aligned, known)))
        else:
            done.append(statement)
    return tuple(done)


@dataclass(frozen=True)
class _Access:
    """A pack: its first element's offset and how far that is surely aligned."""

    offset: Expr
    align: int


class _Loop:
    """One loop over the elements of a strip."""

    def __init__(self, loop: For, arrays: Mapping[str, Array], names: Names, aligned: bool, known: Divisors) -> None:
        self.loop, self.arrays, self.names, self.aligned, self.known = loop, arrays, names, aligned, known
        assert isinstance(loop.stop, Literal)
        self.width = int(loop.stop.value)
        self.lets = {s.local.name: s.value for s in statements(loop.body) if isinstance(s, Let)}
        self.before: list[Stmt] = []
        self.behind: list[Stmt] = []
        self.loaded: dict[tuple[str, Expr, Expr | None], str] = {}
        self.packed: set[str] = set()

    def run(self) -> tuple[Stmt, ...]:
        if self.width & (self.width - 1) or self.width < 2:
            return (self.loop,)
        loop = replace(self.loop, body=self._statements(self.loop.body, ()))
        return (*self.before, loop, *self.behind)

    def _statements(self, body: tuple[Stmt, ...], conditions: tuple[Expr, ...]) -> tuple[Stmt, ...]:
        """`body`, which runs under `conditions`; these are the same for all elements."""
        done: list[Stmt] = []
        for statement in body:
            match statement:
                case Let(local, Load() as load) if not conditions:
                    done.append(Let(local, self._loaded(load)))
                case Store():
                    done.append(self._stored(statement, conditions))
                case If(condition, inner) if not depends(condition, self.loop.local, self.lets):
                    # in terms of what exists outside the loop: whole strips let their elements' guard be true
                    condition = at_zero(condition, self.loop.local, self.lets)
                    if isinstance(condition, Literal):
                        done += self._statements(inner, conditions) if condition.value else ()
                    else:
                        done += self._guarded(condition, self._statements(inner, (*conditions, condition)))
                case _:
                    done.append(statement)
        return tuple(done)

    def _guarded(self, condition: Expr, body: tuple[Stmt, ...]) -> list[Stmt]:
        """Values on their way into a pack need no guard: the pack's store has it."""
        free: list[Stmt] = [s for s in body if isinstance(s, Store) and s.array in self.packed]
        rest = tuple(s for s in body if s not in free)
        return [*free, If(condition, rest)] if rest else free

    def _access(self, array: str, offset: Expr) -> _Access | None:
        """How the elements of a strip are reached at once; None when they are not."""
        memory = self.arrays.get(array)
        if memory is None or (memory.space in ("input", "output") and not self.aligned):
            return None
        if coefficient(offset, self.loop.local, self.lets) != 1:
            return None
        first = at_zero(offset, self.loop.local, self.lets)
        align, divides = min(self.width, BYTES // memory.dtype.size), self.known.of(first)
        while align > 1 and divides % align:
            align //= 2
        return _Access(first, align) if align > 1 else None

    def _loaded(self, load: Load) -> Load:
        """The load from registers that hold the strip, loaded before the loop."""
        access = self._access(load.array, load.offset)
        mask = load.mask
        if access is None or (mask is not None and depends(mask, self.loop.local, self.lets)):
            return load
        key = (load.array, access.offset, mask)
        if key not in self.loaded:
            name = self.loaded[key] = self.names.fresh("q").name
            pack: Stmt = LoadPack(name, load.array, access.offset, self.width, access.align)
            self.before.append(Declare(name, load.dtype, self.width))
            if mask is not None:
                lane = self.names.fresh("l")
                zero = Store(name, lane, Literal(load.dtype.numpy.type(0).item(), load.dtype))
                self.before.append(For(lane, number(0), number(self.width), (zero,), unroll=self.width))
                pack = If(mask, (pack,))
            self.before.append(pack)
        return Load(self.loaded[key], self.loop.local, load.dtype)

    def _stored(self, store: Store, conditions: tuple[Expr, ...]) -> Store:
        """The store into registers that are written behind the loop."""
        access = self._access(store.array, store.offset)
        if access is None:
            return store
        name = self.names.fresh("q").name
        self.packed.add(name)
        self.before.append(Declare(name, computing(self.arrays[store.array].dtype), self.width))
        behind: Stmt = StorePack(store.array, access.offset, name, self.width, access.align)
        for condition in reversed(conditions):
            behind = If(condition, (behind,))
        self.behind.append(behind)
        return Store(name, self.loop.local, store.value)
