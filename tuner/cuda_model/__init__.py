"""The analytical cost of CUDA plans: what they touch, what threads do, and how long that takes a device."""
