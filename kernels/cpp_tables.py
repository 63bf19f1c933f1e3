"""How each operation of the loop program is spelled in C++: one table, by operand class."""

from __future__ import annotations

import math

from ..graphs.dtypes import DType
from .loops import Literal

SCALAR = {
    DType.F32: "float",
    DType.F64: "double",
    DType.BOOL: "bool",
    **{d: f"{'' if d.is_signed else 'u'}int{8 * d.size}_t" for d in DType if d.is_integer},
}
"""C++ types of values in registers (f16 and bf16 are float there)."""

MEMORY = {**SCALAR, DType.F16: "uint16_t", DType.BF16: "uint16_t", DType.BOOL: "uint8_t"}
"""C++ types of array elements."""

FUNCTIONS = "exp log log1p expm1 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf".split()
"""Functions of one float that the C library has under these names, with an f for float32."""

WRAPPING = {
    **{name: f"st_{name}<{{T}}>({{0}}, {{1}})" for name in "add sub mul div mod fmod pow shl shr".split()},
    **{name: f"st_{name}<{{T}}>({{0}})" for name in ("neg", "abs", "sign")},
    "floordiv": "st_floordiv<{T}>({0}, {1})",
    "remainder": "st_remainder<{T}>({0}, {1})",
}
"""Integer arithmetic by the functions of runtime/arithmetic.h."""

BEFORE = {
    f"before_{op}_{end}": f"st_before_{op}_{end}<{{O}}>({{0}}, {{1}}, {{2}}, {{3}})"
    for op in ("argmax", "argmin")
    for end in ("first", "last")
}
"""Which of two elements with their indices comes first."""

_ANY = {
    "eq": "({0} == {1})",
    "ne": "({0} != {1})",
    "lt": "({0} < {1})",
    "le": "({0} <= {1})",
    "gt": "({0} > {1})",
    "ge": "({0} >= {1})",
    "select": "({0} ? {1} : {2})",
    "max": "st_max<{T}>({0}, {1})",
    "min": "st_min<{T}>({0}, {1})",
    "maximum": "st_max<{T}>({0}, {1})",
    "minimum": "st_min<{T}>({0}, {1})",
    **BEFORE,
}

_FLOAT = {
    "neg": "(-{0})",
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "div": "({0} / {1})",
    "sign": "st_sign({0})",
    "mod": "st_mod({0}, {1})",
    "fmod": "st_fmod({0}, {1})",
    "recip": "({T}(1) / {0})",
    "abs": "__builtin_fabs{s}({0})",
    "floor": "__builtin_floor{s}({0})",
    "ceil": "__builtin_ceil{s}({0})",
    "trunc": "__builtin_trunc{s}({0})",
    "round": "__builtin_rint{s}({0})",
    "sqrt": "__builtin_sqrt{s}({0})",
    "isnan": "({0} != {0})",
    "isinf": "(__builtin_fabs{s}({0}) == ST_INFINITY)",
    "sum_error": "st_sum_error({0}, {1})",
    "round_f16": "st_round_f16({0})",
    "round_bf16": "st_round_bf16({0})",
    "pow": "pow{s}({0}, {1})",
    **{name: f"{name}{{s}}({{0}})" for name in FUNCTIONS},
}

_INTEGER = {
    **WRAPPING,
    "bitnot": "{T}(~{0})",
    "bitand": "{T}({0} & {1})",
    "bitor": "{T}({0} | {1})",
    "bitxor": "{T}({0} ^ {1})",
    # index arithmetic never overflows, so it is spelled plainly: that is what address analysis follows
    "plus": "({0} + {1})",
    "minus": "({0} - {1})",
    "times": "({0} * {1})",
    "quotient": "({0} / {1})",
    "rest": "({0} % {1})",
    "quotient_u32": "int64_t(uint32_t({0}) / uint32_t({1}))",
    "rest_u32": "int64_t(uint32_t({0}) % uint32_t({1}))",
}

_BOOL = {
    "not": "(!{0})",
    "and": "({0} & {1})",
    "or": "({0} | {1})",
    "xor": "({0} != {1})",
}


def spell(op: str, result: DType, operand: DType, texts: list[str]) -> str:
    """C++ for `op` on operands of one class (that of `operand`). Raises KeyError when the table has no such entry."""
    if op == "cast":
        return _cast(operand, result, texts[0])
    table = _FLOAT if operand.is_float else _BOOL if operand is DType.BOOL else _INTEGER
    form = table[op] if op in table else _ANY[op]
    return form.format(*texts, T=SCALAR[result], O=SCALAR[operand], s="f" if operand is DType.F32 else "")


def _cast(operand: DType, result: DType, text: str) -> str:
    if result is DType.BOOL:
        return f"({text} != 0)"
    if operand.is_float and result.is_integer and result.size < 4:
        return f"{SCALAR[result]}(int32_t({text}))"
    return f"{SCALAR[result]}({text})"


def literal(value: Literal) -> str:
    """A constant, exactly."""
    number, dtype = value.value, value.dtype
    if dtype is DType.BOOL:
        return "true" if number else "false"
    if dtype.is_float:
        suffix = "f" if dtype is DType.F32 else ""
        if math.isnan(number):
            return f'__builtin_nan{suffix}("")'
        if math.isinf(number):
            return f"(-__builtin_inf{suffix}())" if number < 0 else f"__builtin_inf{suffix}()"
        text = float(number)
        plain = repr(text)
        if dtype is DType.F64 or len(plain) < 10:
            return f"{plain}{suffix}" if not plain.startswith("-") else f"({plain}{suffix})"
        return f"({text.hex()}{suffix})"
    if dtype is DType.I64 and -(2**31) < number < 2**31:
        return f"{number}" if number >= 0 else f"({number})"
    if dtype is DType.I64 and number == -(2**63):
        return "(-0x7fffffffffffffffll - 1)"
    if dtype is DType.U64:
        return f"{number}ull"
    return f"{SCALAR[dtype]}({number}ll)"
