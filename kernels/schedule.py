"""Where every tensor of a partitioned graph lives while the graph runs.

Views share the memory of what they show. A graph output that a step computes is written straight into the caller's
array; everything else that is computed goes into one arena, whose memory is reused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..graphs.partition import Component, LibraryStep, Partition, ViewStep
from .arena import ALIGNMENT, Layout, Lifetime, place


@dataclass(frozen=True)
class Schedule:
    """The memory plan of a partition.

    roots     for every tensor, the one whose memory it shows (itself, when it is no view)
    numbers   a number for every root, dense: its entry in the table of addresses
    direct    roots that live in the caller's array of a graph output -> that output's name
    copies    (root, output) pairs: outputs that need a copy after the last step
    arena     offsets of the other computed roots, and of scratch arrays under `scratch_name`
    """

    roots: Mapping[str, str]
    numbers: Mapping[str, int]
    direct: Mapping[str, str]
    copies: tuple[tuple[str, str], ...]
    arena: Layout

    def number(self, tensor: str) -> int:
        return self.numbers[self.roots[tensor]]


def scratch_name(step: int, position: int) -> str:
    """The arena's name for a scratch array of a step (tensors have no NUL in their names)."""
    return f"\0scratch {step} {position}"


def make_schedule(
    partition: Partition,
    scratch: Mapping[int, Sequence[int]],
    elsewhere: frozenset[str],
    alignment: int = ALIGNMENT,
) -> Schedule:
    """The memory plan, with steps counted without views.

    `scratch` gives the bytes of each scratch array of a step; `elsewhere` names outputs of steps whose arrays only a
    run makes (their shapes depend on data).
    """
    graph = partition.graph
    roots = {name: name for name in (*graph.inputs, *graph.constants)}
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    i = 0
    for step in partition.steps:
        if isinstance(step, ViewStep):
            roots[step.output] = roots[step.source]
            continue
        reads, writes = ends(step)
        for name in reads:
            last[roots[name]] = i
        for name in writes:
            roots[name] = name
            first[name] = last[name] = i
        i += 1
    direct: dict[str, str] = {}
    copies: list[tuple[str, str]] = []
    for output in dict.fromkeys(graph.outputs):
        root = roots[output]
        if output in elsewhere:
            continue
        if root in first and root not in direct:
            direct[root] = output
        else:
            copies.append((root, output))
            last[root] = i
    lifetimes = [
        Lifetime(name, graph.types[name].bytes, begin, last[name])
        for name, begin in first.items()
        if name not in direct and name not in elsewhere
    ]
    lifetimes += [
        Lifetime(scratch_name(i, k), size, i, i) for i, sizes in scratch.items() for k, size in enumerate(sizes)
    ]
    numbers = {name: i for i, name in enumerate(dict.fromkeys(roots.values()))}
    return Schedule(roots, numbers, direct, tuple(copies), place(lifetimes, alignment))


def ends(step: Component | LibraryStep) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tensors a step reads and those it writes, absent ones left out."""
    if isinstance(step, Component):
        return step.inputs, step.outputs
    return tuple(n for n in step.node.inputs if n), tuple(n for n in step.node.outputs if n)
