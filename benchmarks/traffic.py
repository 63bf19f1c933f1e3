"""What the heuristic plans of the suite move, one line each, counted by the CUDA emulator: no device is needed.

usage: python -m stitchtune.benchmarks.traffic [--target cuda:h200] [--only NAME,NAME] [--full] [--json] [--csv FILE]

C       the least possible bytes: each input once, each output once, whatever the plan
U / C   bytes of the distinct 32-byte sectors that are read, plus those written, summed over phases, over C
B / C   the same, distinct within one block only: what a device moves at most
useful  bytes that warps ask for, over the 32-byte sectors of each request: how coalesced they are
R       accesses of warps to device memory, in thousands; W: wavefronts of shared memory lost to bank conflicts
Below the table: every subject over its limit (1.05 C where what is read again fits on chip, else 1.55 C; 95 %
useful, 90 % where rows end within a sector), with the buffers that are read again and why. Exit code 1 when a result
is wrong or the emulator finds a fault.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..graphs.errors import StitchtuneError
from ..search_space.devices import device_target
from .emulation import Traffic, measure
from .suite import SUITE, subject


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="traffic", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="cuda:h200")
    parser.add_argument("--only", help="names of the suite, separated by commas")
    parser.add_argument("--full", action="store_true", help="at the sizes of a device, not at those for the emulator")
    parser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    parser.add_argument("--csv", type=Path, help="write the table to this file")
    parser.add_argument("--cache", type=Path, help="folder of compiled kernels; by default a temporary one")
    given = parser.parse_args(arguments)
    try:
        target = device_target(given.target)
        chosen = [subject(n.strip()) for n in given.only.split(",")] if given.only else SUITE
    except (StitchtuneError, KeyError) as error:
        parser.exit(2, f"error: {error.args[0]}\n")
    rows: list[Traffic] = []
    with tempfile.TemporaryDirectory() as scratch:
        for one in chosen:
            started = time.perf_counter()
            row = measure(one, one.sizes if given.full else one.small, target, given.cache or Path(scratch))
            rows.append(row)
            print(f"{one.name}: {time.perf_counter() - started:.1f} s", file=sys.stderr)
    if given.csv:
        write_csv(given.csv, target.name, rows)
    if given.json:
        print(json.dumps({"target": target.name, "subjects": [document(r) for r in rows]}, indent=1))
    else:
        print(f"target {target.name}, heuristic plans, emulated")
        print("\n".join(table(rows)))
        print("\n".join(exceptions(rows)))
    return int(any(r.problem for r in rows))


def document(row: Traffic) -> dict[str, Any]:
    """A row as JSON, with what follows from it."""
    derived = {"ratio": row.ratio, "limit": row.limit, "least_useful": row.least_useful, "exception": row.is_exception}
    return {**asdict(row), **derived}


HEAD = (
    "subject",
    "type",
    "sizes",
    "on chip",
    "C MB",
    "U / C",
    "B / C",
    "useful",
    "R",
    "W",
    "kernels",
    "phases",
    "scheme",
)


def table(rows: Iterable[Traffic]) -> Iterator[str]:
    """Aligned lines, the head first; what is over a limit is marked."""
    lines = [HEAD, *(tuple(_cells(r)) for r in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    left = (0, 1, 2, 3, len(HEAD) - 1)
    for line in lines:
        cells = (c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        yield "  ".join(cells).rstrip()


def _cells(row: Traffic) -> Iterator[str]:
    yield row.name
    yield row.dtype
    yield "x".join(map(str, row.sizes)) + (" (cut)" if row.cut else "")
    yield row.fits
    yield f"{row.least / 1e6:.1f}"
    yield f"{row.ratio:.3f}" + ("!" if row.ratio > row.limit else " ")
    yield f"{row.blocks / row.least:.3f}"
    yield f"{100 * row.useful:.1f} %" + ("!" if row.useful < row.least_useful else " ")
    yield f"{row.requests / 1e3:.1f}"
    yield str(row.wavefronts)
    yield str(row.kernels)
    yield str(row.phases)
    yield row.scheme


def exceptions(rows: Iterable[Traffic]) -> Iterator[str]:
    """Every subject over a limit, with the reasons."""
    found = [r for r in rows if r.is_exception]
    yield "" if found else "\nevery subject is within its limits"
    for row in found:
        yield f"{row.name}: U = {row.ratio:.3f} C, limit {row.limit}; {100 * row.useful:.1f} % useful"
        if row.problem:
            yield f"  {row.problem}"
        yield from (f"  {reason}" for reason in row.again)


def write_csv(path: Path, target: str, rows: Iterable[Traffic]) -> None:
    documents = [{"target": target, **document(r)} for r in rows]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(documents[0]))
        writer.writeheader()
        for one in documents:
            writer.writerow({**one, "sizes": "x".join(map(str, one["sizes"])), "again": "; ".join(one["again"])})


if __name__ == "__main__":
    sys.exit(main())
