"""What makes a candidate's results right: the float64 reference, computed once per subgraph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ..graphs.tolerance import Expected, compare
from .protocol import Outcome


@dataclass(frozen=True, eq=False)
class Reference:
    """The right results of a subgraph at some inputs; calling it judges the results of a kernel."""

    expected: Expected

    def __call__(self, results: Sequence[NDArray[Any]]) -> Outcome | None:
        """How wrong results fail; None when every compared element is within its bound.

        Inputs that leave too many elements incomparable say nothing against a kernel.
        """
        found = compare(self.expected, results)
        right = found.ok or (not found.comparable and found.worst <= 1)
        return None if right else Outcome("wrong", found.message, excluded=found.excluded)
