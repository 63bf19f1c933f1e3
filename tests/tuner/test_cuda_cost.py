"""The CUDA cost model against what others have published, against orderings that are known, and monotone.

No constant of the model was fitted on a figure that is expected here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.cuda.built import Report
from stitchtune.search_space.devices import DEVICES
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.space import build
from stitchtune.search_space.stitch import heuristic, unfused
from stitchtune.search_space.target import DeviceModel
from stitchtune.tuner.cost import FEATURES, Cost, bytes_needed, limit, predict
from stitchtune.tuner.cuda_model.cost import paired
from stitchtune.tuner.cuda_model.work import kept_in_cache
from stitchtune.tuner.profiles import MODELS, profile_model

from .cuda_plans import dot, flat, kept_row, read_again, split_once, split_row, split_sum, stream, strided
from .examples import column_sum, scaled, softmax, transposed

H100 = MODELS["cuda:h100-sxm"]
H200 = MODELS["cuda:h200"]


def rate(sub: Subgraph, plan: Plan, model: DeviceModel = H100) -> float:
    """Terabytes per second of the bytes that must move (what publications call model throughput)."""
    return bytes_needed(sub) / predict(sub, plan, model).seconds * 1e-12


# --- published figures on an H100 SXM

# BabelStream (doubles, arrays of 268 MB, 1024 threads a block) on Azure's ND H100 v5, in TB/s:
# https://github.com/Azure/AI-benchmarking-guide, "Azure Results/ND_H100_v5_results.md". The profile's bandwidths are
# scaled from another device (GH200).
BABELSTREAM = {"copy": 2.90, "triad": 2.97, "dot": 3.18}
ELEMENTS = 1 << 25


def test_copy_as_published() -> None:
    sub = stream(ELEMENTS, 1)
    assert rate(sub, flat(sub, width=1)) == pytest.approx(BABELSTREAM["copy"], rel=0.2)


def test_triad_as_published() -> None:
    sub = stream(ELEMENTS, 2)
    assert rate(sub, flat(sub, width=1)) == pytest.approx(BABELSTREAM["triad"], rel=0.2)


def test_dot_as_published() -> None:
    sub = dot(ELEMENTS)
    assert rate(sub, split_sum(sub, parts=4 * H100.target.processors)) == pytest.approx(BABELSTREAM["dot"], rel=0.2)


@pytest.mark.parametrize("columns", [4096, 8192, 16384, 32768])
@pytest.mark.parametrize("keep", ["register", "block"])
def test_softmax_of_rows_on_chip_as_published(columns: int, keep: str) -> None:
    """ "Getting Memory-bound Kernels to Speed-of-Light" (W. Guo, T. Zadouri, T. Dao, 2025; Dao-AILab/quack,
    media/2025-07-10-membound-sol.md): float32 softmax of 8k to 32k rows on an H100 with HBM3 reaches about 3 TB/s for
    more than 4k columns, and so does Liger up to 32k."""
    plan = kept_row(threads=columns // 32, keep=keep)  # type: ignore[arg-type]
    assert rate(softmax(16384, columns), plan) == pytest.approx(3.0, rel=0.2)


@pytest.mark.parametrize(("columns", "published"), [(131072, 2.0), (262144, 1.89)])
def test_softmax_that_reads_twice_as_published(columns: int, published: float) -> None:
    """The same source: torch.compile's kernel loads twice, online maximum and sum first; 2.0 and 1.89 TB/s."""
    assert rate(softmax(16384, columns), read_again(threads=1024)) == pytest.approx(published, rel=0.2)


def test_softmax_that_spills_as_published() -> None:
    """The same source: Liger's kernel falls from 3.0 to about 2.0 TB/s when a row of 65536 no longer fits registers."""
    assert rate(softmax(16384, 65536), kept_row(threads=1024)) == pytest.approx(2.0, rel=0.2)


# --- orderings


