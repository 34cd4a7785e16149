"""Crossovers: found where they are, with an interval that holds the truth; the other answers are answers too."""

import numpy as np
import pytest

from outrider.bench.crossover import Pair, Point, crossover
from outrider.bench.document import Crossover

GRID = (1, 2, 4, 8, 16, 32, 64, 128)


def curve(
    ratios: list[float], trials: int = 3, noise: float = 0.0, seed: int = 0, falling: bool = True
) -> Crossover:
    """The crossover of these true ratios on the grid, seen with noise."""
    rng = np.random.default_rng(seed)
    points = [
        Point(
            running, {trial: ratio * float(np.exp(noise * rng.standard_normal())) for trial in range(trials)}
        )
        for running, ratio in zip(GRID, ratios, strict=False)
    ]
    return crossover(Pair("a", "s", falling=falling), points)


def line(at: float) -> list[float]:
    """A ratio that is 1 at `at` running requests and falls by 20 % each doubling."""
    return [2 ** (-0.3 * (np.log2(running) - np.log2(at))) for running in GRID]


def test_a_clean_crossing_is_found_exactly() -> None:
    """Log-linear ratios: linear interpolation on log2 meets 1 at the truth."""
    found = curve(line(24.0))
    assert found.kind == "at"
    assert found.running is not None
    assert found.running.value == pytest.approx(24.0)


def test_the_interval_holds_the_truth() -> None:
    """Of 100 noisy runs (3 trials, 3 %), at least 90 intervals hold it, and their median width is under a factor of two."""
    found = [curve(line(24.0), noise=0.03, seed=seed).running for seed in range(100)]
    bounds = [(one.low or 0.0, one.high or np.inf) for one in found if one is not None]
    assert len(bounds) == 100
    assert sum(low <= 24 <= high for low, high in bounds) >= 90
    assert np.median([high / max(low, 1e-9) for low, high in bounds]) < 2


def test_none_below_and_undecided_are_answers() -> None:
    """Above 1 throughout: none up to the largest batch; below throughout; one batch only, or contradicting trials: undecided."""
    none = curve([2, 1.9, 1.8, 1.5], noise=0.01)
    assert (none.kind, none.up_to, none.running) == ("none", 8, None)
    assert curve([0.9, 0.8, 0.7, 0.6], noise=0.01).kind == "below"
    assert curve([1.5]).kind == "undecided"
    assert curve([]).kind == "undecided"
    wild = crossover(
        Pair("a", "s"), [Point(1, {1: 1.5, 2: 0.8, 3: 1.2}), Point(8, {1: 1.4, 2: 0.7, 3: 1.05})]
    )
    assert wild.kind == "undecided"


def test_one_trial_has_a_place_without_bounds() -> None:
    """A value is given, an interval is not."""
    found = curve(line(24.0), trials=1).running
    assert found is not None
    assert (found.low, found.high, found.n) == (None, None, 1)


def test_noise_that_makes_the_curve_rise_is_smoothed_away() -> None:
    """Isotonic: a wiggle around the trend yields one crossing, not three."""
    found = curve([1.6, 1.4, 1.2, 0.98, 1.04, 0.8, 0.7])
    assert found.kind == "at"
    assert found.running is not None
    assert 8 <= found.running.value <= 32


def test_two_drafts_may_part_the_other_way() -> None:
    """An arm that is behind at small batches and ahead at large ones: only draft against draft is read so."""
    rising = [0.8, 0.9, 1.1, 1.2]
    found = curve(rising, falling=False)
    assert found.kind == "at"
    assert found.running is not None
    assert 2 < found.running.value < 4
    assert curve(rising).kind != "at"


def test_trials_that_did_not_run_every_batch_give_no_false_interval() -> None:
    """No trial in common: the means make a curve, without bounds."""
    found = crossover(Pair("a", "s"), [Point(1, {1: 1.5}), Point(8, {2: 0.5})])
    assert found.kind == "at"
    assert found.running is not None
    assert found.running.low is None
