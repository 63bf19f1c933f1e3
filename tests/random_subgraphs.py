"""Random canonical subgraphs and inputs for them: valid under verify_subgraph, the same for the same seed.

Operands are guarded so that results are mostly finite and well conditioned (log of a positive number, indices inside
their table), but nothing is kept from overflowing or cancelling by chance.
"""

from __future__ import annotations

import math

import numpy as np
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.primitives import COMPARISONS, PRIMITIVES
from stitchtune.graphs.shapes import SUPPORTED
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
    Subgraph,
    Sum,
    Value,
    all_reads,
)

from tests.guards import DTYPES, Guards, focus_of
from tests.pruning import pruned
from tests.random_values import random_inputs

__all__ = ["random_inputs", "random_subgraph"]

SIZES = (1, 2, 3, 4, 5, 7, 8, 13, 16, 17, 31, 32, 33, 64, 100, 127, 257)
ELEMENTWISE = tuple(p.name for p in PRIMITIVES.values() if p.kind == "elementwise")
REDUCTIONS = tuple(p.name for p in PRIMITIVES.values() if p.kind == "reduce")


def random_subgraph(seed: int, steps: int | None = None, points: int = 4000, focus: int = 6) -> Subgraph:
    """A valid subgraph of about `steps` recipes (2 to 9); no value iterates over more than `points` points.

    `focus` primitives with a type come first, by turns of the seed.
    """
    rng = np.random.default_rng([seed, 1])
    draft = _Draft(rng, points)
    for op, dtype in focus_of(seed, focus):
        draft.focus(op, dtype)
    for _ in range(int(rng.integers(2, 10)) if steps is None else steps):
        draft.step()
    return draft.finish()


def result_type(op: str, operand: DType) -> DType:
    """What an elementwise primitive but cast, or a reduction, gives."""
    if op in COMPARISONS or op in ("isnan", "isinf"):
        return DType.BOOL
    return DType.I64 if op in ("argmax", "argmin") else operand


