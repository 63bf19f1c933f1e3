"""Locality: whether every value can reach every place where the plan reads it.

A value may stay inside a block when, for every parallel axis of the group that the value has, every read maps it by the
identity, and it is not reduced across tasks. This is checked on the composed access maps, site by site.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..graphs.subgraph import Subgraph
from .access import Access, walk
from .aliasing import aliased, check_aliases
from .chip import chip_problem
from .coupling import pairs
from .dominants import is_reduction
from .listing import Listing, Location
from .plan import Place, Plan
from .refusal import Refusal


def check_edges(sub: Subgraph, plan: Plan, listing: Listing, *, cuda: bool = False) -> Iterator[Refusal]:
    """Reasons why some edge of a well-formed plan cannot carry its value."""
    edges = {(e.value, e.consumer): e.place for e in plan.edges}
    if len(edges) != len(plan.edges):
        yield Refusal("edge", "two places for one edge")
        return
    used: set[tuple[int, int]] = set()
    evaluated: set[tuple[int, int]] = set()
    beside = frozenset(pairs(plan).values())
    finals: dict[int, int] = {}

    def inlined(value: int, reader: int) -> bool:
        return edges.get((value, reader)) == "inline" and not is_reduction(sub, value)

    for root in sorted(v for v in listing.values if not sub.values[v].is_input):
        at = listing.values[root]
        final = _own_final(sub, listing, root)
        for access in walk(sub, root, inlined):
            place = edges.get((access.value, access.reader))
            if sub.values[access.value].op == "const" or (sub.values[access.value].is_input and place is None):
                continue
            used.add((access.value, access.reader))
            if root in beside:
                continue  # computed beside its partner, from what that one reads
            evaluated.add((access.value, access.reader))
            if place is None:
                yield Refusal("edge", f"no place for v{access.value} in v{access.reader}")
                continue
            if place in ("register", "shuffle") and final is None and listing.values.get(access.value) == at:
                final = finals.get(access.value)
            if cuda and place in ("register", "shuffle", "block", "cluster"):
                problem = chip_problem(sub, plan, listing, access, place, at, finals.get(access.value))
            elif sub.values[access.value].is_input:
                problem = Refusal(
                    "load", f"v{access.value} in v{access.reader}: an input is kept on chip or not at all"
                )
            else:
                problem = _problem(sub, plan, listing, access, place, at, finals)
            if problem is not None:
                yield problem
        if final is not None:
            finals[root] = final
    for value, reader in edges.keys() - used:
        yield Refusal("edge", f"v{value} in v{reader}: nothing evaluates this edge")
    for value, reader in sorted(used - evaluated if cuda else ()):
        if edges.get((value, reader), "inline") not in ("inline", "global"):
            yield Refusal("edge", f"v{value} in v{reader}: kept on chip for a reduction that runs beside another one")
    yield from check_aliases(sub, plan, listing)


def _own_final(sub: Subgraph, listing: Listing, value: int) -> int | None:
    """The loop of its stage after which a reduction is there; None for a value that is there inside all loops."""
    reduced = sub.values[value].reduce
    order = listing.stage(listing.values[value]).order
    return min(order.index(a) for a in reduced) if reduced else None


def _problem(
    sub: Subgraph, plan: Plan, listing: Listing, access: Access, place: Place, at: Location, finals: dict[int, int]
) -> Refusal | None:
    value = access.value
    name = f"v{value} in v{access.reader} at {at}"
    if place == "inline":
        return Refusal("inline-reduction", name) if is_reduction(sub, value) else None
    if place == "alias":
        own = access.reader == access.root
        return None if own else Refusal("alias-storage", f"{name}: stored in a value that is computed elsewhere")
    home = listing.values.get(value)
    if home is None:
        return Refusal("edge", f"{name}: the value is listed nowhere")
    if place in ("register", "shuffle"):
        return _register_problem(sub, listing, access, place, at, finals.get(value))
    if place == "block":
        return _block_problem(sub, listing, access, at)
    return _global_problem(sub, listing, access, at, aliased(plan).get(value, frozenset()))


def _register_problem(
    sub: Subgraph, listing: Listing, access: Access, place: Place, at: Location, final: int | None
) -> Refusal | None:
    value = sub.values[access.value]
    name = f"v{access.value} in v{access.reader} at {at}"
    stage = listing.stage(at)
    if listing.values[access.value] != at or listing.is_partial(access.value):
        return Refusal("register-stage", f"{name}: not complete in the same stage")
    if not access.is_identity_everywhere(sub):
        return Refusal("register-map", f"{name}: not read through the identity")
    if place == "shuffle" and not value.reduce:
        return Refusal("shuffle", f"{name}: no reduction")
    if value.reduce and (place == "shuffle") != (stage.vector in value.reduce):
        return Refusal("shuffle", f"{name}: a shuffle is a reduction across the lanes of the vector loop")
    if final is None:
        return None
    outer = set(stage.order[:final])
    if not set(value.axes) <= outer or not set(sub.values[access.root].domain) <= outer:
        return Refusal("register-order", f"{name}: read before the reduction it depends on is complete")
    return None


def _maps_tiles(sub: Subgraph, access: Access, parallel: frozenset[int]) -> bool:
    return all(access.is_identity(sub, axis) for axis in parallel if axis in sub.values[access.value].axes)


def _block_problem(sub: Subgraph, listing: Listing, access: Access, at: Location) -> Refusal | None:
    name = f"v{access.value} in v{access.reader} at {at}"
    sources = _complete(listing, access.value)
    if not any(s.group_key == at.group_key and s.stage < at.stage for s in sources):
        return Refusal("block-stage", f"{name}: no earlier stage of the same group has the value")
    if not _maps_tiles(sub, access, listing.parallel(at)):
        return Refusal("block-map", f"{name}: another task's part would be read")
    return None


def _global_problem(
    sub: Subgraph, listing: Listing, access: Access, at: Location, pieces: frozenset[int]
) -> Refusal | None:
    name = f"v{access.value} in v{access.reader} at {at}"
    if all(any(s.before(at) for s in _complete(listing, v)) for v in (access.value, *pieces)):
        return None
    parallel = listing.parallel(at)
    same_task = (
        not pieces
        and not listing.is_partial(access.value)
        and any(s.group_key == at.group_key and s.stage < at.stage for s in _complete(listing, access.value))
        and parallel <= set(sub.values[access.value].axes)
        and _maps_tiles(sub, access, parallel)
    )
    if same_task:
        return None
    return Refusal("global-barrier", f"{name}: no barrier or kernel boundary between store and load")


def _complete(listing: Listing, value: int) -> list[Location]:
    """The stages that store a value whole."""
    if value not in listing.values:
        return []
    return listing.combines.get(value, []) if listing.is_partial(value) else [listing.values[value]]
