"""Forward error analysis: how far a kernel's value may lie from the reference's, element by element.

An error array holds an absolute bound per element; None stands for exact everywhere, infinity for *not comparable*:
a comparison, a cast to an integer or an ArgMax lies within its error of flipping. Integers and bools are exact or not
comparable; a float that jumps (floor, a `where` whose condition may flip) has the jump in its bound. A bound is what
propagates from the operands (`spread`), plus what computing the operator in its own type adds (`roundoff`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np

from ..dtypes import DType
from ..primitives import COMPARISONS
from ..rounding import Array, round_to
from .elementwise import apply
from .reductions import flatten, position, reduce

Error = Array | None

UNIT = {DType.F64: 2.0**-53}
"""Unit roundoff by type; low-precision types compute in float32."""
UNIT_F32 = 2.0**-24
GRID_F32 = 2.0**-149
OVERFLOW = 2.0**128 - 2.0**103
"""From here on float32 rounds to infinity."""
SLACK = 2.0
"""On top of a correctly rounded operator: contracted multiply-adds, a product by a reciprocal."""
FUNCTION_UNITS = 8.0
"""Roundoffs a math function may be off: 4 units in the last place, what glibc's libmvec promises."""

EXACT = frozenset("copy neg abs sign floor ceil round trunc minimum maximum where max min piecewise".split())
"""Operators whose result on exact operands is exact in the operands' type."""
CORRECT = frozenset("add sub mul div recip sqrt cast iota mod fmod".split())
"""Operators that IEEE 754 rounds correctly."""
WRAPPING = frozenset("sin cos tan".split())


def unit(dtype: DType) -> float:
    """Unit roundoff of the type that `dtype` computes in."""
    return UNIT.get(dtype, UNIT_F32)


def either(errors: Sequence[Error]) -> Error:
    """Not comparable where any operand is not exact: the rule of integers and bools."""
    known = [e for e in errors if e is not None]
    if not known:
        return None
    doubt = known[0] > 0
    for other in known[1:]:
        doubt = doubt | (other > 0)
    return np.where(doubt, np.inf, 0.0)


def distance(found: Array, y: Array) -> Array:
    """|found - y| with equal infinities and two NaNs being 0 apart, a NaN and a number infinitely far."""
    with np.errstate(all="ignore"):
        if found.dtype.kind != "f":
            return np.where(found == y, 0.0, np.inf)
        gap = np.abs(found - y)
        strange = ~np.isfinite(gap)
        if not strange.any():
            return np.asarray(gap)
        same = (found == y) | (np.isnan(found) & np.isnan(y))
        return np.where(strange, np.where(same, 0.0, np.inf), gap)


def corners(f: Callable[..., Array], y: Array, operands: Sequence[Array], errors: Sequence[Error]) -> Error:
    """The largest deviation from `y` of `f` at the corners of the operands' intervals, for f monotone in each."""
    moving = [i for i, e in enumerate(errors) if e is not None]
    if not moving:
        return None
    worst: Array | None = None
    with np.errstate(all="ignore"):
        for signs in itertools.product((-1.0, 1.0), repeat=len(moving)):
            moved = list(operands)
            for i, sign in zip(moving, signs, strict=True):
                moved[i] = operands[i] + sign * errors[i]  # type: ignore[operator]
            gap = distance(f(*moved), y)
            worst = gap if worst is None else np.maximum(worst, gap)
    return worst


def spread(op: str, operands: list[Array], errors: list[Error], y: Array, to: DType) -> Error:
    """What the operands' errors do to the result `y` of an elementwise operator.

    `operands` and `y` are wide and broadcast together, `to` is the type of the result.
    """
    if all(e is None for e in errors):
        return None
    kinds = [x.dtype.kind for x in operands]
    if op == "where":
        return _spread_where(operands, errors)
    if "f" not in kinds:
        return either(errors)
    with np.errstate(all="ignore"):
        if op in COMPARISONS:
            total = sum(e for e in errors if e is not None)
            gap = np.abs(operands[0] - operands[1])
            return np.where((total > 0) & ((gap <= total) | np.isinf(total)), np.inf, 0.0)
        if op in ("copy", "neg", "abs"):
            return errors[0]
        if op in ("sin", "cos", "erf") and np.isfinite(y).all():
            return np.minimum(np.asarray(errors[0]) * (1.13 if op == "erf" else 1.0), 2.0)
        if op in ("add", "sub", "mul", "div") and np.isfinite(y).all():
            return _spread_arithmetic(op, operands, errors, y)
        if op in ("mod", "fmod"):
            return _spread_remainder(op, operands, errors, y)
        worst = corners(lambda *moved: apply(op, list(moved), to), y, operands, errors)
        return _spread_poles(op, operands, errors, worst)


