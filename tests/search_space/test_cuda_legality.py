"""What the judge refuses on CUDA, one alteration of a good plan at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from stitchtune.search_space.devices import DEVICES
from stitchtune.search_space.legality import check
from stitchtune.search_space.loading import loaded_axes
from stitchtune.search_space.plan import Buffer, Edge, Group, Plan, Stage
from stitchtune.search_space.stitch import heuristic

from tests.search_space.samples import TARGET as CPU
from tests.search_space.samples import layer_norm_backward, softmax

H200, T4 = DEVICES["cuda:h200"], DEVICES["cuda:t4"]
ROWS = softmax(4096, 768)
SPLIT = softmax(64, 30_000)


def altered(plan: Plan, change: Callable[[Group], Group], phase: int = 0) -> Plan:
    """`plan` with the first group of a phase of its first kernel changed."""
    kernel = plan.kernels[0]
    phases = list(kernel.phases)
    phases[phase] = replace(phases[phase], groups=(change(phases[phase].groups[0]), *phases[phase].groups[1:]))
    return replace(plan, kernels=(replace(kernel, phases=tuple(phases)), *plan.kernels[1:]))


def stage(number: int, **fields: object) -> Callable[[Group], Group]:
    """Changes one stage of a group."""

    def change(group: Group) -> Group:
        stages = list(group.stages)
        stages[number] = replace(stages[number], **fields)  # type: ignore[arg-type]
        return replace(group, stages=tuple(stages))

    return change


def placed(plan: Plan, value: int, consumer: int, place: str) -> Plan:
    edges = [e for e in plan.edges if (e.value, e.consumer) != (value, consumer)]
    edges.append(Edge(value, consumer, place))  # type: ignore[arg-type]
    return replace(plan, edges=tuple(sorted(edges, key=lambda e: (e.value, e.consumer))))


def codes(plan: Plan, sub: object = ROWS) -> set[str]:
    return {r.code for r in check(sub, plan, H200)}  # type: ignore[arg-type]


def test_the_plan_that_is_altered_is_legal() -> None:
    plan = heuristic(ROWS, H200)
    assert check(ROWS, plan, H200) == ()
    assert loaded_axes(ROWS, plan, 0) == (0, 1)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda g: replace(g, threads=250), "threads"),
        (lambda g: replace(g, threads=2048), "threads"),
        (stage(0, lanes=((0, 8), (1, 64))), "lanes"),
        (stage(0, lanes=((0, 8), (1, 16))), "lanes"),
        (stage(0, lanes=((0, 8), (7, 32))), "lanes"),
        (stage(0, lanes=((0, 6), (1, 32))), "lanes"),
        (stage(2, width=3), "vector"),
        (stage(0, width=32), "vector"),
        (stage(0, vector=7), "vector"),
        (stage(0, order=(1, 0)), "accumulators"),
        (stage(1, lanes=((0, 16), (1, 16))), "register-threads"),
        (stage(1, lanes=((1, 32), (0, 8))), "register-threads"),
        (stage(1, width=2), "register-threads"),
    ],
)
def test_threads_that_do_not_fit_are_refused(change: Callable[[Group], Group], code: str) -> None:
    assert code in codes(altered(heuristic(ROWS, H200), change))


def test_groups_of_a_kernel_have_equally_many_threads() -> None:
    sub = layer_norm_backward(4096, 768)
    plan = altered(heuristic(sub, H200), lambda g: replace(g, threads=256), phase=1)
    assert "threads" in {r.code for r in check(sub, plan, H200)}


def test_nothing_bypasses_the_caches_and_no_block_reads_its_neighbour() -> None:
    plan = heuristic(ROWS, H200)
    assert codes(replace(plan, stream=(5,))) == {"stream"}
    assert codes(placed(plan, 3, 5, "cluster")) == {"cluster"}


def test_a_register_is_read_by_the_threads_that_hold_it() -> None:
    plan = heuristic(ROWS, H200)
    assert codes(placed(plan, 3, 5, "block")) == set(), "shared memory does as well"
    assert codes(placed(plan, 3, 4, "block")) == {"block-stage"}, "but not in the stage that stores"
    assert codes(placed(plan, 0, 1, "global")) == {"load"}


def test_a_thread_holds_64_elements_at_most() -> None:
    sub = softmax(256, 8192)
    plan = heuristic(sub, H200)
    group = plan.kernels[0].phases[0].groups[0]

    def narrow(stage: Stage) -> Stage:
        return replace(stage, lanes=((0, group.threads // 32), (1, 32)))

    fewer = altered(plan, lambda g: replace(g, stages=tuple(narrow(s) for s in g.stages)))
    held = replace(fewer, edges=tuple(replace(e, place="register") if e.place == "block" else e for e in fewer.edges))
    assert "registers" in {r.code for r in check(sub, held, H200)}


def test_a_listed_input_has_readers_that_agree() -> None:
    plan = heuristic(ROWS, H200)
    unread = replace(plan, edges=tuple(e for e in plan.edges if e.value != 0))
    assert codes(unread) == {"load"}
    unlisted = altered(plan, stage(0, values=(1,)))
    assert codes(unlisted) == {"load"}


def test_resident_blocks_keep_one_task_each() -> None:
    plan = heuristic(SPLIT, H200)
    assert check(SPLIT, plan, H200) == ()
    assert codes(altered(plan, lambda g: replace(g, tasks_per_block=2), phase=1), SPLIT) >= {"block-stage"}
    smaller = plan
    for phase in range(2):
        smaller = altered(
            smaller, lambda g: replace(g, parallel=tuple((a, min(t, 4000)) for a, t in g.parallel)), phase
        )
    assert codes(smaller, SPLIT) == {"resident"}
    other = altered(plan, lambda g: replace(g, parallel=((0, 2), g.parallel[1])), phase=1)
    assert "block-stage" in codes(other, SPLIT)


def test_a_split_pair_is_made_and_combined_as_one() -> None:
    plan = heuristic(SPLIT, H200)
    assert plan.kernels[0].phases[1].groups[0].stages[0].combine == (1, 4)
    assert codes(altered(plan, stage(0, combine=(4, 1)), phase=1), SPLIT) == set()
    apart = altered(plan, lambda g: replace(g, stages=(Stage((), (0,), (1,)), Stage((), (0,), (4,)), g.stages[1])), 1)
    assert codes(apart, SPLIT) == {"coupled"}
    chip = replace(plan, edges=tuple(sorted((*plan.edges, Edge(3, 4, "block")), key=lambda e: (e.value, e.consumer))))
    assert codes(chip, SPLIT) == {"edge"}


def test_block_memory_counts_padding_folds_and_parts_that_stay() -> None:
    plan = heuristic(SPLIT, H200)
    assert {r.code for r in check(SPLIT, plan, T4)} >= {"resident"}
    wide = replace(plan, buffers=(Buffer(0, (0, 1), 65),))
    assert "buffer-form" in codes(wide, SPLIT)
    sub = softmax(4, 70_000)
    far = heuristic(sub, H200)
    group = far.kernels[0].phases[0].groups[0]
    whole = altered(far, lambda g: replace(g, parallel=tuple((a, sub.extents[a]) for a, _ in group.parallel)))
    for phase in range(1, len(far.kernels[0].phases)):
        whole = altered(whole, lambda g: replace(g, parallel=tuple((a, sub.extents[a]) for a, _ in g.parallel)), phase)
    assert {r.code for r in check(sub, whole, H200)} == {"block-memory"}


def test_a_cuda_plan_is_none_for_the_cpu() -> None:
    assert {r.code for r in check(ROWS, heuristic(ROWS, H200), CPU)} >= {"threads"}
