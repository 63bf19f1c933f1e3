"""The type rule of every primitive: used to build graphs and to verify them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from .dtypes import DType
from .ir import Attr, TensorType
from .primitives import COMPARISONS, PRIMITIVES


class TypeMismatch(ValueError):
    """Operands, attributes and result of a primitive do not fit together; the message is one line."""


def infer(op: str, operands: Sequence[TensorType], attrs: Mapping[str, Attr], result: TensorType) -> TensorType:
    """The type that primitive `op` gives for these operands and attributes.

    `result` is the wanted type. It decides only what the operands leave open: the dtype of a cast, the sizes of a
    slice, dtype and shape of an iota. Raises TypeMismatch, also for a missing, superfluous or malformed attribute.
    """
    primitive = PRIMITIVES.get(op)
    if primitive is None:
        raise TypeMismatch(f"{op!r} is no primitive")
    if primitive.arity >= 0 and len(operands) != primitive.arity:
        raise TypeMismatch(f"{op} takes {primitive.arity} operands, not {len(operands)}")
    return _RULES[op](op, tuple(operands), _Attrs(op, attrs), result)


def broadcast_shapes(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape under NumPy's multidirectional broadcasting (0 and 1 give 0). Raises TypeMismatch."""
    rank = max((len(s) for s in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for i, size in enumerate(shape, rank - len(shape)):
            if size != 1 and result[i] not in (1, size):
                raise TypeMismatch(f"shapes {_text(shapes)} do not broadcast together")
            if size != 1:
                result[i] = size
    return tuple(result)


# --- attributes


class _Attrs:
    """Typed access to attributes; `done` complains about those that nothing asked for."""

    def __init__(self, op: str, attrs: Mapping[str, Attr]) -> None:
        self.op = op
        self.values = dict(attrs)

    def ints(self, name: str, length: int | None = None) -> tuple[int, ...]:
        value = self._take(name)
        if not isinstance(value, tuple) or not all(type(v) is int for v in value):
            raise TypeMismatch(f"{self.op}: attribute {name} is {value!r}, not a tuple of integers")
        if length is not None and len(value) != length:
            raise TypeMismatch(f"{self.op}: attribute {name} has {len(value)} entries for rank {length}")
        return value

    def axis(self, rank: int) -> int:
        value = self._take("axis")
        if type(value) is not int or not 0 <= value < rank:
            raise TypeMismatch(f"{self.op}: axis {value!r} is not in 0..{rank - 1}")
        return value

    def axes(self, rank: int) -> tuple[int, ...]:
        value = self.ints("axes")
        if not value or list(value) != sorted(set(value)) or value[0] < 0 or value[-1] >= rank:
            raise TypeMismatch(f"{self.op}: axes {value} are not ascending distinct axes of rank {rank}")
        return value

    def flag(self, name: str) -> bool:
        value = self._take(name)
        if type(value) is not bool:
            raise TypeMismatch(f"{self.op}: attribute {name} is {value!r}, not a bool")
        return value

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        value = self._take(name)
        if not isinstance(value, str) or value not in choices:
            raise TypeMismatch(f"{self.op}: attribute {name} is {value!r}, not one of {', '.join(choices)}")
        return value

    def scalar(self, name: str, dtype: DType) -> None:
        value = self._take(name)
        fits = {True: (int, float), False: (int, bool) if dtype is DType.BOOL else (int,)}[dtype.is_float]
        if type(value) not in fits:
            raise TypeMismatch(f"{self.op}: attribute {name} is {value!r}, not a scalar of type {dtype.value}")

    def has(self, name: str) -> bool:
        return name in self.values

    def done(self) -> None:
        if self.values:
            raise TypeMismatch(f"{self.op} has no attribute {', '.join(sorted(self.values))}")

    def _take(self, name: str) -> Attr:
        if name not in self.values:
            raise TypeMismatch(f"{self.op} needs attribute {name}")
        return self.values.pop(name)


def _text(shapes: Sequence[tuple[int, ...]]) -> str:
    return " and ".join("[" + ",".join(str(d) for d in s) + "]" for s in shapes)


# --- elementwise

_ANY = frozenset(DType)
_FLOAT = frozenset(t for t in DType if t.is_float)
_INT = frozenset(t for t in DType if t.is_integer)
_NUMBER = _FLOAT | _INT
_BOOL = frozenset({DType.BOOL})

_DTYPES = {
    "copy cast eq ne where broadcast transpose reshape slice pad concat gather gather_elements": _ANY,
    "neg abs sign add sub mul minimum maximum div lt le gt ge mod fmod pow": _NUMBER,
    "sum prod max min argmax argmin iota": _NUMBER,
    "floor ceil round trunc isnan isinf sqrt recip exp log log1p expm1": _FLOAT,
    "sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf": _FLOAT,
    "not and or xor": _BOOL,
    "bitnot bitand bitor bitxor shl shr": _INT,
}
SUPPORTED: dict[str, frozenset[DType]] = {op: dtypes for ops, dtypes in _DTYPES.items() for op in ops.split()}
"""Element types of each primitive: of its operands, of the two values of `where`, of a gather's data, of an iota."""


def _check_dtype(op: str, dtype: DType, supported: frozenset[DType]) -> None:
    if dtype not in supported:
        raise TypeMismatch(f"{op} has no meaning on {dtype.value}")


def _same(op: str, operands: tuple[TensorType, ...], supported: frozenset[DType]) -> TensorType:
    first = operands[0]
    for other in operands[1:]:
        if other.dtype is not first.dtype:
            raise TypeMismatch(f"{op}: operands of types {first.dtype.value} and {other.dtype.value}")
        if other.shape != first.shape:
            raise TypeMismatch(f"{op}: operands of shapes {_text([first.shape, other.shape])}")
    _check_dtype(op, first.dtype, supported)
    return first


def _elementwise(op: str, operands: tuple[TensorType, ...], attrs: _Attrs, result: TensorType) -> TensorType:
    attrs.done()
    first = _same(op, operands, SUPPORTED[op])
    return TensorType(DType.BOOL, first.shape) if op in COMPARISONS or op in ("isnan", "isinf") else first


def _cast(op: str, operands: tuple[TensorType, ...], attrs: _Attrs, result: TensorType) -> TensorType:
    attrs.done()
    return TensorType(result.dtype, operands[0].shape)


def _where(op: str, operands: tuple[TensorType, ...], attrs: _Attrs, result: TensorType) -> TensorType:
    attrs.done()
    condition, value = operands[0], _same(op, operands[1:], _ANY)
    if condition.dtype is not DType.BOOL:
        raise TypeMismatch(f"where: the condition is {condition.dtype.value}, not bool")
    if condition.shape != value.shape:
        raise TypeMismatch(f"where: operands of shapes {_text([condition.shape, value.shape])}")
    return value


# --- reductions


def _reduce(op: str, operands: tuple[TensorType, ...], attrs: _Attrs, result: TensorType) -> TensorType:
    (source,) = operands
    _check_dtype(op, source.dtype, SUPPORTED[op])
    axes = attrs.axes(len(source.shape))
    kept = tuple(d for i, d in enumerate(source.shape) if i not in axes)
    if op not in ("argmax", "argmin"):
        attrs.done()
        return TensorType(source.dtype, kept)
    attrs.flag("select_last")
    attrs.done()
    if any(source.shape[a] == 0 for a in axes) and 0 not in kept:
        raise TypeMismatch(f"{op} of nothing")
    return TensorType(DType.I64, kept)


# --- movement


def _broadcast(op: str, operands: tuple[TensorType, ...], attrs: _Attrs, result: TensorType) -> TensorType:
    (source,) = operands
    shape = attrs.ints("shape")
    dims = attrs.ints("dims", len(source.shape))
    attrs.done()
    if list(dims) != sorted(set(dims)) or any(not 0 <= d < len(shape) for d in dims):
        raise TypeMismatch(f"broadcast: dims {dims} are not ascending dimensions of rank {len(shape)}")
    if any(size not in (1, shape[d]) for size, d in zip(source.shape, dims, strict=True)):
        raise TypeMismatch(f"broadcast: {_text([source.shape])} does not fit {_text([shape])} at dimensions {dims}")
    return TensorType(source.dtype, shape)


def _transpose(op: str, operands: tuple[TensorType, ...], attrs: _Attrs, result: TensorType) -> TensorType:
    (source,) = operands
    perm = attrs.ints("perm", len(source.shape))
    attrs.done()
    if sorted(perm) != list(range(len(perm))):
        raise TypeMismatch(f"transpose: {perm} is no permutation")
    return TensorType(source.dtype, tuple(source.shape[p] for p in perm))


def _reshape(op: str, operands: tuple[TensorType, ...], attrs: _Attrs, result: TensorType) -> TensorType:
    (source,) = operands
    wanted = TensorType(source.dtype, attrs.ints("shape"))
    attrs.done()
    if any(d < 0 for d in wanted.shape) or wanted.elements != source.elements:
        raise TypeMismatch(f"reshape: {_text([source.shape])} has not the elements of {_text([wanted.shape])}")
    return wanted


def _slice(op: str, operands: tuple[TensorType, ...], attrs: _Attrs, result: TensorType) -> TensorType:
    (source,) = operands
    rank = len(source.shape)
    starts, steps = attrs.ints("starts", rank), attrs.ints("steps", rank)
    attrs.done()
    if len(result.shape) != rank:
        raise TypeMismatch(f"slice: rank {rank} to rank {len(result.shape)}")
    for size, start, step, length in zip(source.shape, starts, steps, result.shape, strict=True):
        last = start + step * (length - 1)
        if step == 0 or (length > 0 and not (0 <= start < size and 0 <= last < size)):
            raise TypeMismatch(f"slice: start {start}, step {step}, {length} elements leave a dimension of {size}")
    return TensorType(source.dtype, result.shape)


def _pad(op: str, operands: tuple[TensorType, ...], attrs: _Attrs, result: TensorType) -> TensorType:
    (source,) = operands
    rank = len(source.shape)
    before, after = attrs.ints("before", rank), attrs.ints("after", rank)
    if attrs.has("mode"):
        mode = attrs.one_of("mode", ("edge", "reflect"))
        for size, b, a in zip(source.shape, before, after, strict=True):
            if (b > 0 or a > 0) and (size == 0 or (mode == "reflect" and max(a, b) >= size)):
                raise TypeMismatch(f"pad: {b} and {a} elements by {mode} around a dimension of {size}")
            if max(-a, -b) > size:
                raise TypeMismatch(f"pad: crops {b} and {a} of a dimension of {size}")
    else:
        attrs.scalar("value", source.dtype)
    attrs.done()
    shape = tuple(b + size + a for size, b, a in zip(source.shape, before, after, strict=True))
    if any(d < 0 for d in shape):
        raise TypeMismatch(f"pad: {before} and {after} crop more than {_text([source.shape])} has")
    return TensorType(source.dtype, shape)


def _concat(op: str, operands: tuple[TensorType, ...], attrs: _Attrs, result: TensorType) -> TensorType:
    if not operands:
        raise TypeMismatch("concat of nothing")
    first = operands[0]
    axis = attrs.axis(len(first.shape))
    attrs.done()
    for other in operands[1:]:
        if other.dtype is not first.dtype:
            raise TypeMismatch(f"concat: operands of types {first.dtype.value} and {other.dtype.value}")
        if len(other.shape) != len(first.shape) or any(
            i != axis and a != b for i, (a, b) in enumerate(zip(first.shape, other.shape, strict=True))
        ):
            raise TypeMismatch(f"concat: shapes {_text([first.shape, other.shape])} along axis {axis}")
    total = sum(t.shape[axis] for t in operands)
    return TensorType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :]))


