"""The parser of the assembler's report, on logs that the real compiler wrote (python -m tests.golden.write_cuda)."""

from __future__ import annotations

from pathlib import Path

import pytest
from stitchtune.kernels.cuda.built import Report
from stitchtune.kernels.cuda.report import parse

LOGS = Path(__file__).parents[2] / "golden" / "cuda" / "logs"

COMMON = {
    "local_array": 128,  # 32 floats
    "shared_memory": 0,
    "plain": 0,
    "calls": 40,  # the reduction of huge angles
}
"""Bytes of stack that do not depend on the architecture."""


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100"])
def test_golden_logs(arch: str) -> None:
    reports = parse((LOGS / f"{arch}.log").read_text())
    assert set(reports) == {*COMMON, "spilled"}
    assert {name: reports[name].stack_bytes for name in COMMON} == COMMON
    assert reports["shared_memory"].static_shared_bytes == 4096
    assert all(report.static_shared_bytes == 0 for name, report in reports.items() if name != "shared_memory")
    spilled = reports["spilled"]
    assert spilled.spill_store_bytes == spilled.spill_load_bytes > 0
    assert spilled.registers == (64 if arch == "sm_75" else 32)  # 65536 over 1024 or 2048 threads
    assert all(8 <= report.registers <= 64 for report in reports.values())
    assert all(report.spill_store_bytes == 0 for name, report in reports.items() if name != "spilled")


def test_cumulative_stack_counts() -> None:
    log = (
        "ptxas info    : Compiling entry function 'k' for 'sm_90'\n"
        "ptxas info    : Function properties for k\n"
        "    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 30 registers, used 0 barriers, 24 bytes cumulative stack size\n"
    )
    assert parse(log) == {"k": Report(30, 24, 0, 0, 0)}


def test_a_report_without_memory_is_no_report() -> None:
    with pytest.raises(ValueError, match="stack of k"):
        parse("ptxas info : Compiling entry function 'k' for 'sm_90'\nptxas info : Used 8 registers\n")
    assert parse("") == {}
