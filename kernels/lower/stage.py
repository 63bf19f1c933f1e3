"""One stage of a group: evaluate its values in order, store each where the plan keeps it."""

from __future__ import annotations

from dataclasses import dataclass

from ...graphs.dtypes import DType
from ...search_space.plan import Group, Stage
from ..loops import Apply, Assign, Declare, Expr, For, If, Let, Literal, Load, Local, Stmt, Store, Stream
from .algebra import Algebra
from .alias import alias_stores, aliased_reads, invert
from .context import Context
from .coupled import CouplingError, match
from .errors import LoweringError
from .evaluate import Evaluator
from .integers import Range, add, mul, number
from .integers import sub as minus
from .memory import Memory
from .names import Names
from .nest import Axis, Location, Nest
from .reduce import Components, accumulate, wrap
from .windows import Window, windows

STREAM_CHUNK = 1024
"""Elements of a row that are collected before they are stored past the caches."""
UNROLLED_PARTS = 16
"""Up to this many partial results are combined by straight code."""


@dataclass
class GroupState:
    """What the stages of one group share.

    tiles   the number of the task's tile along each parallel axis
    """

    ctx: Context
    group: Group
    names: Names
    axes: dict[int, Axis]
    tiles: dict[int, Expr]
    ranges: dict[Expr, Range]
    memory: Memory


def lower_stage(state: GroupState, stage: Stage) -> tuple[Stmt, ...]:
    """The statements of one stage."""
    body: list[Stmt] = []
    for window in windows(state.ctx, stage):
        body += _StageLowering(state, stage, window).run()
    return tuple(body)


