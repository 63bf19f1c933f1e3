"""Run by .ci/run with the Python of an environment that has only the wheel, from a folder outside the checkout.

usage: python -I wheel_smoke.py PATH_OF_THE_STITCHTUNE_COMMAND
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import stitchtune


def main(command: str) -> None:
    home = Path(stitchtune.__file__).parent
    assert "site-packages" in home.parts, home
    leaked = [p.name for p in home.parent.iterdir() if p.name in ("graphs", "kernels", "results", "tuner", "tests")]
    assert not leaked, leaked
    binaries = [str(p) for p in home.rglob("*") if p.suffix in (".so", ".o", ".a", ".dll", ".dylib")]
    assert not binaries, binaries
    done = subprocess.run([command, "--version"], check=True, capture_output=True, text=True)
    assert stitchtune.__version__ in done.stdout, done.stdout
    subprocess.run([command, "doctor"], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
