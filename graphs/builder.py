"""A builder of graphs: adds nodes one at a time, names them, and infers and checks every type on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from .dtypes import DType, from_numpy
from .ir import Attr, Graph, Node, TensorType, constant
from .shapes import TypeMismatch, broadcast_shapes, infer

SMALL = 1024
"""Bytes up to which constants without a name of their own are shared by content."""


class GraphBuilder:
    """Collects inputs, constants and nodes; `build` gives the Graph. Tensors are passed about by name.

    Every method that adds a tensor returns its name. Types are inferred by `shapes.infer`, whose TypeMismatch leaves
    every method that is given operands that do not fit. Names that the builder makes up never clash
    with those in `reserved` or given before.
    """

    def __init__(self, name: str = "graph", opset: int = 21, reserved: Sequence[str] = ()) -> None:
        self.name = name
        self.opset = opset
        self.origin = ""
        """The exported node that following nodes come from."""
        self.types: dict[str, TensorType] = {}
        self.constants: dict[str, NDArray[Any]] = {}
        self._inputs: list[str] = []
        self._outputs: list[str] = []
        self._nodes: list[Node] = []
        self._reserved = set(reserved)
        self._shared: dict[tuple[DType, tuple[int, ...], bytes], str] = {}
        self._count = 0

    # --- tensors

    def input(self, name: str, dtype: DType, shape: Sequence[int]) -> str:
        """A graph input."""
        self._declare(name, TensorType(dtype, tuple(shape)))
        self._inputs.append(name)
        return name

    def constant(self, value: NDArray[Any], name: str = "") -> str:
        """A constant tensor; without a name, small equal ones are one tensor. Arrays in C order are not copied."""
        value = np.asarray(value, order="C")
        kind = TensorType(from_numpy(value.dtype), value.shape)
        key = (kind.dtype, kind.shape, value.tobytes() if not name and value.nbytes <= SMALL else b"")
        shared = not name and value.nbytes <= SMALL
        if shared and key in self._shared:
            return self._shared[key]
        name = name or self._fresh("const")
        self._declare(name, kind)
        self.constants[name] = constant(value)
        if shared:
            self._shared[key] = name
        return name

    def scalar(self, value: ArrayLike, dtype: DType) -> str:
        """A constant of shape (), rounded to `dtype`."""
        with np.errstate(all="ignore"):
            return self.constant(np.asarray(value).astype(dtype.numpy).reshape(()))

    def output(self, name: str) -> None:
        """Makes a tensor a graph output; the order of calls is the order of outputs."""
        if name not in self.types:
            raise KeyError(name)
        self._outputs.append(name)

    def dtype(self, name: str) -> DType:
        return self.types[name].dtype

    def shape(self, name: str) -> tuple[int, ...]:
        return self.types[name].shape

    # --- nodes

    def op(
        self,
        op: str,
        *inputs: str,
        dtype: DType | None = None,
        sizes: Sequence[int] | None = None,
        name: str = "",
        **attrs: Attr,
    ) -> str:
        """A primitive node over tensors that fit as they are (no broadcasting).

        `dtype` is the result's for cast and iota, `sizes` its shape for slice and iota; others infer both.
        """
        operands = [self.types[i] for i in inputs]
        first = operands[0] if operands else TensorType(DType.I64, ())
        wanted = TensorType(dtype or first.dtype, first.shape if sizes is None else tuple(sizes))
        kind = infer(op, operands, attrs, wanted)
        name = name or self._fresh(op)
        self._declare(name, kind)
        self._nodes.append(Node(op, inputs, (name,), tuple(sorted(attrs.items())), self.origin))
        return name

    def elementwise(self, op: str, *inputs: str, name: str = "") -> str:
        """An elementwise primitive over tensors broadcast to their common shape (NumPy's rule)."""
        shape = broadcast_shapes([self.shape(i) for i in inputs])
        return self.op(op, *(self.broadcast(i, shape) for i in inputs), name=name)

    def cast(self, source: str, dtype: DType) -> str:
        """`source` as `dtype`; itself when it is that already."""
        return source if self.dtype(source) is dtype else self.op("cast", source, dtype=dtype)

    def broadcast(self, source: str, shape: Sequence[int], dims: Sequence[int] | None = None) -> str:
        """`source` repeated to `shape`; itself when it has it already.

        Dimension i of the source becomes dimension dims[i] of the result; by default the last ones, as in NumPy.
        """
        shape, own = tuple(shape), self.shape(source)
        if own == shape:
            return source
        if len(own) > len(shape):
            raise TypeMismatch(f"broadcast from rank {len(own)} to rank {len(shape)}")
        dims = range(len(shape) - len(own), len(shape)) if dims is None else dims
        return self.op("broadcast", source, shape=shape, dims=tuple(dims))

    def full(self, value: ArrayLike, dtype: DType, shape: Sequence[int]) -> str:
        """A scalar constant broadcast to `shape`."""
        return self.broadcast(self.scalar(value, dtype), shape)

    def reshape(self, source: str, shape: Sequence[int]) -> str:
        """`source` in another shape of as many elements; itself when it has it already."""
        return source if self.shape(source) == tuple(shape) else self.op("reshape", source, shape=tuple(shape))

    def transpose(self, source: str, perm: Sequence[int]) -> str:
        """`source` with dimension i of the result being dimension perm[i]; itself for the identity."""
        identity = list(perm) == list(range(len(self.shape(source))))
        return source if identity else self.op("transpose", source, perm=tuple(perm))

    def slice(self, source: str, axis: int, start: int, length: int, step: int = 1) -> str:
        """`length` elements of one axis from `start` on, `step` apart; itself for all of them."""
        shape = self.shape(source)
        if start == 0 and length == shape[axis] and step == 1:
            return source
        starts = tuple(start if i == axis else 0 for i in range(len(shape)))
        steps = tuple(step if i == axis else 1 for i in range(len(shape)))
        sizes = tuple(length if i == axis else d for i, d in enumerate(shape))
        return self.op("slice", source, sizes=sizes, starts=starts, steps=steps)

    def reduce(self, op: str, source: str, axes: Sequence[int], keepdims: bool = False) -> str:
        """A reduction but ArgMax and ArgMin over `axes` (any order, not negative); over none it is `source` itself."""
        if not axes:
            return source
        result = self.op(op, source, axes=tuple(sorted(axes)))
        if not keepdims:
            return result
        return self.reshape(result, [1 if i in axes else d for i, d in enumerate(self.shape(source))])

    def library(
        self,
        inputs: Sequence[str],
        outputs: Sequence[tuple[str, TensorType] | None],
        reason: str,
        payload: Any = None,
    ) -> tuple[str, ...]:
        """A library node; absent inputs are "", absent outputs None. Returns the output names ("" for absent)."""
        for i in inputs:
            if i and i not in self.types:
                raise KeyError(i)
        names = []
        for item in outputs:
            if item is not None:
                self._declare(*item)
            names.append("" if item is None else item[0])
        self._nodes.append(Node("library", tuple(inputs), tuple(names), (), self.origin, reason, payload))
        return tuple(names)

    def build(self, sizes: Sequence[tuple[str, int]] = ()) -> Graph:
        """The graph so far."""
        return Graph(
            name=self.name,
            inputs=tuple(self._inputs),
            outputs=tuple(self._outputs),
            nodes=tuple(self._nodes),
            types=dict(self.types),
            constants=dict(self.constants),
            opset=self.opset,
            sizes=tuple(sizes),
        )

    # --- names

    def unused(self, name: str) -> str:
        """`name` if no tensor is called that yet, else one made from it."""
        return name if name not in self.types else self._fresh(name)

    def _declare(self, name: str, kind: TensorType) -> None:
        if not name or name in self.types:
            raise TypeMismatch(f"tensor {name!r} is defined twice or has no name")
        self.types[name] = kind

    def _fresh(self, stem: str) -> str:
        while True:
            self._count += 1
            name = f"{stem}_{self._count}"
            if name not in self.types and name not in self._reserved:
                return name
