"""Block memory of one group: buffers of values and private arrays, laid out so that dead ones are overwritten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...graphs.dtypes import DType
from ..loops import Array, Expr, Literal
from .context import Context, Layout, layout
from .errors import LoweringError
from .evaluate import Blocks
from .integers import add, ceiling, mul, number, sub
from .nest import Axis
from .scope import Scope

LINE = 64
"""Alignment of every buffer, bytes."""
REGISTER_ELEMENTS = 1024
"""The largest private array that is declared as a local array instead of block memory."""


@dataclass
class Memory(Blocks):
    """Buffers of one group. `spans` has the first and last stage that touches each."""

    ctx: Context
    axes: dict[int, Axis]
    arrays: dict[str, Array] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)
    spans: dict[str, tuple[int, int]] = field(default_factory=dict)
    values: dict[int, str] = field(default_factory=dict)
    stage: int = 0
    registers: int = 0

    def store(self, value: int, local: dict[int, Expr]) -> tuple[str, Expr]:
        """The buffer of a value (made at its first store) and the offset of the stage's current element."""
        if value not in self.values:
            name = f"b{len(self.arrays)}"
            self._add(name, self.ctx.kept(value), self.shape(value))
            self.values[value] = name
        name = self.values[value]
        self._touch(name)
        return name, self.layouts[name].offset([local[a] for a in self.ctx.value(value).axes])

    def shape(self, value: int) -> Layout:
        """How a value lies in block memory: its part of one task."""
        sizes = [self.axes[a].size for a in self.ctx.value(value).axes]
        return layout(sizes, *self.ctx.buffer_order(value))

    def load(self, value: int, positions: Sequence[Expr], nest: Scope) -> tuple[str, Expr]:
        name = self.values.get(value, "")
        if not name or self.spans[name][0] == self.stage:
            raise LoweringError(f"value {value} is read from block memory before it is there")
        self._touch(name)
        return name, self._offset(name, value, positions, nest)

    def _offset(self, name: str, value: int, positions: Sequence[Expr], nest: Scope) -> Expr:
        local = [
            nest.local[a] if a in nest.local and p == nest.position[a] else sub(p, self.axes[a].start)
            for a, p in zip(self.ctx.value(value).axes, positions, strict=True)
        ]
        return self.layouts[name].offset(local)

    def private(self, dtype: DType, size: Expr) -> tuple[str, bool]:
        """An array for this stage alone; True when it is to be declared as a register array."""
        if isinstance(size, Literal) and int(size.value) <= REGISTER_ELEMENTS:
            self.registers += 1
            return f"w{self.registers}", True
        name = f"b{len(self.arrays)}"
        self._add(name, dtype, Layout((), size))
        self._touch(name)
        return name, False

    def pad(self, dtype: DType, elements: int) -> str:
        """A piece of block memory for this stage alone, whose elements have exactly `dtype`."""
        name = f"b{len(self.arrays)}"
        self._add(name, dtype, Layout((), number(elements)))
        self._touch(name)
        return name

    def _add(self, name: str, dtype: DType, shape: Layout) -> None:
        self.arrays[name] = Array(name, dtype, "block", shape.elements)
        self.layouts[name] = shape

    def _touch(self, name: str) -> None:
        first, _ = self.spans.get(name, (self.stage, self.stage))
        self.spans[name] = (first, self.stage)

    def place(self, base: int = 0) -> tuple[tuple[Array, ...], Expr]:
        """The arrays with their first bytes, none before `base`, and how many bytes they need together with those.

        Arrays of known size share memory when no stage touches both (first fit); the others stand behind them.
        """
        placed: list[tuple[int, int, tuple[int, int]]] = []
        done: list[Array] = []
        later: list[Array] = []
        for name, array in self.arrays.items():
            if not isinstance(array.elements, Literal):
                later.append(array)
                continue
            size = -(-int(array.elements.value) * array.dtype.size // LINE) * LINE
            span = self.spans[name]
            taken = sorted((b, e) for b, e, s in placed if s[0] <= span[1] and span[0] <= s[1])
            start = base
            for begin, end in taken:
                if begin - start >= size:
                    break
                start = max(start, end)
            placed.append((start, start + size, span))
            done.append(replace(array, start=number(start)))
        done = [
            replace(array, alone=not any(b < end and start < e for k, (b, e, _) in enumerate(placed) if k != i))
            for i, (array, (start, end, _)) in enumerate(zip(done, placed, strict=True))
        ]
        total: Expr = number(max((end for _, end, _ in placed), default=base))
        for array in later:
            done.append(replace(array, start=total))
            size_expr = mul(ceiling(mul(array.elements, number(array.dtype.size)), LINE), number(LINE))
            total = add(total, size_expr)
        return tuple(sorted(done, key=lambda a: int(a.name[1:]))), total
