"""JSON text, strictly: what `codec` reads and writes, safe on documents from strangers."""

from __future__ import annotations

import json
from typing import Any, NoReturn

MAX_BYTES = 4 << 20
"""Largest document that `parse` looks at unless told."""


class CodecError(ValueError):
    """A document does not have the form of the class it is read as; one line, `path: what is wrong`."""

    def __init__(self, reason: str, path: str = "") -> None:
        self.reason = reason
        self.path = path
        super().__init__(f"{path.lstrip('.')}: {reason}" if path else reason)

    def under(self, step: str) -> CodecError:
        """The same error seen from one level further out."""
        return CodecError(self.reason, step + self.path)


class NewerSchema(CodecError):
    """The document was written by a newer version of Stitchtune."""

    def under(self, step: str) -> NewerSchema:
        return NewerSchema(self.reason, step + self.path)


def parse(text: str | bytes, limit: int = MAX_BYTES) -> Any:
    """Strictly parsed JSON: no NaN literals, no repeated names, no deep nesting, at most `limit` bytes."""
    size = len(text) if isinstance(text, bytes) else 4 * len(text)
    if size > limit and (isinstance(text, bytes) or len(text.encode("utf-8", "surrogatepass")) > limit):
        raise CodecError(f"document of more than {limit} bytes")
    try:
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except CodecError:
        raise
    except RecursionError:
        raise CodecError("nested too deeply") from None
    except ValueError as error:  # JSONDecodeError, undecodable bytes, integers of thousands of digits
        raise CodecError(f"not JSON ({str(error)[:120]})") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise CodecError("a name occurs twice in one object")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise CodecError(f"{text} is not JSON")


def text_of(data: Any) -> str:
    """Canonical text of JSON data. Raises CodecError for data that JSON cannot spell (a parsed 1e999)."""
    try:
        return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise CodecError("nested too deeply") from None
    except ValueError:
        raise CodecError("a number beyond the range of floats") from None
