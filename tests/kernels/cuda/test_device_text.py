"""The very text that is compiled for a device, without loops over virtual blocks, emulated with the device's launch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from stitchtune.graphs.tolerance import compare, expect
from stitchtune.kernels.compile import find_compiler
from stitchtune.kernels.cuda.build import build_cuda
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.emulator.emulate import Emulation, run_source
from stitchtune.kernels.cuda.nvrtc import find_nvrtc
from stitchtune.search_space.stitch import heuristic

from tests.golden.kernels import F32, TARGET, bias_transpose, component, rows, swish
from tests.random_values import random_inputs

pytestmark = pytest.mark.skipif(find_nvrtc() is None or find_compiler() is None, reason="no NVRTC, or no C++ compiler")


SUBGRAPHS = {
    "elementwise": lambda: swish(5003),
    "transpose": lambda: bias_transpose(70, 45),
    "column sum": lambda: component(rows.column_sum(F32, 700, 70)),
    "split softmax": lambda: component(rows.softmax(F32, 2, 70_000)),
    "softmax by rows, then apart": lambda: component(rows.softmax(F32, 2, 30_000)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache, since the emulator itself takes longest to compile."""
    return tmp_path_factory.mktemp("device-text")


@pytest.mark.parametrize("name", SUBGRAPHS)
def test_the_text_for_a_device_is_right(name: str, folder: Path) -> None:
    sub = SUBGRAPHS[name]()
    inputs = random_inputs(sub, 1)
    [built] = build_cuda([(sub, heuristic(sub, TARGET))], TARGET, cache=folder / "cubins")
    assert isinstance(built, BuiltCuda), built
    assert "if (const int block = st_block(); block < " in built.source
    assert "block += st_grid()" not in built.source
    outputs = [np.empty(sub.shape(v), sub.values[v].dtype.numpy) for v in sub.outputs]
    ran = run_source(
        built.source,
        built.launches,
        inputs,
        outputs,
        cache=folder / "emulator",
        scratch_bytes=built.scratch_bytes,
        arguments=built.arguments,
    )
    assert isinstance(ran, Emulation), ran
    assert ran.findings == ()
    assert compare(expect(sub, inputs), outputs).ok