@pytest.mark.parametrize("model", MODELS.values(), ids=lambda m: m.target.name)
def test_short_rows_packed_beat_a_block_per_row(model: DeviceModel) -> None:
    sub = softmax(750_000, 32)
    packed = min(
        predict(sub, plan, model).seconds
        for plan in (kept_row(rows=32, threads=256), kept_row(rows=32, threads=1024, width=1))
    )
    for threads in (32, 128, 256):
        assert packed < predict(sub, kept_row(threads=threads, width=1), model).seconds


@pytest.mark.parametrize("state", ["hot", "cold"])
@pytest.mark.parametrize("model", [H100, H200, MODELS["cuda:b200"], MODELS["cuda:l4"]], ids=lambda m: m.target.name)
def test_few_long_rows_split_beat_unsplit(model: DeviceModel, state: str) -> None:
    """Where 64 rows leave more than half of the multiprocessors idle (or, on an L4, rows do not fit its L2 hot)."""
    sub = softmax(64, 30_000)
    split = min(
        predict(sub, split_once(30_000, parts=parts, threads=256), model, state=state).seconds  # type: ignore[arg-type]
        for parts in (2, 4, 8)
    )
    for plan in (kept_row(threads=512), kept_row(threads=1024), read_again(threads=512), read_again(threads=1024)):
        assert split < predict(sub, plan, model, state=state).seconds  # type: ignore[arg-type]


@pytest.mark.parametrize("state", ["hot", "cold"])
@pytest.mark.parametrize("name", ["t4", "h200", "l4"])
def test_a_split_pair_in_one_pass_beats_two(name: str, state: str) -> None:
    sub, model = softmax(2, 1 << 21), MODELS[f"cuda:{name}"]
    apart = build(sub, {"couple.4": False}, model.target)
    one, two = (predict(sub, p, model, state=state).seconds for p in (heuristic(sub, model.target), apart))  # type: ignore[arg-type]
    assert one < two


def test_two_long_rows_split_over_the_device_beat_unsplit_by_far() -> None:
    sub = softmax(2, 1 << 21)
    split = split_row(1 << 21, parts=66, threads=1024)
    assert predict(sub, split, H100).seconds < 0.2 * predict(sub, read_again(threads=1024), H100).seconds


def test_hot_inputs_under_l2_beat_cold_ones() -> None:
    for sub, plan in (
        (softmax(1024, 1024), kept_row(threads=256)),
        (stream(1 << 20, 2), flat(stream(1 << 20, 2))),
    ):
        hot, cold = predict(sub, plan, H100), predict(sub, plan, H100, state="cold")
        assert hot.seconds < 0.8 * cold.seconds
        assert sum(p.far_bytes for p in hot.phases) == 0
    beyond, plan = softmax(16384, 4096), kept_row(threads=128)
    assert predict(beyond, plan, H100).seconds == predict(beyond, plan, H100, state="cold").seconds