def _spread_where(operands: list[Array], errors: list[Error]) -> Error:
    """An uncertain condition may choose the other value: as far off as the two differ."""
    doubt, ea, eb = (np.zeros(()) if e is None else e for e in errors)
    chosen = np.where(operands[0], ea, eb)
    if errors[0] is None:
        return chosen
    with np.errstate(all="ignore"):
        other = distance(operands[1], operands[2]) + ea + eb
    return np.where(doubt > 0, other, chosen)


def _spread_arithmetic(op: str, operands: list[Array], errors: list[Error], y: Array) -> Array:
    a, b = operands
    ea, eb = (np.zeros(()) if e is None else e for e in errors)
    if op in ("add", "sub"):
        return np.asarray(ea + eb)
    if op == "mul":
        bound = np.abs(a) * eb + np.abs(b) * ea + ea * eb
    else:
        room = np.abs(b) - eb
        bound = np.where(room > 0, (ea + np.abs(y) * eb) / room, np.inf)
        if errors[1] is None:
            bound = ea / np.abs(b)
    return np.where(np.isnan(bound), np.inf, bound)


def _spread_remainder(op: str, operands: list[Array], errors: list[Error], y: Array) -> Array:
    """As far off as the operands while the whole quotient is certain, else by a whole divisor."""
    a, b = operands
    ea, eb = (np.zeros(()) if e is None else e for e in errors)
    whole = np.floor if op == "mod" else np.trunc
    quotient = a / b
    blur = (ea + np.abs(quotient) * eb) / (np.abs(b) - eb)
    same = (whole(quotient - blur) == whole(quotient + blur)) & (eb < np.abs(b))
    bound = np.where(same, ea + np.abs(whole(quotient)) * eb, np.abs(b) + eb)
    return np.where(np.isnan(y), np.where(np.isinf(ea + eb), np.inf, 0.0), np.where(np.isnan(bound), np.inf, bound))


def _spread_poles(op: str, operands: list[Array], errors: list[Error], worst: Error) -> Error:
    """Not comparable where the interval of a divisor holds zero, or that of a tangent's argument a pole."""
    if op == "tan":
        low, high = operands[0] - errors[0], operands[0] + errors[0]
        crosses = np.floor(low / np.pi + 0.5) != np.floor(high / np.pi + 0.5)
    elif op in ("div", "recip") and errors[-1] is not None:
        crosses = (np.abs(operands[-1]) <= errors[-1]) & (errors[-1] > 0)
    else:
        return worst
    assert worst is not None
    return np.where(crosses, np.inf, worst)


def roundoff(op: str, operands: list[Array], error: Error, y: Array, dtype: DType) -> Error:
    """`error` (propagated) and what computing `y` by `op` in the arithmetic of `dtype` adds."""
    if not dtype.is_float or op in EXACT:
        return error
    u = unit(dtype)
    with np.errstate(all="ignore"):
        if op not in CORRECT:
            added = np.abs(y) * (FUNCTION_UNITS * SLACK * u) + (0.0 if dtype is DType.F64 else 4 * GRID_F32)
            if op in WRAPPING:
                added += np.where(np.abs(operands[0]) > 1.0, 4 * u, 0.0)
        elif dtype is DType.F64:
            added = np.abs(y) * (SLACK * u)
        else:
            added = _correctly_rounded(error, y)
        finite = np.isfinite(y)
        if not finite.all():
            added = np.where(finite, added, 0.0)
    total = added if error is None else error + added
    return total if total.any() else None


def _correctly_rounded(error: Error, y: Array) -> Array:
    """What rounding finite `y` to float32 may add: nothing where the operands are exact and float32 holds `y`."""
    if error is None or not error.all():
        known = SLACK * np.abs(y.astype(np.float32) - y)
        if error is None:
            return known
    rough = np.maximum(np.abs(y) * (SLACK * UNIT_F32), GRID_F32)
    return rough if error.all() else np.where(error == 0, known, rough)


def out_of_range(error: Error, raw: Array, settled: Array, dtype: DType) -> Error:
    """Not comparable where `raw`, computed without a limit, lies within its error of the overflow of float32."""
    if error is None or not dtype.is_float or dtype is DType.F64:
        return error
    with np.errstate(all="ignore"):
        size = np.abs(raw)
        if (size + error < OVERFLOW).all():
            return error
        near = (size + error >= OVERFLOW) & (size - error < OVERFLOW)
        certain = ~np.isfinite(settled) & np.isfinite(error)
    return np.where(near, np.inf, np.where(certain, 0.0, error))


def rounded(error: Error, y: Array, r: Array, dtype: DType) -> Error:
    """The error of `r`, which is `y` with `error` rounded to `dtype`."""
    return corners(lambda moved: round_to(moved, dtype), r, [y], [error])


def casting(x: Array, error: Error, y: Array, to: DType) -> Error:
    """The error of `y`, which is `x` cast to `to`."""
    if x.dtype.kind != "f":
        return either([error])
    if to.is_low_precision:  # rounding by way of float32 is allowed
        with np.errstate(all="ignore"):
            gap = distance(round_to(x, DType.F32), x)
        if gap.any():
            error = gap if error is None else error + gap
    if to.is_float:
        return corners(lambda moved: round_to(moved, to), y, [x], [error])
    return either([corners(lambda moved: apply("cast", [moved], to), y, [x], [error])])


