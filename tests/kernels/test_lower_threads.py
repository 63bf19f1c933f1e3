"""The loop programs of CUDA plans written by hand: syncs, packs, index widths, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import AxisVar, Bound, Int, Read, Slot, Sum, Value
from stitchtune.kernels.loops import (
    Apply,
    Declare,
    If,
    Let,
    Load,
    LoadPack,
    Local,
    LoopKernel,
    Stmt,
    StorePack,
    Sync,
    evaluate,
    statements,
)
from stitchtune.kernels.lower import LoweringError, lower
from stitchtune.kernels.lower.integers import add, apply, mul, number
from stitchtune.kernels.lower.threads.access import Access, Pattern
from stitchtune.kernels.lower.threads.divisors import Divisors, at_zero, coefficient
from stitchtune.kernels.lower.threads.slots import slot_ranges
from stitchtune.search_space.devices import device_target
from stitchtune.search_space.plan import Edge, Kernel, Phase, Plan, Stage

from tests.kernels.hand import Builder, edges, layer_norm, softmax
from tests.kernels.threads import (
    PAIRS,
    Pair,
    elementwise,
    group,
    kept_layer_norm,
    layer_norm_pair,
    one,
    resident_softmax,
    softmax_pair,
    split_sum,
)

TARGET = device_target("cuda:h200")


def lowered(pair: Pair, aligned: bool = True, index_bits: int | None = None) -> LoopKernel:
    (kernel,) = lower(pair.sub, pair.plan, TARGET, aligned=aligned, index_bits=index_bits)
    return kernel


def body(kernel: LoopKernel) -> list[Stmt]:
    return [s for phase in kernel.phases for g in phase.groups for s in statements(g.body)]


def scopes(kernel: LoopKernel) -> list[str]:
    return [s.scope for s in body(kernel) if isinstance(s, Sync)]


def shuffles(kernel: LoopKernel) -> int:
    lets = [s.value for s in body(kernel) if isinstance(s, Let)]
    return sum(isinstance(x, Apply) and x.op == "shuffle_xor" for x in lets)


# --- syncs


def test_threads_that_read_their_own_rows_wait_for_nobody() -> None:
    pair = layer_norm_pair("a thread a row", 32, ((3, 32),), 32, 1, rows=64)
    assert scopes(lowered(pair)) == ["block"], "only between tasks"


def test_warps_that_read_their_own_rows_wait_for_their_warp() -> None:
    pair = layer_norm_pair("a warp a row", 4, ((3, 4), (4, 32)), 128, 2, rows=8)
    assert scopes(lowered(pair)) == ["warp", "warp", "block"]


def test_clamped_rows_are_read_by_warps_that_have_none() -> None:
    pair = layer_norm_pair("a warp a row", 4, ((3, 4), (4, 32)), 128, 2, rows=9)
    assert scopes(lowered(pair))[0] == "block"


def test_a_fold_across_warps_syncs_once() -> None:
    pair = kept_layer_norm("a block a row", 1, ((4, 128),), 128, 1, 4, 128)
    kernel = lowered(pair)
    assert scopes(kernel) == ["block", "block", "block"], "two folds, and between tasks"
    assert shuffles(kernel) == 2 * (5 + 2), "within warps, then of the four partials"


def test_a_fold_within_a_warp_needs_no_memory() -> None:
    pair = kept_layer_norm("a warp a row", 4, ((3, 4), (4, 32)), 128, 4, 8, 128)
    kernel = lowered(pair)
    assert evaluate(kernel.block_bytes) == 0
    assert not scopes(kernel)


ROWS = Pattern(((0, 4, 32, 1), (1, 32, 1, 4)))


@pytest.mark.parametrize(
    ("other", "same", "thread", "warp"),
    [
        (ROWS, {0, 1}, True, True),
        (ROWS, {0}, False, True),
        (ROWS, {1}, False, False),
        (Pattern(((0, 4, 32, 1), (1, 32, 1, 2))), {0, 1}, False, True),
        (Pattern(((0, 8, 32, 1), (1, 32, 1, 4))), {0, 1}, False, False),
        (Pattern(((0, 4, 32, 1), (1, 64, 1, 4))), {0, 1}, False, False),
        (Pattern(((1, 128, 1, 1),)), {0, 1}, False, False),
    ],
)
def test_who_touches_an_element(other: Pattern, same: set[int], thread: bool, warp: bool) -> None:
    store = Access("b0", True, ROWS, frozenset({0, 1}), frozenset({0, 1}))
    load = Access("b0", False, other, frozenset({0, 1}), frozenset(same))
    assert store.stays_in_thread(load) == thread
    assert store.stays_in_warp(load) == warp


# --- packs


def packs(kernel: LoopKernel) -> list[tuple[int, int]]:
    return [(s.width, s.align) for s in body(kernel) if isinstance(s, LoadPack | StorePack)]


@pytest.mark.parametrize(
    ("columns", "width", "found"),
    [(64, 8, (8, 8)), (36, 8, (8, 4)), (38, 4, (4, 2)), (37, 4, None), (64, 2, (2, 2))],
)
def test_packs_are_as_wide_as_rows_allow(columns: int, width: int, found: tuple[int, int] | None) -> None:
    pair = elementwise(DType.F16, width, rows=10, columns=columns)
    matrix = [p for p in packs(lowered(pair)) if p == found]
    assert len(matrix) >= (0 if found is None else 2), packs(lowered(pair))
    if found is None:
        assert len(packs(lowered(pair))) == 1, "the row that is added is aligned"


def test_packs_are_at_most_16_bytes_aligned() -> None:
    assert set(packs(lowered(elementwise(DType.F64, 4, columns=36)))) == {(4, 2)}


def test_unaligned_buffers_are_accessed_element_by_element() -> None:
    assert not packs(lowered(elementwise(DType.F16, 8, columns=64), aligned=False))
    kept = lowered(softmax_pair("", 4, ((2, 4), (3, 32)), 128, 4, 8, 128), aligned=False)
    assert not packs(kept)


# --- index widths


def test_indices_are_narrow_where_that_is_enough() -> None:
    pair = PAIRS[0]
    narrow, wide = lowered(pair), lowered(pair, index_bits=64)
    assert (narrow.index_bits, wide.index_bits) == (32, 64)
    loops = {s.local.dtype for s in body(narrow) if hasattr(s, "local") and s.local.name.startswith("i")}
    assert loops == {DType.I32}


def test_far_addresses_are_wide() -> None:
    pair = elementwise(DType.F32, 4, rows=1 << 20, columns=1 << 12)
    assert lowered(pair).index_bits == 64


def test_dynamic_extents_are_wide() -> None:
    pair = softmax_pair("", 4, ((2, 4), (3, 32)), 128, 1, 8, 77)
    (kernel,) = lower(pair.sub, replace(pair.plan, dynamic=(0, 1, 2, 3)), TARGET)
    assert kernel.index_bits == 64


def test_divisors() -> None:
    known = Divisors()
    i, k, e = (Local(n, DType.I64) for n in "ike")
    known.loops["i"] = 4
    known.learn((Let(k, mul(Local("task", DType.I64), number(96))),))
    offset = add(add(mul(k, number(70)), i), e)
    assert known.of(at_zero(offset, e, {})) == 4
    assert coefficient(offset, e, {}) == 1
    assert coefficient(mul(offset, number(3)), e, {}) == 3
    assert coefficient(apply("quotient", offset, number(2)), e, {}) is None
    trip = apply("min", number(40), apply("minus", number(70), mul(k, number(40))))
    assert known.of(trip) == 10
    assert known.of(apply("minus", trip, apply("rest_u32", trip, number(8)))) == 8


# --- places


def test_kept_rows_are_register_arrays_of_constant_size() -> None:
    kernel = lowered(kept_layer_norm("a warp a row", 4, ((3, 4), (4, 32)), 128, 4, 8, 256))
    sizes = {s.array: s.size for s in body(kernel) if isinstance(s, Declare) and s.array.startswith("h")}
    assert sizes == {"h0": 8, "h4": 1, "h6": 8, "h8": 1}


def test_what_a_thread_has_stored_itself_is_not_read_back() -> None:
    """The maximum is stored for another kernel, and read by the threads that have it."""
    stages = [Stage(v, (2, 3), vector=3, width=1, lanes=((2, 4), (3, 32))) for v in ((1,), (4,), (5,))]
    places = edges(v1_2="global", v2_3="inline", v3_4="inline", v3_5="inline", v4_5="register")
    plan = Plan(one([(2, 4)], *stages, threads=128), places)
    kernel = lowered(Pair("", softmax(8, 64), plan))
    assert not scopes(kernel)
    lets = [s.value for s in body(kernel) if isinstance(s, Let)]
    assert not any(isinstance(x, Load) and x.array == "g0" for x in lets)


def test_parts_stay_in_block_memory_across_phases() -> None:
    kernel = lowered(resident_softmax(3, 128, 32, 32, 4))
    assert kernel.resident
    first, second, third = ({a.name: evaluate(a.start) for a in p.groups[0].arrays} for p in kernel.phases)
    assert first["c0"] == second["c0"]
    assert second["c3"] == third["c3"]
    assert min(start for name, start in second.items() if name.startswith("b")) >= 256


def test_combining_takes_a_warp_or_the_block() -> None:
    few, many = lowered(split_sum(1000, 64, 64)), lowered(split_sum(5000, 8, 64))
    guards = [s for s in few.phases[1].groups[0].body if isinstance(s, If)]
    assert len(guards) == 1
    assert not any(isinstance(s, Sync) for s in statements(few.phases[1].groups[0].body))
    assert any(isinstance(s, Sync) for s in statements(many.phases[1].groups[0].body))


def test_equal_plans_give_equal_programs() -> None:
    for pair in PAIRS[:3]:
        assert lowered(pair) == lowered(pair)
        assert hash(lowered(pair)) == hash(lowered(pair))


# --- what is refused


def altered(stages: Sequence[Stage], threads: int = 128, **changes: object) -> Plan:
    pair = layer_norm_pair("", 4, ((3, 4), (4, 32)), 128, 2)
    return replace(pair.plan, kernels=one([(3, 4)], *stages, threads=threads), **changes)  # type: ignore[arg-type]


def three(**changes: object) -> list[Stage]:
    lanes = ((3, 4), (4, 32))
    stages = [Stage(v, (3, 4), vector=4, width=2, lanes=lanes) for v in ((4,), (6, 8), (14,))]
    return [replace(s, **changes) for s in stages]  # type: ignore[arg-type]


KEPT = tuple(Edge(e.value, e.consumer, "register" if e.value == 4 else e.place) for e in altered(three()).edges)


@pytest.mark.parametrize(
    ("plan", "why"),
    [
        (altered(three(), threads=100), "whole warps"),
        (altered(three(), threads=64), "more than the 64 threads"),
        (altered(three(), threads=256), "without work"),
        (altered(three(lanes=((3, 4), (4, 24))), threads=96), "power of two"),
        (altered(three(width=3)), "no power of two"),
        (altered(three(vector=3, order=(4,))), "no loop"),
        (altered(three(lanes=((2, 128),))), "belong to no value"),
        (altered(three(), stream=(14,)), "past the caches"),
    ],
)
def test_inconsistent_plans_are_refused(plan: Plan, why: str) -> None:
    with pytest.raises(LoweringError, match=why):
        lower(layer_norm(9, 70), plan, TARGET)


def test_registers_of_other_threads_are_refused() -> None:
    stages = three()
    other = replace(stages[1], lanes=((4, 32), (3, 4)))
    with pytest.raises(LoweringError, match="registers of threads"):
        lower(layer_norm(9, 70), altered([stages[0], other, stages[2]], edges=KEPT), TARGET)


def test_groups_of_one_kernel_have_equal_blocks() -> None:
    b = Builder()
    x = b.input(8)
    (i,) = b.axes(8)
    first, second = b.op("exp", (i,), (x, (i,))), b.op("neg", (i,), (x, (i,)))
    groups = [group([(i, 8)], Stage((v,), (i,)), threads=t) for v, t in ((first, 32), (second, 64))]
    with pytest.raises(LoweringError, match="threads"):
        lower(b.subgraph(first, second), Plan((Kernel((Phase(tuple(groups)),)),)), TARGET)


def test_blocks_that_keep_values_have_one_task_each() -> None:
    pair = resident_softmax(3, 128, 32, 32, 4)
    phases = [Phase((replace(p.groups[0], tasks_per_block=2),)) for p in pair.plan.kernels[0].phases]
    with pytest.raises(LoweringError, match="several tasks"):
        lower(pair.sub, replace(pair.plan, kernels=(Kernel(tuple(phases)),)), TARGET)
    phases[1] = Phase((replace(phases[1].groups[0], parallel=((2, 1), (3, 16))),))
    with pytest.raises(LoweringError, match="later phase"):
        lower(pair.sub, replace(pair.plan, kernels=(Kernel(tuple(phases)),)), TARGET)


def test_values_of_the_same_stage_are_not_in_block_memory() -> None:
    stage = Stage((1, 4, 5), (2, 3), vector=3, width=1, lanes=((3, 32),))
    places = edges(v1_2="block", v2_3="inline", v3_4="inline", v3_5="inline", v4_5="block")
    with pytest.raises(LoweringError, match="before it is there"):
        lower(softmax(4, 8), Plan(one([(2, 1)], stage, threads=32), places), TARGET)


# --- slots and pieces


def test_slots_are_bounded_by_what_they_index() -> None:
    b = Builder()
    x = b.input(6, 50)
    (j,) = b.axes(20)
    moved = Sum(((1, AxisVar(j)), (1, Slot(1))))
    picked = b.op("neg", (j,), Read(x, (Slot(0), moved)))
    sub = b.subgraph(picked, slots=(3, -2))
    assert slot_ranges(sub) == {0: (0, 6), 1: (-70, -1)}


def concat(stages: Callable[[int, int, int], Stage], width: int) -> LoopKernel:
    """Ten rows of tables one after the other."""
    b = Builder()
    tables = [b.input(8, 32) for _ in range(10)]
    i, j, k = b.axes(8, 10, 32)
    one_row = b.axes(1)[0]
    shifts = [Sum(((1, AxisVar(j)), (1, Int(-p)))) if p else AxisVar(j) for p in range(10)]
    bounds = [Bound(s, one_row) for s in shifts]
    reads = tuple(Read(t, (AxisVar(i), AxisVar(k)), (bound,)) for t, bound in zip(tables, bounds, strict=True))
    joined = b.add(Value("piecewise", DType.F32, (i, j, k), reads=reads))
    plan = Plan(one([(i, 2)], replace(stages(i, j, k), values=(joined,), width=width), threads=64))
    return lowered(Pair("concat", b.subgraph(joined), plan))


@pytest.mark.parametrize("shared", [True, False])
def test_threads_load_only_the_piece_that_they_are_in(shared: bool) -> None:
    def stage(i: int, j: int, k: int) -> Stage:
        return Stage((), (i, j, k), vector=k, lanes=((j, 8), (k, 8)) if shared else ((i, 2), (k, 8)))

    loads = [s for s in body(concat(stage, 4)) if isinstance(s, LoadPack)]
    assert len(loads) == 10
    assert not any(isinstance(s, Let) and isinstance(s.value, Load) and s.value.mask for s in body(concat(stage, 4)))
