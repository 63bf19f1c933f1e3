"""Random tensor-level graphs and feeds for them: valid under verify_graph, the same for the same seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stitchtune.graphs.builder import GraphBuilder
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.ir import Graph
from stitchtune.graphs.primitives import PRIMITIVES
from stitchtune.graphs.shapes import SUPPORTED
from stitchtune.graphs.subgraph import Scalar

from tests.guards import DTYPES, Guards, focus_of
from tests.random_subgraphs import ELEMENTWISE, REDUCTIONS
from tests.random_values import random_array

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 24, 31, 32, 33, 64, 97)


MOVEMENT: tuple[tuple[str, DType], ...] = tuple(
    (op, dtype) for op, p in PRIMITIVES.items() if p.kind == "movement" for dtype in DTYPES
)
"""Every movement primitive with every type."""


def moves_of(seed: int, count: int) -> list[tuple[str, DType]]:
    """`count` of MOVEMENT, by turns of the seed."""
    return [MOVEMENT[(seed * count + i) * 5 % len(MOVEMENT)] for i in range(count)]


def random_graph(
    seed: int,
    steps: int | None = None,
    elements: int = 3000,
    focus: int = 6,
    moves: int = 0,
    recipes: Sequence[str] = (),
) -> Graph:
    """A valid graph of about `steps` recipes (2 to 9; of one to three nodes) on tensors of up to `elements` elements.

    One graph in fifty is large: up to 50,000 elements. `focus` primitives with a type come first, then `moves` movement
    primitives, by turns of the seed, then the `recipes` named (methods of _Draft).
    """
    rng = np.random.default_rng([seed, 3])
    if rng.random() < 0.02:
        elements = 50_000
    draft = _Draft(rng, seed, elements)
    for op, dtype in focus_of(seed, focus):
        draft.focus(op, dtype)
    for op, dtype in moves_of(seed, moves):
        draft.move(op, dtype)
    for recipe in recipes:
        getattr(draft, recipe)()
    for _ in range(int(rng.integers(2, 10)) if steps is None else steps):
        draft.step()
    return draft.finish()


def random_feeds(graph: Graph, seed: int, special: bool = False) -> dict[str, NDArray[Any]]:
    """Arrays for the inputs of a graph; those that gathers read stay inside their tables.

    `special` mixes in NaN, infinities, signed zeros, subnormals and the largest numbers.
    """
    rng = np.random.default_rng([seed, 4])
    tables: dict[str, int] = {}
    for node in graph.nodes:
        if node.op in ("gather", "gather_elements"):
            size = graph.types[node.inputs[0]].shape[node.attr("axis")]
            tables[node.inputs[1]] = min(size, tables.get(node.inputs[1], size))
    return {
        name: random_array(rng, graph.types[name].dtype, graph.types[name].shape, tables.get(name), special)
        for name in graph.inputs
    }


class _Draft(Guards[str]):
    """A graph under construction."""

    def __init__(self, rng: np.random.Generator, seed: int, elements: int) -> None:
        self.rng = rng
        self.b = GraphBuilder(f"random_{seed}")
        self.elements = elements
        self.pool = [int(n) for n in rng.choice(SIZES, int(rng.integers(2, 5)))]
        if rng.random() < 0.03:
            self.pool.append(0)
        self.made: list[str] = []
        """What nodes computed, oldest first."""
        self.read: set[str] = set()
        self.inputs: list[str] = []

    # --- tensors

    def type_of(self, value: str) -> DType:
        return self.b.dtype(value)

    def shape(self, value: str) -> tuple[int, ...]:
        return self.b.shape(value)

    def keep(self, name: str) -> str:
        if name not in self.made and name not in self.inputs and name not in self.b.constants:
            self.made.append(name)
        return name

    def op(self, op: str, *inputs: str, **more: Any) -> str:
        self.read |= set(inputs)
        return self.keep(self.b.op(op, *inputs, **more))

    def elementwise(self, op: str, *inputs: str) -> str:
        shape = np.broadcast_shapes(*(self.shape(i) for i in inputs))
        return self.op(op, *(self.spread(i, shape) for i in inputs))

    def spread(self, value: str, shape: tuple[int, ...], dims: Sequence[int] | None = None) -> str:
        self.read.add(value)
        return self.keep(self.b.broadcast(value, shape, dims))

    def unary(self, op: str, value: str, to: DType | None = None) -> str:
        return self.op(op, value, dtype=to)

    def with_const(self, op: str, value: str, number: Scalar) -> str:
        return self.elementwise(op, value, self.b.scalar(number, self.type_of(value)))

    def zero_unless(self, condition: str, value: str) -> str:
        return self.elementwise("where", condition, value, self.b.scalar(0, self.type_of(value)))

    def new_shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = ()
        for _ in range(int(self.rng.choice([0, 1, 2, 3, 4], p=[0.03, 0.22, 0.4, 0.26, 0.09]))):
            size = self.pick(self.pool)
            if math.prod(shape) * size <= self.elements:
                shape += (size,)
        return shape

    def fresh(self, dtype: DType, shape: tuple[int, ...], table: int | None = None) -> str:
        """A new graph input, or now and then a constant (indices of it stay within `table`)."""
        if self.chance(0.12):
            array = random_array(self.rng, dtype, shape, table)
            return self.b.constant(array, f"w{len(self.b.constants)}")
        self.inputs.append(self.b.input(f"x{len(self.inputs)}", dtype, shape))
        return self.inputs[-1]

    def some(self) -> str:
        """A tensor, mostly one computed lately."""
        if not self.made or self.chance(0.06):
            return self.fresh(self.random_dtype(), self.new_shape())
        return self.pick(self.made[-5:] if self.chance(0.6) else self.made)

    def fitting(self, dtype: DType, shape: tuple[int, ...]) -> str:
        """A tensor of a type that broadcasts to `shape`: an existing one, or a new input or constant."""
        if self.chance(0.1):
            return self.b.scalar(self.random_scalar(dtype), dtype)
        known = [t for t in (*self.made, *self.inputs) if self.type_of(t) is dtype]
        known = [t for t in known if _broadcasts(self.shape(t), shape)]
        if known and self.chance(0.75):
            return self.pick(known)
        if self.chance(0.6):
            return self.fresh(dtype, shape)
        kept = tuple(n if self.chance(0.6) else 1 for n in shape)
        return self.fresh(dtype, kept[int(self.rng.integers(0, len(kept) + 1)) :])

    # --- recipes

    def focus(self, op: str, dtype: DType) -> None:
        """One node of `op` on `dtype`."""
        if op == "iota":
            self.iota(dtype)
            return
        known = [t for t in self.made if self.type_of(t) is (dtype if op != "cast" else self.type_of(t))]
        known = [t for t in known if self.shape(t) and 0 not in self.shape(t)]
        if known and self.chance(0.6):
            source = self.pick(known)
        else:
            shape = tuple(n for n in self.new_shape() if n) or (5,)
            source = self.fresh(dtype if op != "cast" else self.random_dtype(), shape)
        if op == "cast":
            self.unary("cast", self.castable(source, dtype), dtype)
        elif op in REDUCTIONS:
            self.reduction(source, op)
        else:
            self.compute(source, op)

    def move(self, op: str, dtype: DType) -> None:
        """One movement node of `op` on a computed value of a type, so that it cannot be folded away."""
        known = [t for t in self.made if self.type_of(t) is dtype and sum(n > 1 for n in self.shape(t)) > 1]
        source = self.pick(known) if known and self.chance(0.6) else ""
        if not source:
            shape = tuple(n for n in self.new_shape() if n > 1) or (5,)
            shape = shape if len(shape) > 1 else (*shape, self.pick((3, 4, 6)))
            source = self.fresh(dtype, shape)
            source = self.elementwise("xor" if dtype is DType.BOOL else "add", source, self.fitting(dtype, shape))
        match op:
            case "broadcast":
                self.spread_other(source)
            case "gather" | "gather_elements":
                self.gather(source, op)
            case "transpose":
                perm = tuple(reversed(range(len(self.shape(source)))))
                self.unary("neg" if dtype.is_float else "copy", self.op(op, source, perm=perm))
            case _:
                getattr(self, op)(source)

    def step(self) -> None:
        recipes = (
            (self.compute, 0.34),
            (self.cast, 0.08),
            (self.reduction, 0.14),
            (self.normalise, 0.08),
            (self.transpose, 0.07),
            (self.reshape, 0.07),
            (self.slice, 0.06),
            (self.concat, 0.04),
            (self.pad, 0.03),
            (self.gather, 0.04),
            (self.spread_other, 0.03),
            (self.iota, 0.02),
        )
        weights = np.array([w for _, w in recipes])
        recipes[int(self.rng.choice(len(recipes), p=weights / weights.sum()))][0]()

    def compute(self, first: str = "", op: str = "") -> None:
        """Any elementwise primitive."""
        first = first or self.some()
        dtype = self.type_of(first)
        op = op or self.pick([o for o in ELEMENTWISE if dtype in SUPPORTED[o] and o != "cast"])
        if dtype.is_float:
            first = self.guarded(op, first)
        shape = self.shape(first)
        if op == "where":
            self.elementwise(op, self.fitting(DType.BOOL, shape), first, self.fitting(dtype, shape))
        elif PRIMITIVES[op].arity == 1:
            self.unary(op, first)
        else:
            second = self.guarded_second(op, self.fitting(dtype, shape))
            pair = [first, second]
            if op in ("add", "sub", "mul", "minimum", "lt", "eq", "bitxor") and self.chance(0.3):
                pair.reverse()
            self.elementwise(op, *pair)

    def cast(self) -> None:
        source, to = self.some(), self.random_dtype()
        self.unary("cast", self.castable(source, to), to)

    def axes(self, value: str) -> tuple[int, ...]:
        rank = len(self.shape(value))
        count = int(self.rng.choice([1, 1, 1, 2, rank]))
        return tuple(sorted(int(a) for a in self.rng.permutation(rank)[: max(1, count)]))

    def reduction(self, source: str = "", op: str = "") -> None:
        source = source or self.some()
        dtype, shape = self.type_of(source), self.shape(source)
        ops = [o for o in (*REDUCTIONS, "sum", "sum", "max") if dtype in SUPPORTED[o]]
        if not shape or not ops:
            return
        op = op or self.pick(ops)
        axes = self.axes(source)
        size = math.prod(shape[a] for a in axes)
        if op in ("argmax", "argmin"):
            if size:
                self.op(op, source, axes=axes, select_last=self.chance(0.5))
            return
        if dtype.is_float:
            source = self.guarded(op, source)
        result = self.op(op, source, axes=axes)
        if op == "sum" and dtype.is_float and size > 1 and self.chance(0.7):
            result = self.with_const("mul", result, 1.0 / size)
        if self.chance(0.4):
            self.keep(self.b.reshape(result, [1 if i in axes else n for i, n in enumerate(shape)]))
            self.read.add(result)

    def normalise(self) -> None:
        """A softmax or a layer norm over one axis, or over rows and then columns: reductions broadcast back."""
        source = self.some()
        shape = self.shape(source)
        if not self.type_of(source).is_float or not shape or 0 in shape:
            return
        x = self.with_const("mul", self.unary("tanh", source), 2.0)
        for axis in self.rng.permutation(len(shape))[: int(self.rng.integers(1, 3))]:
            kept = tuple(i for i in range(len(shape)) if i != axis)

            def back(value: str, kept: tuple[int, ...] = kept) -> str:
                return self.spread(value, shape, kept)

            axes = (int(axis),)
            if self.chance(0.5):
                e = self.unary("exp", self.op("sub", x, back(self.op("max", x, axes=axes))))
                x = self.op("div", e, back(self.op("sum", e, axes=axes)))
            else:
                mean = self.with_const("mul", self.op("sum", x, axes=axes), 1.0 / shape[axis])
                d = self.op("sub", x, back(mean))
                squares = self.with_const("mul", self.op("sum", self.op("mul", d, d), axes=axes), 1.0 / shape[axis])
                x = self.op("div", d, back(self.unary("sqrt", self.with_const("add", squares, 0.015625))))

    def crossed(self) -> None:
        """Two reductions of one tensor over different axes: rows and columns."""
        wide = [t for t in self.made if sum(n > 1 for n in self.shape(t)) > 1 and self.type_of(t) is not DType.BOOL]
        source = self.pick(wide) if wide and self.chance(0.7) else self.fresh(DType.F32, (self.pick((5, 33)), 16))
        if self.type_of(source).is_float:
            source = self.unary("tanh", source)
        for axis in self.rng.permutation([i for i, n in enumerate(self.shape(source)) if n > 1])[:2]:
            self.op(self.pick(("sum", "max", "min")), source, axes=(int(axis),))

    def transpose(self, source: str = "") -> None:
        source = source or self.some()
        perm = tuple(int(p) for p in self.rng.permutation(len(self.shape(source))))
        self.op("transpose", source, perm=perm)

    def reshape(self, source: str = "") -> None:
        """Merged or split dimensions, or a shape that does not align."""
        source = source or self.some()
        shape = list(self.shape(source))
        if len(shape) > 1 and self.chance(0.5):
            at = int(self.rng.integers(len(shape) - 1))
            shape[at : at + 2] = [shape[at] * shape[at + 1]]
        elif shape and self.chance(0.5):
            at = int(self.rng.integers(len(shape)))
            divisors = [d for d in range(1, shape[at] + 1) if shape[at] % d == 0] or [1]
            d = self.pick(divisors)
            shape[at : at + 1] = [d, shape[at] // d]
        elif shape:
            shape.reverse()
        else:
            shape = [1]
        self.op("reshape", source, shape=tuple(shape))

    def slice(self, source: str = "") -> None:
        source = source or self.some()
        starts, steps, sizes = [], [], []
        for n in self.shape(source):
            start, step, size = 0, 1, n
            if n and self.chance(0.6):
                step = int(self.rng.choice([1, 1, 1, 2, 3]))
                start = int(self.rng.integers(n))
                size = int(self.rng.integers(1, (n - 1 - start) // step + 2))
                if self.chance(0.3):
                    start, step = start + (size - 1) * step, -step
            starts, steps, sizes = [*starts, start], [*steps, step], [*sizes, size]
        self.op("slice", source, sizes=sizes, starts=tuple(starts), steps=tuple(steps))

    def concat(self, source: str = "") -> None:
        first = source or self.some()
        shape = self.shape(first)
        if not shape:
            return
        axis = int(self.rng.integers(len(shape)))
        parts = [first]
        for _ in range(int(self.rng.integers(1, 4))):
            same = [t for t in self.made if self.type_of(t) is self.type_of(first) and self.shape(t) == shape]
            other = (*shape[:axis], self.pick(self.pool), *shape[axis + 1 :])
            parts.append(self.pick(same) if same and self.chance(0.6) else self.fresh(self.type_of(first), other))
        if sum(math.prod(self.shape(p)) for p in parts) <= self.elements:
            self.op("concat", *parts, axis=axis)

    def pad(self, source: str = "") -> None:
        source = source or self.some()
        shape = self.shape(source)
        mode = self.pick(["", "", "edge", "reflect"])
        low = 0 if mode else -1
        before = tuple(int(self.rng.integers(low, 3)) if n > 2 else 0 for n in shape)
        after = tuple(int(self.rng.integers(low, 3)) if n > 2 else 0 for n in shape)
        if math.prod(n + b + a for n, b, a in zip(shape, before, after, strict=True)) > self.elements:
            return
        how: dict[str, Any] = {"mode": mode} if mode else {"value": self.random_scalar(self.type_of(source))}
        self.op("pad", source, before=before, after=after, **how)

    def gather(self, source: str = "", op: str = "") -> None:
        source = source or self.some()
        shape = self.shape(source)
        if not shape or 0 in shape:
            return
        axis, kind = int(self.rng.integers(len(shape))), self.pick([DType.I32, DType.I64])
        if op == "gather_elements" or (not op and self.chance(0.3)):
            lengths = tuple(int(self.rng.integers(1, n + 1)) for n in shape)
            at = (*lengths[:axis], self.pick(self.pool), *lengths[axis + 1 :])
            if math.prod(at) <= self.elements:
                self.op("gather_elements", source, self.fresh(kind, at, shape[axis]), axis=axis)
            return
        integers = [t for t in self.made if self.type_of(t) is kind and len(self.shape(t)) < 3]
        if integers and self.chance(0.4):
            index = self.with_const("mod", self.pick(integers), shape[axis])
        else:
            rank = int(self.rng.integers(0, 3))
            index = self.fresh(kind, tuple(self.pick(self.pool) for _ in range(rank)), shape[axis])
        if math.prod(shape) // shape[axis] * math.prod(self.shape(index)) <= self.elements:
            self.op("gather", source, index, axis=axis)

    def spread_other(self, source: str = "") -> None:
        """A broadcast along a new dimension, wherever it stands."""
        source = source or self.some()
        shape, at = list(self.shape(source)), int(self.rng.integers(len(self.shape(source)) + 1))
        shape.insert(at, self.pick(self.pool))
        if math.prod(shape) <= self.elements:
            self.spread(source, tuple(shape), [i for i in range(len(shape)) if i != at])

    def iota(self, dtype: DType | None = None) -> None:
        shape = self.new_shape() or (7,)
        dtype = dtype or self.pick([d for d in DTYPES if d in SUPPORTED["iota"]])
        self.op("iota", dtype=dtype, sizes=shape, axis=int(self.rng.integers(len(shape))))

    def finish(self) -> Graph:
        while not self.made:
            self.compute()
        for name in self.made:
            if name not in self.read or self.chance(0.08):
                self.b.output(name)
        if self.chance(0.05) and self.inputs:
            self.b.output(self.pick(self.inputs))
        return self.b.build()


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    """Whether NumPy's rule broadcasts `shape` to `to`."""
    return len(shape) <= len(to) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(to), strict=False))
