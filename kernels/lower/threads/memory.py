"""Block memory of one group of threads: kept values, accumulators, the scratch of folds, and who touches what."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ....graphs.dtypes import DType
from ...loops import Array, Expr, Literal
from ..context import Layout
from ..errors import LoweringError
from ..integers import number
from ..memory import Memory
from ..scope import Scope
from .access import Access, Pattern


@dataclass
class ThreadMemory(Memory):
    """Beside what Memory does: records accesses stage by stage for the sync derivation.

    pattern   how the threads of the stage that is being lowered share its axes
    clamped   axes along which threads without work read at others' places
    accesses  by stage
    pinned    values that stay in block memory across phases, and their arrays
    """

    threads: int = 1
    last: int = 0
    pattern: Pattern = field(default_factory=Pattern)
    clamped: frozenset[int] = frozenset()
    accesses: dict[int, list[Access]] = field(default_factory=dict)
    pinned: dict[int, Array] = field(default_factory=dict)
    folds: dict[tuple[DType, int, int], str] = field(default_factory=dict)

    def store(self, value: int, local: dict[int, Expr]) -> tuple[str, Expr]:
        if value in self.pinned:
            name = self._pin(value)
            offset = self.layouts[name].offset([local[a] for a in self.ctx.value(value).axes])
        else:
            name, offset = super().store(value, local)
        axes = frozenset(self.ctx.value(value).axes)
        self.record(Access(name, True, self.pattern, axes, axes))
        return name, offset

    def load(self, value: int, positions: Sequence[Expr], nest: Scope) -> tuple[str, Expr]:
        if value in self.pinned:
            name = self._pin(value)
            if any(a.write and a.array == name for a in self.accesses.get(self.stage, ())):
                raise LoweringError(f"value {value} is read from block memory before it is there")
            offset = self._offset(name, value, positions, nest)
        else:
            name, offset = super().load(value, positions, nest)
        axes = self.ctx.value(value).axes
        same = self.same(axes, positions, nest)
        self.record(Access(name, False, self.pattern, frozenset(axes), same))
        return name, offset

    def _pin(self, value: int) -> str:
        name = self.pinned[value].name
        if name not in self.layouts:
            self.layouts[name] = self.shape(value)
        return name

    def same(self, axes: Sequence[int], positions: Sequence[Expr], nest: Scope) -> frozenset[int]:
        """The axes along which a read at `positions` stays at the thread's own place."""
        own = (a for a, p in zip(axes, positions, strict=True) if p == nest.position.get(a))
        return frozenset(own) - self.clamped

    def record(self, access: Access) -> None:
        here = self.accesses.setdefault(self.stage, [])
        if access not in here:
            here.append(access)

    def own(self, dtype: DType, elements: int) -> str:
        """An array for this stage alone, any part of which any thread may touch."""
        name = self.pad(dtype, elements)
        self.record(Access(name, True))
        return name

    def scratch(self, dtype: DType, buffer: int, component: int, elements: int) -> str:
        """The array for one component of a fold's partials. It keeps its place during the whole group."""
        key = (dtype, buffer, component)
        if key not in self.folds:
            name = self.folds[key] = f"b{len(self.arrays)}"
            self._add(name, dtype, Layout((), number(elements)))
        name = self.folds[key]
        array = self.arrays[name]
        if elements > _count(array.elements):
            self.arrays[name] = replace(array, elements=number(elements))
        self.spans[name] = (0, self.last)
        return name


def _count(elements: Expr) -> int:
    if not isinstance(elements, Literal):
        raise LoweringError("the scratch of a fold has no constant size")
    return int(elements.value)
