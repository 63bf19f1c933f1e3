"""How kernels get their launch: caps on registers, what is refused, grids that the device holds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.kernels.build import build_plans
from stitchtune.kernels.compile import BuildFailure
from stitchtune.kernels.cuda import build
from stitchtune.kernels.cuda.build import Needs, build_cuda, choose_launch, kernel_needs, launch_bounds, library_stack
from stitchtune.kernels.cuda.built import BuiltCuda, Parameter, Report
from stitchtune.kernels.cuda.nvrtc import Compiled, find_nvrtc
from stitchtune.kernels.cuda.text.emit import Bounds
from stitchtune.kernels.loops import Apply, Load, LoopKernel, Store
from stitchtune.search_space.devices import device_target
from stitchtune.search_space.plan import Plan

from tests.kernels.cuda.programs import BUFFERS, F32, THREAD, array, group, kernel, row_sums, scale

A100 = device_target("cuda:a100")
T4 = device_target("cuda:t4")
SUB, PLAN = Subgraph((), (), ()), Plan(())
POINTERS = (Parameter("buffer", 0, F32), Parameter("buffer", 1, F32, True))


def _needs(kernel: LoopKernel, **changes: int) -> Needs:
    made = kernel_needs(replace(kernel, **changes), (), A100)  # type: ignore[arg-type]
    assert isinstance(made, Needs), made
    return made


def test_wanted_residency_is_1024_threads_and_is_relaxed_by_halves() -> None:
    plain = kernel((scale(4096),), buffers=BUFFERS)
    assert _needs(plain) == Needs(4096, 0, (8, 4, 2, 1))
    assert _needs(plain, threads=1024).residency == (1,)
    assert _needs(replace(plain, block_bytes=array("s", "block", 0, 50 * 1024).elements)).residency == (3, 1)


def test_a_kernel_that_keeps_its_blocks_asks_for_all_of_them() -> None:
    rows = replace(row_sums(rows=108 * 12), resident=True)
    assert _needs(rows).residency == (12,)
    crowd = kernel_needs(replace(row_sums(rows=108 * 16 + 1), resident=True), (), A100)
    assert isinstance(crowd, BuildFailure)
    assert crowd == BuildFailure("occupancy", crowd.message)
    assert "1729 blocks" in crowd.message
    assert "1728 at a time" in crowd.message


def test_shared_memory_that_no_block_can_have() -> None:
    large = replace(row_sums(), block_bytes=array("s", "block", 0, 163 * 1024 + 1).elements)
    made = kernel_needs(large, (), A100)
    assert isinstance(made, BuildFailure)
    assert made.stage == "shared-memory"
    assert "166913 bytes" in made.message


def test_threads_that_no_multiprocessor_holds() -> None:
    made = kernel_needs(replace(kernel((scale(),), buffers=BUFFERS), threads=2048), (), T4)
    assert isinstance(made, BuildFailure)
    assert made.stage == "occupancy"


def test_grids() -> None:
    wide = kernel((scale(1 << 20),), buffers=BUFFERS)
    report = Report(32, 0, 0, 0)
    launch = choose_launch("k", wide, _needs(wide), POINTERS, report, A100)
    assert not isinstance(launch, BuildFailure)
    assert (launch.blocks, launch.resident, launch.cooperative) == (1 << 20, 16, False)
    rows = row_sums(rows=1 << 20)
    launch = choose_launch("k", rows, _needs(rows), POINTERS, report, A100)
    assert not isinstance(launch, BuildFailure)
    assert (launch.blocks, launch.cooperative, launch.shared_bytes) == (16 * 108, True, 16)
    few = row_sums(rows=7)
    launch = choose_launch("k", few, _needs(few), POINTERS, report, A100)
    assert not isinstance(launch, BuildFailure)
    assert launch.blocks == 7
    alone = replace(wide, team=False)
    launch = choose_launch("k", alone, _needs(alone), POINTERS, report, A100)
    assert not isinstance(launch, BuildFailure)
    assert launch.blocks == 1
    empty = kernel((scale(0),), buffers=BUFFERS)
    launch = choose_launch("k", empty, _needs(empty), POINTERS, report, A100)
    assert not isinstance(launch, BuildFailure)
    assert launch.blocks == 1


def test_only_grids_that_hold_every_virtual_block_spare_the_loop() -> None:
    wide = kernel((scale(1 << 20),), buffers=BUFFERS)
    assert launch_bounds(wide, _needs(wide), 8, A100) == Bounds(8, once=True)
    assert not launch_bounds(replace(wide, team=False), _needs(wide), 8, A100).once
    fits, crowd = row_sums(rows=8 * 108), row_sums(rows=8 * 108 + 1)
    assert launch_bounds(fits, _needs(fits), 8, A100).once
    assert not launch_bounds(crowd, _needs(crowd), 8, A100).once


def test_what_registers_and_parameters_refuse() -> None:
    rows = replace(row_sums(rows=108 * 12), resident=True)
    hungry = choose_launch("k", rows, _needs(rows), POINTERS, Report(64, 0, 0, 0), A100)
    assert isinstance(hungry, BuildFailure)
    assert hungry.stage == "occupancy"
    big = kernel((scale(),), buffers=BUFFERS, threads=1024)
    none = choose_launch("k", big, _needs(big), POINTERS, Report(80, 0, 0, 0), A100)
    assert isinstance(none, BuildFailure)
    assert none == BuildFailure("occupancy", none.message)
    many = choose_launch("k", big, _needs(big), POINTERS[:1] * 513, Report(32, 0, 0, 0), A100)
    assert isinstance(many, BuildFailure)
    assert many.stage == "parameters"


# --- the loop of compiling and relaxing, with a compiler of our own


class _Compiler:
    """Gives every kernel of a unit the report that its cap deserves, and remembers what it was asked."""

    def __init__(self, reports: dict[int, Report], broken: str = "") -> None:
        self.reports = reports
        self.broken = broken
        self.asked: list[list[str]] = []

    def compile_units(self, sources: list[str], arch: str, cache: Path, jobs: int) -> list[Compiled | BuildFailure]:
        self.asked.append(sources)
        return [self._one(source) for source in sources]

    def _one(self, source: str) -> Compiled | BuildFailure:
        if self.broken and self.broken in source:
            return BuildFailure("compiler", "planted")
        log = []
        for part in source.split("__launch_bounds__(")[1:]:
            bounds, name = part.split(")\n", 1)
            report = self.reports[int(bounds.split(", ")[1])]
            log.append(
                f"ptxas info : Compiling entry function '{name.split('(')[0]}' for 'sm_80'\n"
                f"{report.stack_bytes} bytes stack frame, {report.spill_store_bytes} bytes spill stores, "
                f"{report.spill_load_bytes} bytes spill loads\nptxas info : Used {report.registers} registers\n"
            )
        return Compiled(Path("x.cubin"), "".join(log))


def _build(
    monkeypatch: pytest.MonkeyPatch, compiler: _Compiler, kernels: list[tuple[LoopKernel, ...]], per_unit: int = 1
) -> list[BuiltCuda | BuildFailure]:
    waiting = iter(kernels)
    monkeypatch.setattr(build, "lower", lambda *_, **__: next(waiting))
    monkeypatch.setattr(build, "compile_units", compiler.compile_units)
    return build_cuda([(SUB, PLAN)] * len(kernels), A100, cache=Path("unused"), per_unit=per_unit)


GOOD, SPILLED, STACK = Report(64, 0, 0, 0), Report(64, 16, 16, 16), Report(64, 128, 0, 0)


def test_a_kernel_that_spills_gets_more_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = _Compiler({8: SPILLED, 4: STACK, 2: GOOD})
    [made] = _build(monkeypatch, compiler, [(kernel((scale(),), buffers=BUFFERS),)])
    assert isinstance(made, BuiltCuda)
    assert "__launch_bounds__(128, 2)" in made.source
    assert [len(sources) for sources in compiler.asked] == [1, 1, 1]
    assert made.launches[0].report == GOOD


def test_a_kernel_without_a_loop_gets_one_where_fewer_blocks_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler's cap and the occupancy rules might disagree; then tasks must not be lost."""
    compiler = _Compiler({8: Report(72, 0, 0, 0), 4: GOOD})
    [made] = _build(monkeypatch, compiler, [(row_sums(rows=8 * 108),)])
    assert isinstance(made, BuiltCuda)
    assert made.launches[0].blocks == 8 * 108
    assert "__launch_bounds__(128, 4)" in made.source
    assert "block += st_grid()" in made.source


