"""A canonical subgraph under construction: values one at a time, and random reads that stay inside what they read."""

from __future__ import annotations

import math

import numpy as np
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.primitives import COMPARISONS
from stitchtune.graphs.subgraph import (
    AxisVar,
    Bound,
    FloorDiv,
    Index,
    Int,
    Lookup,
    Mod,
    Read,
    Scalar,
    Slot,
    Sum,
    Value,
)

from tests.guards import Guards

SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 33, 64, 100, 127, 257)


def result_type(op: str, operand: DType) -> DType:
    """What an elementwise primitive but cast, or a reduction, gives."""
    if op in COMPARISONS or op in ("isnan", "isinf"):
        return DType.BOOL
    return DType.I64 if op in ("argmax", "argmin") else operand


class SubgraphDraft(Guards[int]):
    """A subgraph under construction."""

    def __init__(self, rng: np.random.Generator, points: int) -> None:
        self.rng = rng
        self.points = points
        self.values: list[Value] = []
        self.extents: list[int] = []
        self.slots: list[int] = []
        count = int(rng.integers(2, 5))
        self.pool = [int(n) for n in rng.choice(SIZES, count)]
        self.pool += [a * b for a, b in zip(self.pool, self.pool[1:], strict=False) if a * b <= points]
        if rng.random() < 0.03:
            self.pool.append(0)

    # --- small things

    def type_of(self, value: int) -> DType:
        return self.values[value].dtype

    def axis(self, extent: int) -> int:
        self.extents.append(extent)
        return len(self.extents) - 1

    def size(self, axes: tuple[int, ...]) -> int:
        return math.prod(self.extents[a] for a in axes)

    def add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def const(self, number: Scalar, dtype: DType) -> int:
        attrs = (("value", number),)
        for i, value in enumerate(self.values):
            if value.op == "const" and value.dtype is dtype and value.attrs == attrs:
                return i
        return self.add(Value("const", dtype, (), attrs=attrs))

    def any_const(self, dtype: DType) -> int:
        return self.const(self.random_scalar(dtype), dtype)

    def input(self, dtype: DType, shape: tuple[int, ...]) -> int:
        return self.add(Value("input", dtype, tuple(self.axis(n) for n in shape)))

    def fresh(self, rank: int | None = None) -> tuple[int, ...]:
        """New axes with extents of the pool, within the allowed number of points."""
        axes: tuple[int, ...] = ()
        for _ in range(
            int(self.rng.choice([0, 1, 2, 3, 4], p=[0.03, 0.25, 0.42, 0.24, 0.06])) if rank is None else rank
        ):
            extent = self.pick(self.pool)
            if self.size(axes) * extent <= self.points:
                axes += (self.axis(extent),)
        return axes

    def computed(self) -> list[int]:
        return [i for i, v in enumerate(self.values) if v.op not in ("input", "const")]

    # --- reads

    def identity(self, value: int) -> Read:
        return Read(value, tuple(AxisVar(a) for a in self.values[value].axes))

    def read(self, value: int, domain: tuple[int, ...]) -> Read | None:
        """Some map from `domain` to the axes of a value; None when no map is found that stays inside."""
        source = self.values[value]
        index: list[Index] = []
        where: list[Bound] = []
        for axis in source.axes:
            if not source.is_input and axis in domain and self.chance(0.9):
                index.append(AxisVar(axis))
                continue
            options = self.maps(self.extents[axis], domain, {i.axis for i in index if isinstance(i, AxisVar)}, axis)
            if not options:
                return None
            index.append(options[0] if self.chance(0.7) else self.pick(options))
            if self.chance(0.05) and domain:
                shifted = Sum(((1, AxisVar(self.pick(domain))), (1, Int(int(self.rng.integers(-3, 4)) or 1))))
                index[-1] = shifted
                where.append(Bound(shifted, axis))
        fill = None if not where else self.values[self.any_const(source.dtype)].attr("value")
        return Read(value, tuple(index), tuple(where), fill)  # type: ignore[arg-type]

    def maps(self, n: int, domain: tuple[int, ...], used: set[int], table: int | None = None) -> list[Index]:
        """Indices into a dimension of `n` (axis `table`), over `domain`: positions along axes not `used` first."""
        rng = self.rng
        plain = [a for a in domain if self.extents[a] == n]
        options: list[Index] = [AxisVar(a) for a in plain if a not in used] + [AxisVar(a) for a in plain if a in used]
        if n == 0:
            return options
        options += [Sum(((-1, AxisVar(a)), (1, Int(n - 1)))) for a in plain if n > 1]
        for a in domain:
            extent = self.extents[a]
            if extent and extent < n:
                step = int(rng.integers(1, max(2, (n - 1) // max(1, extent - 1) + 1))) if extent > 1 else 1
                start = int(rng.integers(0, n - (extent - 1) * step))
                down = self.chance(0.25)
                options.append(self.affine(a, -step if down else step, start + (extent - 1) * step if down else start))
            if extent > n >= 2:
                options.append(Mod(AxisVar(a), n))
                options.append(FloorDiv(AxisVar(a), -(-extent // n)))
            for b in domain:
                if a != b and extent * self.extents[b] == n and extent > 1 and self.extents[b] > 1:
                    options.append(Sum(((self.extents[b], AxisVar(a)), (1, AxisVar(b)))))
        options.append(self.shift(int(rng.integers(0, n))))
        if table is not None and self.chance(0.5) and (lookup := self.lookup(table, domain)) is not None:
            options.insert(0 if self.chance(0.2) else len(options), lookup)
        return options

    def shift(self, number: int) -> Index:
        if self.chance(0.5):
            return Int(number)
        self.slots.append(number)
        return Slot(len(self.slots) - 1)

    def affine(self, axis: int, step: int, start: int) -> Index:
        if start == 0 and self.chance(0.5):
            return AxisVar(axis) if step == 1 else Sum(((step, AxisVar(axis)),))
        if start == 0:
            self.slots.append(0)
            return Sum(((step, AxisVar(axis)), (1, Slot(len(self.slots) - 1))))
        return Sum(((step, AxisVar(axis)), (1, self.shift(start))))

    def lookup(self, table: int, domain: tuple[int, ...]) -> Index | None:
        """A gathered index into axis `table`: from an index input, or from a computed integer brought into range."""
        n = self.extents[table]
        rank = min(len(domain), int(self.rng.integers(1, 3)))
        axes = tuple(sorted(self.rng.choice(len(domain), rank, replace=False).tolist())) if rank else ()
        chosen = tuple(domain[i] for i in axes)
        integers = [i for i in self.computed() if self.values[i].dtype in (DType.I32, DType.I64)]
        if integers and self.chance(0.3):
            source = self.pick(integers)
            if self.values[source].op != "mod":
                bound = self.const(n, self.values[source].dtype)
                source = self.elementwise("mod", [self.identity(source), Read(bound, ())], self.values[source].axes)
                inner = self.read_plain(source, domain)
                return None if inner is None else Lookup(inner, table)
        source = self.input(self.pick((DType.I32, DType.I64)), tuple(self.extents[a] for a in chosen))
        return Lookup(Read(source, tuple(AxisVar(a) for a in chosen)), table)

    def read_plain(self, value: int, domain: tuple[int, ...]) -> Read | None:
        """A read by positions or constants only, so that it stays in range wherever the domain goes."""
        index: list[Index] = []
        for axis in self.values[value].axes:
            same = [a for a in domain if self.extents[a] == self.extents[axis]]
            if axis in domain:
                index.append(AxisVar(axis))
            elif same:
                index.append(AxisVar(self.pick(same)))
            elif self.extents[axis]:
                index.append(Int(int(self.rng.integers(self.extents[axis]))))
            else:
                return None
        return Read(value, tuple(index))

    # --- values

    def elementwise(self, op: str, reads: list[Read], axes: tuple[int, ...], to: DType | None = None) -> int:
        operand = self.values[reads[-1].value].dtype
        return self.add(Value(op, to or result_type(op, operand), axes, reads=tuple(reads)))

    def unary(self, op: str, value: int, to: DType | None = None) -> int:
        """`op` of a computed value, over its own axes."""
        return self.elementwise(op, [self.identity(value)], self.values[value].axes, to)

    def with_const(self, op: str, value: int, number: Scalar) -> int:
        constant = self.const(number, self.values[value].dtype)
        return self.elementwise(op, [self.identity(value), Read(constant, ())], self.values[value].axes)

    def operand(self, dtype: DType, domain: tuple[int, ...]) -> Read:
        """Some read of type `dtype`: an existing value, a constant, or a new input."""
        if self.chance(0.12):
            return Read(self.any_const(dtype), ())
        existing = [i for i, v in enumerate(self.values) if v.dtype is dtype and v.op != "const"]
        if existing and self.chance(0.75):
            found = self.read(self.pick(existing), domain)
            if found is not None:
                return found
        shape = [self.extents[a] for a in domain if self.chance(0.8)]
        if self.chance(0.2):
            shape.reverse()
        return self.read_plain(self.input(dtype, tuple(shape)), domain) or Read(self.any_const(dtype), ())

    def second(self, op: str, read: Read, domain: tuple[int, ...]) -> Read:
        """`read` as the second operand of `op`: no zero divisor, no shift beyond the width."""
        if op not in ("div", "mod", "fmod", "shl", "shr", "pow"):
            return read
        value = self.guarded_second(op, self.elementwise("copy", [read], domain))
        return self.identity(value)

    def zero_unless(self, condition: int, value: int) -> int:
        source = self.values[value]
        zero = Read(self.const(0.0, source.dtype), ())
        return self.elementwise("where", [self.identity(condition), self.identity(value), zero], source.axes)
