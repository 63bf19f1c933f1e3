"""Dominant values: what must be kept, because it fixes a schedule or somebody outside needs it.

AStitch (ASPLOS 2022, section 4) takes reductions, expensive elementwise operators whose result is broadcast, and
subgraph outputs. Here reductions and outputs are *required*; the expensive ones are candidates that staging.py
offers as a choice, since recomputing them is legal and sometimes faster.
"""

from __future__ import annotations

from ..graphs.primitives import EXPENSIVE, PRIMITIVES, REDUCTIONS
from ..graphs.subgraph import Subgraph, all_reads


def live(sub: Subgraph) -> frozenset[int]:
    """Values that some output depends on."""
    found: set[int] = set()
    pending = list(sub.outputs)
    while pending:
        number = pending.pop()
        if number not in found:
            found.add(number)
            pending.extend(read.value for read in all_reads(sub.values[number]))
    return frozenset(found)


def is_reduction(sub: Subgraph, number: int) -> bool:
    return sub.values[number].op in REDUCTIONS


def is_expensive(sub: Subgraph, number: int) -> bool:
    """True for an elementwise operator that the papers call expensive (exp, tanh, pow, ...)."""
    primitive = PRIMITIVES.get(sub.values[number].op)
    return primitive is not None and primitive.kind == "elementwise" and primitive.cost >= EXPENSIVE


def required(sub: Subgraph) -> tuple[int, ...]:
    """Numbers of the values that every plan lists in a stage: outputs and live reductions, ascending."""
    alive = live(sub)
    return tuple(i for i in sub.computed if i in alive and (i in sub.outputs or is_reduction(sub, i)))
