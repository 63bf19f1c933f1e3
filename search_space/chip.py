"""Whether a value that a CUDA plan keeps on chip is where its reader looks for it: registers and block memory."""

from __future__ import annotations

from ..graphs.subgraph import AxisVar, Subgraph
from .access import Access
from .listing import Listing, Location
from .loading import loaded_axes
from .plan import Place, Plan
from .refusal import Refusal
from .registers import same_threads


def axes_in(sub: Subgraph, plan: Plan, value: int) -> tuple[int, ...]:
    """The axes of a listed value; those along which it is loaded, of an input."""
    return (loaded_axes(sub, plan, value) or ()) if sub.values[value].is_input else sub.values[value].axes


def loads_itself(sub: Subgraph, plan: Plan, access: Access) -> bool:
    """True for a read of an input elsewhere than at the site's own position: it is loaded from device memory there."""
    axes = loaded_axes(sub, plan, access.value) if sub.values[access.value].is_input else None
    return axes is not None and access.index != tuple(AxisVar(a) for a in axes)


def chip_problem(
    sub: Subgraph, plan: Plan, listing: Listing, access: Access, place: Place, at: Location, final: int | None
) -> Refusal | None:
    """Why the site at `at` cannot read `access` from registers or block memory; None when it can.

    `final`: the loop of the value's own stage after which it is there (None: inside all loops).
    """
    name = f"v{access.value} in v{access.reader} at {at}"
    home = listing.values.get(access.value)
    if loads_itself(sub, plan, access):
        near = home is not None and (home.group_key == at.group_key or _across_phases(listing, home, at))
        return None if near else Refusal("load", f"{name}: evaluated by blocks that have not loaded it")
    if place == "cluster":
        return Refusal("cluster", f"{name}: no plan may use the memory of neighbouring blocks yet")
    if home is None:
        return Refusal("load" if sub.values[access.value].is_input else "edge", f"{name}: the value is listed nowhere")
    axes = axes_in(sub, plan, access.value)
    if place == "block":
        return _block(listing, access, axes, at, name)
    if listing.is_partial(access.value):
        return Refusal("register-stage", f"{name}: only a part of it is there")
    if access.index != tuple(AxisVar(a) for a in axes):
        return Refusal("register-map", f"{name}: not read through the identity")
    reduced = set(sub.values[access.value].reduce)
    across = any(n > 1 and a in reduced for a, n in listing.stage(home).lanes)
    if home != at:
        return _later(plan, listing, axes, home, at, name)
    if (place == "shuffle") != across:
        return Refusal("shuffle", f"{name}: a shuffle is a reduction folded across threads, read in its own stage")
    if final is None:
        return None
    outer = set(listing.stage(at).order[:final])
    if not set(axes) <= outer or not set(sub.values[access.root].domain) <= outer:
        return Refusal("register-order", f"{name}: read before the reduction it depends on is complete")
    return None


def _later(
    plan: Plan, listing: Listing, axes: tuple[int, ...], home: Location, at: Location, name: str
) -> Refusal | None:
    if home.group_key != at.group_key or home.stage > at.stage:
        return Refusal("register-stage", f"{name}: not in the same stage or an earlier one of the group")
    if not same_threads(listing.stage(home), listing.stage(at), axes):
        return Refusal("register-threads", f"{name}: other threads hold it than read it")
    if any(a in plan.dynamic and a not in listing.parallel(at) for a in axes):
        return Refusal("register-threads", f"{name}: how much a thread holds is not known when compiling")
    return None


def _block(listing: Listing, access: Access, axes: tuple[int, ...], at: Location, name: str) -> Refusal | None:
    partial = listing.is_partial(access.value)
    sources = listing.combines.get(access.value, []) if partial else [listing.values[access.value]]
    inside = any(s.group_key == at.group_key and s.stage < at.stage for s in sources)
    crossing = not partial and _across_phases(listing, sources[0], at)
    if not inside and not crossing:
        return Refusal(
            "block-stage", f"{name}: neither an earlier stage of the group nor a resident block has the value"
        )
    positions = dict(zip(axes, access.index, strict=True))
    if any(a in positions and positions[a] != AxisVar(a) for a in listing.parallel(at)):
        return Refusal("block-map", f"{name}: another task's part would be read")
    return None


def _across_phases(listing: Listing, home: Location, at: Location) -> bool:
    """True when each block has the same task in an earlier phase, where the value is stored, and in this one."""
    first, second = listing.group(home), listing.group(at)
    return (
        home.kernel == at.kernel
        and home.phase < at.phase
        and home.group == at.group == 0
        and first.parallel == second.parallel
        and first.tasks_per_block == second.tasks_per_block == 1
    )