def _gather(op: str, operands: tuple[TensorType, ...], attrs: _Attrs, result: TensorType) -> TensorType:
    data, indices = operands
    axis = attrs.axis(len(data.shape))
    attrs.done()
    if indices.dtype not in (DType.I32, DType.I64):
        raise TypeMismatch(f"{op}: indices of type {indices.dtype.value}, not i32 or i64")
    if op == "gather":
        return TensorType(data.dtype, data.shape[:axis] + indices.shape + data.shape[axis + 1 :])
    if len(indices.shape) != len(data.shape) or any(
        i != axis and n > d for i, (n, d) in enumerate(zip(indices.shape, data.shape, strict=True))
    ):
        raise TypeMismatch(f"gather_elements: indices {_text([indices.shape])} for data {_text([data.shape])}")
    return TensorType(data.dtype, indices.shape)


def _iota(op: str, operands: tuple[TensorType, ...], attrs: _Attrs, result: TensorType) -> TensorType:
    attrs.axis(len(result.shape))
    attrs.done()
    _check_dtype(op, result.dtype, SUPPORTED["iota"])
    return result


_Rule = Callable[[str, tuple[TensorType, ...], _Attrs, TensorType], TensorType]

_KINDS: dict[str, _Rule] = {"elementwise": _elementwise, "reduce": _reduce}
_SPECIAL: dict[str, _Rule] = {
    "cast": _cast,
    "where": _where,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "reshape": _reshape,
    "slice": _slice,
    "pad": _pad,
    "concat": _concat,
    "gather": _gather,
    "gather_elements": _gather,
    "iota": _iota,
}
_RULES: dict[str, _Rule] = {
    name: _SPECIAL[name] if name in _SPECIAL else _KINDS[primitive.kind] for name, primitive in PRIMITIVES.items()
}
