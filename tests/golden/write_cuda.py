"""Writes the golden CUDA sources: `python -m tests.golden.write_cuda`, from the repository root.

With the argument `logs`, the compiler's golden logs too, which need NVRTC and differ by a register from run to run.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from stitchtune.kernels.cuda.build import Needs, kernel_needs, launch_bounds
from stitchtune.kernels.cuda.nvrtc import Compiled, compile_unit
from stitchtune.kernels.cuda.text.comment import comment_head
from stitchtune.kernels.cuda.text.emit import emit
from stitchtune.kernels.lower import lower

from tests.golden.kernels import SUBGRAPHS, TARGET, golden

HERE = Path(__file__).parent / "cuda"
ARCHITECTURES = ("sm_75", "sm_80", "sm_90", "sm_100")


def source(name: str) -> str:
    """The golden source of a kernel: its plan as a comment, then the text that is compiled first."""
    sub, plan = golden(name)
    kernels = lower(sub, plan, TARGET)
    bounds = []
    for kernel in kernels:
        need = kernel_needs(kernel, sub.slots, TARGET)
        assert isinstance(need, Needs), need
        bounds.append(launch_bounds(kernel, need, need.residency[0], TARGET))
    text = emit(kernels, [f"{name}_{k}" if k else name for k in range(len(kernels))], bounds).source
    return f"{comment_head(sub, plan)}\n{text}"


def log(arch: str, cache: Path) -> str:
    """What the compiler says of kernels that need all that there is to report."""
    made = compile_unit((HERE / "logs" / "kernels.cu").read_text(), arch, cache)
    assert isinstance(made, Compiled), made
    return made.log + "\n"


def main(arguments: list[str]) -> None:
    for name in SUBGRAPHS:
        (HERE / f"{name}.cu").write_text(source(name))
    if "logs" not in arguments:
        return
    with tempfile.TemporaryDirectory() as folder:
        for arch in ARCHITECTURES:
            (HERE / "logs" / f"{arch}.log").write_text(log(arch, Path(folder) / "cache"))


if __name__ == "__main__":
    main(sys.argv[1:])
