"""One exported operator as a decomposition rule sees it: operands, attributes and the graph being built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..constants import ValueBuilder
from ..dtypes import DType
from ..onnx_types import BY_NUMBER
from ..shapes import TypeMismatch


class NotLowered(Exception):
    """This operator, with these operands and attributes, stays a library op. `reason` is a short code for `inspect`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Call:
    """An exported operator being decomposed.

    b         the builder that receives the primitives
    op        operator name
    opset     version of its domain that the model imports
    inputs    tensor names; "" for an absent optional input
    outputs   how many outputs the exported node lists, with whether each is wanted
    attrs     attributes as Python values: int, float, str, tuples of them, arrays for tensors

    The methods raise TypeMismatch when an operand or attribute is missing or malformed (bad input), and NotLowered when
    a value would have to be known that is known only at run time.
    """

    b: ValueBuilder
    op: str
    opset: int
    inputs: tuple[str, ...]
    outputs: tuple[bool, ...]
    attrs: Mapping[str, Any]

    # --- operands

    def has(self, i: int) -> bool:
        return i < len(self.inputs) and self.inputs[i] != ""

    def input(self, i: int) -> str:
        """The name of operand i, which must be there."""
        if not self.has(i):
            raise TypeMismatch(f"input {i} is missing")
        return self.inputs[i]

    def wants(self, i: int) -> bool:
        """Whether output i is used."""
        return i < len(self.outputs) and self.outputs[i]

    def value(self, i: int) -> NDArray[Any]:
        """Operand i, known while importing. NotLowered when it depends on the graph's inputs."""
        value = self.b.value(self.input(i))
        if value is None:
            raise NotLowered("data-dependent-shape")
        return value

    def ints(self, i: int) -> tuple[int, ...]:
        """Operand i as integers: a vector (or a scalar, as one integer)."""
        value = self.value(i)
        if value.dtype.kind not in "iu" or value.ndim > 1:
            raise TypeMismatch(f"input {i} is {value.dtype}{list(value.shape)}, not a vector of integers")
        return tuple(int(v) for v in value.reshape(-1))

    def dtype(self, i: int = 0) -> DType:
        return self.b.dtype(self.input(i))

    def shape(self, i: int = 0) -> tuple[int, ...]:
        return self.b.shape(self.input(i))

    def rank(self, i: int = 0) -> int:
        return len(self.shape(i))

    # --- attributes

    def int_attr(self, name: str, default: int | None = None) -> int:
        value = self._attr(name, default)
        if type(value) is not int:
            raise TypeMismatch(f"attribute {name} is {value!r}, not an integer")
        return value

    def float_attr(self, name: str, default: float | None = None) -> float:
        value = self._attr(name, default)
        if type(value) is not float:
            raise TypeMismatch(f"attribute {name} is {value!r}, not a float")
        return value

    def str_attr(self, name: str, default: str | None = None) -> str:
        value = self._attr(name, default)
        if type(value) is not str:
            raise TypeMismatch(f"attribute {name} is {value!r}, not a string")
        return value

    def ints_attr(self, name: str, default: Sequence[int] | None = None) -> tuple[int, ...]:
        value = self._attr(name, default)
        if not isinstance(value, list | tuple | range) or any(type(v) is not int for v in value):
            raise TypeMismatch(f"attribute {name} is {value!r}, not a list of integers")
        return tuple(value)

    def dtype_attr(self, name: str) -> DType:
        """An attribute that names an element type. NotLowered for one that graphs do not carry."""
        number = self.int_attr(name)
        if number not in BY_NUMBER:
            raise NotLowered("element-type")
        return BY_NUMBER[number]

    def _attr(self, name: str, default: Any) -> Any:
        value = self.attrs.get(name, default)
        if value is None:
            raise TypeMismatch(f"attribute {name} is missing")
        return value

    # --- building blocks

    def do(self, op: str, *operands: str) -> str:
        """An elementwise primitive over operands broadcast to their common shape."""
        return self.b.elementwise(op, *operands)

    def scalar(self, value: ArrayLike, like: str) -> str:
        """A scalar constant of the type of tensor `like`."""
        return self.b.scalar(value, self.b.dtype(like))

    def with_scalar(self, op: str, operand: str, value: ArrayLike) -> str:
        """`op(operand, value)` with a scalar on the right."""
        return self.do(op, operand, self.scalar(value, operand))

    def wide(self, name: str) -> str:
        """float16 and bfloat16 as float32, others as they are.

        What is several primitives but one exported operator rounds to its low precision once, at its end.
        """
        return self.b.cast(name, DType.F32) if self.b.dtype(name).is_low_precision else name


Rule = Callable[[Call], "str | tuple[str, ...]"]
"""Gives the tensor (or tensors, "" for an unwanted one) that an exported operator's outputs are."""


def normal_axis(axis: int, rank: int) -> int:
    """`axis` counted from the front. Raises TypeMismatch when it is out of range."""
    if not -rank <= axis < rank:
        raise TypeMismatch(f"axis {axis} is out of range for rank {rank}")
    return axis % rank


def normal_axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    """Ascending axes counted from the front. Raises TypeMismatch when one is out of range or there twice."""
    found = sorted(normal_axis(a, rank) for a in axes)
    if len(set(found)) != len(found):
        raise TypeMismatch(f"axes {list(axes)} name an axis twice")
    return tuple(found)


def scalar_of(value: NDArray[Any]) -> int | float | bool:
    """The Python scalar of an array of one element, as attributes of primitives hold it."""
    if value.size != 1:
        raise TypeMismatch(f"{value.size} elements where one is meant")
    item = value.reshape(()).item() if value.dtype.kind in "biuf" else float(np.float32(value.reshape(())))
    assert isinstance(item, int | float | bool)
    return item


def whole_of(value: NDArray[Any]) -> int:
    """The integer that an array of one element holds, whatever its type. Raises TypeMismatch when it is none."""
    number = scalar_of(value)
    if isinstance(number, float) and not number.is_integer():
        raise TypeMismatch(f"{number} where an integer is meant")
    return int(number)
