"""What an executor says of arrays that do not fit its graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..graphs.errors import InputError
from ..graphs.ir import Graph


def missing_input(graph: Graph, name: str) -> InputError:
    return InputError(f"input {name!r} is missing; the graph takes {', '.join(graph.inputs)}")


def misfit(graph: Graph, name: str, dtype: Any, shape: Sequence[int]) -> InputError:
    """An input of another dtype or shape than the graph's."""
    kind = graph.types[name]
    sizes = f" with {', '.join(f'{n}={size}' for n, size in graph.sizes)}" if graph.sizes else ""
    return InputError(
        f"input {name!r} is {dtype}{list(shape)}, the graph takes {kind.dtype.numpy}{list(kind.shape)}{sizes}"
    )


def unusable_output(graph: Graph, name: str, found: str) -> InputError:
    """An array of `out` that is `found`, where the graph gives something else."""
    kind = graph.types[name]
    return InputError(f"out[{name!r}] is {found}, the graph gives {kind.dtype.numpy}{list(kind.shape)}")


def refuse_extra(kind: str, given: Mapping[str, Any], names: Iterable[str]) -> None:
    """Raises InputError for the first array that is no `kind` ("input", "output") of the graph."""
    known = list(names)
    for name in given:
        if name not in known:
            raise InputError(f"{name!r} is no {kind}; the graph's {kind}s are {', '.join(known)}")
