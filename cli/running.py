"""The verbs `run` and `source`: a graph executed with the plans found for it, and the code that they become."""

from __future__ import annotations

import statistics
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from .. import feeds, pipeline
from ..graphs.errors import InputError, StitchtuneError
from ..graphs.ir import Graph
from ..settings import parse_one
from . import options

Arrays = Mapping[str, NDArray[Any]]


class CheckFailed(StitchtuneError):
    """Outputs differ from ONNX Runtime's. Exit code 1."""


@click.command()
@options.graph
@options.inputs
@options.seed
@click.option("--outputs", type=click.Path(path_type=Path), metavar="FILE.npz", help="Write the results there.")
@click.option("--check", is_flag=True, help="Compare every output with ONNX Runtime's.")
@click.option(
    "--rtol", type=options.Amount(0), default=1e-4, show_default=True, help="Error allowed, of the norm of an output."
)
@click.option(
    "--atol", type=options.Amount(0), default=1e-6, show_default=True, help="Error allowed, root mean square."
)
@click.option("--repeat", type=click.IntRange(1), default=1, show_default=True, help="Runs; their median is told.")
@click.option("--require-plan", is_flag=True, help="Fail when a subgraph has no stored plan.")
def run(
    graph: Path,
    dims: Sequence[str],
    target: str | None,
    db: str | None,
    precision: str,
    inputs: Path | None,
    seed: int,
    outputs: Path | None,
    check: bool,
    rtol: float,
    atol: float,
    repeat: int,
    require_plan: bool,
    as_json: bool,
) -> int:
    """Execute a graph with the plans that the database holds."""
    chosen = options.settings(target, db, precision)
    options.announce(chosen, as_json)
    compiled = pipeline.compile_file(graph, parse_one(dims), chosen, require_plan=require_plan)
    given = feeds.given_or_made(compiled.loaded, inputs, seed)
    options.echo(given.note, as_json)
    before = compiled.executor.stats()
    results = compiled.executor(given.arrays)
    after = compiled.executor.stats()
    seconds = [_timed(compiled, given.arrays) for _ in range(repeat)]
    errors = compare(compiled.loaded, results, reference(graph, given.arrays), rtol, atol) if check else []
    if check and (drawn := random_tensors(compiled.loaded) & {*compiled.loaded.outputs}):
        options.echo(f"not compared, since random numbers reach them: {', '.join(sorted(drawn))}", as_json)
    if outputs is not None:
        _write(outputs, results)
    document = {
        "graph": compiled.loaded.name,
        "target": chosen.target.name,
        "synthetic": given.synthetic,
        "inputs": given.note,
        "seconds": statistics.median(seconds),
        "repeat": repeat,
        "launches": after.launches - before.launches,
        "barriers": after.barriers - before.barriers,
        "library_ops": after.library_ops,
        "interpreted": after.interpreted,
        "subgraphs": [_decision(number, d, chosen.stitched) for number, d in enumerate(compiled.decisions)],
        "check": errors or None,
        "outputs": {n: {"dtype": str(a.dtype), "shape": list(a.shape)} for n, a in results.items()},
    }
    if as_json:
        options.print_json(document)
    else:
        _print(document)
    _fail_on(errors)
    return 0


def _timed(compiled: pipeline.Compiled, arrays: Arrays) -> float:
    started = time.perf_counter()
    compiled.executor(arrays)
    return time.perf_counter() - started


def _decision(number: int, decision: pipeline.Decision, stitched: bool) -> dict[str, Any]:
    return {
        "id": number,
        "digest": decision.key.digest,
        "how": decision.found.how if stitched else "unfused",
        "why": decision.found.why,
        "measurement": decision.found.measurement,
        "differs": list(decision.found.differs),
        "predicted": decision.found.predicted,
        "kernels": len(decision.plan.kernels),
        "barriers": decision.plan.barriers,
    }


def _print(document: dict[str, Any]) -> None:
    sources: dict[str, int] = {}
    for one in document["subgraphs"]:
        how = one["how"] + (" (predicted)" if one["predicted"] else "")
        sources[how] = sources.get(how, 0) + 1
    options.echo(f"{len(document['subgraphs'])} subgraphs, plans: {_counts(sources)}")
    misses = {one["why"]: None for one in document["subgraphs"] if one["how"] == "heuristic"}
    for why in list(misses)[:3]:
        options.echo(f"  {why}")
    options.echo(
        f"{document['launches']} launches, {document['barriers']} barriers, {document['library_ops']} library ops"
        + (f", {document['interpreted']} subgraphs interpreted" if document["interpreted"] else "")
    )
    options.echo(f"{options.duration(document['seconds'])} (median of {document['repeat']})")
    for one in document["check"] or []:
        options.echo(f"  {one['output']}: error {one['error']:.2e} of its norm{'' if one['ok'] else ', TOO LARGE'}")


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


