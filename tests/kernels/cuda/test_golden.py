"""The golden sources: what plans become, kept readable by being read. They compile everywhere without spilling."""

from __future__ import annotations

from pathlib import Path

import pytest
from stitchtune.kernels.cuda.nvrtc import Compiled, compile_unit, find_nvrtc
from stitchtune.kernels.cuda.report import parse

from tests.golden.kernels import SUBGRAPHS
from tests.golden.write_cuda import ARCHITECTURES, HERE, source


@pytest.mark.parametrize("name", SUBGRAPHS)
def test_golden_source(name: str) -> None:
    """A change of the emitted text shows in review: `python -m tests.golden.write_cuda` writes the files anew."""
    assert source(name) == (HERE / f"{name}.cu").read_text()


def test_there_is_nothing_else() -> None:
    assert {path.stem for path in HERE.glob("*.cu")} == set(SUBGRAPHS)
    assert all(len(line) <= 200 for path in HERE.glob("*.cu") for line in path.read_text().splitlines())


@pytest.mark.skipif(find_nvrtc() is None, reason="no NVRTC")
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_golden_sources_compile_without_stack_or_spills(arch: str, tmp_path: Path) -> None:
    text = "\n".join((HERE / f"{name}.cu").read_text() for name in SUBGRAPHS)
    made = compile_unit(text, arch, tmp_path / "cache")
    assert isinstance(made, Compiled), made
    reports = parse(made.log)
    assert set(SUBGRAPHS) <= reports.keys()
    assert {name: (r.stack_bytes, r.spill_store_bytes) for name, r in reports.items()} == dict.fromkeys(reports, (0, 0))
