"""The closed set of primitive operators, with what each means.

Meaning, decided once (docs/semantics.md): floats follow IEEE 754, NaN propagates through minima and maxima, integer
arithmetic wraps, integer `div` truncates toward zero, `mod` is floored (sign of the divisor), `fmod` truncated
(sign of the dividend), `round` is half to even. Elementwise operators take operands of one shape and (but for
`cast`, `where`, comparisons) one dtype: broadcasting is a `broadcast` node of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["elementwise", "reduce", "movement", "source"]


@dataclass(frozen=True)
class Primitive:
    """One operator: its kind, operand count (-1: any), and rough cost in simple vector instructions."""

    name: str
    kind: Kind
    arity: int
    cost: int = 1
    """Relative to an add; >= 8 counts as *expensive* in the sense of the papers."""


def _make(kind: Kind, arity: int, cost: int, names: str) -> dict[str, Primitive]:
    return {name: Primitive(name, kind, arity, cost) for name in names.split()}


PRIMITIVES: dict[str, Primitive] = {
    # unary; floats, and neg/abs/sign on integers
    **_make("elementwise", 1, 1, "copy neg abs sign floor ceil round trunc isnan isinf not bitnot"),
    **_make("elementwise", 1, 6, "sqrt recip"),
    **_make("elementwise", 1, 12, "exp log log1p expm1 sin cos tanh erf"),
    **_make("elementwise", 1, 20, "tan asin acos atan sinh cosh asinh acosh atanh"),
    # cast: target is the dtype of the output; float -> integer truncates, out of range is undefined
    **_make("elementwise", 1, 1, "cast"),
    # binary; minimum and maximum are elementwise, min and max are reductions
    **_make("elementwise", 2, 1, "add sub mul minimum maximum and or xor bitand bitor bitxor"),
    **_make("elementwise", 2, 4, "div"),
    **_make("elementwise", 2, 1, "shl shr eq ne lt le gt ge"),
    **_make("elementwise", 2, 8, "mod fmod"),
    **_make("elementwise", 2, 25, "pow"),
    # where(condition, a, b); the condition is bool
    **_make("elementwise", 3, 1, "where"),
    # reductions: attrs `axes` (ascending tuple); the axes are dropped. argmax/argmin give int64, attr `select_last`
    # (bool), over the row-major linear index of `axes`. prod/sum of nothing: 1/0; max/min of nothing: -inf/+inf
    # (integers: the dtype's least/greatest). No mean: it is sum, then div.
    **_make("reduce", 1, 1, "sum prod max min argmax argmin"),
    # movement
    # broadcast: attrs `shape`, `dims` (output dim of each input dim, ascending); sizes are equal or 1
    # transpose: `perm`. reshape: `shape` (row-major). slice: `starts`, `steps` (nonzero); its sizes are the output's
    # concat: `axis`. pad: `before`, `after` (negative crops), `value`; or `mode` = "edge" | "reflect"
    # gather: (data, indices) `axis`; negative indices count from the end; output data[:axis] + indices + data[axis+1:]
    # gather_elements: (data, indices) `axis`, ranks equal, output has the shape of indices
    **_make("movement", 1, 1, "broadcast transpose reshape slice pad"),
    **_make("movement", -1, 1, "concat"),
    **_make("movement", 2, 2, "gather gather_elements"),
    # source: iota attr `axis`: the position along it. Scalars are constants of shape ().
    **_make("source", 0, 1, "iota"),
}

EXPENSIVE = 8
"""`cost` from which an elementwise operator counts as expensive (a dominant candidate when broadcast)."""

COMPARISONS = frozenset("eq ne lt le gt ge".split())
REDUCTIONS = frozenset("sum prod max min argmax argmin".split())
