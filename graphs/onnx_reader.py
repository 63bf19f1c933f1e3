"""Reads exported ONNX models as Graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from .decompose import NEWEST, OLDEST
from .errors import GraphError
from .importer import dimension_names, import_model, input_shapes
from .ir import Graph
from .onnx_model import opsets, read_model


def load(path: str | PathLike[str], dims: Mapping[str, int] = {}) -> Graph:
    """The graph in an ONNX file, decomposed to primitives, every type known, constants of shapes computed.

    `dims` gives the sizes of symbolic dimensions (see `exported_dims`). Opsets 9 to 25, and operators of later ones
    that have not changed since; weights inline or as external data in the model's folder, memory-mapped. What the
    rules do not know becomes a library node. Nothing in the model is executed.

    Raises GraphError, in one line that names file, node and reason, when the model cannot be used.
    """
    path = Path(path)
    with _naming(path):
        model = read_model(path)
        version = opsets(model).get("", NEWEST)
        if version < OLDEST:
            raise GraphError(f"opset {version} is older than {OLDEST}: export it with a newer one, {NEWEST} at best")
        return import_model(model, path, dims)


def exported_dims(path: str | PathLike[str]) -> tuple[str, ...]:
    """The names of an ONNX file's symbolic dimensions, in the order of its inputs; one without a name is INPUT.AXIS.

    Raises GraphError as `load` does.
    """
    path = Path(path)
    with _naming(path):
        return dimension_names(read_model(path).graph)


def exported_inputs(path: str | PathLike[str]) -> dict[str, tuple[int | str, ...]]:
    """The inputs of an ONNX file by name, with their shapes; symbolic dimensions are names, as in `exported_dims`.

    Raises GraphError as `load` does.
    """
    path = Path(path)
    with _naming(path):
        return input_shapes(read_model(path).graph)


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """GraphErrors raised inside name the file, in one line."""
    try:
        yield
    except GraphError as error:
        raise GraphError(" ".join(f"{path}: {error}".split())) from error
