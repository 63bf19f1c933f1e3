"""docs/operators.md lists exactly what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

from stitchtune.graphs.decompose import LIBRARY, RULES

ROOT = Path(__file__).resolve().parents[2]


def test_page_lists_every_operator() -> None:
    text = (ROOT / "docs" / "operators.md").read_text("utf-8")
    lowered, library = text.split("## Left to a library")
    rows = re.findall(r"^\| [^`|]+ \| (.*) \|$", lowered, re.MULTILINE)
    assert {op for row in rows[2:] for op in row.split(", ")} == set(RULES)
    reasons = dict(re.findall(r"^\| `([\w-]+)` \| (\w+(?:, \w+)*) \|$", library.split("Some lowered")[0], re.MULTILINE))
    assert {op: reason for reason, ops in reasons.items() for op in ops.split(", ")} == LIBRARY


def test_page_explains_every_reason() -> None:
    """Every reason code that a rule or the importer gives stands on the page."""
    text = (ROOT / "docs" / "operators.md").read_text("utf-8")
    sources = [*(ROOT / "graphs" / "decompose").glob("*.py"), ROOT / "graphs" / "importer.py"]
    given = {code for path in sources for code in re.findall(r'NotLowered\("([\w-]+)"\)', path.read_text("utf-8"))}
    given |= {"unknown-shape", "unknown-domain", "unknown-operator", "newer-operator", *LIBRARY.values()}
    assert given <= set(re.findall(r"`([a-z-]+)`", text))
