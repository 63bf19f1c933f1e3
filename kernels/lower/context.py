"""What lowering needs to know about one plan: places, homes, extents, and the arrays of the whole launch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from ...graphs.dtypes import DType
from ...graphs.subgraph import Subgraph, Value
from ...search_space.coupling import pairs
from ...search_space.plan import Group, Place, Plan, Stage
from ..loops import Argument, Array, Expr, Literal
from .algebra import Algebra, algebra, computing
from .coupled import match
from .errors import LoweringError
from .integers import add, ceiling, mul, number


@dataclass(frozen=True)
class Layout:
    """Row-major storage: one stride per axis of the value (in the value's axis order), and the elements in all."""

    strides: tuple[Expr, ...]
    elements: Expr

    def offset(self, positions: Sequence[Expr]) -> Expr:
        total: Expr = number(0)
        for position, stride in zip(positions, self.strides, strict=True):
            total = add(total, mul(position, stride))
        return total


def layout(sizes: Sequence[Expr], order: Sequence[int], pad: int = 0) -> Layout:
    """Strides of a value whose axis k has `sizes[k]`, stored in `order` (indices into sizes, outer to inner)."""
    strides: dict[int, Expr] = {}
    step: Expr = number(1)
    for k in reversed(order):
        strides[k] = step
        step = mul(add(sizes[k], number(pad)) if k == order[-1] else sizes[k], step)
    return Layout(tuple(strides[k] for k in range(len(sizes))), step)


@dataclass(frozen=True)
class Split:
    """Partial results of a reduction whose reduced axes are partly parallel; of both where it is one of a pair.

    axes    the reduced parallel axes, in the group's order
    counts  tiles along each
    arrays  one scratch array per component of the accumulator, [*counts, *own axes]
    """

    axes: tuple[int, ...]
    counts: tuple[Expr, ...]
    arrays: tuple[str, ...]
    layout: Layout


@dataclass
class Context:
    """One plan being lowered. Arrays are known by name; `arrays` has those outside block memory and registers."""

    sub: Subgraph
    plan: Plan
    strict: bool
    places: dict[tuple[int, int], Place] = field(init=False)
    arrays: dict[str, Array] = field(default_factory=dict)
    layouts: dict[str, Layout] = field(default_factory=dict)
    stored: dict[int, str] = field(default_factory=dict)
    """The array outside block memory that holds a value: its output buffer or its scratch array."""
    splits: dict[int, Split] = field(default_factory=dict)
    algebras: dict[int, Algebra] = field(default_factory=dict)
    finished: set[int] = field(default_factory=set)
    """Values that the stages lowered so far have computed."""

    def __post_init__(self) -> None:
        self.places = {(e.value, e.consumer): e.place for e in self.plan.edges}
        self.pairs = pairs(self.plan)
        """Reductions that run in one pass with another one: the first to the second."""
        self.consumers = self.sub.consumers()
        self.chain = self._chains()
        """For each value how many operators in a row are inlined into it at most, itself included."""

    def _chains(self) -> list[int]:
        chain: list[int] = []
        for number_, value in enumerate(self.sub.values):
            inlined = (r.value for r in value.reads if self.places.get((r.value, number_)) == "inline")
            chain.append(1 + max((chain[v] for v in inlined), default=0))
        return chain

    @property
    def arguments(self) -> int:
        return len(self.plan.dynamic) + len(self.sub.slots)

    def value(self, number_: int) -> Value:
        return self.sub.values[number_]

    def take_axes(self, value: int, axes: tuple[int, ...]) -> None:
        """From here on an input counts as having the axes that its readers read it along; so does its buffer."""
        values = list(self.sub.values)
        along = dict(zip(values[value].axes, axes, strict=True))
        values[value] = replace(values[value], axes=axes)
        self.sub = replace(self.sub, values=tuple(values))
        buffers = (
            replace(b, order=tuple(along.get(a, a) for a in b.order)) if b.value == value else b
            for b in self.plan.buffers
        )
        self.plan = replace(self.plan, buffers=tuple(buffers))

    def extent(self, axis: int) -> Expr:
        if axis in self.plan.dynamic:
            return Argument(self.plan.dynamic.index(axis))
        return number(self.sub.extents[axis])

    def slot(self, slot: int) -> Expr:
        return Argument(len(self.plan.dynamic) + slot)

    def place(self, value: int, consumer: int) -> Place:
        try:
            return self.places[value, consumer]
        except KeyError:
            raise LoweringError(f"no edge from value {value} to {consumer}") from None

    def has_place(self, value: int, place: Place) -> bool:
        return any(self.places.get((value, c)) == place for c in self.consumers[value])

    def kept(self, value: int) -> DType:
        """The dtype of a value in block or scratch memory: `fast` rounds there only what a cast has rounded."""
        v = self.value(value)
        return v.dtype if self.strict or v.op == "cast" else computing(v.dtype)

    def is_empty(self, value: int) -> bool:
        """True when the value surely has no element."""
        return any(self.extent(a) == Literal(0, DType.I64) for a in self.value(value).axes)

    def buffer_order(self, value: int) -> tuple[tuple[int, ...], int]:
        """Storage order of a value in block or scratch memory, as indices into its axes, and its padding."""
        axes = self.value(value).axes
        for buffer in self.plan.buffers:
            if buffer.value == value:
                if sorted(buffer.order) != sorted(axes):
                    raise LoweringError(f"buffer order of value {value} is no order of its axes")
                return tuple(axes.index(a) for a in buffer.order), buffer.pad
        return tuple(range(len(axes))), 0

    def stages(self) -> Iterator[tuple[Group, Stage]]:
        for kernel in self.plan.kernels:
            for phase in kernel.phases:
                for group in phase.groups:
                    for stage in group.stages:
                        yield group, stage

    def add_array(self, array: Array, shape: Layout) -> None:
        self.arrays[array.name] = array
        self.layouts[array.name] = shape


def accumulators(ctx: Context) -> dict[int, Algebra]:
    """The accumulator of every reduction, by how many elements each of its lanes sees in the plan."""
    terms: dict[int, int] = {}
    for group, stage in ctx.stages():
        tiles, lanes = dict(group.parallel), dict(stage.lanes)
        for v in stage.values:
            axes = ctx.value(v).reduce
            count = math.prod(-(-tiles.get(a, ctx.sub.extents[a]) // lanes.get(a, 1)) for a in axes)
            if stage.vector in axes:
                own = 1 if lanes else ctx.plan.reduction(v).accumulators  # on CUDA they are steps taken at once
                count //= max(1, stage.width * own)
            terms[v] = max(terms.get(v, 0), count)
    reductions = [v for v in ctx.sub.computed if ctx.value(v).reduce]
    return {v: algebra(ctx.sub, ctx.value(v), ctx.plan.dynamic, terms.get(v, 0)) for v in reductions}


def lay_out(ctx: Context) -> None:
    """Name every buffer of the launch: inputs, outputs, then scratch (values read globally, partial results)."""
    ctx.algebras = accumulators(ctx)
    sub = ctx.sub
    for k, v in enumerate(sub.inputs):
        _whole(ctx, f"x{k}", v, "input", k, (tuple(range(len(sub.values[v].axes))), 0))
        ctx.stored[v] = f"x{k}"
    base = len(sub.inputs)
    for k, v in enumerate(sub.outputs):
        _whole(ctx, f"y{k}", v, "output", base + k, (tuple(range(len(sub.values[v].axes))), 0))
        ctx.stored[v] = f"y{k}"
    base += len(sub.outputs)
    for v in sub.computed:
        if v not in ctx.stored and ctx.has_place(v, "global"):
            name = f"g{base - len(sub.inputs) - len(sub.outputs)}"
            _whole(ctx, name, v, "scratch", base, ctx.buffer_order(v))
            ctx.stored[v] = name
            base += 1
    for group, stage in ctx.stages():
        tiles = dict(group.parallel)
        for v in sorted(stage.values):  # the first of a pair before the second
            axes = tuple(a for a, _ in group.parallel if a in sub.values[v].reduce)
            if not axes or v in ctx.splits:
                continue
            second = ctx.pairs.get(v, -1)
            dtypes = (ctx.algebras[v] if second < 0 else match(sub, v, second)).dtypes
            counts = tuple(ceiling(ctx.extent(a), tiles[a]) for a in axes)
            sizes = (*counts, *(ctx.extent(a) for a in sub.values[v].axes))
            shape = layout(sizes, range(len(sizes)))
            names = []
            for dtype in dtypes:
                name = f"g{base - len(sub.inputs) - len(sub.outputs)}"
                ctx.add_array(Array(name, dtype, "scratch", shape.elements, base), shape)
                names.append(name)
                base += 1
            ctx.splits[v] = Split(axes, counts, tuple(names), shape)
            if second >= 0:
                ctx.splits[second] = ctx.splits[v]


def _whole(ctx: Context, name: str, value: int, space: str, position: int, order: tuple[tuple[int, ...], int]) -> None:
    axes = ctx.value(value).axes
    shape = layout([ctx.extent(a) for a in axes], *order)
    dtype = ctx.kept(value) if space == "scratch" else ctx.value(value).dtype
    ctx.add_array(Array(name, dtype, space, shape.elements, position), shape)  # type: ignore[arg-type]
