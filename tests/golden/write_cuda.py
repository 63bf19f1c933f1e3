"""Writes the golden CUDA sources and compiler logs: `python -m tests.golden.write_cuda`, from the repository root."""

from __future__ import annotations

import tempfile
from pathlib import Path

from stitchtune.kernels.cuda.nvrtc import Compiled, compile_unit

HERE = Path(__file__).parent
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")


def write_logs() -> None:
    """What the compiler says of kernels that need all that there is to report."""
    source = (HERE / "report_kernels.cu").read_text()
    with tempfile.TemporaryDirectory() as folder:
        for arch in ARCHITECTURES:
            made = compile_unit(source, arch, Path(folder) / "cache")
            assert isinstance(made, Compiled), made
            (HERE / "cuda" / "logs" / f"{arch}.log").write_text(made.log + "\n")


if __name__ == "__main__":
    write_logs()
