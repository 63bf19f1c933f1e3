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

from tests.differential.campaign import Tally, campaign, numbered, run_batch, table, work
from tests.differential.machines import MACHINES, machine


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=500)
    parser.add_argument(
        "--seed", type=int, default=0, help="the first round of numbers; runs of far seeds share nothing"
    )
    parser.add_argument("--minutes", type=float, default=600.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--target", default="cpu", choices=MACHINES, help="cuda is emulated")
    parser.add_argument("--only", type=int, help="run one number and print its pairs")
    for name, kind in (("--worker", Path), ("--first", int), ("--step", int), ("--seconds", float)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        return _worker(given)
    if given.only is not None:
        tally = _only(given.only, given.target)
    else:
        tally = campaign(given.pairs, given.seed, given.jobs, given.minutes * 60, given.target)
    return _report(tally, given.target)


def _only(number: int, target: str) -> Tally:
    """The pairs of one number under every setting, each told before it runs."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as cache:
        one = machine(target, Path(cache))
        pairs = list(numbered(one, number, tally))
        for setting in dict.fromkeys(one.setting(batch) for batch in range(60)):
            for pair in pairs:
                print(f"{pair.name}, {setting}", flush=True)
                run_batch(one, [pair], setting, tally, lambda _: None)
    return tally


def _worker(given: argparse.Namespace) -> int:
    with open(given.worker, "w") as log, tempfile.TemporaryDirectory() as cache:

        def say(entry: dict[str, Any]) -> None:
            print(json.dumps(entry), file=log, flush=True)

        one = machine(given.target, Path(cache))
        tally = work(one, given.first, given.step, given.pairs, given.seconds, say)
        say({"tally": tally.to_json()})
    return 0


def _report(tally: Tally, target: str) -> int:
    for line in table(tally, MACHINES[target].wanted):
        print(line)
    for pair, problem in tally.failures.items():
        print(f"\n{pair}\n  {problem}")
    print(f"\n{tally.seconds:.0f} s")
    return bool(tally.failures)


if __name__ == "__main__":
    sys.exit(main())
