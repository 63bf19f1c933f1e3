"""What a campaign needs of a target: how its plans are drawn, built and run under watch, and what they show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from numpy.typing import NDArray
from stitchtune.graphs.rounding import Precision
from stitchtune.graphs.subgraph import Subgraph
from stitchtune.search_space.plan import Plan
from stitchtune.search_space.target import Target

from tests.differential.marks import Mark
from tests.differential.subjects import Subject

Arrays = list[NDArray[Any]]


class Wrong(Exception):
    """A kernel did what it must not; the message says what."""


@dataclass(frozen=True, eq=False)
class Pair:
    subject: Subject
    plan: Plan
    name: str


@dataclass(frozen=True)
class Setting:
    """How plans are lowered and run.

    aligned   buffers start at multiples of 16 bytes, and kernels know it; else at any multiple of an element
    wide      indices have 64 bits, needed or not
    once      blocks take one virtual block each where the grid is large enough for that, without a loop
    """

    precision: Precision = "strict"
    aligned: bool = True
    wide: bool = False
    once: bool = False


class Machine(Protocol):
    """A target with what runs its plans.

    unit     plans that are compiled together
    kinds    the kinds of subjects, by turns of their number (subjects.py)
    focus    primitives with a type that come first in a subgraph and in a graph, and movement primitives in a graph
    wanted   every mark that a campaign should see
    """

    name: str
    target: Target
    unit: int
    kinds: str
    focus: tuple[int, int, int]
    wanted: tuple[Mark, ...]

    def setting(self, batch: int) -> Setting:
        """How the pairs of one batch are lowered and run."""

    def draw(self, sub: Subgraph, turn: int) -> tuple[Plan, tuple[str, ...]]:
        """A random legal plan and how it came about. Raises Illegal when the search space makes one that is not."""

    def build(self, pairs: Sequence[Pair], setting: Setting, unit: int) -> list[Any]:
        """Each pair built, or a BuildFailure."""

    def run(self, built: Any, pair: Pair, setting: Setting) -> Arrays:
        """The outputs, the same bits in every way to run the plan. Raises Wrong otherwise."""

    def marks(self, pair: Pair, built: Any, setting: Setting) -> set[Mark]:
        """What of `wanted` the pair shows."""
