"""The layers import one way, and heavy libraries only where they are wrapped (DESIGN.md section 2)."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("graphs", "search_space", "kernels", "results", "tuner")
TOP = len(LAYERS)
"""Rank of the root modules, the benchmarks, examples and tests: they may import every layer, no layer imports them.
The command line stands above them."""

WRAPPED = {
    "onnx": 8,
    "onnxruntime": 4,
    "optuna": 3,
    "matplotlib": 2,
    "pandas": 4,
    "sqlalchemy": 4,
    "rich": 3,
    "click": 8,
    "cupy": 2,
}
"""A heavy or optional dependency and the number of files of the package that may import it."""


def sources() -> list[Path]:
    """Every module of the installed package, not tests, benchmarks and examples."""
    return sorted([*ROOT.glob("*.py"), *(p for layer in (*LAYERS, "cli") for p in (ROOT / layer).rglob("*.py"))])


def imported(path: Path) -> Iterator[str]:
    """Absolute dotted names of what a module imports, at any depth of its code."""
    inside = ("stitchtune", *path.relative_to(ROOT).with_suffix("").parts)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = inside[: len(inside) - node.level] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            yield from ([f"{module}.{alias.name}" for alias in node.names] if module == "stitchtune" else [module])


def rank(part: str) -> int:
    """The layer that a folder or module at the root of the package belongs to."""
    return LAYERS.index(part) if part in LAYERS else TOP + (part == "cli")


def test_layers_import_one_way() -> None:
    wrong = []
    for path in sources():
        part = path.relative_to(ROOT).parts[0]
        mine = TOP + 1 if part == "tune.py" else rank(part)
        wrong += [
            f"{path.relative_to(ROOT)} imports {name}"
            for name in imported(path)
            if name.split(".")[0] == "stitchtune" and name != "stitchtune" and rank(name.split(".")[1]) > mine
        ]
    assert not wrong


def test_layers_are_imported_under_the_package_name() -> None:
    """`import graphs` would work by accident in a checkout and fail in the wheel."""
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in [*sources(), *(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
        for name in imported(path)
        if name.split(".")[0] in LAYERS
    ]
    assert not wrong


@pytest.mark.parametrize("library", WRAPPED)
def test_heavy_libraries_are_wrapped(library: str) -> None:
    users = [str(p.relative_to(ROOT)) for p in sources() if any(n.split(".")[0] == library for n in imported(p))]
    assert len(users) <= WRAPPED[library], users
