"""How each operation of the loop program is spelled in CUDA C++: one table by operand class, with precedences, so that
only the parentheses that a reader needs are written."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from ....graphs.dtypes import DType
from ... import cpp_tables
from ...cpp_tables import BEFORE, FUNCTIONS, WRAPPING
from ...loops import THREAD, Literal

SCALAR = {**cpp_tables.SCALAR, DType.I32: "int", DType.U32: "unsigned"}
"""Types of values in registers (f16 and bf16 are float there)."""

MEMORY = {**cpp_tables.MEMORY, DType.I32: "int", DType.U32: "unsigned"}
"""Types of array elements."""

PRIMARY, UNARY, PRODUCT, SUM, RELATION, EQUALITY, BITS, AND, OR, CHOICE = 16, 15, 13, 12, 10, 9, 8, 5, 4, 3
"""How tightly the outermost operator of a text binds, as in C++; bit operators count as one level."""


@dataclass(frozen=True, slots=True)
class Text:
    """An expression as text, with how tightly its outermost operator binds."""

    text: str
    binds: int = PRIMARY

    def within(self, level: int) -> str:
        """The text as an operand that must bind at least as tightly as `level`."""
        return self.text if self.binds >= level else f"({self.text})"


_INFIX_ANY = {
    "eq": ("==", EQUALITY),
    "ne": ("!=", EQUALITY),
    "lt": ("<", RELATION),
    "le": ("<=", RELATION),
    "gt": (">", RELATION),
    "ge": (">=", RELATION),
}
_INFIX = {
    "float": {"add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT)},
    "integer": {
        # index arithmetic never overflows, so it is spelled plainly
        "plus": ("+", SUM),
        "minus": ("-", SUM),
        "times": ("*", PRODUCT),
        "quotient": ("/", PRODUCT),
        "rest": ("%", PRODUCT),
    },
    "bool": {"and": ("&&", AND), "or": ("||", OR), "xor": ("!=", EQUALITY)},
}

_CALL_ANY = {
    **{name: f"st_{name[:3]}{{A}}({{0}}, {{1}})" for name in ("max", "min", "maximum", "minimum")},
    **BEFORE,
    "shuffle_xor": "st_shuffle_xor({0}, {1})",
}
_CALL = {
    "float": {
        "sign": "st_sign({0})",
        "mod": "st_mod({0}, {1})",
        "fmod": "st_fmod({0}, {1})",
        "abs": "fabs{s}({0})",
        "round": "rint{s}({0})",
        "isnan": "st_isnan({0})",
        "isinf": "st_isinf({0})",
        "sum_error": "st_sum_error({0}, {1})",
        "round_f16": "st_round_f16({0})",
        "round_bf16": "st_round_bf16({0})",
        "pow": "pow{s}({0}, {1})",
        **{name: f"{name}{{s}}({{0}})" for name in ("floor", "ceil", "trunc", "sqrt", *FUNCTIONS)},
    },
    "integer": {
        **WRAPPING,
        "bitnot": "{T}(~({0}))",
        "bitand": "{T}(({0}) & ({1}))",
        "bitor": "{T}(({0}) | ({1}))",
        "bitxor": "{T}(({0}) ^ ({1}))",
    },
    "bool": {},
}


def spell(op: str, result: DType, operand: DType, texts: list[Text]) -> Text:
    """CUDA C++ for `op` on operands of one class (that of `operand`). Raises KeyError when there is no such entry."""
    kind = "float" if operand.is_float else "bool" if operand is DType.BOOL else "integer"
    infix = _INFIX[kind].get(op) or _INFIX_ANY.get(op)
    if infix is not None:
        symbol, level = infix
        left, right = texts
        # sums of indices may be taken in any order, conditions be tested in theirs
        either = op in ("and", "or") or (op == "plus" and "-" not in right.text)
        least = level if either else level + 1
        return Text(f"{left.within(level)} {symbol} {right.within(least)}", level)
    if op == "select":
        condition, yes, no = texts
        return Text(f"{condition.within(CHOICE + 1)} ? {yes.within(CHOICE + 1)} : {no.within(CHOICE + 1)}", CHOICE)
    if op == "cast":
        return _cast(operand, result, texts[0])
    if op == "neg" and kind == "float":
        return Text(f"-{texts[0].within(PRIMARY)}", UNARY)
    if op == "not":
        return Text(f"!{texts[0].within(PRIMARY)}", UNARY)
    if op == "recip":
        return Text(f"{literal(Literal(1.0, result)).text} / {texts[0].within(PRODUCT + 1)}", PRODUCT)
    if op in _UNSIGNED:
        return _unsigned(_UNSIGNED[op], result, texts)
    form = _CALL[kind].get(op) or _CALL_ANY[op]
    suffix = "f" if operand is DType.F32 else ""
    kinds = {"T": SCALAR[result], "O": SCALAR[operand], "A": "" if result in _EXACT else f"<{SCALAR[result]}>"}
    return Text(form.format(*(t.text for t in texts), s=suffix, **kinds))


_OF_THREAD = re.compile(rf"{THREAD.name}( [/%] \d+)*")
_EXACT = (DType.F32, DType.F64, DType.I32)
"""Types that every text of theirs has in C++ too; a literal of another may have a narrower one, arithmetic a wider."""

_UNSIGNED = {"quotient_u32": "/", "rest_u32": "%"}


def _unsigned(symbol: str, result: DType, texts: list[Text]) -> Text:
    """Division of numbers below 2^32, without the corrections that signed division needs. The compiler knows the range
    of the thread's number."""
    left, right = texts
    if _OF_THREAD.fullmatch(left.text) and right.text.isdigit():
        return Text(f"{left.text} {symbol} {right.text}", PRODUCT)
    divisor = f"{right.text}u" if right.text.isdigit() else f"unsigned({right.text})"
    return Text(f"{SCALAR[result]}(unsigned({left.text}) {symbol} {divisor})")


