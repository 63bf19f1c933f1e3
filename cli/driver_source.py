"""A plan's kernels as one source file with a `main` of its own, for people who want to look, change and time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..kernels.build import BuiltPlan
from ..kernels.cuda.built import BuiltCuda, Launch


def write(built: BuiltPlan | BuiltCuda, inputs: Sequence[NDArray[Any]], folder: Path, ident: int) -> Path:
    """The file, and the inputs beside it as raw bytes. Its first lines say how to build it."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, array in enumerate(inputs):
        (folder / f"input{number}.bin").write_bytes(array.tobytes())
    if isinstance(built, BuiltCuda):
        return _write_cuda(built, folder, ident)
    from ..kernels.compile import find_compiler

    compiler = find_compiler()
    assert compiler is not None, "it built the plan"
    flags = [f for f in compiler.flags if f not in ("-shared", "-fPIC")]
    file = folder / f"replay_{ident}.cpp"
    command = " ".join([compiler.path, *flags, file.name, "-o", f"replay_{ident}", *compiler.libraries])
    file.write_text(f"// {command}\n{_USE.format(ident=ident)}" + _cpu(built))
    return file


_USE = "// ./replay_{ident}    reads input0.bin, ... and writes output0.bin, ...\n"


def _cpu(built: BuiltPlan) -> str:
    sub = built.sub
    read, written = [sub.bytes(v) for v in sub.inputs], [sub.bytes(v) for v in sub.outputs]
    calls = "\n".join(
        f"    {symbol}(buffers.data(), args, static_cast<char *>(memory({block})), 0, 1, &team);"
        for symbol, block in zip(built.symbols, built.block_bytes, strict=True)
    )
    return _CPU.format(
        unit=built.source,
        args=", ".join(map(str, built.arguments or (0,))),
        inputs=", ".join(map(str, read)),
        outputs=", ".join(map(str, written)),
        scratch=", ".join(map(str, built.scratch_bytes)),
        calls=calls,
    )


_CPU = """{unit}
// --- the driver
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

static void *memory(size_t bytes) {{ return aligned_alloc(64, (bytes + 64) / 64 * 64); }}

int main() {{
  const int64_t args[] = {{{args}}};
  const std::vector<size_t> inputs{{{inputs}}}, outputs{{{outputs}}}, scratch{{{scratch}}};
  std::vector<void *> buffers;
  for (size_t i = 0; i < inputs.size(); ++i) {{
    buffers.push_back(memory(inputs[i]));
    FILE *file = fopen(("input" + std::to_string(i) + ".bin").c_str(), "rb");
    if (!file || fread(buffers.back(), 1, inputs[i], file) != inputs[i]) return perror("input"), 1;
    fclose(file);
  }}
  for (size_t bytes : outputs) buffers.push_back(memory(bytes));
  for (size_t bytes : scratch) buffers.push_back(memory(bytes));
  st_team team{{[](st_team *, int32_t) {{}}}};
  for (int run = 0; run < 5; ++run) {{
    auto started = std::chrono::steady_clock::now();
{calls}
    std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - started;
    printf("%.1f us on one thread\\n", taken.count());
  }}
  for (size_t i = 0; i < outputs.size(); ++i) {{
    FILE *file = fopen(("output" + std::to_string(i) + ".bin").c_str(), "wb");
    fwrite(buffers[inputs.size() + i], 1, outputs[i], file);
    fclose(file);
  }}
}}
"""


def _write_cuda(built: BuiltCuda, folder: Path, ident: int) -> Path:
    from ..kernels.cuda.nvrtc import ARITHMETIC, headers

    sub = built.sub
    file = folder / f"replay_{ident}.cu"
    flags = " ".join(("-std=c++17", *ARITHMETIC, "-arch=native"))
    text = _CUDA.format(
        headers=_TYPES.sub("", headers()),
        unit=built.source,
        inputs=", ".join(str(sub.bytes(v)) for v in sub.inputs),
        outputs=", ".join(str(sub.bytes(v)) for v in sub.outputs),
        scratch=", ".join(map(str, built.scratch_bytes)),
        args=", ".join(map(str, built.arguments or (0,))),
        launches="\n".join(_launch(launch) for launch in built.launches),
    )
    file.write_text(f"// nvcc {flags} {file.name} -o replay_{ident}\n{_USE.format(ident=ident)}{text}")
    return file


