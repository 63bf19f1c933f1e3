"""Why a plan is not legal, or a fusion was not made: codes that a user can read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """A reason: a stable kebab-case code and one line of detail."""

    code: str
    detail: str

    def __str__(self) -> str:
        return f"{self.code}: {self.detail}"
