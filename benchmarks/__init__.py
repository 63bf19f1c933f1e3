"""Stitched kernels against unfused ones and against other compilers, under the rules of docs/benchmarks.md."""
