"""`plans replay`: one stored candidate built, checked and timed again, and its source with a driver of its own."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from .. import feeds
from ..devices import resolve_target
from ..graphs.errors import InputError, VerifyError
from ..graphs.subgraph import Subgraph
from ..graphs.tolerance import expect
from ..graphs.verify_subgraph import verify_subgraph
from ..kernels.build import BuiltPlan, build_plans
from ..kernels.compile import BuildFailure
from ..kernels.cuda.built import BuiltCuda
from ..results.database import Database
from ..results.rows import Stored
from ..search_space import legality
from ..search_space.target import Target
from ..settings import cache_folder
from ..tuner.device import prepare_device
from ..tuner.measure import Measurer, write_subject
from ..tuner.protocol import Outcome
from ..tuner.reference import Reference
from . import options


def replay(database: Database, stored: Stored, out: Path | None, as_json: bool) -> int:
    """Prints what becomes of the candidate today; with `out` its source is written there. Exit code 1 when it fails.

    Raises InputError when the row holds no plan, or the database not the subgraph.
    """
    one = stored.measurement
    sub = _structure(database, stored)
    if one.plan is None:
        raise InputError(f"measurement {stored.id} has no plan: {one.message or one.status}")
    target, cache = resolve_target(one.key.target.kind), cache_folder()
    reasons = legality.check(sub, one.plan, target)
    file = None
    if reasons:
        outcome = Outcome("illegal", str(reasons[0]))
    else:
        [built] = build_plans([(sub, one.plan)], target, precision=one.key.precision, cache=cache, jobs=1)
        inputs = feeds.for_subgraph(sub)
        if not isinstance(built, BuildFailure):
            if out and isinstance(built, BuiltPlan):
                file = _write(built, inputs, out, stored.id)
            elif out:
                assert isinstance(built, BuiltCuda)
                file = _write_cuda(built, target, out, stored.id)
            reference = Reference(expect(sub, inputs, one.key.precision))
            with TemporaryDirectory() as folder, Measurer(prepare_device(target, cache)) as measurer:
                measurer.load(write_subject(Path(folder), sub, inputs, reference))
                outcome = measurer.measure(built).candidates[0]
        else:
            outcome = Outcome("compile-failed", built.message)
    _tell(stored, outcome, file, as_json)
    return 0 if outcome.status == "ok" else 1


def _structure(database: Database, stored: Stored) -> Subgraph:
    key = stored.measurement.key
    sub = database.structure(key.digest, key.extents, key.slots)
    if sub is None:
        raise InputError(f"{database.name} does not hold the subgraph of measurement {stored.id}; tune its graph again")
    try:
        verify_subgraph(sub)
    except VerifyError as error:
        raise InputError(f"the subgraph of measurement {stored.id} is damaged: {error}") from error
    return sub


def _tell(stored: Stored, outcome: Outcome, file: Path | None, as_json: bool) -> None:
    seconds = outcome.timing.seconds if outcome.timing else None
    if as_json:
        options.print_json(
            {
                "id": stored.id,
                "status": outcome.status,
                "message": outcome.message,
                "seconds": seconds,
                "stored_status": stored.measurement.status,
                "stored_seconds": stored.measurement.seconds,
                "source": str(file) if file else None,
            }
        )
        return
    then = stored.measurement
    options.echo(f"stored: {then.status}, {options.duration(then.seconds)}")
    options.echo(f"now:    {outcome.status}, {options.duration(seconds)} {outcome.message}".rstrip())
    if file is not None:
        options.echo(f"source with a driver: {file} (its first lines say how to build it)")


def _write(built: BuiltPlan, inputs: list[Any], folder: Path, ident: int) -> Path:
    """One C++ file that runs the plan on one thread, and the inputs beside it as raw bytes."""
    from ..kernels.compile import find_compiler

    folder.mkdir(parents=True, exist_ok=True)
    for number, array in enumerate(inputs):
        (folder / f"input{number}.bin").write_bytes(array.tobytes())
    compiler = find_compiler()
    assert compiler is not None, "it built the plan"
    flags = [f for f in compiler.flags if f not in ("-shared", "-fPIC")]
    file = folder / f"replay_{ident}.cpp"
    command = " ".join([compiler.path, *flags, file.name, "-o", f"replay_{ident}", *compiler.libraries])
    file.write_text(
        f"// {command}\n// ./replay_{ident}    reads input0.bin, ... and writes output0.bin, ...\n" + _source(built)
    )
    return file


def _write_cuda(built: BuiltCuda, target: Target, folder: Path, ident: int) -> Path:
    """One CUDA file with the kernels of the plan and what they are written in."""
    from ..kernels.cuda.nvrtc import headers

    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"replay_{ident}.cu"
    launches = (f"// {x.symbol}: {x.blocks} blocks of {x.threads} threads, {x.shared_bytes} B" for x in built.launches)
    command = f"// nvcc -arch={target.arch} -std=c++17 -cubin {file.name}"
    file.write_text("\n".join([command, *launches, headers() + built.source]))
    return file


def _source(built: BuiltPlan) -> str:
    sub = built.sub
    read, write = [sub.bytes(v) for v in sub.inputs], [sub.bytes(v) for v in sub.outputs]
    calls = "\n".join(
        f"    {symbol}(buffers.data(), args, static_cast<char *>(memory({block})), 0, 1, &team);"
        for symbol, block in zip(built.symbols, built.block_bytes, strict=True)
    )
    return _DRIVER.format(
        unit=built.source,
        args=", ".join(map(str, built.arguments or (0,))),
        inputs=", ".join(map(str, read)),
        outputs=", ".join(map(str, write)),
        scratch=", ".join(map(str, built.scratch_bytes)),
        calls=calls,
    )


_DRIVER = """{unit}
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
