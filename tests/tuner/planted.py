"""Kernels that misbehave, planted in place of a compiled plan of `examples.scaled`."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from stitchtune.kernels.build import BuiltPlan
from stitchtune.kernels.compile import find_compiler

GOOD = "for (long i = 0; i < N; ++i) y[i] = expf(x[i]) * x[i];"

BODIES = {
    "crashed": "*(volatile int*)8 = 1;",
    "hung": 'for (;;) asm volatile("");',
    "trapped": "volatile int zero = 0; y[0] = 7 / zero;",
    "out-of-bounds": GOOD + "y[N] = 1;",
    "unwritten": GOOD.replace("i < N", "i < N - 3"),
    "changed-input": GOOD + "x[5] += 1;",
    "wrong": GOOD + "y[N - 1] *= 1.01f;",
    "nondeterministic": GOOD + "static int runs; if (++runs % 20 == 0) y[17] = 3;",
}
"""A body for each status: x and y are the input and the output, N their length."""


def planted(body: str, good: BuiltPlan, folder: Path) -> BuiltPlan:
    """`good` with its kernels replaced by ones whose body is `body`."""
    compiler = find_compiler()
    assert compiler is not None
    name = folder / f"planted{abs(hash((body, good.symbols, good.sub.extents)))}"
    source = "#include <cmath>\n#include <cstdint>\n"
    for symbol in good.symbols:
        source += f"""
extern "C" void {symbol}(void* const* buffers, const int64_t*, char*, int32_t thread, int32_t, void*) {{
  if (thread) return;
  float* x = (float*)buffers[0]; float* y = (float*)buffers[1]; const long N = {good.sub.elements(good.sub.outputs[0])};
  {body}
}}
"""
    name.with_suffix(".cpp").write_text(source)
    subprocess.run(
        [compiler.path, "-O1", "-shared", "-fPIC", str(name.with_suffix(".cpp")), "-o", str(name.with_suffix(".so"))],
        check=True,
    )
    return replace(good, library=name.with_suffix(".so"))
