"""Bytes that a CUDA plan moves between device memory and the multiprocessors, phase by phase, counted on the plan.

In a phase every element that is touched counts once for reading and once for writing, however often it is touched: what
the emulator counts in sectors (U), without the sectors' ragged ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from stitchtune.graphs.subgraph import Subgraph
from stitchtune.search_space.access import Access, walk
from stitchtune.search_space.chip import loads_itself
from stitchtune.search_space.coupling import pairs
from stitchtune.search_space.dominants import is_reduction
from stitchtune.search_space.listing import Listing, locate, locations, partial_parts
from stitchtune.search_space.plan import Plan


def phase_bytes(sub: Subgraph, plan: Plan) -> list[dict[str, int]]:
    """For every phase of every kernel, bytes by tensor: "read v3", "write v7", "part v4"."""
    listing = locate(sub, plan)
    edges = {(e.value, e.consumer): e.place for e in plan.edges}
    globals_ = {e.value for e in plan.edges if e.place == "global"} | set(sub.outputs)
    found: dict[tuple[int, int], dict[str, int]] = {}

    seen: dict[tuple[int, int, int], dict[object, int]] = {}

    def note(key: tuple[int, int], name: str, size: int) -> None:
        phase = found.setdefault(key, {})
        phase[name] = max(phase.get(name, 0), size)

    for at, _, stage in locations(plan):
        key = (at.kernel, at.phase)
        for value in (*stage.values, *stage.combine):
            size = sub.values[value].dtype.size
            parts = partial_parts(sub, listing, value) * sub.elements(value) * size
            if sub.values[value].is_input:
                note(key, f"read v{value}", sub.bytes(value))
            elif value in stage.combine:
                note(key, f"part v{value}", parts)
                if value in globals_:
                    note(key, f"write v{value}", sub.bytes(value))
            elif listing.is_partial(value):
                note(key, f"part v{value}", parts)
            elif value in globals_:
                note(key, f"write v{value}", sub.bytes(value))
        for value in sorted(set(stage.values) - set(pairs(plan).values())):  # the others read what their partners do
            for access in _reads(sub, listing, edges, value):
                extent = math.prod(sub.extents[a] for a in access.axes)
                size = sub.values[access.value].dtype.size
                parts = seen.setdefault((*key, access.value), {})
                parts[access.index] = extent * size  # slices of one tensor count apart
                note(key, f"read v{access.value}", min(sub.bytes(access.value), sum(parts.values())))
    return [found[key] for key in sorted(found)]


def _reads(sub: Subgraph, listing: Listing, edges: dict[tuple[int, int], str], root: int) -> Iterator[Access]:
    def inlined(value: int, reader: int) -> bool:
        return edges.get((value, reader)) == "inline" and not is_reduction(sub, value)

    for access in walk(sub, root, inlined):
        place = edges.get((access.value, access.reader))
        on_chip = place in ("register", "shuffle", "block") and not loads_itself(sub, listing.plan, access)
        if sub.values[access.value].op == "const" or place == "inline" or on_chip:
            continue
        yield access


def ratio(sub: Subgraph, plan: Plan) -> float:
    """Bytes moved over the least possible: each input once, each output once."""
    return sum(sum(phase.values()) for phase in phase_bytes(sub, plan)) / sub.bytes_min
