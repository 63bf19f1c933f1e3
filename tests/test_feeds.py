"""Inputs from files are checked; made-up ones have indices in range and masks of 0 and 1."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from stitchtune import feeds
from stitchtune.graphs.builder import GraphBuilder
from stitchtune.graphs.dtypes import DType
from stitchtune.graphs.errors import InputError
from stitchtune.graphs.ir import Graph


def embedding() -> Graph:
    """Two tables gathered by the same indices, a mask used as BERT uses it, and plain numbers."""
    b = GraphBuilder()
    ids, mask = b.input("ids", DType.I64, (4, 6)), b.input("m", DType.F32, (4, 6))
    x = b.input("x", DType.F32, (6, 5))
    big = b.constant(np.zeros((50, 5), np.float32), "big")
    small = b.constant(np.zeros((7, 5), np.float32), "small")
    rows = b.elementwise("add", b.op("gather", big, ids, axis=0), b.op("gather", small, ids, axis=0))
    additive = b.elementwise("mul", b.elementwise("sub", b.scalar(1, DType.F32), mask), b.scalar(-1e4, DType.F32))
    masked = b.elementwise("add", rows, b.reshape(additive, (4, 6, 1)))
    b.output(b.elementwise("mul", masked, x))
    return b.build()


def test_roles_are_found_by_following_the_values() -> None:
    graph = embedding()
    assert feeds.infer_role(graph, "ids") == ("index", 7)
    assert feeds.infer_role(graph, "m")[0] == "mask"
    assert feeds.infer_role(graph, "x")[0] == "number"


def test_made_up_inputs_fit_and_repeat() -> None:
    graph = embedding()
    first, second = feeds.synthetic(graph, 3), feeds.synthetic(graph, 3)
    assert first.synthetic
    assert "ids: indices below 7" in first.note
    assert set(np.unique(first.arrays["m"])) <= {0, 1}
    assert (first.arrays["m"][:, 0] == 1).all()
    assert 0 <= first.arrays["ids"].min() <= first.arrays["ids"].max() < 7
    for name in graph.inputs:
        np.testing.assert_array_equal(first.arrays[name], second.arrays[name])
    feeds.check(graph, first.arrays, "made up")


@pytest.mark.parametrize("form", ["npz", "folder"])
def test_inputs_are_read(tmp_path: Path, form: str) -> None:
    graph = embedding()
    arrays = dict(feeds.synthetic(graph).arrays)
    if form == "npz":
        source = tmp_path / "in.npz"
        np.savez(source, **arrays)
    else:
        source = tmp_path
        for name, array in arrays.items():
            np.save(tmp_path / f"{name}.npy", array)
    read = feeds.load(graph, source)
    assert not read.synthetic
    np.testing.assert_array_equal(read.arrays["x"], arrays["x"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: a.pop("x"), "'x' is missing"),
        (lambda a: a.update(y=a["x"]), "'y' is no input"),
        (lambda a: a.update(x=a["x"][:3]), r"float32\[3, 5\]"),
        (lambda a: a.update(ids=a["ids"].astype(np.int32)), "int32"),
    ],
)
def test_wrong_inputs_are_refused(tmp_path: Path, change: object, says: str) -> None:
    graph = embedding()
    arrays = dict(feeds.synthetic(graph).arrays)
    assert callable(change)
    change(arrays)
    np.savez(tmp_path / "in.npz", **arrays)
    with pytest.raises(InputError, match=says):
        feeds.load(graph, tmp_path / "in.npz")


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "in.npz").write_bytes(b"PK\x03\x04 not a zip")
    with pytest.raises(InputError, match=r"not an \.npz file"):
        feeds.load(embedding(), tmp_path / "in.npz")
