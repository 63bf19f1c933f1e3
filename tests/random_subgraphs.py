"""Random canonical subgraphs and inputs for them: valid under verify_subgraph, the same for the same seed.

Operands are guarded so that results are mostly finite and well conditioned (log of a positive number, indices inside
their table), but nothing is kept from overflowing or cancelling by chance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.primitives import PRIMITIVES
from stitchtune.graphs.shapes import SUPPORTED
from stitchtune.graphs.subgraph import (
    AxisVar,
    Bound,
    Index,
    Int,
    Read,
    Subgraph,
    Sum,
    Value,
    all_reads,
)

from tests.guards import DTYPES, focus_of
from tests.pruning import pruned
from tests.random_values import random_inputs
from tests.subgraph_draft import SubgraphDraft, result_type

__all__ = ["random_inputs", "random_subgraph"]

ELEMENTWISE = tuple(p.name for p in PRIMITIVES.values() if p.kind == "elementwise")
REDUCTIONS = tuple(p.name for p in PRIMITIVES.values() if p.kind == "reduce")


def random_subgraph(
    seed: int, steps: int | None = None, points: int = 4000, focus: int = 6, recipes: Sequence[str] = ()
) -> Subgraph:
    """A valid subgraph of about `steps` recipes (2 to 9); no value iterates over more than `points` points.

    `focus` primitives with a type come first, by turns of the seed, then the `recipes` named (methods of _Draft).
    """
    rng = np.random.default_rng([seed, 1])
    draft = _Recipes(rng, points)
    for op, dtype in focus_of(seed, focus):
        draft.focus(op, dtype)
    for recipe in recipes:
        getattr(draft, recipe)()
    for _ in range(int(rng.integers(2, 10)) if steps is None else steps):
        draft.step()
    return draft.finish()


class _Recipes(SubgraphDraft):
    """Steps that add a few values each."""

    def step(self) -> None:
        if not self.computed():
            self.root()
            return
        recipes = (
            (self.root, 0.12),
            (self.follow, 0.32),
            (self.reduction, 0.16),
            (self.normalise, 0.16),
            (self.sibling, 0.06),
            (self.concat, 0.05),
            (self.pad, 0.04),
            (self.iota, 0.02),
            (self.cast, 0.07),
        )
        weights = np.array([w for _, w in recipes])
        recipes[int(self.rng.choice(len(recipes), p=weights / weights.sum()))][0]()

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

    def sibling(self) -> None:
        """A value that shares axes with another one through an input that both read at the same position."""
        reads = [
            r for i in self.computed() for r in self.values[i].reads if self.values[r.value].is_input and r.is_plain
        ]
        if not reads:
            return
        read = self.pick(reads)
        axes = tuple(dict.fromkeys(i.axis for i in read.index if isinstance(i, AxisVar)))
        dtype = self.values[read.value].dtype
        if axes and self.chance(0.6):
            op = self.pick([o for o in ("sum", "max", "min") if dtype in SUPPORTED[o]] or ["copy"])
            if op != "copy":
                count = int(self.rng.integers(1, len(axes) + 1))
                self.add(Value(op, dtype, axes[:-count], axes[-count:], (read,)))
                return
        self.elementwise("copy", [read], axes)

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

    def crossed(self) -> None:
        """Two reductions of one value over different axes: rows and columns."""
        wide = [i for i in self.computed() if self.values[i].dtype is not DType.BOOL]
        wide = [i for i in wide if sum(self.extents[a] > 1 for a in self.values[i].axes) > 1]
        if wide and self.chance(0.7):
            source = self.pick(wide)
        else:
            axes = (self.axis(self.pick((5, 8, 33))), self.axis(self.pick((3, 16, 31))))
            dtype = self.pick([d for d in DTYPES if d is not DType.BOOL])
            source = self.elementwise("copy", [self.operand(dtype, axes)], axes)
        dtype, axes = self.values[source].dtype, self.values[source].axes
        if dtype.is_float:
            source = self.unary("tanh", source)
        for axis in self.rng.permutation(axes)[:2]:
            op = self.pick(("sum", "max", "min", "argmax"))
            kept = tuple(a for a in axes if a != axis)
            self.add(Value(op, result_type(op, dtype), kept, (int(axis),), (self.identity(source),)))

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
