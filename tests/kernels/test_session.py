"""Library ops through ONNX Runtime's Python package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.partition import LibraryStep
from stitchtune.kernels.library import LibraryError
from stitchtune.kernels.session import Session

from tests.kernels.test_executor import draw, make_model, node, read


def step(model: onnx.ModelProto, folder: Path) -> LibraryStep:
    [found] = [step for step in read(model, folder).steps if isinstance(step, LibraryStep)]
    return found


def test_runs_on_arrays_and_in_place(tmp_path: Path) -> None:
    feeds = {"x": draw(1, 3, 8, 8), "w": draw(4, 3, 3, 3)}
    found = step(make_model([node("Conv", ["x", "w"], ["y"])], feeds, ["y"]), tmp_path)
    names = dict(zip(found.node.inputs, found.node.payload.inputs, strict=True))  # type: ignore[union-attr]
    session = Session(found.node, dict.fromkeys(names.values(), DType.F32))
    [y] = session.run({names[name]: array for name, array in feeds.items()})
    assert y.shape == (1, 4, 6, 6)
    bound = {names[n]: (DType.F32, a.shape, a.ctypes.data) for n, a in feeds.items()}
    into = np.zeros_like(y)
    [result] = found.node.payload.outputs  # type: ignore[union-attr]
    session.run_in_place(bound, {result: (DType.F32, into.shape, into.ctypes.data)}, kind="cpu")
    np.testing.assert_array_equal(into, y)


def test_what_it_refuses_is_one_line(tmp_path: Path) -> None:
    feeds = {"x": draw(1, 3, 8, 8), "w": draw(4, 3, 3, 3)}
    found = step(make_model([node("Conv", ["x", "w"], ["y"])], feeds, ["y"]), tmp_path)
    names = found.node.payload.inputs  # type: ignore[union-attr]
    session = Session(found.node, dict.fromkeys(names, DType.F32))
    with pytest.raises(LibraryError, match="Conv") as error:
        session.run(dict(zip(names, (draw(1, 2, 8, 8), feeds["w"]), strict=True)))
    assert "\n" not in str(error.value)
