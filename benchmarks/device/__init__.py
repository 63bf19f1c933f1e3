"""The sections of the device check: what is run on a machine that has a GPU and little else."""
