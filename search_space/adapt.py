"""A plan found at one shape, made to fit the same structure at another."""

from __future__ import annotations

from dataclasses import replace

from ..graphs.subgraph import Subgraph
from .plan import Group, Kernel, Phase, Plan


def adapt(plan: Plan, sub: Subgraph) -> Plan:
    """`plan` with every tile cut to the extents of `sub`; the caller checks legality.

    A tile that covered its whole axis where the plan was found cannot be told from one that happened to be as large, so
    larger extents keep the tile and get more tasks.
    """
    return replace(plan, kernels=tuple(_kernel(kernel, sub) for kernel in plan.kernels))


def _kernel(kernel: Kernel, sub: Subgraph) -> Kernel:
    return replace(kernel, phases=tuple(Phase(tuple(_group(g, sub) for g in p.groups)) for p in kernel.phases))


def _group(group: Group, sub: Subgraph) -> Group:
    parallel = tuple((a, min(t, max(1, sub.extents[a]) if a < len(sub.extents) else t)) for a, t in group.parallel)
    return replace(group, parallel=parallel)