# --- reductions


def spread_reduction(
    op: str, x: Array, error: Error, axes: tuple[int, ...], dtype: DType, y: Array, select_last: bool
) -> Error:
    """The error of `y`, the reduction of `x` (at full size over `axes`) of type `dtype`: propagated and added."""
    if error is not None:  # either may be compact where the other is not
        shape = np.broadcast_shapes(x.shape, error.shape)
        x, error = np.broadcast_to(x, shape), np.broadcast_to(error, shape)
    if op in ("argmax", "argmin"):
        return None if error is None else _spread_position(op, x, error, axes, select_last)
    if op in ("max", "min"):
        if x.dtype.kind != "f":
            return None if error is None else either([error.max(axis=axes, initial=0.0)])
        return corners(lambda moved: reduce(op, moved, axes, dtype), y, [x], [error])
    if x.dtype.kind != "f":
        return None if error is None else either([error.sum(axis=axes)])
    with np.errstate(all="ignore"):
        return _spread_sum(x, error, axes, dtype, y) if op == "sum" else _spread_product(x, error, axes, dtype, y)


def _spread_sum(x: Array, error: Error, axes: tuple[int, ...], dtype: DType, y: Array) -> Array:
    """Any order of summation: the terms' errors, and roundoffs that grow with the root of the length.

    Roundoffs of random sign over partial sums as large as those met in order, some partial sums as large as lanes of
    one sign give, and the bias of summing in order (equal terms), the latter up to 1e-4 of the terms' sizes.
    """
    n = float(np.prod([x.shape[a] for a in axes], dtype=np.float64))
    u = SLACK * unit(dtype)
    total = np.abs(x).sum(axis=axes)
    propagated = 0.0 if error is None else error.sum(axis=axes)
    limit = max(n - 1, 0.0) * u * total
    if dtype is DType.F64:
        added = np.minimum(limit, (16 + 2 * np.sqrt(n)) * u * total)
    else:
        partial = np.cumsum(flatten(x, axes).astype(np.float32), axis=-1, dtype=np.float32)
        if partial.shape[-1] == 0:
            return np.zeros(y.shape)
        reach = np.abs(partial).max(axis=-1) + np.sqrt(np.square(x).sum(axis=axes))
        bias = np.minimum(SLACK * np.abs(partial[..., -1] - y), 1e-4 * total)
        added = np.minimum(limit, u * (16 * total + 2 * np.sqrt(n) * reach) + bias)
    bound = propagated + added
    bound = np.where((total + bound >= OVERFLOW) & np.isfinite(y), np.inf, bound) if dtype is not DType.F64 else bound
    lost = np.isinf(propagated)
    return np.where(np.isfinite(y), bound, np.where(lost, np.inf, 0.0))


def _spread_product(x: Array, error: Error, axes: tuple[int, ...], dtype: DType, y: Array) -> Array:
    """|prod(x + d) - prod(x)| <= prod(|x| + |d|) - prod(|x|), roundoffs, and no partial product out of range."""
    size = np.abs(x)
    n = float(np.prod([x.shape[a] for a in axes], dtype=np.float64))
    far = (size if error is None else size + error).prod(axis=axes)
    bound = far - size.prod(axis=axes) + SLACK * n * unit(dtype) * far + (n > 1) * GRID_F32
    if dtype is not DType.F64:
        least = np.where(size == 0, 1.0, np.minimum(size, 1.0)).prod(axis=axes)
        extreme = (np.maximum(size, 1.0).prod(axis=axes) >= OVERFLOW) | (least < 2.0**-126)
        bound = np.where(extreme & np.isfinite(y), np.inf, bound)
    lost = False if error is None else np.isinf(error).any(axis=axes)
    return np.where(np.isfinite(y), bound, np.where(lost, np.inf, 0.0))


def _spread_position(op: str, x: Array, error: Array, axes: tuple[int, ...], select_last: bool) -> Array:
    """Not comparable where another element may reach the extreme one, but for exact ties."""
    rows, slack = flatten(x, axes), flatten(error, axes)
    if rows.shape[-1] == 0:
        return np.zeros(rows.shape[:-1])
    if rows.dtype.kind != "f":
        return either([slack.max(axis=-1)])  # type: ignore[return-value]
    at = position(rows, op, select_last)[..., None]
    best, margin = np.take_along_axis(rows, at, -1), np.take_along_axis(slack, at, -1)
    with np.errstate(all="ignore"):
        reach = slack + margin
        rival = (reach > 0) & (np.abs(rows - best) <= reach)
        np.put_along_axis(rival, at, False, -1)
    doubt = rival.any(axis=-1) | np.isinf(slack).any(axis=-1)
    return np.where(doubt, np.inf, 0.0)
