"""Run by .ci/run with the Python of an environment that has only the wheel, from a folder outside the checkout.

usage: python wheel_smoke.py STITCHTUNE_COMMAND      with command_line.py beside it
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import stitchtune
from command_line import block


def main(command: str) -> None:
    graph = str(block(Path.cwd()))
    home = Path(stitchtune.__file__).parent
    assert "site-packages" in home.parts, home
    leaked = [p.name for p in home.parent.iterdir() if p.name in ("graphs", "kernels", "results", "tuner", "tests")]
    assert not leaked, leaked
    binaries = [str(p) for p in home.rglob("*") if p.suffix in (".so", ".o", ".a", ".dll", ".dylib")]
    assert not binaries, binaries

    def run(*arguments: str) -> Any:
        done = subprocess.run([command, *arguments, "--json"], check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    assert run("doctor")["version"] == stitchtune.__version__
    seen = run("inspect", graph)
    [tuned] = run("tune", graph, "--budget", "60", "--trials", "2", "--out", "report")["results"]
    assert tuned["measured"] > 0
    assert Path("report/report.html").exists()
    ran = run("run", graph, "--check", "--require-plan")
    assert all(one["ok"] for one in ran["check"])
    row = run("bench", graph, "--peers", "unfused,onnxruntime", "--bursts", "4", "--no-whole")["rows"][0]
    assert [one["name"] for one in row["contestants"]] == ["stitched", "unfused", "onnxruntime"]
    model = stitchtune.compile(graph)
    print(model.report())
    print(f"wheel: {len(seen['subgraphs'])} subgraphs, {tuned['measured']} plans measured, {ran['launches']} launches")


if __name__ == "__main__":
    main(*sys.argv[1:])
