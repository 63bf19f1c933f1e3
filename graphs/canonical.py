"""A component of a tensor-level graph in canonical form: access maps, shared axes, one numbering.

The steps, each a function of values to values:

1. `access`: values with axes of their own; movement operators become access maps; equal values are one.
2. `narrow`: values lose axes that nobody needs them to have; what no output needs is gone.
3. `numbering`: canonical order of values and of commuting operands.
4. `unify`: values that read each other through the identity share axes.
5. `coarsen`: axes that nobody tells apart become one.
6. numbers for values (inputs, constants, computed), axes and slots by first use in that order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from .access import Composer
from .coarsen import coarsen
from .index import Renaming, Space
from .ir import Graph, Node
from .movement import is_movement
from .narrow import narrow
from .numbering import canonical_order
from .primitives import PRIMITIVES
from .subgraph import AxisVar, Index, Slot, Subgraph, Value
from .unify import unify


@dataclass(frozen=True)
class Canonical:
    """A component in canonical form and how it stands in its graph.

    inputs, outputs  a tensor's name for each of the subgraph's
    views            (tensor, source) pairs of wanted tensors with the bytes of another: an output, an available one
    nodes            those composed or computed
    """

    subgraph: Subgraph
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    views: tuple[tuple[str, str], ...]
    nodes: tuple[Node, ...]


def canonicalise(
    graph: Graph, wanted: Sequence[str], available: Collection[str], producers: Mapping[str, Node] | None = None
) -> Canonical:
    """The component that computes the tensors `wanted` from `available` ones (with the constants of one element).

    Everything between must be primitive. `producers` saves asking the graph again.
    """
    producers = producers if producers is not None else graph.producers()
    nodes = closure(wanted, available, producers)
    composer = Composer(graph, nodes, producers, available)
    for node in nodes:
        if PRIMITIVES[node.op].kind in ("elementwise", "reduce") and not is_movement(node, graph.types):
            composer.compute(node)
    numbers = {tensor: composer.output(tensor) for tensor in dict.fromkeys(wanted)}
    written = [number for number in dict.fromkeys(numbers.values()) if number not in composer.inputs]
    values, moved = narrow(composer.values, written, composer.space)
    inputs = {moved[number]: name for number, name in composer.inputs.items() if number in moved}
    names: dict[int, str] = {}
    views = []
    for tensor, number in numbers.items():
        source = composer.inputs.get(number) or names.setdefault(moved[number], tensor)
        if source != tensor:
            views.append((tensor, source))
    outputs = list(names)
    arranged = canonical_order(values, outputs, composer.space, composer.unit)
    order = list(arranged)
    shared = coarsen(unify(arranged, composer.space.extents), composer.space)
    subgraph = _number([shared[v] for v in order], {v: i for i, v in enumerate(order)}, outputs, composer.space)
    return Canonical(
        subgraph,
        tuple(inputs[order[i]] for i in subgraph.inputs),
        tuple(names[order[i]] for i in subgraph.outputs),
        tuple(views),
        nodes,
    )


def closure(wanted: Sequence[str], available: Collection[str], producers: Mapping[str, Node]) -> tuple[Node, ...]:
    """The nodes between `available` and `wanted` tensors, operands before readers."""
    found: dict[str, Node] = {}
    stack = list(reversed(wanted))
    while stack:
        name = stack[-1]
        node = None if name in available or name in found else producers.get(name)
        waiting = [i for i in node.inputs if i not in found and i not in available and i in producers] if node else []
        if waiting:
            stack += reversed(waiting)
            continue
        stack.pop()
        if node is not None:
            found[name] = node
    return tuple(found.values())


def _number(values: Sequence[Value], place: Mapping[int, int], outputs: Sequence[int], space: Space) -> Subgraph:
    """The subgraph of `values`, in their order: axes numbered as computed values use them, then as inputs do, then
    those that are only extents; slots in order of appearance, each its own."""
    axes: dict[int, int] = {}
    for kind in (False, True):
        for value in values:
            if value.is_input is kind:
                for axis in value.domain:
                    axes.setdefault(axis, len(axes))
    slots: list[int] = []

    def axis_number(axis: int) -> int:
        return axes.setdefault(axis, len(axes))

    def slot(number: int) -> Index:
        slots.append(space.slots[number].value)
        return Slot(len(slots) - 1)

    renaming = Renaming(lambda a: AxisVar(axes[a]), axis_number, place.__getitem__, slot)
    numbered = tuple(renaming.whole(value) for value in values)
    extents = tuple(space.extents[a] for a in axes)
    return Subgraph(numbered, tuple(sorted(place[v] for v in outputs)), extents, tuple(slots))
