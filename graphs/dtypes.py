"""The element types that graphs, plans and kernels share."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np


class DType(enum.Enum):
    """An element type; the value is the name used in plans, keys and reports."""

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    F64 = "f64"
    I8 = "i8"
    I16 = "i16"
    I32 = "i32"
    I64 = "i64"
    U8 = "u8"
    U16 = "u16"
    U32 = "u32"
    U64 = "u64"
    BOOL = "bool"

    @property
    def size(self) -> int:
        """Bytes of one element."""
        return _SIZE[self]

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @property
    def is_low_precision(self) -> bool:
        """True for the floats that are computed in float32 and accumulated in float32."""
        return self in (DType.F16, DType.BF16)

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self is not DType.BOOL and self not in _FLOATS

    @property
    def is_signed(self) -> bool:
        return self.is_float or self.value.startswith("i")

    @property
    def numpy(self) -> np.dtype[Any]:
        """The NumPy dtype of arrays of this type (bfloat16 comes from ml_dtypes)."""
        if self is DType.BF16:
            import ml_dtypes

            bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return bfloat16
        return np.dtype(_NUMPY[self])


_FLOATS = frozenset({DType.F16, DType.BF16, DType.F32, DType.F64})
_SIZE = {
    DType.F16: 2,
    DType.BF16: 2,
    DType.F32: 4,
    DType.F64: 8,
    DType.I8: 1,
    DType.I16: 2,
    DType.I32: 4,
    DType.I64: 8,
    DType.U8: 1,
    DType.U16: 2,
    DType.U32: 4,
    DType.U64: 8,
    DType.BOOL: 1,
}
_NUMPY = {
    DType.F16: "float16",
    DType.F32: "float32",
    DType.F64: "float64",
    DType.I8: "int8",
    DType.I16: "int16",
    DType.I32: "int32",
    DType.I64: "int64",
    DType.U8: "uint8",
    DType.U16: "uint16",
    DType.U32: "uint32",
    DType.U64: "uint64",
    DType.BOOL: "bool",
}
_FROM_NUMPY = {np.dtype(name): dtype for dtype, name in _NUMPY.items()}


def from_numpy(dtype: np.dtype[Any]) -> DType:
    """The DType of a NumPy dtype. Raises KeyError for a type that graphs do not carry."""
    if dtype.name == "bfloat16":
        return DType.BF16
    return _FROM_NUMPY[dtype.newbyteorder("=")]
