"""pyproject.toml lists every package and every data file, so that the wheel holds what the checkout does."""

from __future__ import annotations

import fnmatch
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = ("graphs", "search_space", "kernels", "results", "tuner", "cli", "benchmarks")


def settings() -> dict[str, dict[str, list[str]]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, dict[str, list[str]]] = tomllib.load(file)["tool"]["setuptools"]
    return found


def folders() -> set[str]:
    """Folders of the package that hold modules."""
    return {p.parent.relative_to(ROOT).as_posix() for name in SHIPPED for p in (ROOT / name).rglob("*.py")}


def test_every_package_is_listed() -> None:
    listed = {name.removeprefix("stitchtune").lstrip(".").replace(".", "/") for name in settings()["packages"]}
    assert listed - {""} == folders()


def test_every_package_has_an_init() -> None:
    assert [f for f in folders() if not (ROOT / f / "__init__.py").exists()] == []


def test_every_data_file_of_the_kernels_is_listed() -> None:
    patterns = settings()["package-data"]["stitchtune.kernels"]
    data = [p for p in (ROOT / "kernels").rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc", ".so")]
    names = [p.relative_to(ROOT / "kernels").as_posix() for p in data]
    assert [n for n in names if not any(fnmatch.fnmatch(n, pattern) for pattern in patterns)] == []
