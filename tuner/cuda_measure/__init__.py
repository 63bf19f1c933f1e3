"""Measuring on a CUDA device: the bench, the process that holds it, who else uses it, and what it can do."""
