"""The traffic table: what it says of a subject, and one run of the emulator from the command line."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from stitchtune.benchmarks.emulation import Traffic, measure
from stitchtune.benchmarks.suite import SUITE, subject
from stitchtune.benchmarks.traffic import exceptions, main, table, write_csv
from stitchtune.kernels.compile import find_compiler
from stitchtune.search_space.devices import device_target

GOOD = Traffic(
    *("layer norm", "f32", (256, 768), "4096 -> 256", "row", 1_000_000, 1_010_000, 1_100_000, 0.99, 1.0, 2000, 0, 1, 1),
    *("local+regional", "", ()),
)


def test_limits_follow_from_what_fits_on_chip() -> None:
    assert (GOOD.limit, replace(GOOD, fits="no").limit, replace(GOOD, fits="streams").limit) == (1.05, 1.55, 1.05)
    assert not GOOD.is_exception
    assert replace(GOOD, moved=1_060_000).is_exception
    assert not replace(GOOD, moved=1_500_000, fits="no").is_exception
    assert replace(GOOD, problem="wrong").is_exception


def test_fewer_useful_bytes_are_expected_where_rows_end_within_a_sector() -> None:
    assert GOOD.least_useful == 0.95
    assert replace(GOOD, sizes=(16, 30_522)).least_useful == 0.90
    assert replace(GOOD, useful=0.93).is_exception
    assert not replace(GOOD, useful=0.93, sizes=(16, 30_522)).is_exception


def test_a_table_marks_what_is_over_a_limit_and_names_the_reason() -> None:
    bad = replace(GOOD, name="softmax", moved=1_500_000, again=("x: 2 phases read 500,000 bytes (no stage keeps it)",))
    head, good, wrong = table([GOOD, bad])
    assert head.split()[:2] == ["subject", "type"]
    assert "1.010 " in good
    assert "1.500!" in wrong
    found = "\n".join(exceptions([GOOD, bad]))
    assert "softmax: U = 1.500 C, limit 1.05" in found
    assert "no stage keeps it" in found
    assert "layer norm" not in found
    assert list(exceptions([GOOD])) == ["\nevery subject is within its limits"]


def test_a_file_holds_the_table(tmp_path: Path) -> None:
    write_csv(tmp_path / "t.csv", "cuda:h200", [GOOD])
    with (tmp_path / "t.csv").open() as file:
        [row] = csv.DictReader(file)
    assert (row["name"], row["sizes"], float(row["ratio"]), row["exception"]) == (
        "layer norm",
        "256x768",
        1.01,
        "False",
    )


EXCEPTIONS = {
    "group norm": "scale and bias: a warp takes one number of each for the 128 elements that it has of a channel"
}
"""Subjects that are over a limit on cuda:h200, and why."""

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C++ compiler")


@needs_compiler
def test_one_command_runs_a_subject(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["--only", "DIEN attention", "--target", "cuda:t4", "--json", "--cache", str(tmp_path)]) == 0
    document = json.loads(capsys.readouterr().out)
    [row] = document["subjects"]
    assert document["target"] == "cuda:t4"
    assert (row["name"], row["fits"], row["cut"]) == ("DIEN attention", "row", "")
    assert row["ratio"] <= 1.05


@needs_compiler
@pytest.mark.parametrize("name", [s.name for s in SUITE])
def test_heuristic_plans_of_the_suite_are_right_and_move_little(name: str, tmp_path: Path) -> None:
    one = subject(name)
    row = measure(one, one.small, device_target("cuda:h200"), tmp_path)
    assert not row.problem
    told = "\n".join(exceptions([row]))
    assert row.ratio <= row.limit, told
    if name not in EXCEPTIONS:
        assert not row.is_exception, told
    else:
        assert "one element for a whole warp" in told
