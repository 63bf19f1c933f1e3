"""The rule for Einsum where nothing is contracted: transposes, sums, broadcasts and products."""

from __future__ import annotations

from ..shapes import TypeMismatch
from .call import Call, NotLowered, Rule


def _einsum(c: Call) -> str:
    """Operands summed over what only they have, aligned to the output's order, and multiplied.

    An index that several operands share and the output lacks is a contraction, which a library does better.
    """
    terms, result = _parse(c)
    operands = []
    for i, term in enumerate(terms):
        if len(set(term)) != len(term):
            raise NotLowered("diagonal")
        others = {label for j, other in enumerate(terms) if j != i for label in other}
        alone = tuple(k for k, label in enumerate(term) if label not in result)
        if any(term[k] in others for k in alone):
            raise NotLowered("contraction")
        x = c.b.reduce("sum", c.wide(c.input(i)), alone)
        kept = [label for label in term if label in result]
        order = sorted(range(len(kept)), key=lambda k: result.index(kept[k]))
        x = c.b.transpose(x, order)
        sizes = dict(zip((kept[k] for k in order), c.b.shape(x), strict=True))
        operands.append(c.b.reshape(x, [sizes.get(label, 1) for label in result]))
    total = operands[0]
    for other in operands[1:]:
        total = c.do("mul", total, other)
    return c.b.cast(total, c.dtype())


def _parse(c: Call) -> tuple[list[str], str]:
    """The labels of each operand and of the result."""
    equation = c.str_attr("equation").replace(" ", "")
    if "..." in equation:
        raise NotLowered("not-lowered")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        result = "".join(sorted(label for label in set(left) - {","} if left.count(label) == 1))
    if len(terms) != len(c.inputs) or any(len(term) != c.rank(i) for i, term in enumerate(terms)):
        raise TypeMismatch(f"equation {equation!r} does not fit the operands")
    if len(set(result)) != len(result) or not set(result) <= set("".join(terms)):
        raise TypeMismatch(f"equation {equation!r} has a result that the operands do not give")
    return terms, result


RULES: dict[str, Rule] = {"Einsum": _einsum}
