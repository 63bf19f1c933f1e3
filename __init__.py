"""Stitchtune: search, measure and remember how to stitch memory-intensive operators into few kernels."""

__version__ = "0.1.0"
