"""One stage of a group of threads: evaluate its values in order, keep each where the plan says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....graphs.dtypes import DType
from ....search_space.plan import Group, Stage
from ....search_space.target import WARP
from ...loops import THREAD, Apply, Expr, If, Literal, Stmt, Store
from ..algebra import Algebra
from ..alias import alias_stores, aliased_reads, invert
from ..context import Context
from ..coupled import Coupled, CouplingError, match
from ..errors import LoweringError
from ..evaluate import Evaluator
from ..group import Frame
from ..integers import add, mul, number
from ..windows import Window, windows
from .access import Access, pattern
from .assemble import assemble
from .combine import PART, combine, part_lanes
from .crossing import cross
from .divisors import Divisors
from .fold import Components, Scratch
from .lanes import Coordinates, Lane, busy
from .memory import ThreadMemory
from .nest import Location, ThreadNest
from .reduce import REGISTERS, Accumulation, accumulate, inside
from .registers import Resident


@dataclass
class ThreadState:
    """What the stages of one group share.

    kept  values that pass between stages in registers, with the stages that touch them
    """

    ctx: Context
    group: Group
    frame: Frame
    memory: ThreadMemory
    coordinates: Coordinates
    scratch: Scratch
    resident: Resident
    kept: dict[int, set[int]]
    known: Divisors


class ThreadEvaluator(Evaluator[ThreadNest]):
    """Reads what earlier stages left in registers, and notes which stored values the stage reads."""

    def __init__(self, state: ThreadState, nest: ThreadNest) -> None:
        super().__init__(state.ctx, nest, state.memory)
        self.state = state

    def in_register(self, value: int, positions: tuple[Expr, ...], reader: int) -> Expr:
        kept = self._kept(value, positions)
        return super().in_register(value, positions, reader) if kept is None else kept

    def _kept(self, value: int, positions: Sequence[Expr]) -> Expr | None:
        """What an earlier stage has left of `value` in the registers of the thread that reads it at its own place."""
        own = tuple(self.nest.position.get(a) for a in self.ctx.value(value).axes)
        stage = self.state.memory.stage
        here = value in self.state.resident.arrays and stage in self.state.kept[value] and value not in self.results
        if not here or value in self.state.group.stages[stage].values or tuple(positions) != own:
            return None
        return self.state.resident.load(value, self.nest)

    def stored(self, value: int, positions: Sequence[Expr], mask: Expr | None) -> Expr:
        kept = self._kept(value, positions)
        if kept is not None:
            return kept
        if not self.ctx.value(value).is_input:
            memory, axes = self.state.memory, self.ctx.value(value).axes
            same = memory.same(axes, positions, self.nest)
            memory.record(Access(self.ctx.stored[value], False, memory.pattern, frozenset(axes), same))
        return super().stored(value, positions, mask)


def lower_stage(state: ThreadState, number_: int) -> tuple[Stmt, ...]:
    """The statements of one stage."""
    stage = state.group.stages[number_]
    width = stage.width if stage.vector >= 0 else 1
    if width < 1 or width & (width - 1):
        raise LoweringError(f"width {width} is no power of two")
    if stage.vector >= 0 and stage.vector not in stage.order:
        raise LoweringError("the vector axis is no loop")
    unknown = [a for a in stage.order if a not in state.frame.axes]
    if unknown or not {a for a, _ in stage.lanes} <= set(stage.order):
        raise LoweringError(f"axes {unknown or stage.lanes} belong to no value of the group")
    shared = part_lanes(state.ctx, stage, state.group.threads) if stage.combine else ()
    lanes = state.coordinates.share((*shared, *stage.lanes))
    state.memory.pattern = pattern(lanes, stage.vector, width)
    folds = _folds(state.ctx, stage, lanes)
    idle = busy(lanes) != state.group.threads
    if folds and idle and busy(lanes) != WARP:  # the folds of one warp sync nobody else
        raise LoweringError("threads without work in a stage that folds across threads")

    def pays(axis: int, points: Sequence[int]) -> bool:
        """Threads branch to the piece that they are in; strips lie within one, and folds are for all threads."""
        start = state.known.of(state.frame.axes[axis].start)
        whole = axis != stage.vector or not any(p % width for p in (start, *points))
        return whole and (not folds or axis not in lanes)

    body: list[Stmt] = []
    for window in windows(state.ctx, stage, pays):
        body += _StageLowering(state, number_, width, lanes, folds, window).run()
    if not body or not idle:
        return tuple(body)
    return (If(Apply("lt", DType.BOOL, (THREAD, number(busy(lanes)))), tuple(body)),)


def _folds(ctx: Context, stage: Stage, lanes: dict[int, Lane]) -> list[int]:
    """How many loops enclose each fold across threads."""
    order, found = stage.order, []
    for v in stage.values:
        reduced = ctx.value(v).reduce
        if any(a in lanes for a in reduced):
            found.append(min((order.index(a) for a in reduced if a in order), default=0))
    if PART in lanes:
        found += [max((order.index(a) + 1 for a in ctx.value(v).axes), default=0) for v in stage.combine]
    return found


class _StageLowering:
    """One stage, or the part of it in one window."""

    def __init__(
        self,
        state: ThreadState,
        number_: int,
        width: int,
        lanes: dict[int, Lane],
        folds: Sequence[int],
        window: dict[int, Window],
    ) -> None:
        self.state = state
        self.ctx = state.ctx
        self.stage = stage = state.group.stages[number_]
        self.lanes = lanes
        self.nest = ThreadNest(
            stage.order,
            state.frame.axes,
            state.frame.names,
            state.frame.ranges,
            lanes,
            stage.vector,
            width,
            self._stepped(number_, width),
            frozenset(stage.order[: max(folds, default=0)]),
            self._unroll(),
            window,
            {a: self.ctx.sub.extents[a] for a in window},
            divisors=state.known,
        )
        state.memory.clamped = frozenset(a for a in self.nest.uniform if self.nest.clamps(a))
        self.ev = ThreadEvaluator(state, self.nest)
        self.kept = {v for v in state.kept if v in (*stage.values, *stage.combine)}

    def _unroll(self) -> dict[int, int]:
        """Steps of each loop that are taken at once. Several accumulators for each element of a strip are such steps
        too: what they hide on the CPU, other warps hide here."""
        factors = dict(self.stage.unroll)
        for v in self.stage.values:
            count = self.ctx.plan.reduction(v).accumulators
            if self.stage.vector in self.ctx.value(v).reduce and count > 1:
                factors.setdefault(self.stage.vector, count)
        return factors

    def _stepped(self, number_: int, width: int) -> frozenset[int]:
        """Axes along which this stage indexes register arrays: of values kept between stages, of accumulators."""
        found: set[int] = set()
        for v, stages in self.state.kept.items():
            if number_ in stages:
                found |= {a for a in self.ctx.value(v).axes if a in self.stage.order}
        for v in self.stage.values:
            value = self.ctx.value(v)
            if not value.reduce or not set(value.domain) <= set(self.stage.order):
                continue
            within = inside(self.stage.order, value.axes, value.reduce)
            total = width if self.stage.vector in value.axes and self.stage.vector not in within else 1
            for a in within:
                size = self.state.frame.axes[a].size
                share = (self.lanes[a].count if a in self.lanes else 1) * (width if a == self.stage.vector else 1)
                steps = -(-int(size.value) // share) if isinstance(size, Literal) else REGISTERS + 1
                total *= steps * (width if a == self.stage.vector else 1)
            if total <= REGISTERS:
                found |= set(within)
        return frozenset(found)

    def run(self) -> tuple[Stmt, ...]:
        pairs = self._pairs()
        for v in sorted({*self.stage.values, *self.stage.combine}):
            if v in pairs.values():
                continue  # done beside its partner
            pair = v in pairs
            alg = match(self.ctx.sub, v, pairs[v]) if pair else self.ctx.algebras.get(v)
            if alg is not None:
                bring = self._combine if v in self.stage.combine else self._accumulate
                bring(v, alg, (v, pairs[v]) if pair else (v,))
            elif self.ctx.value(v).is_input:
                self._load(v)
            else:
                self._elementwise(v)
        return cross(assemble(self.nest), self.nest.width)

    def _load(self, v: int) -> None:
        """Loads an input for its readers."""
        axes = self.ctx.value(v).axes
        value = self.ev.stored(v, tuple(self.nest.position[a] for a in axes), None)
        self.ev.results[v] = value
        self._keep(self.ev, v, value, self._home(v, value))

    def _elementwise(self, v: int) -> None:
        aliased = aliased_reads(self.ctx, v)
        if aliased and len(aliased) == len(self.ctx.value(v).reads):
            return  # whoever computes the pieces stores them
        value = self.ev.own(v)
        if not aliased:
            self.ev.results[v] = value
            self._keep(self.ev, v, value, self._home(v, value))
            return
        env = {a: self.nest.position[a] for a in self.ctx.value(v).axes}
        rest = tuple(invert(self.nest, self.ev.bounds(r.where, v, env, None)) for r in aliased)
        array, offset = self.ctx.stored[v], self.ctx.layouts[self.ctx.stored[v]].offset(list(env.values()))
        store = Store(array, offset, self._form(self.ev, v, value, self.ctx.arrays[array].dtype))
        self._global(self.nest, v, self._home(v, value, *rest), (store,), rest)

    def _home(self, v: int, *values: Expr) -> Location:
        where = self.nest.home(self.ctx.value(v).axes)
        for value in values:
            where = self.nest.join(where, self.nest.locate(value))
        return where

    # --- reductions

    def _pairs(self) -> dict[int, int]:
        """Reductions of this stage that run in one pass with another one, or whose partial results did: the first to
        the second."""
        pairs: dict[int, int] = {}
        for listed in (self.stage.values, self.stage.combine):
            for first, second in self.ctx.pairs.items():
                if (first in listed) != (second in listed):
                    raise CouplingError(f"reductions {first} and {second} are not in one stage")
                if first in listed:
                    pairs[first] = second
        return pairs

    def _accumulate(self, v: int, alg: Algebra, results: tuple[int, ...]) -> None:
        """Accumulates reduction `v`, whose accumulator gives the values `results`."""
        value = self.ctx.value(v)
        linear: Expr | None = None
        if alg.indexed:
            linear = number(0)
            for a in value.reduce:
                linear = add(mul(linear, self.ctx.extent(a)), self.nest.position[a])
        element = alg.lift(self.nest, self.ev.operand(v), linear)
        place = Location(0)
        for part in element:
            place = self.nest.join(place, self.nest.locate(part))
        split = self.ctx.splits.get(v)

        def sink(nest: ThreadNest, where: Location, final: Components) -> None:
            if split is not None:
                tiles = [self.state.frame.tiles[a] for a in split.axes]
                offset = split.layout.offset([*tiles, *(nest.position[a] for a in value.axes)])
                stores = tuple(Store(n, offset, x) for n, x in zip(split.arrays, final, strict=True))
                self._global(nest, v, where, stores)
                return
            ev = self.ev if nest is self.nest else ThreadEvaluator(self.state, nest)
            self._finish(ev, alg, final, results, where)

        stored = split is not None or not any(self._in_register(r) for r in results)
        item = Accumulation(v, value.axes, value.reduce, alg, stored)
        accumulate(self.nest, item, element, place, self.state.scratch, sink)

    def _finish(
        self, ev: ThreadEvaluator, alg: Algebra, final: Components, results: tuple[int, ...], where: Location
    ) -> None:
        finished = alg.results(final) if isinstance(alg, Coupled) else (alg.finish(final),)
        for result, expr in zip(results, finished, strict=True):
            self._settle(ev, result, expr, where)

    def _in_register(self, v: int) -> bool:
        return v in self.kept or self.ctx.has_place(v, "register") or self.ctx.has_place(v, "shuffle")

    def _settle(self, ev: ThreadEvaluator, v: int, result: Expr, where: Location) -> None:
        """Names a finished reduction for the rest of the stage, and keeps it."""
        nest, value = ev.nest, self.ctx.value(v)
        result = ev.rounded(nest.bind(result), value.dtype)
        if nest is self.nest:
            self.ev.results[v] = result
        where = nest.join(where, nest.home(value.axes))
        self._keep(ev, v, result, where)

    def _combine(self, v: int, alg: Algebra, results: tuple[int, ...]) -> None:
        """Merges the partial results of reduction `v`, whose accumulator gives the values `results`."""
        split = self.ctx.splits.get(v)
        if split is None:
            raise LoweringError(f"reduction {v} has no partial results to combine")
        where, final = combine(self.nest, v, self.ctx.value(v).axes, alg, split, self.state.scratch)
        self._finish(self.ev, alg, final, results, where)

    # --- stores

    def _keep(self, ev: ThreadEvaluator, v: int, value: Expr, where: Location) -> None:
        """Stores a finished value wherever the plan keeps it."""
        nest, axes = ev.nest, self.ctx.value(v).axes
        if v in self.kept:
            name, index = self.state.resident.store(v, nest)
            nest.put(where, Store(name, index, value))
        if self.ctx.has_place(v, "block"):
            name, offset = self.state.memory.store(v, nest.local)
            store = Store(name, offset, self._form(ev, v, value, self.ctx.kept(v)))
            nest.guarded(where, [*nest.guarding(where), *nest.first_of(axes)], store)
        for consumer in self.ctx.consumers[v]:
            if self.ctx.places.get((v, consumer)) == "alias":
                array = self.ctx.stored.get(consumer, "")
                form = self._form(ev, v, value, self.ctx.arrays[array].dtype if array else self.ctx.kept(consumer))
                at = {a: nest.position[a] for a in axes}
                self._global(nest, v, where, alias_stores(self.ctx, v, consumer, form, at))
        if v in self.ctx.stored and not self.ctx.value(v).is_input and self._stores(v):
            array = self.ctx.stored[v]
            form = self._form(ev, v, value, self.ctx.arrays[array].dtype)
            offset = self.ctx.layouts[array].offset([nest.position[a] for a in axes])
            own = frozenset(axes)
            self.state.memory.record(Access(array, True, self.state.memory.pattern, own, own))
            self._global(nest, v, where, (Store(array, offset, form),))

    def _form(self, ev: ThreadEvaluator, v: int, value: Expr, dtype: DType) -> Expr:
        """What to store for a value in an array of a dtype: one of the value's own rounds anyway."""
        return ev.stored_form(value, dtype) if dtype is self.ctx.value(v).dtype else value

    def _stores(self, v: int) -> bool:
        """False where an earlier stage of the plan combines `v` too and stores it: two blocks must not write one place,
        be it the same bits."""
        if v not in self.stage.combine:
            return True
        first = next((g, s) for g, s in self.ctx.stages() if v in s.combine)
        return first[0] is self.state.group and first[1] is self.stage

    def _global(
        self, nest: ThreadNest, v: int, where: Location, stores: tuple[Stmt, ...], conditions: tuple[Expr, ...] = ()
    ) -> None:
        """Stores to device memory: one thread of the first task, along axes that the value lacks."""
        value, tiles = self.ctx.value(v), self.state.frame.tiles
        # parts of a split reduction differ along its reduced axes; what combining them gives does not
        along = value.axes if v in self.stage.combine else value.domain
        lacking = [tiles[a] for a, _ in self.state.group.parallel if a not in along]
        zero = number(0)
        first = [nest.bind(Apply("eq", DType.BOOL, (t, zero))) for t in lacking if not isinstance(t, Literal)]
        nest.guarded(where, [*nest.guarding(where), *first, *nest.first_of(value.axes), *conditions], *stores)
