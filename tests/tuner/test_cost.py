"""The analytical cost model: what it must tell apart."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import AxisVar, Lookup, Read, Subgraph, Value
from stitchtune.search_space.plan import Edge, Group, Kernel, Phase, Plan, Stage
from stitchtune.search_space.stitch import heuristic, unfused
from stitchtune.tuner.cost import FEATURES, bandwidth, bytes_needed, limit, predict

from .examples import MODEL, TARGET, column_sum, scaled, softmax, transposed


def flat(tile: int, team: bool = True, vector: bool = True) -> Plan:
    """exp(x) * x in one stage."""
    stage = Stage((2,), (1,), vector=1 if vector else -1, width=16 if vector else 1)
    return Plan((Kernel((Phase((Group(((1, tile),), (stage,)),)),), team=team),), (Edge(1, 2, "inline"),))


def tiled_transpose(rows: int, columns: int) -> Plan:
    stage = Stage((2,), (2, 3), vector=3, width=16)
    return Plan((Kernel((Phase((Group(((2, rows), (3, columns)), (stage,)),)),)),))


def seconds(sub: object, plan: Plan) -> float:
    return predict(sub, plan, MODEL).seconds  # type: ignore[arg-type]


def test_bandwidth_follows_the_working_set() -> None:
    sizes = [1 << 12, 1 << 14, 1 << 18, 1 << 20, 1 << 24, 1 << 26, 1 << 30]
    all_, one = zip(*(bandwidth(MODEL, s) for s in sizes), strict=True)
    assert list(all_) == sorted(all_, reverse=True)
    assert all_[0] == 300e9
    assert all_[-1] == 30e9
    assert all(a >= b for a, b in zip(all_, one, strict=True))
    assert bandwidth(replace(MODEL, triad=()), 1 << 30) == (30e9, 15e9)


def test_fewer_kernels_and_bytes_are_cheaper() -> None:
    sub = softmax(12288, 128)
    stitched = predict(sub, heuristic(sub, TARGET), MODEL)
    apart = predict(sub, unfused(sub, TARGET), MODEL)
    assert sum(p.far_bytes for p in stitched.phases) == pytest.approx(sub.bytes_min, rel=0.01)
    assert sum(p.far_bytes for p in apart.phases) > 3 * sub.bytes_min
    assert stitched.seconds < apart.seconds
    assert limit(sub, MODEL) < stitched.seconds


def test_the_slowest_processor_counts() -> None:
    sub = scaled(3 << 16)
    even, odd = predict(sub, flat(3 << 14), MODEL), predict(sub, flat(1 << 16), MODEL)
    assert even.phases[0].tail == pytest.approx(1)
    assert odd.phases[0].tail == pytest.approx(4 / 3, rel=0.01)
    assert odd.seconds > 1.2 * even.seconds


def test_small_work_belongs_on_one_thread() -> None:
    small, large = scaled(64), scaled(1 << 18)
    assert seconds(small, flat(32, team=False)) < seconds(small, flat(32))
    assert seconds(large, flat(1 << 14, team=False)) > 1.5 * seconds(large, flat(1 << 14))


def test_vectors_are_faster() -> None:
    sub = scaled(1 << 16)
    assert seconds(sub, flat(4096, vector=False)) > 4 * seconds(sub, flat(4096))


def test_tiny_tasks_cost() -> None:
    sub = scaled(1 << 16)
    assert seconds(sub, flat(16)) > 1.2 * seconds(sub, flat(4096))


def test_a_transpose_wants_tiles() -> None:
    sub = transposed(1000, 1000)
    assert seconds(sub, tiled_transpose(1000, 1)) > seconds(sub, tiled_transpose(16, 64))
    assert seconds(sub, tiled_transpose(1, 1000)) > 1.2 * seconds(sub, tiled_transpose(16, 64))


def test_a_power_of_two_stride_wants_small_tiles() -> None:
    sub = transposed(4096, 4096)
    assert seconds(sub, tiled_transpose(16, 64)) > 1.5 * seconds(sub, tiled_transpose(16, 16))


def test_recomputing_an_expensive_value_costs() -> None:
    sub = softmax(64, 8192)
    kept = heuristic(sub, TARGET)
    assert any(e.value == 3 and e.place == "block" for e in kept.edges)
    inlined = replace(
        kept,
        edges=tuple(replace(e, place="inline") if e.value in (2, 3) else e for e in kept.edges),
        kernels=tuple(
            replace(k, phases=tuple(replace(p, groups=tuple(map(without_exp, p.groups))) for p in k.phases))
            for k in kept.kernels
        ),
    )
    assert predict(sub, inlined, MODEL).phases[0].operations > 1.3 * predict(sub, kept, MODEL).phases[0].operations


def without_exp(group: Group) -> Group:
    """The group with exp inlined into the stages that read it."""
    stages = tuple(replace(s, values=tuple(v for v in s.values if v not in (2, 3))) for s in group.stages)
    return replace(group, stages=tuple(s for s in stages if s.values))


def test_independent_accumulators_help_a_reduction() -> None:
    from stitchtune.search_space.plan import Reduction

    sub = softmax(4096, 1024)
    plan = heuristic(sub, TARGET)
    slow = replace(plan, reductions=())
    fast = replace(plan, reductions=(Reduction(1, 8), Reduction(4, 8)))
    assert seconds(sub, slow) > seconds(sub, fast)


def test_columns_read_line_by_line_are_slow() -> None:
    sub = column_sum(8192, 4096)
    group = Group(((2, 1),), (Stage((1,), (2, 3), vector=3, width=16),))
    narrow = Plan((Kernel((Phase((group,)),)),))
    assert seconds(sub, narrow) > 3 * seconds(sub, heuristic(sub, TARGET))


def test_it_is_cheap_and_reproducible() -> None:
    sub = softmax(12288, 128)
    plan = heuristic(sub, TARGET)
    begin = time.perf_counter()
    found = [predict(sub, plan, MODEL) for _ in range(20)]
    assert (time.perf_counter() - begin) / 20 < 5e-3
    assert len(set(found)) == 1
    assert len(found[0].features) == len(FEATURES)


def test_a_table_is_not_read_as_a_whole() -> None:
    f32, i64 = DType.F32, DType.I64
    indices = Read(1, (AxisVar(3),))
    values = (
        Value("input", f32, (0, 1)),
        Value("input", i64, (2,)),
        Value("copy", f32, (3, 4), (), (Read(0, (Lookup(indices, 0), AxisVar(4))),)),
    )
    sub = Subgraph(values, (2,), (30522, 768, 16, 16, 768))
    assert bytes_needed(sub) == 16 * 8 + 2 * 16 * 768 * 4
    assert bytes_needed(softmax(64, 100)) == softmax(64, 100).bytes_min


@pytest.mark.parametrize("shape", [(0, 128), (64, 0), (0, 0)])
def test_empty_subgraphs_cost_their_launches(shape: tuple[int, int]) -> None:
    for sub in (softmax(*shape), transposed(*shape), column_sum(*shape)):
        for plan in (heuristic(sub, TARGET), unfused(sub, TARGET)):
            assert 0 < seconds(sub, plan) < 1e-3
        assert limit(sub, MODEL) > 0