@pytest.mark.parametrize(("report", "code"), [(SPILLED, "spill"), (STACK, "stack")])
def test_a_kernel_that_spills_at_any_cap_is_refused(monkeypatch: pytest.MonkeyPatch, report: Report, code: str) -> None:
    compiler = _Compiler(dict.fromkeys((8, 4, 2, 1), report))
    [made] = _build(monkeypatch, compiler, [(kernel((scale(),), buffers=BUFFERS),)])
    assert isinstance(made, BuildFailure)
    assert made.stage == code
    assert len(compiler.asked) == 4


def test_in_a_unit_of_many_only_the_kernels_that_spill_are_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    one = kernel((scale(),), buffers=BUFFERS)
    compiler = _Compiler({8: SPILLED, 4: GOOD, 2: GOOD, 1: GOOD})
    wide = replace(one, threads=512)
    first, second = _build(monkeypatch, compiler, [(wide, one), (wide,)], per_unit=2)
    assert isinstance(first, BuiltCuda)
    assert isinstance(second, BuiltCuda)
    assert [launch.symbol for launch in first.launches] == ["st_k0", "st_k1"]
    assert "__launch_bounds__(512, 2)\nst_k0" in first.source
    assert "__launch_bounds__(128, 4)\nst_k1" in first.source
    assert [launch.symbol for launch in second.launches] == ["st_p1_k0"]
    assert [len(sources) for sources in compiler.asked] == [1, 1]