def reference(graph: Path, arrays: Arrays) -> dict[str, NDArray[Any]]:
    """The outputs by name as ONNX Runtime computes them. Raises StitchtuneError when it cannot."""
    import onnxruntime

    options_ = onnxruntime.SessionOptions()
    options_.log_severity_level = 4
    try:
        str(graph).encode()  # ONNX Runtime takes no other names
        session = onnxruntime.InferenceSession(str(graph), options_, providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(arrays)), strict=True))
    except _ort_errors() as error:
        raise CheckFailed(f"ONNX Runtime cannot run {graph}: {error}; leave out --check") from error


def _ort_errors() -> tuple[type[Exception], ...]:
    """What ONNX Runtime raises; its exceptions have no base of their own."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    names = "Fail InvalidArgument InvalidGraph InvalidProtobuf NoSuchFile NotImplemented RuntimeException".split()
    return (UnicodeEncodeError, *(getattr(state, name) for name in names))


def compare(graph: Graph, results: Arrays, wanted: Arrays, rtol: float, atol: float) -> list[dict[str, Any]]:
    """For each output that no random number reaches: its error relative to its norm, and whether it is small enough."""
    found = []
    drawn = random_tensors(graph)
    for name in dict.fromkeys(graph.outputs):
        if name in drawn:
            continue
        a, b = np.asarray(wanted[name], np.float64), np.asarray(results[name], np.float64)
        finite = np.isfinite(a)
        same = a.shape == b.shape and np.array_equal(a[~finite], b[~finite], equal_nan=True)
        norm = float(np.linalg.norm(a[finite]))
        distance = float(np.linalg.norm(a[finite] - b[finite])) if same else float("inf")
        limit = rtol * norm + atol * float(np.sqrt(a.size))
        found.append({"output": name, "error": distance / norm if norm else distance, "ok": distance <= limit})
    return found


def random_tensors(graph: Graph) -> frozenset[str]:
    """The tensors of a graph that random numbers reach: they differ from run to run, whoever computes them."""
    found: set[str] = set()
    for node in graph.nodes:
        if node.reason == "random" or not found.isdisjoint(node.inputs):
            found.update(node.outputs)
    return frozenset(found)


def _fail_on(errors: Sequence[dict[str, Any]]) -> None:
    wrong = [one for one in errors if not one["ok"]]
    if wrong:
        raise CheckFailed(
            f"{len(wrong)} of {len(errors)} outputs differ from ONNX Runtime's: {wrong[0]['output']!r} by "
            f"{wrong[0]['error']:.2e} of its norm; STITCHTUNE=off tells whether stitching is at fault"
        )


def _write(file: Path, results: Arrays) -> None:
    try:
        with zipfile.ZipFile(file, "w") as archive:  # np.savez takes no array called "file"
            for name, array in results.items():
                with archive.open(f"{name}.npy", "w") as entry:
                    np.lib.format.write_array(entry, array)
    except OSError as error:
        raise InputError(f"cannot write {file}: {error.strerror or error}") from error


@click.command()
@options.graph
@click.option("--subgraph", "number", type=click.IntRange(0), default=0, show_default=True, help="As inspect numbers.")
def source(
    graph: Path, dims: Sequence[str], target: str | None, db: str | None, precision: str, number: int, as_json: bool
) -> int:
    """Print the source generated for a subgraph's plan."""
    from ..results.database import Database
    from ..search_space import codec
    from .sourcing import generated

    chosen = options.settings(target, db, precision)
    options.announce(chosen, as_json=True)
    _, parted = pipeline.read(graph, parse_one(dims))
    decisions = pipeline.decide(parted, chosen, Database.open(chosen.database))
    if number >= len(decisions):
        raise InputError(f"{graph} has {len(decisions)} subgraphs; --subgraph {number} is not one of them")
    one = decisions[number]
    sub, plan = one.component.subgraph, one.plan
    head, text = generated(sub, plan, chosen.target, chosen.precision, chosen.cache)
    if as_json:
        document = {"subgraph": number, "target": chosen.target.name, "plan": codec.to_json(plan)}
        options.print_json({**document, "why": one.found.why, "comment": head, "source": text})
        return 0
    print(f"// subgraph {number} for {chosen.target.name}, plan: {one.found.why}\n//\n{head}{text}")
    return 0
