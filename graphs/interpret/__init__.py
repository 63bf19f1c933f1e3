"""The float64 reference interpreter: what every kernel is compared with."""

from .canonical import run_subgraph

__all__ = ["run_subgraph"]
