"""Fresh names for the locals and register arrays of a group."""

from __future__ import annotations

from ...graphs.dtypes import DType
from ..loops import Local


class Names:
    """Fresh names, numbered per group."""

    def __init__(self) -> None:
        self._count = 0

    def fresh(self, prefix: str, dtype: DType = DType.I64) -> Local:
        self._count += 1
        return Local(f"{prefix}{self._count}", dtype)
