"""Comparison of results with stated values: shape, type, where NaN and infinities stand, and closeness."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Want:
    """The right value of one output, of its type, and how near to come: |got - value| <= atol + rtol |value|.

    signed  zeros must have the right sign, too
    """

    value: Array
    rtol: float = 2e-5
    atol: float = 1e-6
    signed: bool = False


def exactly(value: Array, signed: bool = False) -> Want:
    return Want(value, 0.0, 0.0, signed)


def assert_agree(got: Mapping[str, Array], wanted: Mapping[str, Want], factor: float = 1.0) -> None:
    """Fails with the output, the index and both values of the first disagreement. `factor` scales the tolerances."""
    assert set(wanted) <= set(got), f"outputs {sorted(got)}, not {sorted(wanted)}"
    for name, want in wanted.items():
        found = got[name]
        assert found.dtype == want.value.dtype, f"{name} is {found.dtype}, not {want.value.dtype}"
        assert found.shape == want.value.shape, f"{name} has shape {found.shape}, not {want.value.shape}"
        wrong = differing(found, want, factor)
        if wrong.any():
            at = tuple(int(i[0]) for i in np.nonzero(wrong)) if wrong.ndim else ()
            raise AssertionError(
                f"{name}{list(at)} is {found[at]!r}, not {want.value[at]!r} ({wrong.sum()} of {wrong.size} differ)"
            )


def differing(found: Array, want: Want, factor: float = 1.0) -> Array:
    """Where `found` is not what is wanted."""
    if found.dtype.kind in "biu":
        return np.asarray(found != want.value)
    a, b = found.astype(np.float64), want.value.astype(np.float64)
    with np.errstate(all="ignore"):
        near = np.abs(a - b) <= factor * (want.atol + want.rtol * np.abs(b))
    same = (a == b) | (np.isnan(a) & np.isnan(b)) | (near & np.isfinite(a) & np.isfinite(b))
    return np.asarray(~same | (np.signbit(a) != np.signbit(b))) if want.signed else np.asarray(~same)
