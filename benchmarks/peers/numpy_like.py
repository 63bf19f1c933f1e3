"""The primitives in the words of NumPy's interface, which jax.numpy shares: one table for both peers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...graphs.dtypes import DType
from ...graphs.ir import Graph, Node, TensorType

Operation = Callable[..., Any]
"""(node, type of the result, *operand arrays) -> array."""


def evaluate(graph: Graph, arrays: Mapping[str, Any], table: Mapping[str, Operation]) -> list[Any]:
    """The graph's outputs, in order, for arrays by name: its inputs and its constants as the peer's own arrays."""
    found = dict(arrays)
    for node in graph.nodes:
        found[node.outputs[0]] = table[node.op](
            node, graph.types[node.outputs[0]], *(found[name] for name in node.inputs)
        )
    return [found[name] for name in graph.outputs]


def table(xp: Any, erf: Callable[[Any], Any]) -> dict[str, Operation]:
    """The primitives over `xp`, numpy or jax.numpy. NumPy has no erf, so it is given."""
    functions = {
        "neg": xp.negative,
        "recip": lambda x: 1 / x,
        "copy": lambda x: x,
        "not": xp.logical_not,
        "bitnot": xp.bitwise_not,
        "erf": erf,
        **{name: getattr(xp, name) for name in "abs sign floor ceil round trunc isnan isinf sqrt".split()},
        **{name: getattr(xp, name) for name in "exp log log1p expm1 sin cos tan sinh cosh tanh".split()},
        **{name: getattr(xp, f"arc{name[1:]}") for name in "asin acos atan asinh acosh atanh".split()},
        "add": xp.add,
        "sub": xp.subtract,
        "mul": xp.multiply,
        "pow": xp.power,
        "mod": xp.remainder,
        "fmod": xp.fmod,
        "minimum": xp.minimum,
        "maximum": xp.maximum,
        "where": xp.where,
        "and": xp.logical_and,
        "or": xp.logical_or,
        "xor": xp.logical_xor,
        **{f"bit{name}": getattr(xp, f"bitwise_{name}") for name in ("and", "or", "xor")},
        "shl": xp.left_shift,
        "shr": xp.right_shift,
        "eq": xp.equal,
        "ne": xp.not_equal,
        "lt": xp.less,
        "le": xp.less_equal,
        "gt": xp.greater,
        "ge": xp.greater_equal,
    }
    return {
        **{name: _elementwise(function) for name, function in functions.items()},
        "div": lambda node, kind, a, b: a / b if kind.dtype.is_float else _truncated(xp, a, b),
        "cast": lambda node, kind, x: x.astype(kind.dtype.numpy),
        **{name: _reduction(getattr(xp, name)) for name in ("sum", "prod", "max", "min")},
        "argmax": lambda node, kind, x: _arg(xp, xp.argmax, node, x),
        "argmin": lambda node, kind, x: _arg(xp, xp.argmin, node, x),
        "broadcast": lambda node, kind, x: _broadcast(xp, node, kind, x),
        "transpose": lambda node, kind, x: xp.transpose(x, node.attr("perm")),
        "reshape": lambda node, kind, x: xp.reshape(x, kind.shape),
        "slice": lambda node, kind, x: x[slices(node, kind)],
        "pad": lambda node, kind, x: _pad(xp, node, x),
        "concat": lambda node, kind, *parts: xp.concatenate(parts, axis=node.attr("axis")),
        "gather": lambda node, kind, x, i: xp.take(x, _counted(xp, x, i, node), axis=node.attr("axis")),
        "gather_elements": lambda node, kind, x, i: xp.take_along_axis(
            x, _counted(xp, x, i, node), axis=node.attr("axis")
        ),
        "iota": lambda node, kind: _iota(xp, node, kind),
    }


def slices(node: Node, kind: TensorType) -> tuple[slice, ...]:
    """The Python slices of a slice node."""
    found = []
    for start, step, size in zip(node.attr("starts"), node.attr("steps"), kind.shape, strict=True):
        stop = start + size * step
        found.append(slice(start, stop if stop >= 0 else None, step))
    return tuple(found)


def _elementwise(function: Callable[..., Any]) -> Operation:
    return lambda node, kind, *operands: function(*operands)


def _reduction(function: Callable[..., Any]) -> Operation:
    def reduce(node: Node, kind: TensorType, x: Any) -> Any:
        wide = x.astype("float32") if kind.dtype in (DType.F16, DType.BF16) else x
        return function(wide, axis=node.attr("axes")).astype(kind.dtype.numpy)

    return reduce


def _truncated(xp: Any, a: Any, b: Any) -> Any:
    down = a // b
    return down + ((down * b != a) & ((a < 0) != (b < 0))).astype(a.dtype)


def _arg(xp: Any, function: Callable[..., Any], node: Node, x: Any) -> Any:
    axes: Sequence[int] = node.attr("axes")
    kept = [i for i in range(x.ndim) if i not in axes]
    rows = xp.transpose(x, (*kept, *axes)).reshape(*(x.shape[i] for i in kept), -1)
    if node.attr("select_last"):
        return rows.shape[-1] - 1 - function(xp.flip(rows, -1), axis=-1).astype("int64")
    return function(rows, axis=-1).astype("int64")


def _broadcast(xp: Any, node: Node, kind: TensorType, x: Any) -> Any:
    dims: Sequence[int] = node.attr("dims")
    shape = [1] * len(kind.shape)
    for dim, size in zip(dims, x.shape, strict=True):
        shape[dim] = size
    return xp.broadcast_to(x.reshape(shape), kind.shape)


def _pad(xp: Any, node: Node, x: Any) -> Any:
    before, after = node.attr("before"), node.attr("after")
    cut = tuple(slice(max(0, -b), n - max(0, -a)) for b, a, n in zip(before, after, x.shape, strict=True))
    widths = [(max(0, b), max(0, a)) for b, a in zip(before, after, strict=True)]
    mode = dict(node.attrs).get("mode", "constant")
    if mode == "constant":
        return xp.pad(x[cut], widths, constant_values=node.attr("value"))
    return xp.pad(x[cut], widths, mode=mode)


def _counted(xp: Any, x: Any, indices: Any, node: Node) -> Any:
    return xp.where(indices < 0, indices + x.shape[node.attr("axis")], indices)


def _iota(xp: Any, node: Node, kind: TensorType) -> Any:
    axis = node.attr("axis")
    line = xp.arange(kind.shape[axis], dtype=kind.dtype.numpy)
    return xp.broadcast_to(line.reshape([-1 if i == axis else 1 for i in range(len(kind.shape))]), kind.shape)
