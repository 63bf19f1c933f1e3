"""What a user chooses for a whole run, as one frozen value, and how options become it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from .graphs.errors import InputError
from .search_space.target import Target

Precision = Literal["strict", "fast"]
Effort = Literal["quick", "normal", "max"]
OFF = "STITCHTUNE"
"""Environment variable: the value `off` runs everything unstitched, for comparison."""


LARGEST_SEED = (1 << 32) - 1
"""What every generator of random numbers takes."""
LARGEST_TRIALS = 1 << 31


@dataclass(frozen=True)
class Settings:
    """The target, where plans and compiled kernels are kept, and how exactly to compute.

    database   path or SQLAlchemy URL; None is the one in the user's data folder
    cache      folder of compiled kernels
    jobs       compilers at a time; 0: one per processor
    stitched   False runs every operator as a kernel of its own
    """

    target: Target
    database: str | None
    cache: Path
    precision: Precision = "strict"
    jobs: int = 0
    stitched: bool = True

    def __post_init__(self) -> None:
        """Raises InputError for a precision that there is none of."""
        if self.precision not in get_args(Precision):
            raise InputError(f"precision {self.precision!r}: give one of {', '.join(get_args(Precision))}")

    @property
    def compilers(self) -> int:
        return self.jobs or self.target.processors


def cache_folder() -> Path:
    """Where compiled kernels are kept: in the user's cache folder (XDG on Linux)."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("stitchtune", appauthor=False)) / "kernels"


def stitched() -> bool:
    """False when the environment says STITCHTUNE=off; read once, where Settings are made."""
    return os.environ.get(OFF, "").lower() != "off"


def parse_dims(given: Iterable[str]) -> list[dict[str, int]]:
    """Every combination of sizes that `NAME=N` and `NAME=N,N,N` options name, in order; one empty one for none.

    Raises InputError for anything else.
    """
    choices: dict[str, list[int]] = {}
    for text in given:
        name, equals, sizes = text.partition("=")
        parts = [part.strip() for part in sizes.split(",")]
        if not name or not equals or not all(part.isdecimal() for part in parts):
            raise InputError(f"--dim {text}: write NAME=N or NAME=N,N,N with sizes of at least 0")
        if name in choices:
            raise InputError(f"--dim {name} is given twice; write {name}=N,N,N for several sizes")
        choices[name] = [int(part) for part in parts]
    return [dict(zip(choices, sizes, strict=True)) for sizes in itertools.product(*choices.values())]


def parse_one(given: Iterable[str]) -> dict[str, int]:
    """The sizes of `NAME=N` options where only one combination makes sense. Raises InputError."""
    combinations = parse_dims(given)
    if len(combinations) > 1:
        raise InputError("--dim NAME=N takes one size here; several are for `tune`")
    return combinations[0]
