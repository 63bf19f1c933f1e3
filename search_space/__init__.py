"""What may be chosen for a subgraph: plans, their legality, the heuristic plan and the knobs of the search."""
