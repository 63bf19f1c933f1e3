"""Stitchtune: search, measure and remember how to stitch memory-intensive operators into few kernels."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import Model, compile, tune
    from .graphs.errors import GraphError, InputError, StitchtuneError

__version__ = "0.1.0"
__all__ = ["GraphError", "InputError", "Model", "StitchtuneError", "__version__", "compile", "tune"]

_HOMES = {
    "Model": ".api",
    "compile": ".api",
    "tune": ".api",
    "GraphError": ".graphs.errors",
    "InputError": ".graphs.errors",
    "StitchtuneError": ".graphs.errors",
}
"""Where each public name lives; it is imported when first used, so that `import stitchtune` costs nothing."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
