"""What a random case exercises, as counts that the central differential test prints and puts floors under."""

from __future__ import annotations

from collections import Counter

from stitchtune.graphs.ir import Graph
from stitchtune.graphs.primitives import REDUCTIONS
from stitchtune.graphs.subgraph import AxisVar, Index, Lookup, Read, Subgraph, all_reads

from tests.guards import COMPUTING

Feature = tuple[str, str]
"""(primitive, dtype), or ("structure", what)."""

STRUCTURES = (
    "reductions over different axes",
    "non-identity read",
    "gather",
    "padding or concat",
    "several outputs",
    "value with several consumers",
    "reduction broadcast back",
    "independent parts",
)
"""Structural features of subgraphs; a graph's are those of its subgraphs, but for what its nodes show."""

EVERY_PRIMITIVE: tuple[Feature, ...] = tuple((op, dtype.value) for op, dtype in COMPUTING)
"""Every computing primitive with every type it supports: of its operands; of its result for a cast and an iota."""


def coverage(case: Graph | Subgraph) -> Counter[Feature]:
    """How often each primitive meets each type; each structural feature counts once a case."""
    return _of_graph(case) if isinstance(case, Graph) else _of_subgraph(case)


def _of_graph(graph: Graph) -> Counter[Feature]:
    found: Counter[Feature] = Counter()
    reduced: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for node in graph.nodes:
        if node.op == "library":
            found["library", node.reason] += 1
            continue
        decides = node.outputs[0] if node.op in ("cast", "iota") else node.inputs[1 if node.op == "where" else 0]
        found[node.op, graph.types[decides].dtype.value] += 1
        if node.op in REDUCTIONS:
            reduced.setdefault(graph.types[node.inputs[0]].shape, set()).add(node.attr("axes"))
    found.update(("structure", s) for s in _graph_structures(graph, reduced))
    return found


def _graph_structures(graph: Graph, reduced: dict[tuple[int, ...], set[tuple[int, ...]]]) -> set[str]:
    ops = {node.op for node in graph.nodes}
    marks = {
        "reductions over different axes": any(len(axes) > 1 for axes in reduced.values()),
        "non-identity read": bool(ops & {"slice", "pad", "concat", "gather", "gather_elements", "transpose"}),
        "gather": bool(ops & {"gather", "gather_elements"}),
        "padding or concat": bool(ops & {"pad", "concat"}),
        "several outputs": len(graph.outputs) > 1,
        "value with several consumers": any(len(c) > 1 for c in graph.consumers().values()),
    }
    return {name for name, holds in marks.items() if holds}


def _of_subgraph(sub: Subgraph) -> Counter[Feature]:
    found: Counter[Feature] = Counter()
    for value in sub.values:
        if value.op in ("input", "const", "piecewise"):
            continue
        decides = value.dtype if value.op in ("cast", "iota") else sub.values[value.reads[-1].value].dtype
        found[value.op, decides.value] += 1
    found.update(("structure", s) for s in _structures(sub))
    return found


def _structures(sub: Subgraph) -> set[str]:
    reductions = [v for v in sub.values if v.op in REDUCTIONS and v.reduce]
    reads = [(v, read) for v in sub.values for read in all_reads(v)]
    bounds = any(read.where for _, read in reads)
    marks = {
        "reductions over different axes": any(set(a.reduce) & set(b.axes) for a in reductions for b in reductions),
        "non-identity read": any(not _is_identity(sub, read) for _, read in reads),
        "gather": any(_is_gather(i) for _, read in reads for i in read.index),
        "padding or concat": bounds,
        "several outputs": len(sub.outputs) > 1,
        "value with several consumers": any(len(c) > 1 for i, c in sub.consumers().items() if i in sub.computed),
        "reduction broadcast back": any(
            sub.values[read.value] in reductions and len(v.domain) > len(sub.values[read.value].axes)
            for v, read in reads
        ),
        "independent parts": _parts(sub) > 1,
    }
    return {name for name, holds in marks.items() if holds}


def _is_identity(sub: Subgraph, read: Read) -> bool:
    """A computed value read at the reader's own position, or an input read by positions only."""
    source = sub.values[read.value]
    if source.is_input:
        return read.is_plain
    return not read.where and read.index == tuple(AxisVar(a) for a in source.axes)


def _is_gather(index: Index) -> bool:
    return isinstance(index, Lookup)


def _parts(sub: Subgraph) -> int:
    """Connected components of the computed values."""
    leader = {v: v for v in sub.computed}

    def find(v: int) -> int:
        while leader[v] != v:
            v = leader[v]
        return v

    for v in sub.computed:
        for read in all_reads(sub.values[v]):
            if read.value in leader:
                leader[find(v)] = find(read.value)
    return sum(leader[v] == v for v in leader)
