"""Runs a built plan on one thread, or on a team imitated one thread at a time where no kernel has a barrier."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray
from stitchtune.kernels.build import BuiltPlan

_BARRIER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32)


def aligned(size: int) -> NDArray[np.uint8]:
    """`size` poisoned bytes at a multiple of 64."""
    memory = np.full(size + 64, 0xFF, np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + size]


def run_built(built: BuiltPlan, inputs: list[NDArray[Any]], threads: int = 1) -> list[NDArray[Any]]:
    """The plan's outputs. With more threads, those of a kernel without barriers run in turn; others have one."""
    library = ctypes.CDLL(str(built.library))
    sub = built.sub
    outputs = [aligned(sub.bytes(v)).view(sub.values[v].dtype.numpy).reshape(sub.shape(v)) for v in sub.outputs]
    scratch = [aligned(n) for n in built.scratch_bytes]
    held = [np.ascontiguousarray(x) for x in inputs]
    buffers = (ctypes.c_void_p * (len(held) + len(outputs) + len(scratch) + 1))(
        *(a.ctypes.data for a in (*held, *outputs, *scratch))
    )
    args = (ctypes.c_int64 * (len(built.arguments) + 1))(*built.arguments)
    team = (ctypes.c_void_p * 1)(ctypes.cast(_BARRIER(lambda _team, _thread: None), ctypes.c_void_p))
    for kernel, symbol, size in zip(built.kernels, built.symbols, built.block_bytes, strict=True):
        function = getattr(library, symbol)
        count = threads if kernel.team and len(kernel.phases) == 1 else 1
        for thread in range(count):
            block = aligned(size)
            function(buffers, args, ctypes.c_void_p(block.ctypes.data), thread, count, team)
    return outputs
