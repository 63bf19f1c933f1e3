"""The learned residual and the measures of the model's quality."""

from __future__ import annotations

import numpy as np
import pytest
from stitchtune.tuner.residual import Observation, Residual, fit, quality, spearman


def observe(rng: np.random.Generator, subgraph: str, tile: int, bias: float) -> Observation:
    """A made-up plan whose model is wrong by `bias`, and by a factor that depends on one feature and on one knob."""
    feature = float(rng.uniform(0, 2))
    ratio = bias + 0.5 * feature + (0.4 if tile > 8 else 0.0)
    return Observation(subgraph, (feature, 1.0), (("tile", tile),), ratio)


def test_nothing_measured_corrects_nothing() -> None:
    mean, deviation = Residual().correct([Observation("a", (1.0,), ())])
    assert mean.tolist() == [0.0]
    assert deviation[0] > 0.3
    assert fit([]) == Residual()


def test_learns_bias_feature_and_knob() -> None:
    rng = np.random.default_rng(0)
    tiles = [1, 4, 16, 64]
    seen = [observe(rng, "a", tiles[i % 4], 0.3) for i in range(32)]
    new = [observe(rng, "a", tiles[i % 4], 0.3) for i in range(40)]
    residual = fit(seen)
    mean, deviation = residual.correct(new)
    truth = np.array([o.log_ratio for o in new])
    assert np.abs(mean - truth).mean() < 0.12
    assert deviation.mean() < 0.3
    assert np.abs(residual.left_out() - np.array([o.log_ratio for o in seen])).mean() < 0.15


def test_measurements_of_one_subgraph_help_another() -> None:
    rng = np.random.default_rng(1)
    seen = [observe(rng, "a", 1, 0.4) for _ in range(24)]
    mean, _ = fit(seen).correct([observe(rng, "b", 1, 0.4) for _ in range(10)])
    assert mean.mean() > 0.3


def test_the_newest_and_the_wanted_are_kept() -> None:
    many = [Observation("old" if i < 500 else "new", (0.0,), (("k", i),), 0.0) for i in range(900)]
    points = fit(many, ["old"]).points
    assert len(points) == 400
    assert {p.subgraph for p in points} == {"old"}
    assert points[-1].assignment == (("k", 499),)


def test_spearman() -> None:
    a = np.array([1.0, 2.0, 3.0, 4.0])
    assert spearman(a, a**3) == pytest.approx(1)
    assert spearman(a, -a) == pytest.approx(-1)
    assert spearman(a, np.ones(4)) == 0
    # ties take their mean rank: checked by hand against the definition
    assert spearman(np.array([1.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])) == pytest.approx(np.sqrt(3) / 2)


def test_quality() -> None:
    names = ["a"] * 4 + ["b"] * 2
    found = quality(names, [1, 2, 3, 4, 1, 2], [2.0, 1.0, 3.0, 4.0, 9.0, 9.0], k=1)
    assert (found.subgraphs, found.plans) == (1, 4)
    assert found.regret == pytest.approx(1.0)
    assert 0 < found.rank_correlation < 1
    assert quality(names, [1] * 6, [1.0] * 6).plans == 4
    assert quality([], [], []).plans == 0