class _StageLowering:
    def __init__(self, state: GroupState, stage: Stage, window: dict[int, Window]) -> None:
        self.state = state
        self.ctx = state.ctx
        self.stage = stage
        if stage.vector >= 0 and (not stage.order or stage.order[-1] != stage.vector):
            raise LoweringError("the vector axis is not the innermost loop")
        listed = {v for v in stage.values if self.ctx.value(v).reduce}
        lanes = self._lanes([v for v in listed if stage.vector in self.ctx.value(v).reduce])
        unknown = [a for a in stage.order if a not in state.axes]
        if unknown:
            raise LoweringError(f"axes {unknown} belong to no value of the group")
        self.streamed = {v for v in stage.values if stage.vector not in window and self._streams(v)}
        self.nest = Nest(
            stage.order,
            state.axes,
            state.names,
            state.ranges,
            stage.vector >= 0,
            lanes,
            STREAM_CHUNK if self.streamed else 0,
            dict(stage.unroll),
            window,
        )
        self.ev = Evaluator(self.ctx, self.nest, state.memory)

    def _lanes(self, reductions: list[int]) -> int:
        if not reductions or self.stage.vector < 0:
            return 0
        lanes = max(1, self.stage.width) * max(self.ctx.plan.reduction(v).accumulators for v in reductions)
        if lanes & (lanes - 1):
            raise LoweringError(f"{lanes} lanes are no power of two")
        size = self.state.axes[self.stage.vector].size
        if isinstance(size, Literal):
            while lanes > max(1, int(size.value)):
                lanes //= 2
        return lanes

    def _streams(self, v: int) -> bool:
        """True for an output stored past the caches: rows of it come out of the vector loop, in every task."""
        axes = self.ctx.value(v).axes
        return (
            v in self.ctx.plan.stream
            and not self.ctx.value(v).reduce
            and self.stage.vector >= 0
            and axes[-1:] == (self.stage.vector,)
            and not self._lacking(v)
        )

    def run(self) -> tuple[Stmt, ...]:
        pairs = self._pairs()
        for v in sorted({*self.stage.values, *self.stage.combine}):
            if v in self.stage.combine:
                self._combine(v)
            elif v in pairs:
                self._pair(v, pairs[v])
            elif v in pairs.values():
                continue  # done beside its partner
            elif self.ctx.value(v).reduce:
                self._reduce(v)
            else:
                self._elementwise(v)
        return self.nest.assemble()

    def _elementwise(self, v: int) -> None:
        aliased = aliased_reads(self.ctx, v)
        if aliased and len(aliased) == len(self.ctx.value(v).reads):
            return  # whoever computes the pieces stores them
        value = self.ev.own(v)
        home = self._home(v, value)
        if not aliased:
            self.ev.results[v] = value
            self._keep(v, value, home, self.nest.local)
            return
        env = {a: self.nest.position[a] for a in self.ctx.value(v).axes}
        rest = tuple(invert(self.nest, self.ev.bounds(r.where, v, env, None)) for r in aliased)
        array, offset = self.ctx.stored[v], self.ctx.layouts[self.ctx.stored[v]].offset(list(env.values()))
        store: Stmt = Store(array, offset, self._form(v, value, self.ctx.arrays[array].dtype))
        for condition in rest:
            store = If(condition, (store,))
        self._guarded(v, self._home(v, value, *rest), (store,))

    def _home(self, v: int, *values: Expr) -> Location:
        where = Location(self.nest.depth(self.ctx.value(v).axes))
        for value in values:
            where = self.nest.join(where, self.nest.locate(value))
        return where

    # --- reductions

    def _reduce(self, v: int) -> None:
        alg = self.ctx.algebras[v]
        split = self.ctx.splits.get(v)

        def sink(where: Location, final: Components, local: dict[int, Expr]) -> None:
            if split is not None:
                tiles = [self.state.tiles[a] for a in split.axes]
                position = [add(self.state.axes[a].start, local[a]) for a in self.ctx.value(v).axes]
                offset = split.layout.offset([*tiles, *position])
                stores = tuple(Store(n, offset, x) for n, x in zip(split.arrays, final, strict=True))
                self._guarded(v, where, stores)
                return
            self._finish(v, alg, final, where, local)

        accumulate(self.ev, v, alg, self.state.memory.private, sink)

    def _pairs(self) -> dict[int, int]:
        """Reductions of this stage that run in one pass with another one: the first to the second."""
        pairs: dict[int, int] = {}
        for v in self.stage.values:
            first = self.ctx.plan.reduction(v).coupled
            if first >= 0:
                if first not in self.stage.values or first in pairs or {v, first} & self.ctx.splits.keys():
                    raise CouplingError(f"reductions {first} and {v} are not accumulated whole in one stage")
                pairs[first] = v
        return pairs

    def _pair(self, first: int, second: int) -> None:
        alg = match(self.ctx.sub, first, second)

        def sink(where: Location, final: Components, local: dict[int, Expr]) -> None:
            for v, result in zip((first, second), alg.results(final), strict=True):
                self._settle(v, result, where, local)

        accumulate(self.ev, first, alg, self.state.memory.private, sink)

    def _finish(self, v: int, alg: Algebra, final: Components, where: Location, local: dict[int, Expr]) -> None:
        self._settle(v, alg.finish(final), where, local)

    def _settle(self, v: int, result: Expr, where: Location, local: dict[int, Expr]) -> None:
        """Names a finished reduction for the rest of the stage, and stores it."""
        value = self.ctx.value(v)
        result = self.ev.rounded(self.nest.bind(result), value.dtype)
        if local is self.nest.local:
            self.ev.results[v] = result
        where = self.nest.join(where, Location(self.nest.depth(value.axes))) if local is self.nest.local else where
        self._keep(v, result, where, local)

    def _combine(self, v: int) -> None:
        """Folds the partial results of a split reduction in task order."""
        split = self.ctx.splits.get(v)
        if split is None:
            raise LoweringError(f"reduction {v} has no partial results to combine")
        value = self.ctx.value(v)
        alg = self.ctx.algebras[v]
        nest = self.nest
        depth = nest.depth(value.axes)
        own = [nest.position[a] for a in value.axes]
        parts = 1
        known = all(isinstance(c, Literal) for c in split.counts)
        for count in split.counts:
            parts *= int(count.value) if isinstance(count, Literal) else 1
        if known and parts <= UNROLLED_PARTS:
            final = self._straight(alg, split.arrays, split.layout.strides, own, split.counts, parts)
        elif depth and depth == len(nest.order) and nest.simd:
            final = self._columns(v, alg, own)
        else:
            final = self._serial(v, alg, own, depth)
        self._finish(v, alg, final, Location(depth), nest.local)

    def _straight(
        self,
        alg: Algebra,
        arrays: tuple[str, ...],
        strides: tuple[Expr, ...],
        own: list[Expr],
        counts: tuple[Expr, ...],
        parts: int,
    ) -> Components:
        base: Expr = number(0)
        for position, stride in zip(own, strides[len(counts) :], strict=True):
            base = add(base, mul(position, stride))
        final: Components = alg.identity
        for part in range(parts):
            # partial results are row-major over the counts, so part k lies k times the innermost stride further
            offset = add(base, mul(number(part), strides[len(counts) - 1]))
            loaded = tuple(self.nest.bind(Load(n, offset, t)) for n, t in zip(arrays, alg.dtypes, strict=True))
            final = loaded if part == 0 else tuple(self.nest.bind(x) for x in alg.merge(final, loaded))
        return final

    def _parts(self, v: int) -> tuple[Local, Expr, Expr]:
        """A loop variable over the parts, how many there are, and the distance between two."""
        split = self.ctx.splits[v]
        count: Expr = number(1)
        for c in split.counts:
            count = mul(count, c)
        return self.nest.names.fresh("p"), count, split.layout.strides[len(split.counts) - 1]

    def _serial(self, v: int, alg: Algebra, own: list[Expr], depth: int) -> Components:
        split = self.ctx.splits[v]
        nest, where = self.nest, Location(depth)
        part, count, stride = self._parts(v)
        variables = tuple(nest.mutable(x, where) for x in alg.identity)
        base = split.layout.offset([*(number(0) for _ in split.counts), *own])
        body = _merge_into(nest, alg, variables, split.arrays, add(base, mul(part, stride)))
        nest.put(where, For(part, number(0), count, body))
        return tuple(nest.result(x, where) for x in variables)

    def _columns(self, v: int, alg: Algebra, own: list[Expr]) -> Components:
        """Parts outside, the vector loop inside: sums over a private array along the vector axis."""
        split, nest = self.ctx.splits[v], self.nest
        axis = self.stage.vector
        where = Location(len(nest.order) - 1)
        part, count, stride = self._parts(v)
        size = nest.axes[axis].size
        names = []
        for dtype in alg.dtypes:
            name, declare = self.state.memory.private(dtype, size)
            if declare:
                assert isinstance(size, Literal)
                nest.put(where, Declare(name, dtype, int(size.value)))
            names.append(name)
        lane = nest.names.fresh("i")
        trip, axes = nest.axes[axis].trip, self.ctx.value(v).axes
        there = [add(nest.axes[axis].start, lane) if a == axis else p for a, p in zip(axes, own, strict=True)]
        base = split.layout.offset([*(number(0) for _ in split.counts), *there])
        fill = tuple(Store(n, lane, x) for n, x in zip(names, alg.identity, strict=True))
        nest.put(where, wrap([(lane, number(0), trip)], fill))
        old = tuple(Load(n, lane, t) for n, t in zip(names, alg.dtypes, strict=True))
        new = tuple(Load(n, add(base, mul(part, stride)), t) for n, t in zip(split.arrays, alg.dtypes, strict=True))
        lets, a, b = _named(nest, old, new)
        stores = tuple(Store(n, lane, x) for n, x in zip(names, alg.merge(a, b), strict=True))
        nest.put(where, For(part, number(0), count, (wrap([(lane, number(0), trip)], (*lets, *stores)),)))
        return tuple(nest.bind(Load(n, nest.local[axis], t)) for n, t in zip(names, alg.dtypes, strict=True))

    # --- stores

    def _keep(self, v: int, value: Expr, where: Location, local: dict[int, Expr]) -> None:
        """Stores a finished value wherever the plan keeps it."""
        if self.ctx.has_place(v, "block"):
            name, offset = self.state.memory.store(v, local)
            self.nest.put(where, Store(name, offset, self._form(v, value, self.ctx.kept(v))))
        for consumer in self.ctx.consumers[v]:
            if self.ctx.places.get((v, consumer)) == "alias":
                at = {a: add(self.state.axes[a].start, local[a]) for a in self.ctx.value(v).axes}
                array = self.ctx.stored.get(consumer, "")
                form = self._form(v, value, self.ctx.arrays[array].dtype if array else self.ctx.kept(consumer))
                self._guarded(v, where, alias_stores(self.ctx, v, consumer, form, at))
        if v in self.ctx.stored:
            position = [add(self.state.axes[a].start, local[a]) for a in self.ctx.value(v).axes]
            array = self.ctx.stored[v]
            value = self._form(v, value, self.ctx.arrays[array].dtype)
            if v in self.streamed and where == Location(len(self.nest.order)):
                self._stream(v, array, value, position)
                return
            self._guarded(v, where, (Store(array, self.ctx.layouts[array].offset(position), value),))

    def _form(self, v: int, value: Expr, dtype: DType) -> Expr:
        """What to store for a value in an array of a dtype: one of the value's own rounds anyway."""
        return self.ev.stored_form(value, dtype) if dtype is self.ctx.value(v).dtype else value

    def _stream(self, v: int, array: str, value: Expr, position: list[Expr]) -> None:
        """Collects a piece of a row in block memory, then copies it out past the caches."""
        nest, axis = self.nest, self.stage.vector
        size = self.state.axes[axis].size
        elements = min(STREAM_CHUNK, int(size.value)) if isinstance(size, Literal) else STREAM_CHUNK
        pad = self.state.memory.pad(self.ctx.value(v).dtype, elements)
        nest.put(Location(len(nest.order)), Store(pad, minus(nest.local[axis], nest.chunk_start), value))
        first = [*position[:-1], add(self.state.axes[axis].start, nest.chunk_start)]
        offset = self.ctx.layouts[array].offset(first)
        nest.chunk_after.append(Stream(array, offset, pad, nest.chunk_trip))

    def _lacking(self, v: int) -> list[Expr]:
        """The tile numbers of this task along parallel axes that the value does not have."""
        lacking = [a for a, _ in self.state.group.parallel if a not in self.ctx.value(v).domain]
        return [self.state.tiles[a] for a in lacking if not isinstance(self.state.tiles[a], Literal)]

    def _guarded(self, v: int, where: Location, stores: tuple[Stmt, ...]) -> None:
        """Stores that only the first task along axes that the value lacks does."""
        tests = [Apply("eq", DType.BOOL, (tile, number(0))) for tile in self._lacking(v)]
        if not tests:
            for store in stores:
                self.nest.put(where, store)
            return
        condition: Expr = tests[0]
        for test in tests[1:]:
            condition = Apply("and", DType.BOOL, (condition, test))
        self.nest.put(where, If(condition, stores))


def _named(nest: Nest, old: Components, new: Components) -> tuple[tuple[Stmt, ...], Components, Components]:
    lets: list[Stmt] = []
    sides: list[Components] = []
    for side in (old, new):
        names = tuple(nest.names.fresh("t", x.dtype) for x in side)
        lets += [Let(n, x) for n, x in zip(names, side, strict=True)]
        sides.append(names)
    return tuple(lets), sides[0], sides[1]


def _merge_into(
    nest: Nest, alg: Algebra, variables: tuple[Local, ...], arrays: tuple[str, ...], offset: Expr
) -> tuple[Stmt, ...]:
    loads = tuple(Load(n, offset, t) for n, t in zip(arrays, alg.dtypes, strict=True))
    lets, a, b = _named(nest, variables, loads)
    fresh = [nest.names.fresh("t", x.dtype) for x in variables]
    merged = [Let(n, x) for n, x in zip(fresh, alg.merge(a, b), strict=True)]
    return (*lets, *merged, *(Assign(x, n) for x, n in zip(variables, fresh, strict=True)))
