"""The one JSON codec: frozen dataclasses of plain values to JSON data and back, checked against their type hints.

A field may be an int, float, bool, str, None, a Literal, an Enum (by value), a dataclass, a tuple of these, or a union
that JSON can tell apart. The rules of the JSON form:

1. A dataclass is an object of its fields; a field that equals its default is left out and may be missing on
   reading, so the defaults of a stored class are part of its schema.
2. In a union of several dataclasses the object names its class under "is".
3. A float that JSON cannot spell is `{"float": "nan"}`, "inf" or "-inf".
4. A class of `SCHEMAS` carries "schema"; a document with a newer one is refused.

Reading is strict: an unknown field, a wrong type, an integer beyond 64 bits, a repeated name or a document nested or
grown beyond the limits is a `CodecError` whose message names the path. Nothing here evaluates or imports what
a document says, so one from a stranger is safe to read.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar

from .json_text import MAX_BYTES, CodecError, NewerSchema, parse, text_of
from .plan import PLAN_SCHEMA, Plan

__all__ = ["CodecError", "NewerSchema", "dumps", "from_json", "loads", "parse", "text_of", "to_json"]

MAX_DEPTH = 64
"""Deepest nesting of objects and arrays; canonical subgraphs stay below 20."""

SCHEMAS: dict[type, int] = {Plan: PLAN_SCHEMA}
"""Classes whose objects carry a schema version, with the version written."""

T = TypeVar("T")
_Encode = Callable[[Any], Any]
_Decode = Callable[[Any, int], Any]
_INT_MIN, _INT_MAX = -(2**63), 2**64 - 1
_SPECIAL = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_MISSING = object()


def to_json(value: Any, kind: Any = None) -> Any:
    """Plain JSON data (dict, list, str, int, float, bool, None) for `value`, read as type `kind` (default: its class).

    Raises TypeError when a field does not hold what its hint says: a bug of the caller.
    """
    wanted: Any = type(value) if kind is None else kind
    return _codec(wanted)[0](value)


def from_json(cls: type[T], data: Any) -> T:
    """The value of type `cls` that `data` describes. Raises CodecError (a ValueError) with the path on bad data."""
    wanted: Any = cls
    return typing.cast(T, _codec(wanted)[1](data, 0))


def dumps(value: Any, kind: Any = None) -> str:
    """Canonical text: equal values give equal text (sorted names, no spaces)."""
    return text_of(to_json(value, kind))


def loads(cls: type[T], text: str | bytes, limit: int = MAX_BYTES) -> T:
    """The value that `text` of at most `limit` bytes describes. Raises CodecError."""
    return from_json(cls, parse(text, limit))


# --- one pair of functions per type, made once


@functools.cache
def _codec(kind: Any) -> tuple[_Encode, _Decode]:
    origin = typing.get_origin(kind)
    if kind in _SCALARS:
        return _SCALARS[kind]
    if origin is typing.Literal:
        return _literal(typing.get_args(kind))
    if origin is tuple:
        return _tuple(typing.get_args(kind))
    if origin in (typing.Union, types.UnionType):
        return _union(typing.get_args(kind))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _enum(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    raise TypeError(f"the codec has no JSON form for {kind!r}")


def _wrong(expected: str, data: Any) -> CodecError:
    shown = json.dumps(data) if isinstance(data, str | int | float | bool | None) else type(data).__name__
    return CodecError(f"expected {expected}, got {shown if len(shown) <= 60 else shown[:57] + '...'}")


def _plain(kind: type) -> _Encode:
    def encode(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"expected {kind.__name__}, got {value!r}")
        return value

    return encode


def _encode_float(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, float | int):
        raise TypeError(f"expected a float, got {value!r}")
    number = float(value)
    if math.isfinite(number):
        return number
    return {"float": "nan" if number != number else "inf" if number > 0 else "-inf"}


def _encode_int(value: Any) -> Any:
    if type(value) is not int or not _INT_MIN <= value <= _INT_MAX:
        raise TypeError(f"expected an int of 64 bits, got {value!r}")
    return value


def _decode_int(data: Any, depth: int) -> int:
    if type(data) is not int:
        raise _wrong("an integer", data)
    if not _INT_MIN <= data <= _INT_MAX:
        raise CodecError("integer beyond 64 bits")
    return data


def _decode_float(data: Any, depth: int) -> float:
    if type(data) is float and math.isfinite(data):
        return data
    if type(data) is int:
        return float(_decode_int(data, depth))
    if type(data) is dict and len(data) == 1 and isinstance(data.get("float"), str) and data["float"] in _SPECIAL:
        return _SPECIAL[data["float"]]
    raise _wrong("a number", data)


def _decode_bool(data: Any, depth: int) -> bool:
    if type(data) is not bool:
        raise _wrong("true or false", data)
    return data


def _decode_str(data: Any, depth: int) -> str:
    if type(data) is not str:
        raise _wrong("a string", data)
    if not data.isascii():
        try:
            data.encode()
        except UnicodeEncodeError:
            raise CodecError("a string with half a surrogate pair") from None
    if "\0" in data:
        raise CodecError("a string with a NUL")
    return data


def _decode_none(data: Any, depth: int) -> None:
    if data is not None:
        raise _wrong("null", data)


_SCALARS: dict[Any, tuple[_Encode, _Decode]] = {
    int: (_encode_int, _decode_int),
    float: (_encode_float, _decode_float),
    bool: (_plain(bool), _decode_bool),
    str: (_plain(str), _decode_str),
    type(None): (_plain(type(None)), _decode_none),
}


def _literal(choices: tuple[Any, ...]) -> tuple[_Encode, _Decode]:
    named = {(type(c), c): c for c in choices}

    def encode(value: Any) -> Any:
        if (type(value), value) not in named:
            raise TypeError(f"expected one of {choices}, got {value!r}")
        return value

    def decode(data: Any, depth: int) -> Any:
        if not isinstance(data, str | int | bool | None) or (type(data), data) not in named:
            raise _wrong("one of " + ", ".join(map(str, choices)), data)
        return named[type(data), data]

    return encode, decode


def _enum(kind: type[enum.Enum]) -> tuple[_Encode, _Decode]:
    members = {member.value: member for member in kind}

    def encode(value: Any) -> Any:
        if not isinstance(value, kind):
            raise TypeError(f"expected a {kind.__name__}, got {value!r}")
        return value.value

    def decode(data: Any, depth: int) -> Any:
        if type(data) is not str or data not in members:
            raise _wrong("one of " + ", ".join(map(str, members)), data)
        return members[data]

    return encode, decode


def _tuple(args: tuple[Any, ...]) -> tuple[_Encode, _Decode]:
    repeated = len(args) == 2 and args[1] is Ellipsis
    parts = [_codec(a) for a in args if a is not Ellipsis]

    def encode(value: Any) -> Any:
        if type(value) is not tuple or not (repeated or len(value) == len(parts)):
            raise TypeError(f"expected a tuple{'' if repeated else f' of {len(parts)}'}, got {value!r}")
        if repeated:
            return [parts[0][0](item) for item in value]
        return [part[0](item) for part, item in zip(parts, value, strict=True)]

    def decode(data: Any, depth: int) -> tuple[Any, ...]:
        if type(data) is not list:
            raise _wrong("an array", data)
        if depth >= MAX_DEPTH:
            raise CodecError("nested too deeply")
        if not repeated and len(data) != len(parts):
            raise CodecError(f"expected an array of {len(parts)}, got {len(data)}")
        decoders = [parts[0][1]] * len(data) if repeated else [part[1] for part in parts]
        found: list[Any] = []
        try:
            for decode_item, item in zip(decoders, data, strict=True):
                found.append(decode_item(item, depth + 1))
        except CodecError as error:
            raise error.under(f"[{len(found)}]") from None
        return tuple(found)

    return encode, decode


def _dataclass(cls: Any, tag: str = "") -> tuple[_Encode, _Decode]:
    schema = SCHEMAS.get(cls)
    extra = {name for name, present in (("is", tag), ("schema", schema)) if present}

    @functools.cache  # made on first use: a class may refer to itself
    def fields() -> tuple[dict[str, tuple[_Encode, _Decode]], dict[str, Any]]:
        hints = typing.get_type_hints(cls)
        declared = [f for f in dataclasses.fields(cls) if f.init]
        return {f.name: _codec(hints[f.name]) for f in declared}, {f.name: _default(f) for f in declared}

    def encode(value: Any) -> Any:
        if type(value) is not cls:
            raise TypeError(f"expected a {cls.__name__}, got {value!r}")
        codecs, defaults = fields()
        data: dict[str, Any] = {"is": tag} if tag else {}
        if schema is not None:
            data["schema"] = schema
        for name, (encode_field, _) in codecs.items():
            held = getattr(value, name)
            if not _same(held, defaults[name]):
                data[name] = encode_field(held)
        return data

    def decode(data: Any, depth: int) -> Any:
        if type(data) is not dict:
            raise _wrong(f"an object ({cls.__name__})", data)
        if depth >= MAX_DEPTH:
            raise CodecError("nested too deeply")
        if schema is not None:
            _check_schema(data, schema)
        codecs, defaults = fields()
        found: dict[str, Any] = {}
        for name, item in data.items():
            if name not in codecs:
                if name in extra:
                    continue
                raise CodecError(f"{cls.__name__} has no field {json.dumps(name[:40])}")
            try:
                found[name] = codecs[name][1](item, depth + 1)
            except CodecError as error:
                raise error.under(f".{name}") from None
        if len(found) != len(codecs):
            for name, default in defaults.items():
                if name not in found and default is _MISSING:
                    raise CodecError(f"{cls.__name__} needs the field {name!r}")
        return cls(**found)

    return encode, decode


def _default(declared: dataclasses.Field[Any]) -> Any:
    if declared.default is not dataclasses.MISSING:
        return declared.default
    if declared.default_factory is not dataclasses.MISSING:
        return declared.default_factory()
    return _MISSING


def _same(value: Any, default: Any) -> bool:
    """Equal and of one type, so that 0, 0.0 and False stay apart, and -0.0 from 0.0."""
    return type(value) is type(default) and (
        value == default and (type(value) is not float or repr(value) == repr(default))
    )


def _check_schema(data: dict[str, Any], schema: int) -> None:
    version = data.get("schema")
    if type(version) is not int or version < 1:
        raise CodecError('needs the field "schema", a version number')
    if version > schema:
        raise NewerSchema(f"schema {version} is newer than {schema}, the newest that this version of Stitchtune reads")


def _union(args: tuple[Any, ...]) -> tuple[_Encode, _Decode]:
    classes = [a for a in args if isinstance(a, type) and dataclasses.is_dataclass(a)]
    tagged = len(classes) > 1
    objects = {c.__name__: _dataclass(c, c.__name__ if tagged else "") for c in classes}
    plain = {_python_type(a): _codec(a) for a in args if a not in classes}
    if len(plain) + len(classes) != len(args):
        raise TypeError(f"JSON cannot tell the members of the union {args} apart")
    expected = "one of " + ", ".join(getattr(a, "__name__", str(a)) for a in args)

    def encode(value: Any) -> Any:
        kind = type(value)
        if kind in classes:
            return objects[kind.__name__][0](value)
        if kind in plain:
            return plain[kind][0](value)
        if float in plain and isinstance(value, float):  # a subclass such as numpy.float64
            return plain[float][0](value)
        raise TypeError(f"expected {expected}, got {value!r}")

    def decode(data: Any, depth: int) -> Any:
        kind = {list: tuple}.get(type(data), type(data))
        if kind in plain:
            return plain[kind][1](data, depth)
        if float in plain and (kind is int or (kind is dict and data.keys() == {"float"})):
            return plain[float][1](data, depth)
        if kind is not dict or not objects:
            raise _wrong(expected, data)
        name = data.get("is") if tagged else next(iter(objects))
        if type(name) is not str or name not in objects:
            raise CodecError('"is" must name one of ' + ", ".join(objects))
        return objects[name][1](data, depth)

    return encode, decode


def _python_type(kind: Any) -> type:
    """The Python type of the values of a union's member that is no dataclass."""
    if typing.get_origin(kind) is tuple:
        return tuple
    if typing.get_origin(kind) is typing.Literal:
        found = {type(c) for c in typing.get_args(kind)}
        if len(found) == 1:
            return found.pop()
    if kind in _SCALARS:
        return typing.cast(type, kind)
    raise TypeError(f"the codec has no JSON form for {kind!r} in a union")
