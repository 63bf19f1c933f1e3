"""From a plan to a loop program, to source, to a compiled kernel, to an executed graph."""
