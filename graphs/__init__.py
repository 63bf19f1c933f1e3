"""From an exported graph to memory-intensive subgraphs in canonical form."""