@pytest.mark.parametrize("name", ["cuda:h100-sxm", "cuda:h200", "cuda:a100", "cuda:t4"])
def test_a_spilled_row_loses(name: str) -> None:
    """To the same row in shared memory, where it fits; all of it, to reading the row again."""
    model = MODELS[name]
    threads = min(1024, model.target.resident_threads)
    columns = model.target.block_bytes // 4 // 2 // threads // 4 * 4 * threads
    sub = softmax(16384, columns)
    spilled = [Report(model.target.registers // threads, 512, 256, 512)]
    lost = predict(sub, kept_row(threads=threads), model, spilled).seconds
    assert lost > predict(sub, kept_row(threads=threads), model).seconds
    assert lost > predict(sub, kept_row(threads=threads, keep="block"), model).seconds
    longer = softmax(16384, 64 * threads)
    spilled = [Report(model.target.registers // threads, 256, 256, 512)]
    reread = predict(longer, read_again(threads=threads), model).seconds
    assert predict(longer, kept_row(threads=threads), model, spilled).seconds > reread


def test_wide_accesses_and_coalescing_pay() -> None:
    sub = stream(ELEMENTS, 1)
    assert (
        predict(sub, flat(sub, threads=64, width=2), H100).seconds
        < predict(sub, flat(sub, threads=64, width=1), H100).seconds
    )
    turned = transposed(8192, 8192)
    assert predict(turned, strided(turned), H100).seconds > 1.3 * limit(turned, H100)


def test_graph_replay_is_cheaper_than_launching_by_stream() -> None:
    a100 = MODELS["cuda:a100"]
    sub = scaled(4096)
    plan = unfused(sub, a100.target)
    saved = predict(sub, plan, a100, mode="stream").launch - predict(sub, plan, a100).launch
    assert saved == pytest.approx(2 * (a100.launch - a100.graph_launch))


def test_stitching_beats_unfused_kernels() -> None:
    for sub in (softmax(4096, 1024), softmax(64, 30_000), scaled(1 << 22)):
        assert (
            predict(sub, heuristic(sub, H200.target), H200).seconds
            < predict(sub, unfused(sub, H200.target), H200).seconds
        )


# --- monotone

SUBJECTS: tuple[tuple[Subgraph, Plan], ...] = (
    (stream(1 << 22, 1), flat(stream(1 << 22, 1))),
    (softmax(4096, 1024), kept_row(rows=4, threads=256)),
    (softmax(16384, 4096), kept_row(threads=128, keep="block")),
    (softmax(64, 30_000), split_row(30_000, parts=4, threads=512)),
    (softmax(512, 65536), read_again(threads=512)),
    (column_sum(4096, 4096), heuristic(column_sum(4096, 4096), H100.target)),
)

subjects = st.sampled_from(SUBJECTS)
models = st.sampled_from(sorted(MODELS)).map(MODELS.__getitem__)
states = st.sampled_from(["hot", "cold"])
more = st.floats(1.0, 8.0)


def seconds(subject: tuple[Subgraph, Plan], model: DeviceModel, state: str = "hot") -> float:
    return predict(*subject, model, state=state).seconds  # type: ignore[arg-type]


@given(subjects, models, states, more)
@settings(max_examples=60, deadline=None)
def test_bandwidth_never_hurts(subject: tuple[Subgraph, Plan], model: DeviceModel, state: str, factor: float) -> None:
    faster = replace(model, dram_bandwidth=model.dram_bandwidth * factor, dram_stream=model.dram_stream * factor)
    assert seconds(subject, faster, state) <= seconds(subject, model, state)


@given(subjects, models, states, more)
@settings(max_examples=60, deadline=None)
def test_latency_never_helps(subject: tuple[Subgraph, Plan], model: DeviceModel, state: str, factor: float) -> None:
    slower = replace(model, latency=model.latency * factor, cache_latency=model.cache_latency * factor)
    assert seconds(subject, slower, state) >= seconds(subject, model, state)


@given(models, states, st.integers(20, 200), st.integers(20, 200))
@settings(max_examples=60, deadline=None)
def test_fewer_bytes_in_flight_never_help(model: DeviceModel, state: str, a: int, b: int) -> None:
    """More registers, fewer resident blocks; streams and rows that are read once, where no cache gains from that."""
    for sub, plan in SUBJECTS[:2]:
        few, many = (
            predict(sub, plan, model, [Report(n, 0, 0, 0)], state=state).seconds  # type: ignore[arg-type]
            for n in sorted((a, b))
        )
        assert few <= many * (1 + 1e-9)


@given(models, states, st.integers(10, 24), st.integers(10, 24), st.sampled_from([64, 256, 1024]))
@settings(max_examples=60, deadline=None)
def test_more_bytes_never_help(model: DeviceModel, state: str, a: int, b: int, threads: int) -> None:
    little, much = (
        seconds((sub, flat(sub, threads=threads)), model, state) for sub in (stream(1 << n, 2) for n in sorted((a, b)))
    )
    assert little <= much * (1 + 1e-9)


@given(models, st.floats(1.0, 8.0), st.floats(1.0, 8.0))
@settings(max_examples=40, deadline=None)
def test_barriers_never_help(model: DeviceModel, a: float, b: float) -> None:
    sub, plan = SUBJECTS[3]
    times = [predict(sub, plan, replace(model, barrier=model.barrier * f)) for f in sorted((a, b))]
    assert times[0].seconds <= times[1].seconds
    assert times[0].barriers >= 2 * model.barrier


# --- the parts


def test_mixed_traffic_lies_between_copy_and_stream() -> None:
    copy, read = paired(1, 1, 2.0, 3.0) / 2, paired(2, 0, 2.0, 3.0) / 2
    assert (copy, read) == (1 / 2, 1 / 3)
    assert read < paired(2, 1, 2.0, 3.0) / 3 < copy


def test_the_cache_keeps_less_and_less() -> None:
    sizes = [i * 1e6 for i in range(100)]
    kept = [kept_in_cache(H100, size) for size in sizes]
    assert kept[0] == 1.0
    assert kept[-1] == 0.0
    assert kept == sorted(kept, reverse=True)


def test_a_short_last_wave_shows_as_tail() -> None:
    def tail(rows: int) -> float:
        return predict(softmax(rows, 32_768), kept_row(threads=1024), H100).phases[0].tail

    assert tail(132) == pytest.approx(1.0)
    assert tail(133) > 1.2
    assert tail(132 * 40 + 1) < 1.1


def test_predictions_are_of_the_shape_that_callers_know() -> None:
    cost: Cost = predict(*SUBJECTS[3], H100)
    assert len(cost.phases) == 3
    assert len(cost.features) == len(FEATURES)
    assert cost.seconds == pytest.approx(cost.launch + cost.barriers + sum(p.seconds for p in cost.phases))
    assert all(-1 < f < 8 for f in cost.features)


def test_nothing_beats_the_limit_by_much() -> None:
    for subject in SUBJECTS:
        for model in MODELS.values():
            assert seconds(subject, model) > 0.9 * limit(subject[0], model)


def test_predictions_repeat() -> None:
    assert len({predict(*SUBJECTS[3], H100) for _ in range(5)}) == 1


# --- profiles


def test_every_profile_has_a_model_with_sources() -> None:
    assert set(MODELS) == set(DEVICES)
    for name, model in MODELS.items():
        assert model.target == DEVICES[name]
        assert 0 < model.dram_bandwidth <= model.dram_stream < model.cache_bandwidth <= model.cache_stream
        assert model.cache_stream < model.block_bandwidth
        assert 0 < model.block_latency < model.cache_latency < model.latency < model.graph_launch <= model.launch
        assert model.barrier > 0
        assert 1 << 10 < model.latency_bytes < 64 << 10
        named = dict(model.sources)
        fields = "dram_bandwidth cache_bandwidth block_bandwidth latency block_latency launch barrier clock"
        assert set(named) == set(fields.split())
        assert all(named.values())


def test_a_present_device_takes_the_most_alike_profile() -> None:
    mine = replace(DEVICES["cuda:h200"], name="cuda")
    model = profile_model(mine)
    assert model.target == mine
    assert model.dram_bandwidth == H200.dram_bandwidth or model.dram_bandwidth == H100.dram_bandwidth
    assert "profile cuda:h" in model.source
    fewer = replace(mine, processors=112)
    assert profile_model(fewer).dram_bandwidth == MODELS["cuda:h100-pcie"].dram_bandwidth


def test_the_documented_constants_are_those_of_the_profiles() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cost-model.md").read_text()
    for name, m in MODELS.items():
        cells = (
            name.removeprefix("cuda:"),
            f"{m.dram_bandwidth / 1e12:.2f} / {m.dram_stream / 1e12:.2f}",
            f"{m.cache_bandwidth / 1e12:.1f} / {m.cache_stream / 1e12:.1f}",
            f"{m.target.cache_bytes >> 20}",
            f"{m.latency * 1e9:.0f} / {m.cache_latency * 1e9:.0f}",
            f"{m.latency_bytes / 1024:.1f}",
            f"{m.launch * 1e6:.2f} / {m.graph_launch * 1e6:.2f}",
            f"{m.barrier * 1e6:.2f}",
            f"{m.turnover * 1e9:.0f}",
        )
        assert f"| {' | '.join(cells)} |" in text
