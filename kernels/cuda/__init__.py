"""The target `cuda`: loop programs as CUDA C++, compiled by NVRTC or, to be tested anywhere, run by an emulator."""
