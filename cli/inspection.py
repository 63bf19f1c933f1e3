"""The verb `inspect`: what a graph consists of, how it would be stitched, and the reasons for what is not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from ..graphs.digest import structural_digest
from ..graphs.ir import Graph
from ..graphs.partition import Component, LibraryStep, Partition
from ..graphs.subgraph import Subgraph
from ..kernels.lower import lower
from ..pipeline import read, without_slots
from ..search_space import legality, size, stitch
from ..search_space.describe import schemes
from ..search_space.plan import Plan
from ..search_space.space import Space
from ..search_space.target import Target
from ..settings import parse_one
from . import options

LEAVES = {"cpu": 150, "cuda": 30}
SAMPLES = 3
"""How far the size of a space is counted, by the kind of target since lowering for threads takes ten times as long, and
from how many descents it is estimated where it is larger."""


@click.command()
@options.graph
def inspect(graph: Path, dims: Sequence[str], target: str | None, db: str | None, precision: str, as_json: bool) -> int:
    """Subgraphs, schemes, kernels before and after, bytes that must move, reasons."""
    chosen = options.settings(target, db, precision)
    options.announce(chosen, as_json)
    loaded, partition = read(graph, parse_one(dims))
    document = describe(loaded, partition, chosen.target, chosen.precision)
    if as_json:
        options.print_json(document)
    else:
        _print(document)
    return 0


def describe(loaded: Graph, partition: Partition, target: Target, precision: str = "strict") -> dict[str, Any]:
    """Everything that `inspect` knows, as JSON data. `loaded` is the graph before simplification."""
    library = [step.node for step in partition.steps if isinstance(step, LibraryStep)]
    sizes: dict[Subgraph, dict[str, Any]] = {}
    subgraphs = []
    for number, component in enumerate(partition.components):
        sub = without_slots(component.subgraph)
        if sub not in sizes:
            sizes[sub] = _decisions(sub, target, precision)
        subgraphs.append({"id": number, **_structure(component), **sizes[sub]})
    return {
        "graph": loaded.name,
        "target": target.name,
        "sizes": dict(loaded.sizes),
        "nodes": len({node.origin for node in loaded.nodes}),
        "library_ops": len(library),
        "library_ops_by_type": dict(Counter(node.origin.split(" ")[0] for node in library).most_common()),
        "library": [{"node": node.origin, "reason": node.reason} for node in library],
        "subgraphs": subgraphs,
        "distinct_subgraphs": len(sizes),
        "kernels_unfused": sum(one["kernels_unfused"] for one in subgraphs),
        "kernels_stitched": sum(one["kernels_stitched"] for one in subgraphs),
        "barriers": sum(one["barriers"] for one in subgraphs),
    }


def _structure(component: Component) -> dict[str, Any]:
    sub = component.subgraph
    return {
        "digest": structural_digest(sub),
        "depth": component.depth,
        "nodes": list(component.nodes),
        "ops": dict(Counter(sub.values[v].op for v in sub.computed).most_common()),
        "inputs": [{"name": n, "shape": list(sub.shape(v))} for n, v in zip(component.inputs, sub.inputs, strict=True)],
        "outputs": [
            {"name": n, "shape": list(sub.shape(v))} for n, v in zip(component.outputs, sub.outputs, strict=True)
        ],
        "bytes_min": sub.bytes_min,
    }


def _decisions(sub: Subgraph, target: Target, precision: str) -> dict[str, Any]:
    """What does not depend on where a subgraph stands."""
    stitched, unfused = stitch.heuristic(sub, target), stitch.unfused(sub, target)
    refusals: Counter[tuple[str, str]] = Counter()

    def identify(plan: Plan) -> int | None:
        reasons = legality.check(sub, plan, target)
        refusals.update((r.code, r.detail) for r in reasons)
        return None if reasons else hash(lower(sub, plan, target, precision))

    space = size.measure(Space(sub, target), identify, limit=LEAVES[target.kind], samples=SAMPLES)
    return {
        "schemes": schemes(stitched),
        "kernels_unfused": len(unfused.kernels),
        "kernels_stitched": len(stitched.kernels),
        "barriers": stitched.barriers,
        "space": {"count": space.count, "low": space.low, "high": space.high, "exact": space.exact},
        "refusals": [{"code": c, "detail": d, "count": n} for (c, d), n in refusals.most_common(20)],
    }


def _print(document: dict[str, Any]) -> None:
    by_type = ", ".join(f"{count} {name}" for name, count in document["library_ops_by_type"].items())
    options.echo(f"{document['nodes']} nodes: {document['library_ops']} library ops ({by_type or 'none'}), the rest in")
    options.echo(
        f"{len(document['subgraphs'])} subgraphs ({document['distinct_subgraphs']} distinct): "
        f"{document['kernels_unfused']} kernels unfused, {document['kernels_stitched']} stitched, "
        f"{document['barriers']} barriers"
    )
    rows = [
        (
            one["id"],
            one["digest"][:12],
            sum(one["ops"].values()),
            " ".join(f"{name}:{count}" for name, count in list(one["ops"].items())[:6]),
            f"{one['kernels_unfused']} -> {one['kernels_stitched']}",
            one["barriers"],
            " ".join(f"{name}:{count}" for name, count in one["schemes"].items() if count),
            f"{one['bytes_min'] / 1e6:.3g} MB",
            _space(one["space"]),
        )
        for one in document["subgraphs"]
    ]
    options.table(("id", "structure", "ops", "", "kernels", "barriers", "schemes", "must move", "plans"), rows)
    reasons = Counter(node["reason"] for node in document["library"])
    for reason, count in reasons.most_common():
        options.echo(f"library: {count} x {reason}")
    refused = Counter(r["code"] for one in document["subgraphs"] for r in one["refusals"])
    for code, count in refused.most_common():
        options.echo(f"refused: {count} x {code}")


def _space(space: dict[str, Any]) -> str:
    if space["exact"]:
        return f"{space['count']:.0f}"
    return f"about {space['count']:.1e} ({space['low']:.1e} to {space['high']:.1e})"
