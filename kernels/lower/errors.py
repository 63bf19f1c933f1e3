"""The error of lowering."""

from __future__ import annotations


class LoweringError(AssertionError):
    """The plan contradicts itself or the subgraph: legality should have refused it, so this is a bug of ours."""
