"""A subgraph as text, one line a value: for `inspect`, for tests and for people.

%0 = input f32 [i4, i5]
%1 = const f32 () 0.125
%2 = mul f32 [i0, i1] (%0[i0, i1], %1[])
%3 = sum f32 [i0] over [i1] (%2[i0, i1])    -> output
i0 = 1024, i1 = 768
"""

from __future__ import annotations

from collections.abc import Sequence

from .subgraph import AxisVar, FloorDiv, Index, Int, Lookup, Mod, Read, Slot, Subgraph, Sum, Value


def describe(sub: Subgraph) -> str:
    """All of `sub`, extents and slots included, in lines."""
    lines = [
        f"%{number} = {describe_value(value)}{'    -> output' if number in sub.outputs else ''}"
        for number, value in enumerate(sub.values)
    ]
    lines.append(", ".join(f"i{axis} = {extent}" for axis, extent in enumerate(sub.extents)))
    if sub.slots:
        lines.append(", ".join(f"s{slot} = {value}" for slot, value in enumerate(sub.slots)))
    return "\n".join(line for line in lines if line)


def describe_value(value: Value) -> str:
    """Operator, type, axes, operands and attributes of a value."""
    text = f"{value.op} {value.dtype.value} {_axes(value.axes)}"
    if value.reduce:
        text += f" over {_axes(value.reduce)}"
    if value.op == "const":
        return f"{text} {value.attr('value')!r}"
    if value.reads:
        text += f" ({', '.join(map(describe_read, value.reads))})"
    if value.position is not None:
        text += f" at {describe_index(value.position)}"
    return text + "".join(f" {name}={given!r}" for name, given in value.attrs)


def describe_read(read: Read) -> str:
    """A read as `%value[indices]`, with its predicate and fill."""
    text = f"%{read.value}[{', '.join(map(describe_index, read.index))}]"
    if read.where:
        text += " where " + " and ".join(f"0 <= {describe_index(b.index)} < |i{b.axis}|" for b in read.where)
    return text if read.fill is None else f"{text} else {read.fill!r}"


def describe_index(index: Index) -> str:
    """An index in infix form."""
    match index:
        case AxisVar(axis):
            return f"i{axis}"
        case Int(value):
            return str(value)
        case Slot(slot):
            return f"s{slot}"
        case Sum(terms):
            return "(" + " + ".join(_term(factor, term) for factor, term in terms) + ")"
        case FloorDiv(term, divisor):
            return f"{describe_index(term)} // {divisor}"
        case Mod(term, divisor):
            return f"{describe_index(term)} % {divisor}"
        case Lookup(read, extent):
            return f"lookup({describe_read(read)}, |i{extent}|)"


def _term(factor: int, term: Index) -> str:
    return describe_index(term) if factor == 1 else f"{factor}*{describe_index(term)}"


def _axes(axes: Sequence[int]) -> str:
    return f"[{', '.join(f'i{axis}' for axis in axes)}]"
