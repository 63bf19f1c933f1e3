"""Guard zones and poison."""

from __future__ import annotations

import numpy as np
from stitchtune.graphs.dtypes import DType
from stitchtune.tuner.memory import GUARD, Guarded, poison, unwritten


def test_alignment_and_damage() -> None:
    for shift in (0, 2, 4):
        buffer = Guarded(100, shift)
        assert buffer.data.ctypes.data % 64 == shift
        assert buffer.damage() is None
        buffer.data[:] = 0
        assert buffer.damage() is None
    buffer = Guarded(96)
    assert buffer.typed(DType.F32, (4, 6)).shape == (4, 6)
    buffer._after[3] = 0
    assert buffer.damage() == 99
    buffer = Guarded(96)
    buffer._before[-GUARD] = 0
    assert buffer.damage() == -GUARD


def test_unwritten_elements() -> None:
    first, second = Guarded(40), Guarded(40)
    poison(first.data, 0)
    poison(second.data, 1)
    assert unwritten(first.data, second.data, 4) == 0
    for buffer in (first, second):
        buffer.typed(DType.F32, (10,))[:9] = np.nan
    assert unwritten(first.data, second.data, 4) == 9
    for buffer in (first, second):
        buffer.typed(DType.F32, (10,))[9] = -1
    assert unwritten(first.data, second.data, 4) is None
