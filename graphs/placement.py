"""Placement: which tensors have to be in memory, and at which library depth each is computed.

A tensor is written when a library operator or the caller needs its bytes, or when a value at a deeper level reads it.
Movement is looked through from wherever it is read. An elementwise value that only deeper levels read sinks to them
where reading its operands there moves fewer bytes than writing it and reading it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .ir import Graph, Node
from .movement import is_movement
from .primitives import EXPENSIVE, PRIMITIVES


@dataclass(frozen=True)
class Placement:
    """What `place` found.

    depth    library depth of every tensor (of a library operator's outputs, itself counted), one more for every
             MOST_OPERATORS computed at the depth before
    written  tensors that components write, in graph order, by level; the bytes of each are its own
    views    tensors needed as they are that have the bytes of another, which is written or there anyway
    """

    depth: Mapping[str, int]
    written: Mapping[int, list[str]]
    views: Mapping[str, str]
    producers: Mapping[str, Node]


MOST_OPERATORS = 600
"""Operators computed at one level; those beyond go to the next, so that kernels stay of a size that compiles."""

MOST_SOURCES, MOST_SUNK = 8, 64
"""Tensors in memory from which, and operators by which, a value may be computed anew at a deeper level."""


@dataclass(frozen=True)
class _Recipe:
    """What computing a tensor anew takes: bytes read of each tensor in memory, simple instructions per element (at most
    EXPENSIVE), and operators."""

    reads: Mapping[str, int]
    cost: int
    operators: int = 0


def place(graph: Graph) -> Placement:
    """Decides for every tensor that a library operator or the caller needs, directly or not."""
    return _Placer(graph).result()


def is_view(node: Node, graph: Graph) -> bool:
    """Whether the result of a node has the bytes of its operand, in the same order."""
    if not is_movement(node, graph.types) or node.op in ("concat", "gather", "gather_elements"):
        return False
    source, target = graph.types[node.inputs[0]].shape, graph.types[node.outputs[0]].shape
    match node.op:
        case "transpose":
            moved = [p for p in node.attr("perm") if source[p] != 1]
            return moved == sorted(moved)
        case "slice" | "pad" | "broadcast":
            kept = tuple(d for d in source if d != 1) == tuple(d for d in target if d != 1)
            if node.op == "slice":
                return kept and all(s == 0 or n == 1 for s, n in zip(node.attr("starts"), source, strict=True))
            return kept and (node.op == "broadcast" or not any(node.attr("before")))
        case _:
            return True


class _Placer:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers = graph.producers()
        self.depth: dict[str, int] = dict.fromkeys((*graph.inputs, *graph.constants), 0)
        computed: dict[int, int] = {}
        for node in graph.nodes:
            depth = max((self.depth[name] for name in node.inputs if name), default=0) + (node.op == "library")
            if node.op != "library" and not is_movement(node, graph.types):
                while computed.get(depth, 0) >= MOST_OPERATORS:
                    depth += 1
                computed[depth] = computed.get(depth, 0) + 1
            self.depth.update((name, depth) for name in node.outputs if name)
        self.views: dict[str, str] = {}
        self.exact: dict[str, None] = {}
        """Computed tensors and movements whose bytes are needed."""
        needed = [name for node in graph.nodes if node.op == "library" for name in node.inputs if name]
        for name in dict.fromkeys((*needed, *graph.outputs)):
            root = self._view_root(name)
            if root != name:
                self.views[name] = root
            if not self._is_base(root):
                self.exact[root] = None

    def result(self) -> Placement:
        levels = self._levels()
        written = self._written(levels)
        order = {name: i for i, name in enumerate(self.producers)}
        by_level: dict[int, list[str]] = {}
        for name in sorted(written, key=order.__getitem__):
            by_level.setdefault(written[name], []).append(name)
        return Placement(self.depth, by_level, self.views, self.producers)

    # --- kinds of tensors

    def _is_base(self, name: str) -> bool:
        """Whether a tensor is in memory without us: an input, a constant, a library operator's."""
        node = self.producers.get(name)
        return node is None or node.op == "library"

    def _moves(self, name: str) -> bool:
        """Whether reads look through the node that makes a tensor (a concat is computed)."""
        node = self.producers.get(name)
        return (
            node is not None
            and node.op not in ("library", "concat")
            and (node.op == "iota" or is_movement(node, self.graph.types))
        )

    def _view_root(self, name: str) -> str:
        node = self.producers.get(name)
        while node is not None and node.op != "library" and is_view(node, self.graph):
            name = node.inputs[0]
            node = self.producers.get(name)
        return name

    def _bases(self, name: str) -> dict[str, None]:
        """The tensors that a read of `name` ends at: base, or computed."""
        found: dict[str, None] = {}
        stack = [name]
        while stack:
            name = stack.pop()
            if self._moves(name):
                stack += self.producers[name].inputs
            else:
                found[name] = None
        return found

    # --- levels

    def _levels(self) -> dict[str, frozenset[int]]:
        """The levels at which each computed tensor (and each exact movement) is computed."""
        recipes = self._recipes()
        uses: dict[str, set[int]] = {}
        levels: dict[str, frozenset[int]] = {}
        for node in reversed(self.graph.nodes):
            name = node.outputs[0]
            if node.op == "library" or (self._moves(name) and name not in self.exact):
                continue
            if name not in self.exact and name not in uses:
                continue  # nobody needs it
            found = frozenset({self.depth[name]})
            if name not in self.exact:
                found = self._sunk(node, frozenset(uses[name]), recipes) or found
            levels[name] = found
            for operand in node.inputs:
                for base in self._bases(operand):
                    uses.setdefault(base, set()).update(found)
        return levels

    def _sunk(self, node: Node, uses: frozenset[int], recipes: Mapping[str, _Recipe]) -> frozenset[int] | None:
        """`uses`, if computing the node at all those levels moves fewer bytes than writing its result at its own."""
        name = node.outputs[0]
        own = self.graph.types[name].bytes
        recipe = recipes.get(name)
        if recipe is None or uses == {self.depth[name]}:
            return None
        read = sum(recipe.reads.values())
        if self.depth[name] in uses:
            wins = (len(uses) - 1) * read < len(uses) * own
        else:
            wins = len(uses) * read < (len(uses) + 1) * own
        return uses if wins and (len(uses) == 1 or recipe.cost < EXPENSIVE) else None

    def _recipes(self) -> dict[str, _Recipe]:
        """How to make tensors anew from what is in memory, for those that few elementwise operators make."""
        found: dict[str, _Recipe] = {}
        for name in (*self.graph.inputs, *self.graph.constants):
            scalar = name in self.graph.constants and self.graph.types[name].elements == 1
            found[name] = _Recipe({} if scalar else {name: self.graph.types[name].bytes}, 0)
        for node in self.graph.nodes:
            names = [name for name in node.outputs if name]
            if node.op == "library" or names[0] in self.exact:
                found.update((name, _Recipe({name: self.graph.types[name].bytes}, 0)) for name in names)
                continue
            moves = self._moves(names[0])
            if not (moves or PRIMITIVES[node.op].kind == "elementwise") or any(i not in found for i in node.inputs):
                continue
            reads: dict[str, int] = {}
            for operand in node.inputs:
                for source, size in found[operand].reads.items():
                    reads[source] = max(size, reads.get(source, 0))
            cost = sum(found[i].cost for i in node.inputs)
            operators = sum(found[i].operators for i in node.inputs) + (not moves)
            if moves:
                reads = {source: min(size, self.graph.types[names[0]].bytes) for source, size in reads.items()}
            else:
                cost += PRIMITIVES[node.op].cost
            if len(reads) <= MOST_SOURCES and operators <= MOST_SUNK:
                found[names[0]] = _Recipe(reads, min(cost, EXPENSIVE), operators)
        return found

    # --- what is written

    def _written(self, levels: Mapping[str, frozenset[int]]) -> dict[str, int]:
        """The level of each tensor that a component has to write."""
        written = {name: self.depth[name] for name in self.exact}
        readers = [
            (operand, level)
            for name, at in levels.items()
            for level in sorted(at)
            for operand in self.producers[name].inputs
        ]
        for operand, level in readers:
            if not self._is_base(operand) and not self._moves(operand) and level not in levels[operand]:
                written[operand] = max(levels[operand])
        # Tensors moved out of one that nobody else needs are written themselves where they are few and small.
        moved: dict[str, dict[str, int]] = {}
        for operand, level in readers:
            self._collect_moved(operand, level, levels, written, moved)
        for base, found in moved.items():
            total = sum(self.graph.types[name].bytes for name in found)
            few = total * (1 if len(found) == 1 else 2) < self.graph.types[base].bytes
            written.update(found if few else {base: max(levels[base])})
        return written

    def _smallest(self, name: str) -> str:
        """The tensor of fewest bytes on the way from `name` to the computed one that it is moved from; the first."""
        best = name
        while self._moves(name):
            name = next(i for i in self.producers[name].inputs if not all(map(self._is_base, self._bases(i))))
            if self.graph.types[name].bytes <= self.graph.types[best].bytes:
                best = name
        return best

    def _collect_moved(
        self,
        name: str,
        level: int,
        levels: Mapping[str, frozenset[int]],
        written: Mapping[str, int],
        moved: dict[str, dict[str, int]],
    ) -> None:
        """Adds to `moved` what has to be written so that `name` can be read at `level`: by the computed tensor that it
        comes from, that tensor or one moved out of it, with its level."""
        if self._is_base(name) or written.get(name, level) < level:
            return
        bases = [b for b in self._bases(name) if not self._is_base(b) and level not in levels[b] and b not in written]
        if not bases:
            return
        others = [b for b in self._bases(name) if not self._is_base(b) and b not in bases]
        if len(bases) == 1 and not others:
            moved.setdefault(bases[0], {})[self._smallest(name)] = max(levels[bases[0]])
        else:
            written_whole = {b: max(levels[b]) for b in bases}
            for base, at in written_whole.items():
                moved.setdefault(base, {})[base] = at
