"""What the cost model thinks a kernel needs is about what the compiler makes of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from stitchtune.kernels.cuda.build import build_cuda
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.nvrtc import find_nvrtc
from stitchtune.search_space.devices import device_target
from stitchtune.search_space.stitch import heuristic
from stitchtune.tuner.cost import predict
from stitchtune.tuner.cuda_model.fit import fit_kernel, shared_bytes
from stitchtune.tuner.cuda_model.touch import accesses
from stitchtune.tuner.profiles import MODELS
from stitchtune.tuner.view import view

from .cuda_plans import kept_row
from .examples import column_sum, softmax, transposed

TARGET = device_target("cuda:h200")
MODEL = MODELS[TARGET.name]

SUBGRAPHS = {
    "short rows": softmax(750_000, 32),
    "rows": softmax(4096, 4096),
    "split rows": softmax(64, 30_000),
    "columns": column_sum(4096, 4096),
    "transposed": transposed(1024, 1024),
}


@pytest.mark.skipif(find_nvrtc() is None, reason="needs NVRTC")
def test_shared_memory_and_residency_are_nearly_those_of_the_build(tmp_path: Path) -> None:
    plans = {name: heuristic(sub, TARGET) for name, sub in SUBGRAPHS.items()}
    items = [(SUBGRAPHS[name], plan) for name, plan in plans.items()]
    made = build_cuda(items, TARGET, cache=tmp_path, jobs=1, per_unit=len(items))
    for name, built in zip(plans, made, strict=True):
        assert isinstance(built, BuiltCuda), name
        seen = view(built.sub, built.plan, MODEL)
        for kernel, launch in zip(built.plan.kernels, built.launches, strict=True):
            phases = [[accesses(seen, g) for g in p.groups] for p in kernel.phases]
            assert shared_bytes(seen, phases) == pytest.approx(launch.shared_bytes, rel=0.05, abs=512), name
            guess = fit_kernel(seen, kernel, phases, None)
            known = fit_kernel(seen, kernel, phases, launch.report)
            assert launch.threads * abs(guess.resident - known.resident) <= 1024, name
            assert known.resident == launch.resident, name
        guessed, compiled = (predict(built.sub, built.plan, MODEL, r) for r in ((), [n.report for n in built.launches]))
        assert guessed.seconds == pytest.approx(compiled.seconds, rel=0.15), name


def test_a_row_that_no_register_file_holds_is_thought_to_spill() -> None:
    seen = view(softmax(4096, 65536), kept_row(threads=1024), MODEL)
    [kernel] = seen.plan.kernels
    fit = fit_kernel(seen, kernel, [[accesses(seen, g) for g in p.groups] for p in kernel.phases], None)
    assert fit.resident == 1
    assert fit.stored >= 4 * 16
    half = view(softmax(4096, 32768), kept_row(threads=1024), MODEL)
    assert fit_kernel(half, kernel, [[accesses(half, g) for g in p.groups] for p in kernel.phases], None).stored == 0
