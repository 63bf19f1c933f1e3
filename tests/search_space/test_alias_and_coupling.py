"""What legality asks of values that are stored in their consumer, and of reductions that share a pass."""

from __future__ import annotations

from dataclasses import replace

from stitchtune.graphs.subgraph import AxisVar, Bound, Int, Read, Subgraph, Sum, Value
from stitchtune.search_space.legality import check
from stitchtune.search_space.plan import Edge, Plan, Reduction, Stage

from tests.kernels.hand import Builder, edges, layer_norm, one_group, softmax
from tests.search_space.samples import TARGET


def codes(sub: Subgraph, plan: Plan) -> set[str]:
    return {refusal.code for refusal in check(sub, plan, TARGET)}


def pieces(start: int = 12, length: int = 24, again: bool = False) -> tuple[Subgraph, Plan]:
    """exp(x) and -x (12 columns each) put together from columns 0 and `start` on; `again`: and read once more."""
    b = Builder()
    x = b.input(6, 12)
    i, j, k = b.axes(6, 12, length)
    late = Sum(((1, AxisVar(k)), (1, Int(-start))))
    left = b.op("exp", (i, j), (x, (i, j)))
    right = b.op("neg", (i, j), (x, (i, j)))
    reads = (
        Read(left, (AxisVar(i), AxisVar(k)), (Bound(AxisVar(k), j),)),
        Read(right, (AxisVar(i), late), (Bound(late, j),)),
    )
    whole = b.add(Value("piecewise", b.dtype, (i, k), reads=reads))
    stages = [Stage((left, right), (i, j), vector=j, width=4), Stage((whole,), (i, k), vector=k, width=8)]
    places = edges(v1_3="alias", v2_3="alias")
    outputs = (whole,)
    if again:
        outputs = (whole, b.op("exp", (i, k), whole))
        stages.append(Stage(outputs[1:], (i, k), vector=k, width=8))
        places = (*places, Edge(whole, outputs[1], "global"))
    return b.subgraph(*outputs), Plan(one_group([(i, 2)], *stages), places)


def test_pieces_that_fill_their_concat_are_stored_in_it() -> None:
    assert codes(*pieces()) == set()


def test_pieces_must_not_meet_nor_leave_gaps() -> None:
    assert codes(*pieces(start=6)) == {"alias-place"}
    assert codes(*pieces(length=25)) == {"alias-place"}
    assert codes(*pieces(start=13)) == {"alias-place"}, "the last column would lie outside"


def test_readers_of_what_others_filled_wait_at_a_barrier() -> None:
    sub, plan = pieces(again=True)
    assert codes(sub, plan) == {"global-barrier"}
    [group] = plan.kernels[0].phases[0].groups
    first, last = (one_group([(1, 2)], *stages)[0] for stages in (group.stages[:2], group.stages[2:]))
    assert codes(sub, replace(plan, kernels=(first, last))) == set()


def test_storage_that_others_fill_is_global_for_all_readers() -> None:
    sub, plan = pieces(again=True)
    for place in ("inline", "block", "register"):
        changed = tuple(replace(e, place=place) if e.value == 3 else e for e in plan.edges)
        assert "alias-storage" in codes(sub, replace(plan, edges=changed)), place


def test_only_listed_values_are_stored_in_their_consumer() -> None:
    sub, plan = pieces()
    [group] = plan.kernels[0].phases[0].groups
    first = replace(group.stages[0], values=(2,))
    assert codes(sub, replace(plan, kernels=one_group([(1, 2)], first, group.stages[1]))) == {"alias-source"}


def test_a_padded_copy_is_not_filled_by_what_it_copies() -> None:
    b = Builder()
    i, k = (b.input(4), b.axes(4, 9))[1]
    value = b.op("exp", (i,), (0, (i,)))
    late = Sum(((1, AxisVar(k)), (1, Int(-2))))
    out = b.op("copy", (k,), Read(value, (late,), (Bound(late, i),), 0.0))
    plan = Plan(one_group([], Stage((value,), (i,)), Stage((out,), (k,))), edges(v1_2="alias"))
    assert codes(b.subgraph(out), plan) == {"alias-place"}


def coupled(sub: Subgraph, second: int, first: int) -> Plan:
    """softmax in one pass, coupled as told."""
    kernels = one_group([(2, 2)], Stage((1, 4), (2, 3), vector=3, width=8), Stage((5,), (2, 3), vector=3, width=8))
    places = edges(v1_2="block", v2_3="inline", v3_4="inline", v3_5="inline", v4_5="block")
    return Plan(kernels, places, (Reduction(second, coupled=first),))


def test_known_pairs_share_a_pass() -> None:
    sub = softmax(6, 77)
    assert codes(sub, coupled(sub, 4, 1)) == set()
    assert codes(sub, coupled(sub, 1, 4)) == {"coupled"}


def test_a_pair_stands_in_one_stage_and_is_not_split() -> None:
    sub = softmax(6, 77)
    plan = coupled(sub, 4, 1)
    [group] = plan.kernels[0].phases[0].groups
    apart = (replace(group.stages[0], values=(1,)), replace(group.stages[0], values=(4,)), group.stages[1])
    assert "coupled" in codes(sub, replace(plan, kernels=one_group([(2, 2)], *apart)))
    assert "coupled" in codes(sub, replace(plan, kernels=one_group([(2, 2), (3, 8)], *group.stages)))


def test_a_mean_of_another_count_is_no_moment() -> None:
    sub = layer_norm(6, 77)
    values = list(sub.values)
    values[2] = replace(values[2], attrs=(("value", 1 / 76),))
    other = replace(sub, values=tuple(values))
    kernels = one_group([(3, 2)], Stage((4, 8), (3, 4), vector=4, width=8), Stage((14,), (3, 4), vector=4, width=8))
    inline = dict.fromkeys("v5_6 v6_7 v6_13 v7_8 v9_10 v10_11 v11_12 v12_13 v13_14".split(), "inline")
    plan = Plan(kernels, edges(v4_5="block", v8_9="block", **inline), (Reduction(8, coupled=4),))
    assert codes(sub, plan) == set()
    assert codes(other, plan) == {"coupled"}


def test_lanes_of_a_reduction_are_a_power_of_two() -> None:
    sub = softmax(6, 77)
    plan = coupled(sub, 4, 1)
    [group] = plan.kernels[0].phases[0].groups
    odd = replace(plan, kernels=one_group([(2, 2)], replace(group.stages[0], width=12), group.stages[1]))
    assert codes(sub, odd) == {"lanes"}
    late = replace(plan, kernels=one_group([(2, 2)], group.stages[0], replace(group.stages[1], width=12)))
    assert codes(sub, late) == set()
