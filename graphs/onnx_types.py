"""Element types by the numbers that ONNX files use (onnx.proto, TensorProto.DataType)."""

from __future__ import annotations

from .dtypes import DType

BY_NUMBER = {
    1: DType.F32,
    2: DType.U8,
    3: DType.I8,
    4: DType.U16,
    5: DType.I16,
    6: DType.I32,
    7: DType.I64,
    9: DType.BOOL,
    10: DType.F16,
    11: DType.F64,
    12: DType.U32,
    13: DType.U64,
    16: DType.BF16,
}
NUMBER = {dtype: number for number, dtype in BY_NUMBER.items()}

OTHERS = {
    8: "string",
    14: "complex64",
    15: "complex128",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
}
"""Types that graphs do not carry, for messages."""
