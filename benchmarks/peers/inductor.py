"""TorchInductor: the primitives as torch functions under torch.compile."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...graphs.dtypes import DType
from ...graphs.ir import Node, TensorType
from ..task import Contestant, Task
from .numpy_like import Operation, evaluate

_TORCH_NAMES = {
    DType.F16: "float16",
    DType.BF16: "bfloat16",
    DType.F32: "float32",
    DType.F64: "float64",
    DType.I8: "int8",
    DType.I16: "int16",
    DType.I32: "int32",
    DType.I64: "int64",
    DType.U8: "uint8",
    DType.BOOL: "bool",
}
"""The element types that torch computes with; the wider unsigned ones it only stores."""


class Inductor:
    """One compiled function over tensors that share memory with nothing of ours."""

    def __init__(self, task: Task) -> None:
        import torch

        torch.set_num_threads(task.threads)
        graph, operations = task.graph, table(torch)
        constants = {k: torch.from_numpy(np.array(v)) for k, v in graph.constants.items()}

        def compute(*arrays: Any) -> list[Any]:
            return evaluate(graph, {**constants, **dict(zip(graph.inputs, arrays, strict=True))}, operations)

        self.host = task.feeds
        self.from_numpy, self.quiet = torch.from_numpy, torch.inference_mode
        self.device = [torch.from_numpy(np.array(a)) for a in task.feeds]
        self.compiled = torch.compile(compute, fullgraph=True, dynamic=False)

    def outputs(self) -> list[NDArray[Any]]:
        with self.quiet():
            return [a.contiguous().numpy().copy() for a in self.compiled(*self.device)]

    def kernel(self, times: int) -> float:
        with self.quiet():
            started = time.perf_counter()
            for _ in range(times):
                self.compiled(*self.device)
            return time.perf_counter() - started

    def call(self, times: int) -> float:
        with self.quiet():
            started = time.perf_counter()
            for _ in range(times):
                [a.numpy() for a in self.compiled(*[self.from_numpy(a) for a in self.host])]
            return time.perf_counter() - started


def prepare(task: Task) -> Contestant:
    return Inductor(task)


def table(torch: Any) -> dict[str, Operation]:
    """The primitives over torch, but for prod over several axes and padding by reflection, which models rarely hold."""
    functions = {
        "copy": lambda x: x,
        "recip": torch.reciprocal,
        "not": torch.logical_not,
        "bitnot": torch.bitwise_not,
        "mod": torch.remainder,
        "shl": torch.bitwise_left_shift,
        "shr": torch.bitwise_right_shift,
        **{name: getattr(torch, name) for name in "neg abs sign floor ceil round trunc isnan isinf sqrt".split()},
        **{name: getattr(torch, name) for name in "exp log log1p expm1 sin cos tan sinh cosh tanh erf".split()},
        **{name: getattr(torch, name) for name in "asin acos atan asinh acosh atanh".split()},
        **{name: getattr(torch, name) for name in "add sub mul pow fmod minimum maximum where".split()},
        **{name: getattr(torch, name) for name in "eq ne lt le gt ge".split()},
        **{name: getattr(torch, f"logical_{name}") for name in ("and", "or", "xor")},
        **{f"bit{name}": getattr(torch, f"bitwise_{name}") for name in ("and", "or", "xor")},
    }
    return {
        **{name: _elementwise(function) for name, function in functions.items()},
        "div": lambda node, kind, a, b: a / b if kind.dtype.is_float else torch.div(a, b, rounding_mode="trunc"),
        "cast": lambda node, kind, x: x.to(_dtype(torch, kind)),
        "sum": lambda node, kind, x: x.sum(dim=node.attr("axes"), dtype=_dtype(torch, kind)),
        "prod": lambda node, kind, x: x.prod(dim=node.attr("axes")[0], dtype=_dtype(torch, kind)),
        "max": lambda node, kind, x: x.amax(dim=node.attr("axes")),
        "min": lambda node, kind, x: x.amin(dim=node.attr("axes")),
        "argmax": lambda node, kind, x: x.argmax(dim=node.attr("axes")[0]),
        "argmin": lambda node, kind, x: x.argmin(dim=node.attr("axes")[0]),
        "broadcast": _broadcast,
        "transpose": lambda node, kind, x: x.permute(node.attr("perm")),
        "reshape": lambda node, kind, x: x.reshape(kind.shape),
        "slice": lambda node, kind, x: _slice(node, kind, x),
        "pad": lambda node, kind, x: torch.nn.functional.pad(x, _widths(node), value=node.attr("value")),
        "concat": lambda node, kind, *parts: torch.cat(parts, dim=node.attr("axis")),
        "gather": lambda node, kind, x, i: _gather(torch, node, kind, x, i),
        "gather_elements": lambda node, kind, x, i: torch.gather(x, node.attr("axis"), _counted(torch, node, x, i)),
        "iota": lambda node, kind: _iota(torch, node, kind),
    }


def _elementwise(function: Any) -> Operation:
    return lambda node, kind, *operands: function(*operands)


def _dtype(torch: Any, kind: TensorType) -> Any:
    return getattr(torch, _TORCH_NAMES[kind.dtype])


def _broadcast(node: Node, kind: TensorType, x: Any) -> Any:
    shape = [1] * len(kind.shape)
    for dim, size in zip(node.attr("dims"), x.shape, strict=True):
        shape[dim] = size
    return x.reshape(shape).expand(kind.shape)


def _slice(node: Node, kind: TensorType, x: Any) -> Any:
    """Torch has no negative steps: the axis is flipped and the positions are counted from its other end."""
    for axis, (start, step, size) in enumerate(zip(node.attr("starts"), node.attr("steps"), kind.shape, strict=True)):
        if step < 0:
            x, start, step = x.flip(axis), x.shape[axis] - 1 - start, -step
        if (start, step, size) != (0, 1, x.shape[axis]):
            x = x[(slice(None),) * axis + (slice(start, start + size * step, step),)]
    return x


def _widths(node: Node) -> list[int]:
    """Pairs for the last axis first."""
    pairs = list(zip(node.attr("before"), node.attr("after"), strict=True))
    return [width for pair in reversed(pairs) for width in pair]


def _gather(torch: Any, node: Node, kind: TensorType, x: Any, indices: Any) -> Any:
    return torch.index_select(x, node.attr("axis"), _counted(torch, node, x, indices).reshape(-1)).reshape(kind.shape)


def _counted(torch: Any, node: Node, x: Any, indices: Any) -> Any:
    return torch.where(indices < 0, indices + x.shape[node.attr("axis")], indices)


def _iota(torch: Any, node: Node, kind: TensorType) -> Any:
    axis = node.attr("axis")
    line = torch.arange(kind.shape[axis], dtype=_dtype(torch, kind))
    return line.reshape([-1 if i == axis else 1 for i in range(len(kind.shape))]).expand(kind.shape)