class _Draft(Guards[int]):
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

    # --- recipes

    def step(self) -> None:
        if not self.computed():
            self.root()
            return
        recipes = (self.root, self.follow, self.reduction, self.normalise, self.concat, self.pad, self.iota, self.cast)
        weights = np.array([0.13, 0.34, 0.18, 0.16, 0.05, 0.04, 0.03, 0.07])
        recipes[int(self.rng.choice(len(recipes), p=weights))]()

    def focus(self, op: str, dtype: DType) -> None:
        """One value of `op` on `dtype`."""
        if op == "iota":
            self.iota(dtype)
            return
        known = [i for i in self.computed() if op == "cast" or self.values[i].dtype is dtype]
        known = [i for i in known if self.values[i].axes and self.size(self.values[i].axes)]
        if known and self.chance(0.6):
            source = self.pick(known)
        else:
            axes = tuple(a for a in self.fresh() if self.extents[a]) or (self.axis(5),)
            kind = self.random_dtype() if op == "cast" else dtype
            source = self.elementwise("copy", [self.operand(kind, axes)], axes)
        if op == "cast":
            self.unary("cast", self.castable(source, dtype), dtype)
        elif op in REDUCTIONS:
            self.reduction(source, op)
        else:
            self.follow(source, op)

    def root(self) -> None:
        """A value over axes of its own, reading inputs or values through any maps."""
        axes, dtype = self.fresh(), self.random_dtype()
        op = self.pick([o for o in ("copy", "neg", "add", "sub", "mul", "maximum", "xor") if dtype in SUPPORTED[o]])
        self.elementwise(op, [self.operand(dtype, axes) for _ in range(PRIMITIVES[op].arity)], axes)

    def recent(self) -> int:
        return self.pick(self.computed()[-6:] if self.chance(0.6) else self.computed())

    def follow(self, first: int | None = None, op: str = "") -> None:
        """A value over the axes of another one, which it reads by identity."""
        first = self.recent() if first is None else first
        dtype = self.values[first].dtype
        op = op or self.pick([o for o in ELEMENTWISE if dtype in SUPPORTED[o] and o != "cast"])
        if dtype.is_float:
            first = self.guarded(op, first)
        axes = self.values[first].axes
        if self.chance(0.15) and self.size(axes) * (extent := self.pick(self.pool)) <= self.points:
            axes = (self.axis(extent), *axes)
        if self.chance(0.2):
            axes = tuple(int(a) for a in self.rng.permutation(axes))
        reads = [self.identity(first)]
        if op == "where":
            reads = [self.operand(DType.BOOL, axes), *reads, self.operand(dtype, axes)]
        elif PRIMITIVES[op].arity == 2:
            reads.append(self.second(op, self.operand(dtype, axes), axes))
            if op in ("add", "sub", "mul", "minimum", "lt", "eq", "bitxor") and self.chance(0.3):
                reads.reverse()
        self.elementwise(op, reads, axes)

    def normalise(self) -> None:
        """A softmax or a layer norm over some axes, or over rows and then columns: reductions that are read back."""
        floats = [i for i in self.computed() if self.values[i].dtype.is_float and self.values[i].axes]
        if not floats:
            self.root()
            return
        x = self.with_const("mul", self.unary("tanh", self.pick(floats)), 2.0)
        axes = self.values[x].axes
        for axis in self.rng.permutation(axes)[: int(self.rng.integers(1, 3))]:
            group = (int(axis),) if self.chance(0.8) else axes
            scale = 1.0 / max(1, self.size(group))
            if self.chance(0.5):
                e = self.unary("exp", self.both("sub", x, self.reduced("max", x, group)))
                x = self.both("div", e, self.reduced("sum", e, group))
            else:
                d = self.both("sub", x, self.with_const("mul", self.reduced("sum", x, group), scale))
                variance = self.with_const("mul", self.reduced("sum", self.both("mul", d, d), group), scale)
                x = self.both("div", d, self.unary("sqrt", self.with_const("add", variance, 0.015625)))

    def reduced(self, op: str, value: int, group: tuple[int, ...]) -> int:
        source = self.values[value]
        kept = tuple(a for a in source.axes if a not in group)
        return self.add(Value(op, source.dtype, kept, group, (self.identity(value),)))

    def both(self, op: str, first: int, second: int) -> int:
        """`op` of two computed values over the axes of the first."""
        return self.elementwise(op, [self.identity(first), self.identity(second)], self.values[first].axes)

    def reduction(self, source: int | None = None, op: str = "") -> None:
        """A reduction of a computed value by identity, or of anything through maps over new axes."""
        ops = [o for o in REDUCTIONS if not o.startswith("arg")] * 2 + ["sum"] * 3 + ["argmax", "argmin"]
        if source is not None or self.chance(0.8):
            source = self.pick(self.computed()) if source is None else source
            ops = [o for o in ops if self.values[source].dtype in SUPPORTED[o]]
            if not ops:
                return
            op = op or self.pick(ops)
            if self.values[source].dtype.is_float:
                source = self.guarded(op, source)
            axes = self.values[source].axes
            read, dtype = self.identity(source), self.values[source].dtype
        else:
            op, axes = self.pick(ops), self.fresh()
            dtype = self.pick([d for d in DTYPES if d in SUPPORTED[op] and (op != "prod" or d.is_integer)])
            read = self.operand(dtype, axes)
        count = int(self.rng.integers(1, len(axes) + 1)) if axes else 0
        group = tuple(int(a) for a in self.rng.permutation(axes)[:count])
        if op.startswith("arg") and self.size(group) == 0:
            return
        kept = tuple(a for a in axes if a not in group)
        attrs = (("select_last", self.chance(0.5)),) if op.startswith("arg") else ()
        result = self.add(Value(op, result_type(op, dtype), kept, group, (read,), attrs))
        if op == "sum" and dtype.is_float and self.size(group) > 1 and self.chance(0.7):
            self.with_const("mul", result, 1.0 / self.size(group))

    def concat(self) -> None:
        """Two or three values one after the other along one axis."""
        sources = [i for i, v in enumerate(self.values) if v.op != "const" and v.axes]
        if not sources:
            return
        first = self.pick(sources)
        shape = [self.extents[a] for a in self.values[first].axes]
        along = int(self.rng.integers(len(shape)))
        parts = [first]
        for _ in range(int(self.rng.integers(1, 3))):
            other = [*shape[:along], self.pick(self.pool), *shape[along + 1 :]]
            parts.append(first if self.chance(0.3) else self.input(self.values[first].dtype, tuple(other)))
        lengths = [self.extents[self.values[p].axes[along]] for p in parts]
        shape[along] = sum(lengths)
        if math.prod(shape) > self.points:
            return
        axes = tuple(self.axis(n) for n in shape)
        reads = []
        for i, part in enumerate(parts):
            before = sum(lengths[:i])
            at: Index = Sum(((1, AxisVar(axes[along])), (1, Int(-before)))) if before else AxisVar(axes[along])
            index = tuple(at if d == along else AxisVar(a) for d, a in enumerate(axes))
            reads.append(Read(part, index, (Bound(at, self.values[part].axes[along]),)))
        self.add(Value("piecewise", self.values[first].dtype, axes, reads=tuple(reads)))

    def pad(self) -> None:
        """A value between constants, or cropped."""
        source = self.pick(self.computed())
        value = self.values[source]
        sides = [(int(self.rng.integers(-1, 3)), int(self.rng.integers(0, 3))) for _ in value.axes]
        shape = [max(0, self.extents[a] + b + c) for a, (b, c) in zip(value.axes, sides, strict=True)]
        if math.prod(shape) > self.points:
            return
        axes = tuple(self.axis(n) for n in shape)
        index: list[Index] = []
        for axis, (before, _) in zip(axes, sides, strict=True):
            index.append(Sum(((1, AxisVar(axis)), (1, Int(-before)))) if before else AxisVar(axis))
        where = tuple(Bound(i, a) for i, a in zip(index, value.axes, strict=True))
        fill = self.values[self.any_const(value.dtype)].attr("value") if where else None
        read = Read(source, tuple(index), where, fill)  # type: ignore[arg-type]
        self.add(Value("copy", value.dtype, axes, reads=(read,)))

    def iota(self, dtype: DType | None = None) -> None:
        axes = self.fresh() or (self.axis(7),)
        position = self.pick([*(AxisVar(a) for a in axes), *(self.maps(self.pick((2, 5, 16)), axes, set()))])
        dtype = dtype or self.pick([d for d in DTYPES if d in SUPPORTED["iota"]])
        self.add(Value("iota", dtype, axes, position=position))

    def cast(self) -> None:
        source, to = self.pick(self.computed()), self.random_dtype()
        self.unary("cast", self.castable(source, to), to)

    def finish(self) -> Subgraph:
        """The subgraph with what nothing needs removed: every value that no one reads is an output."""
        used = {read.value for value in self.values for read in all_reads(value)}
        computed = self.computed()
        outputs = tuple(i for i in computed if i not in used or self.chance(0.15))
        return pruned(Subgraph(tuple(self.values), outputs, tuple(self.extents), tuple(self.slots)))
