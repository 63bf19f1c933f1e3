"""Loop programs as CUDA C++ that people can read."""
