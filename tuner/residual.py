"""The learned residual: what the cost model gets wrong, from the measurements of the same device.

A Gaussian process regresses log(measured / predicted) on the parts of the predicted cost and, among plans of one
subgraph, on the knobs they were built from (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006:
equations 2.25, 2.26 for the prediction, 5.12 for the leave-one-out residuals that pick the length scale). Its deviation
tells the search where it knows little. Hundreds of points, so plain NumPy does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..search_space.knobs import Choice

Array = NDArray[np.float64]

MOST_POINTS = 400
"""Measurements a fit looks at: those of the subgraphs asked about first, then the newest."""

NOISE = 0.03
"""Relative noise of a timing, as a deviation of its logarithm."""

_SAME, _PARTS, _KNOBS, _BIAS = 0.3, 0.35, 0.25, 0.3
"""Prior deviations: an offset per subgraph, the parts of the cost, knobs in a subgraph, the model's overall bias."""

_SCALES = (0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class Observation:
    """One plan as the residual sees it; `log_ratio` is log(measured / predicted seconds)."""

    subgraph: str
    features: tuple[float, ...]
    assignment: tuple[tuple[str, Choice], ...]
    log_ratio: float = 0.0


@dataclass(frozen=True)
class Residual:
    """A fitted correction; `Residual()` corrects nothing and is unsure of everything."""

    points: tuple[Observation, ...] = ()
    scale: float = 1.0
    weights: Array | None = None
    inverse: Array | None = None

    def correct(self, asked: Sequence[Observation]) -> tuple[Array, Array]:
        """Mean and deviation of log(measured / predicted) for plans that were not measured."""
        prior = np.full(len(asked), _SAME**2 + _PARTS**2 + _KNOBS**2 + _BIAS**2)
        if self.weights is None or self.inverse is None or not asked:
            return np.zeros(len(asked)), np.sqrt(prior)
        cross = _kernel(asked, self.points, self.scale)
        variance = prior - np.einsum("ij,jk,ik->i", cross, self.inverse, cross)
        return cross @ self.weights, np.sqrt(np.maximum(variance, 1e-6))

    def sample(self, asked: Sequence[Observation], rng: np.random.Generator) -> Array:
        """One draw of the correction of all `asked` together, from what the fit believes (Thompson sampling)."""
        covariance = _kernel(asked, asked, self.scale)
        mean = np.zeros(len(asked))
        if self.weights is not None and self.inverse is not None:
            cross = _kernel(asked, self.points, self.scale)
            mean = cross @ self.weights
            covariance = covariance - cross @ self.inverse @ cross.T
        factor = np.linalg.cholesky(covariance + 1e-6 * np.eye(len(asked)))
        drawn: Array = mean + factor @ rng.standard_normal(len(asked))
        return drawn

    def left_out(self) -> Array:
        """The prediction for every point from all the others."""
        if self.weights is None or self.inverse is None:
            return np.zeros(0)
        ratios = np.array([p.log_ratio for p in self.points])
        result: Array = ratios - self.weights / np.diag(self.inverse)
        return result


def fit(observations: Sequence[Observation], subgraphs: Sequence[str] = ()) -> Residual:
    """A residual from measurements of one device, oldest first; those of `subgraphs` are kept when there are many."""
    wanted = set(subgraphs)
    ranked = sorted(range(len(observations)), key=lambda i: (observations[i].subgraph in wanted, i), reverse=True)
    points = tuple(observations[i] for i in sorted(ranked[:MOST_POINTS]))
    if not points:
        return Residual()
    ratios = np.array([p.log_ratio for p in points])
    best, least = Residual(), np.inf
    for scale in _SCALES:
        covariance = _kernel(points, points, scale) + NOISE**2 * np.eye(len(points))
        inverse = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        found = Residual(points, scale, inverse @ ratios, inverse)
        error = float(np.mean(np.abs(found.left_out() - ratios)))
        if error < least:
            best, least = found, error
    return best


def _kernel(a: Sequence[Observation], b: Sequence[Observation], scale: float) -> Array:
    """Covariances of two lists of observations."""
    x = np.array([o.features for o in a], dtype=float)
    y = np.array([o.features for o in b], dtype=float)
    distance = (x**2).sum(axis=1)[:, None] + (y**2).sum(axis=1)[None, :] - 2 * x @ y.T
    parts: Array = _PARTS**2 * np.exp(-np.maximum(distance, 0.0) / (2 * scale**2))
    same = _shared([[o.subgraph] for o in a], [[o.subgraph] for o in b])
    equal = _shared([o.assignment for o in a], [o.assignment for o in b])
    common = _shared([[n for n, _ in o.assignment] for o in a], [[n for n, _ in o.assignment] for o in b])
    sizes = np.array([len(o.assignment) for o in a], dtype=float)[:, None]
    others = np.array([len(o.assignment) for o in b], dtype=float)[None, :]
    known = (sizes > 0) == (others > 0)
    differing = sizes + others - common - equal
    share = equal / np.maximum(np.sqrt(sizes * others), 1.0)
    # half of what a knob does it does whatever the others are, half in concert with them
    chosen: Array = _KNOBS**2 * same * known * (np.exp(-differing / (3 * scale)) + share) / 2
    result: Array = _BIAS**2 + _SAME**2 * same + parts + chosen
    return result


def _shared(a: Sequence[Iterable[object]], b: Sequence[Iterable[object]]) -> Array:
    """How many members the sets of two lists have in common, pair by pair."""
    places: dict[object, int] = {}
    rows = [[places.setdefault(m, len(places)) for m in members] for members in (*a, *b)]
    marks = np.zeros((len(rows), max(1, len(places))))
    for row, columns in zip(marks, rows, strict=True):
        row[columns] = 1.0
    result: Array = marks[: len(a)] @ marks[len(a) :].T
    return result


# --- how good the model is


@dataclass(frozen=True)
class Quality:
    """How well predictions rank measured plans, averaged over the subgraphs with at least four of them.

    rank_correlation  Spearman's, 1 when the order is right
    regret            best of the k plans predicted fastest over the fastest measured, less 1; 0 when it is among them
    subgraphs, plans  what the averages are over; nothing was measured enough when 0
    """

    rank_correlation: float
    regret: float
    k: int
    subgraphs: int
    plans: int


def quality(
    subgraphs: Sequence[str], predicted: Sequence[float], measured: Sequence[float], k: int = 3, least: int = 4
) -> Quality:
    """The quality of `predicted` against `measured` seconds, per subgraph."""
    groups: dict[str, list[int]] = {}
    for i, name in enumerate(subgraphs):
        groups.setdefault(name, []).append(i)
    correlations, regrets, plans = [], [], 0
    for rows in groups.values():
        if len(rows) < least:
            continue
        guess = np.array([predicted[i] for i in rows])
        truth = np.array([measured[i] for i in rows])
        correlations.append(spearman(guess, truth))
        regrets.append(float(truth[np.argsort(guess, kind="stable")[:k]].min() / truth.min() - 1))
        plans += len(rows)
    if not correlations:
        return Quality(0.0, 0.0, k, 0, 0)
    return Quality(float(np.mean(correlations)), float(np.mean(regrets)), k, len(correlations), plans)


def spearman(a: Array, b: Array) -> float:
    """Rank correlation with ties at their mean rank; 0 when one side is constant."""
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.mean(), y - y.mean()
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm else 0.0


def _ranks(values: Array) -> Array:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Array = (last - (counts - 1) / 2)[inverse]
    return ranks
