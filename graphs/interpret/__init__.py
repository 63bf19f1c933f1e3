"""The float64 reference interpreter: what every kernel is compared with."""

from .canonical import run_subgraph
from .tensors import Library, eval_node, run_graph

__all__ = ["Library", "eval_node", "run_graph", "run_subgraph"]