def _cast(operand: DType, result: DType, value: Text) -> Text:
    if result is DType.BOOL:
        return value if operand is DType.BOOL else Text(f"{value.within(EQUALITY + 1)} != 0", EQUALITY)
    if operand.is_float and result.is_integer and result.size < 4:
        return Text(f"{SCALAR[result]}(int({value.text}))")
    return value if result is operand else Text(f"{SCALAR[result]}({value.text})")


def literal(value: Literal) -> Text:
    """A constant, exactly."""
    number, dtype = value.value, value.dtype
    if dtype is DType.BOOL:
        return Text("true" if number else "false")
    if dtype.is_float:
        return _float(float(number), dtype)
    signed = UNARY if number < 0 else PRIMARY
    if dtype is DType.I32 and number == -(2**31):
        return Text("-0x7fffffff - 1", SUM)
    if dtype is DType.I64 and number == -(2**63):
        return Text("-0x7fffffffffffffffll - 1", SUM)
    if dtype is DType.I32 or (dtype is DType.I64 and -(2**31) < number < 2**31):
        return Text(f"{number}", signed)
    if dtype is DType.I64:
        return Text(f"{number}ll", signed)
    if dtype in (DType.U32, DType.U64):
        return Text(f"{number}u" if dtype is DType.U32 else f"{number}ull")
    return Text(f"{SCALAR[dtype]}({number})")


def _float(number: float, dtype: DType) -> Text:
    if math.isnan(number):
        return Text("ST_NAN")
    if math.isinf(number):
        return Text("ST_INFINITY" if number > 0 else "-ST_INFINITY", PRIMARY if number > 0 else UNARY)
    text = repr(number)
    if dtype is DType.F32:
        # the shortest decimal of the float, unless reading it as a double and rounding that is another float
        short = str(np.float32(number))
        text = short if float(np.float32(float(short))) == number else number.hex()
        text += "f"
    return Text(text, UNARY if text.startswith("-") else PRIMARY)
