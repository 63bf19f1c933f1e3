"""The long run: `python -m tests.differential --pairs 20000 --seed 1000 --minutes 30`, from the repository root.

`--only N` runs the pairs of one number in this process and prints each, to find what a failure is.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.differential.campaign import Tally, campaign, numbered, run_batch, table, two_threads, work


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument(
        "--seed", type=int, default=0, help="the first round of numbers; runs of far seeds share nothing"
    )
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int, help="run one number and print its pairs")
    for name, kind in (("--worker", Path), ("--first", int), ("--step", int), ("--seconds", float)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return _worker(given)
    if given.only is not None:
        tally = _only(given.only)
    else:
        tally = campaign(given.pairs, given.seed, given.jobs, given.minutes * 60)
    return _report(tally)


def _only(number: int) -> Tally:
    """The pairs of one number under both precisions, each told before it runs."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as cache:
        team, pairs = two_threads(Path(cache)), list(numbered(number, tally))
        for precision in ("strict", "fast"):
            for pair in pairs:
                print(f"{pair.name}, {precision}", flush=True)
                run_batch([pair], precision, Path(cache), team, tally, lambda _: None)  # type: ignore[arg-type]
    return tally


def _worker(given: argparse.Namespace) -> int:
    with open(given.worker, "w") as log, tempfile.TemporaryDirectory() as cache:

        def say(entry: dict[str, Any]) -> None:
            print(json.dumps(entry), file=log, flush=True)

        tally = work(given.first, given.step, given.pairs, given.seconds, Path(cache), say)
        say({"tally": tally.to_json()})
    return 0


def _report(tally: Tally) -> int:
    for line in table(tally):
        print(line)
    for pair, problem in tally.failures.items():
        print(f"\n{pair}\n  {problem}")
    print(f"\n{tally.seconds:.0f} s")
    return bool(tally.failures)


if __name__ == "__main__":
    sys.exit(main())
