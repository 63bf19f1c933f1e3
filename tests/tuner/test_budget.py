"""Stopping and the choice of the next subgraph."""

from __future__ import annotations

import math

from stitchtune.tuner.budget import Arm, Rules, choose, expected_gain, stop_reason

RULES = Rules(trials=24, patience=8)


def test_an_unmeasured_subgraph_comes_first() -> None:
    assert choose([Arm(1, 1e-3, 1e-4, seconds=1.0), Arm(1, math.inf, 1e-9)]) == 1


def test_gain_counts_occurrences_and_room() -> None:
    once = Arm(1, 2e-3, 1e-3, seconds=1.0)
    often = Arm(12, 2e-3, 1e-3, seconds=1.0)
    near = Arm(12, 1.01e-3, 1e-3, seconds=1.0)
    assert choose([once, often, near]) == 1
    assert expected_gain(often) == 12 * expected_gain(once)
    assert expected_gain(near) < expected_gain(once)


def test_rounds_without_gain_lower_the_expectation() -> None:
    fresh = Arm(1, 2e-3, 1e-3, seconds=1.0)
    tired = Arm(1, 2e-3, 1e-3, won=(0.0, 0.0, 0.0), seconds=1.0)
    lucky = Arm(1, 2e-3, 1e-3, won=(0.0, 0.4), seconds=1.0)
    assert expected_gain(tired) < expected_gain(lucky) < expected_gain(fresh)


def test_stops() -> None:
    assert stop_reason(Arm(1, 1.04e-3, 1e-3), RULES) == "limit"
    assert stop_reason(Arm(1, 2e-3, 1e-3, trials=24), RULES) == "trials"
    assert stop_reason(Arm(1, 2e-3, 1e-3, trials=12, stale=8), RULES) == "patience"
    assert stop_reason(Arm(1, 2e-3, 1e-3, trials=12, stale=7), RULES) is None


def test_nothing_left() -> None:
    assert choose([None, None]) is None
    assert choose([]) is None
