"""The one JSON file of a device check: written whole after every section, so that what was found outlives a crash."""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

FORMAT = 1

State = Literal["done", "partial", "skipped", "failed"]
"""done: all of it; partial: time ran out; skipped: it cannot run here; failed: it broke. `why` says more."""


@dataclass
class Section:
    """What one section found: rows of plain data, and a summary of a few numbers."""

    name: str
    state: State = "done"
    why: str = ""
    seconds: float = 0.0
    summary: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Store:
    """The file and what is in it."""

    path: Path
    head: dict[str, Any]
    sections: list[Section] = field(default_factory=list)

    def resume(self) -> None:
        """Takes over the head and the sections of the file as it is. Raises OSError."""
        document = json.loads(self.path.read_text())
        self.sections = [Section(**section) for section in document["sections"]]
        self.head = {name: document[name] for name in self.head}

    def add(self, section: Section) -> None:
        """Keeps a section on disk, in place of an earlier one of its name. Raises OSError."""
        self.sections = [*(s for s in self.sections if s.name != section.name), section]
        document = {"stitchtune-device-check": FORMAT, **self.head, "sections": [vars(s) for s in self.sections]}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=self.path.parent, prefix="tmp-", delete=False) as file:
            json.dump(_plain(document), file, indent=1, allow_nan=False)
        os.replace(file.name, self.path)


def _plain(value: Any) -> Any:
    """JSON data: numbers that are not finite become null, NumPy's become Python's."""
    match value:
        case dict():
            return {str(k): _plain(v) for k, v in value.items()}
        case list() | tuple():
            return [_plain(v) for v in value]
        case bool() | str() | int() | None:
            return value
        case float():
            return value if math.isfinite(value) else None
        case _:
            return _plain(value.item()) if hasattr(value, "item") else str(value)
