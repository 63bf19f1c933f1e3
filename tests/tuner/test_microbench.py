"""The microbenchmarks are legal plans, and a model follows from their times."""

from __future__ import annotations

from stitchtune.kernels.host import host_target
from stitchtune.kernels.lower import lower
from stitchtune.search_space import legality
from stitchtune.tuner.microbench import BARRIERS, benchmarks, model_of, sizes

from .examples import TARGET


def test_every_benchmark_is_a_legal_plan_that_lowers() -> None:
    for target in (TARGET, host_target()):
        benches = list(benchmarks(target))
        assert len({b.name for b in benches}) == len(benches)
        for bench in benches:
            assert legality.check(bench.sub, bench.plan, target) == (), bench.name
            assert lower(bench.sub, bench.plan, target), bench.name
        assert max(b.plan.barriers for b in benches) == BARRIERS


def test_working_sets_reach_from_cache_to_memory() -> None:
    found = sizes(TARGET)
    assert found == sorted(set(found))
    assert found[0] <= TARGET.processors * TARGET.l1_bytes
    assert found[-1] > 2 * TARGET.cache_bytes


def test_the_model_follows_from_the_times() -> None:
    benches = tuple(benchmarks(TARGET))
    times = {b.name: 1e-7 + b.units * 1e-10 for b in benches}
    times |= {"serial": 1e-7, "team": 2e-6, "barriers": 2e-6 + BARRIERS * 5e-7}
    for bench in benches:
        size = float(bench.name.partition(" ")[2] or 0)
        if size:
            rate = 100e9 if size <= TARGET.cache_bytes else 25e9
            alone = bench.name.startswith("alone")
            times[bench.name] = bench.units / rate * (2 if alone else 1) + (1e-7 if alone else 2e-6)
    times["loop"] = times["task"] = 2e-6
    model = model_of(TARGET, benches, times)
    assert abs(model.barrier - 5e-7) < 1e-12
    assert (model.launch, model.serial_launch) == (2e-6, 1e-7)
    assert abs(model.dram_bandwidth / 25e9 - 1) < 1e-6
    assert abs(model.cache_bandwidth / 100e9 - 1) < 1e-6
    assert all(abs(one / everyone - 0.5) < 1e-6 for _, everyone, one in model.triad)
    assert abs(dict(model.throughput)["exp"] / 1e10 - 1) < 1e-6
    assert all(rate > 0 for _, rate in model.throughput)
