"""The value of one primitive over known operands: what folding constants computes."""

from __future__ import annotations

from collections.abc import Sequence

from .interpret.movement import move
from .interpret.tensors import eval_node
from .ir import Node, TensorType
from .primitives import PRIMITIVES
from .rounding import Array, narrow


def fold(node: Node, args: Sequence[Array], out: TensorType) -> Array:
    """What `node` gives for `args`, of type `out`: computed in float64 and rounded once.

    Movement keeps every bit and gives views where NumPy does. Raises InputError for a gathered index out of range.
    """
    if PRIMITIVES[node.op].kind in ("movement", "source"):
        return move(node, list(args), out).astype(out.dtype.numpy, copy=False)
    return narrow(eval_node(node, list(args), out), out.dtype)
