"""CUDA kernels of plans written by hand, emulated, against the reference; nothing may be found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.graphs.tolerance import check_outputs
from stitchtune.kernels.compile import find_compiler
from stitchtune.kernels.cuda.built import BuiltCuda
from stitchtune.kernels.cuda.emulator.emulate import build_emulated
from stitchtune.search_space.devices import device_target

from tests.emulated import run_component
from tests.kernels.threads import PAIRS, Pair

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")
TARGET = device_target("cuda:h200")
BATCH = 10


def drawn(sub: Subgraph) -> list[NDArray[Any]]:
    rng = np.random.default_rng(0)
    kinds = [sub.values[v].dtype for v in sub.inputs]
    shapes = [sub.shape(v) for v in sub.inputs]
    return [
        (rng.standard_normal(s) if k.is_float else rng.integers(0, 2, s)).astype(k.numpy)
        for k, s in zip(kinds, shapes, strict=True)
    ]


def check(pair: Pair, built: BuiltCuda, **settings: Any) -> list[NDArray[Any]]:
    inputs = list(pair.inputs) or drawn(pair.sub)
    try:
        outputs = run_component(built, inputs, **settings)
    except AssertionError as error:
        raise AssertionError(f"{pair.name}: {error}") from None
    result = check_outputs(pair.sub, inputs, outputs)
    assert result.ok, f"{pair.name}: {result.message}"
    return outputs


@pytest.mark.parametrize("start", range(0, len(PAIRS), BATCH))
@pytest.mark.parametrize("aligned", [True, False])
def test_plans(start: int, aligned: bool, tmp_path: Path) -> None:
    pairs = PAIRS[start : start + BATCH]
    items = [(p.sub, p.plan) for p in pairs]
    built = build_emulated(items, TARGET, cache=tmp_path, per_unit=BATCH, aligned=aligned)
    for pair, one in zip(pairs, built, strict=True):
        assert isinstance(one, BuiltCuda), one
        first = check(pair, one, offset_elements=0 if aligned else 1)
        again = check(pair, one, seed=7, **({} if one.kernels[0].resident else {"grid": 1}))
        assert all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True)), f"{pair.name}: other bits"
