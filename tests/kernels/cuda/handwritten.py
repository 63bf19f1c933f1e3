"""Hand-written kernels for the emulator: a signature becomes a Launch, a call runs the text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stitchtune.graphs.dtypes import DType
from stitchtune.kernels.compile import BuildFailure
from stitchtune.kernels.cuda.built import Launch, Parameter
from stitchtune.kernels.cuda.emulator.emulate import Emulation, run_source
from stitchtune.kernels.cuda.emulator.machine import Settings

_ELEMENTS = {
    "float": DType.F32,
    "double": DType.F64,
    "int": DType.I32,
    "unsigned": DType.U32,
    "int64_t": DType.I64,
    "uint8_t": DType.U8,
    "uint16_t": DType.F16,
}
_SIGNATURE = re.compile(r"__launch_bounds__\((\d+)(?:, \d+)?\)\s*(\w+)\(([^)]*)\)")
_PARAMETER = re.compile(r"(const )?(\w+)\*(?: __restrict__)? ([xyg])(\d+)")


def kernel(
    body: str, parameters: str = "const float* __restrict__ x0, float* __restrict__ y0", threads: int = 32
) -> str:
    """One kernel `k` around a body."""
    head = f'extern "C" __global__ void __launch_bounds__({threads}, 1)\nk({parameters}) {{'
    return f"{head}\n  const int thread = st_thread();\n{body}\n}}\n"


def launches(source: str, inputs: int, outputs: int, blocks: int, shared_bytes: int = 0) -> list[Launch]:
    """A launch of each kernel of a source whose buffers are named x0, y0, g0 (inputs, outputs, scratch) and so on."""
    first = {"x": 0, "y": inputs, "g": inputs + outputs}
    found = []
    for threads, symbol, parameters in _SIGNATURE.findall(source):
        made = []
        for text in filter(None, (p.strip() for p in parameters.split(","))):
            if text.startswith("unsigned* barrier"):
                made.append(Parameter("barrier", 0, DType.U32, True))
            elif text.startswith("int64_t n"):
                made.append(Parameter("argument", int(text.removeprefix("int64_t n")), DType.I64))
            else:
                const, element, kind, number = _PARAMETER.fullmatch(text).groups()
                made.append(Parameter("buffer", first[kind] + int(number), _ELEMENTS[element], not const))
        found.append(Launch(symbol, tuple(made), int(threads), blocks, shared_bytes, "barrier" in parameters))
    return found


@dataclass(frozen=True)
class Ran:
    """Findings, counters and outputs of a run."""

    emulation: Emulation
    outputs: tuple[NDArray[Any], ...]

    @property
    def kinds(self) -> list[str]:
        return [f.kind for f in self.emulation.findings]

    @property
    def where(self) -> str:
        return " / ".join(f.where for f in self.emulation.findings)


def run(
    cache: Path,
    source: str,
    inputs: Sequence[NDArray[Any]] = (),
    outputs: Sequence[NDArray[Any]] = (),
    *,
    blocks: int = 1,
    shared_bytes: int = 0,
    scratch_bytes: Sequence[int] = (),
    arguments: Sequence[int] = (),
    barrier: str | None = None,
    repeat: int = 1,
    **settings: Any,
) -> Ran:
    """Runs all kernels of a source, `repeat` times over, on copies of the outputs."""
    copies = tuple(np.copy(o) for o in outputs)
    made = run_source(
        source,
        launches(source, len(inputs), len(outputs), blocks, shared_bytes) * repeat,
        inputs,
        copies,
        cache=cache,
        scratch_bytes=scratch_bytes,
        arguments=arguments,
        settings=Settings(**settings),
        barrier=barrier,
    )
    assert not isinstance(made, BuildFailure), made
    return Ran(made, copies)
