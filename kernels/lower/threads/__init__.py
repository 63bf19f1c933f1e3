"""Lowering for CUDA: the block's threads share the loops of every stage."""
