"""CUDA kernels without a GPU: the same text compiled by a C++ compiler, run with a check at every access."""