def test_a_unit_that_does_not_compile_fails_only_the_plan_to_blame(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = _Compiler({8: GOOD, 1: GOOD}, broken="(512, ")
    one = kernel((scale(),), buffers=BUFFERS)
    bad = replace(one, threads=512)
    compiler.reports[2] = GOOD
    first, second, third = _build(monkeypatch, compiler, [(one,), (bad,), (one,)], per_unit=3)
    assert isinstance(first, BuiltCuda)
    assert second == BuildFailure("compiler", "planted")
    assert isinstance(third, BuiltCuda)


def test_the_library_needs_a_stack_for_angles_of_doubles() -> None:
    f64 = DType.F64
    buffers = (array("x0", "input", 0, dtype=f64), array("y0", "output", 1, dtype=f64))
    value = Apply("sin", f64, (Load("x0", THREAD, f64),))
    angles = kernel((group(Store("y0", THREAD, value)),), buffers=buffers)
    assert library_stack(angles) == 40
    assert library_stack(kernel((scale(),), buffers=BUFFERS)) == 0


@pytest.mark.skipif(find_nvrtc() is None, reason="no NVRTC")
def test_the_real_compiler_and_the_common_way_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(build, "lower", lambda *_, **__: (row_sums(), kernel((scale(),), buffers=BUFFERS)))
    [made] = build_plans([(SUB, PLAN)], A100, cache=tmp_path / "cache")
    assert isinstance(made, BuiltCuda), made
    assert made.image.suffix == ".cubin"
    sums, scaled = made.launches
    assert (sums.cooperative, sums.threads, sums.blocks, sums.shared_bytes) == (True, 128, 64, 16)
    assert (scaled.cooperative, scaled.blocks) == (False, 64)
    assert sums.report is not None
    assert sums.resident >= 8
    again = build_plans([(SUB, PLAN)], A100, cache=tmp_path / "cache")
    assert again == [made]