_TYPES = re.compile(r"^typedef [a-z ]+ u?int\d+_t;\n", re.MULTILINE)
"""What <cstdint> defines, and NVRTC does not."""


def _launch(launch: Launch) -> str:
    """One kernel's launch: addresses of its parameters, opting in to shared memory, cooperatively where it waits."""
    names = {"buffer": "&buffers[{}]", "argument": "&args[{}]"}
    given = [names.get(p.kind, "&barrier").format(p.position) for p in launch.parameters] or ["nullptr"]
    call = "cudaLaunchCooperativeKernel" if launch.cooperative else "cudaLaunchKernel"
    lines = [f"    void *p_{launch.symbol}[] = {{{', '.join(given)}}};"]
    if launch.shared_bytes > 48 << 10:
        what = "cudaFuncAttributeMaxDynamicSharedMemorySize"
        lines.append(f"    check(cudaFuncSetAttribute({launch.symbol}, {what}, {launch.shared_bytes}));")
    lines.append(
        f"    check({call}((const void *){launch.symbol}, dim3({launch.blocks}), dim3({launch.threads}), "
        f"p_{launch.symbol}, {launch.shared_bytes}, 0));"
    )
    return "\n".join(lines)


_CUDA = """#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#define __CUDACC_RTC__  // the kernels were written for the run-time compiler, and are the same to this one
{headers}
{unit}
// --- the driver

static void check(cudaError_t error) {{
  if (error != cudaSuccess) fprintf(stderr, "%s\\n", cudaGetErrorString(error)), exit(1);
}}

static void *memory(size_t bytes) {{
  void *made = nullptr;
  check(cudaMalloc(&made, bytes ? bytes : 1));
  return made;
}}

int main() {{
  long long args[] = {{{args}}};
  const std::vector<size_t> inputs{{{inputs}}}, outputs{{{outputs}}}, scratch{{{scratch}}};
  std::vector<void *> buffers;
  for (size_t i = 0; i < inputs.size(); ++i) {{
    std::vector<char> data(inputs[i]);
    FILE *file = fopen(("input" + std::to_string(i) + ".bin").c_str(), "rb");
    if (!file || fread(data.data(), 1, inputs[i], file) != inputs[i]) return perror("input"), 1;
    fclose(file);
    buffers.push_back(memory(inputs[i]));
    check(cudaMemcpy(buffers.back(), data.data(), inputs[i], cudaMemcpyHostToDevice));
  }}
  for (size_t bytes : outputs) buffers.push_back(memory(bytes));
  for (size_t bytes : scratch) buffers.push_back(memory(bytes));
  void *barrier = memory(4);
  check(cudaMemset(barrier, 0, 4));
  cudaEvent_t first, last;
  check(cudaEventCreate(&first));
  check(cudaEventCreate(&last));
  for (int run = 0; run < 5; ++run) {{
    check(cudaEventRecord(first));
{launches}
    check(cudaEventRecord(last));
    check(cudaEventSynchronize(last));
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, first, last));
    printf("%.1f us\\n", 1e3 * milliseconds);
  }}
  (void)args; (void)barrier;
  for (size_t i = 0; i < outputs.size(); ++i) {{
    std::vector<char> data(outputs[i]);
    check(cudaMemcpy(data.data(), buffers[inputs.size() + i], outputs[i], cudaMemcpyDeviceToHost));
    FILE *file = fopen(("output" + std::to_string(i) + ".bin").c_str(), "wb");
    fwrite(data.data(), 1, outputs[i], file);
    fclose(file);
  }}
}}
"""
