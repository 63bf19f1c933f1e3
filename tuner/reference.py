"""What makes a candidate's results right: the float64 reference, computed once per subgraph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from ..graphs.rounding import Precision
from ..graphs.subgraph import Subgraph
from ..graphs.tolerance import check_outputs
from .protocol import Outcome


@dataclass(frozen=True, eq=False)
class Reference:
    """The right results of a subgraph at some inputs; calling it judges the results of a kernel."""

    sub: Subgraph
    inputs: tuple[NDArray[Any], ...]
    precision: Precision

    def __call__(self, results: Sequence[NDArray[Any]]) -> Outcome | None:
        """How wrong results fail; None when every compared element is within its bound."""
        found = check_outputs(self.sub, self.inputs, results, self.precision)
        return None if found.ok else Outcome("wrong", found.message, excluded=found.excluded)
