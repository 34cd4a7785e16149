"""Intervals: they hold the truth about as often as they say, quickly, and the same each time."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.bench.statistics import mean_interval, percentile_difference, ratio_interval, sample
from outrider.core.latency import percentile


def test_a_ratio_is_the_geometric_mean_with_student_t() -> None:
    """Three paired trials against the textbook: mean ± 4.303 s/√3 on the logs."""
    arm, base = {1: 210.0, 2: 200.0, 3: 190.0}, {1: 100.0, 2: 100.0, 3: 100.0, 4: 7.0}
    found = ratio_interval(arm, base)
    logs = [math.log(value / 100) for value in arm.values()]
    mean = sum(logs) / 3
    spread = math.sqrt(sum((value - mean) ** 2 for value in logs) / 2)
    assert found.n == 3
    assert found.value == pytest.approx(math.exp(mean))
    assert found.low == pytest.approx(math.exp(mean - 4.302653 * spread / math.sqrt(3)))
    assert found.high == pytest.approx(math.exp(mean + 4.302653 * spread / math.sqrt(3)))


def test_one_trial_has_no_interval_and_none_no_ratio() -> None:
    """n = 1 has a value without bounds; no shared trial is an error."""
    found = ratio_interval({1: 2.0}, {1: 1.0})
    assert (found.value, found.low, found.high, found.n) == (2.0, None, None, 1)
    with pytest.raises(ValueError, match="no trial"):
        ratio_interval({1: 2.0}, {2: 1.0})


def test_the_interval_holds_the_truth_95_times_of_100() -> None:
    """2,000 simulated runs of 3 trials: between 93 and 97 % of the intervals hold the true ratio."""
    rng = np.random.default_rng(1)
    logs = rng.normal(math.log(1.5), 0.05, (2000, 3))
    found = [mean_interval(list(row)) for row in logs]
    held = sum((one.low or 0) <= math.log(1.5) <= (one.high or 0) for one in found)
    assert 0.93 < held / 2000 < 0.97


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 1000), min_size=1, max_size=80),
    st.lists(st.floats(0, 1000), min_size=1, max_size=80),
    st.sampled_from([50.0, 95.0, 99.0]),
)
def test_the_difference_is_of_nearest_rank_percentiles(
    one: list[float], two: list[float], percent: float
) -> None:
    """The value is the plain difference by the one rule of the project, whatever the resamples say."""
    ids = {f"p{n}": n for n in range(80)}
    arm, base = (
        sample([(f"p{n}", 1, [value]) for n, value in enumerate(values)], ids) for values in (one, two)
    )
    found = percentile_difference(arm, base, percent, resamples=20)
    assert found.value == percentile(one, percent) - percentile(two, percent)


def test_resampled_percentiles_equal_the_slow_way() -> None:
    """The weighted tail gives, resample by resample, the percentile of the values written out as often as they were drawn."""
    from outrider.bench.statistics import _resampled

    rng = np.random.default_rng(5)
    rows = [(f"p{p}", t, list(rng.exponential(10, 7))) for p in range(30) for t in (1, 2, 5)]
    values = sample(rows, {f"p{p}": p for p in range(30)})
    by_prompt = rng.multinomial(30, np.full(30, 1 / 30), size=40)
    by_trial = rng.multinomial(3, np.full(3, 1 / 3), size=40)
    for percent in (50.0, 99.0):
        quick = _resampled(values, by_prompt, by_trial, np.array([1, 2, 5]), percent)
        for row in range(40):
            column = np.searchsorted([1, 2, 5], values.trials)
            times = by_prompt[row][values.prompts] * by_trial[row][column]
            assert quick[row] == percentile(list(np.repeat(values.values, times)), percent)


def test_the_bootstrap_is_quick_and_repeatable() -> None:
    """400 prompts × 3 trials of 100 step gaps in each arm: the same interval twice, one in about a second."""
    rng = np.random.default_rng(2)
    ids = {f"p{n}": n for n in range(400)}
    arm, base = (
        sample([(f"p{n}", t, list(rng.gamma(9, scale, 100))) for n in range(400) for t in range(3)], ids)
        for scale in (1.2, 1.0)
    )
    began = time.process_time()
    found = percentile_difference(arm, base, 99)
    assert time.process_time() - began < 3  # about 0.7 s alone; other work beside makes caches cold
    assert found == percentile_difference(arm, base, 99)
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low < found.value < found.high


def test_the_bootstrap_interval_holds_the_truth() -> None:
    """Paired prompts with their own times: the interval of a true +5 ms holds it in most of 60 runs, and zero in few."""
    held = zero = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        own = rng.gamma(20, 5, 120)
        ids = {f"p{n}": n for n in range(120)}

        def rows(shift: float, rng: np.random.Generator = rng, own: np.ndarray = own):  # type: ignore[no-untyped-def, type-arg]
            noise = rng.normal(0, 1, (120, 3))
            return [(f"p{n}", t, [own[n] + shift + noise[n, t]]) for n in range(120) for t in range(3)]

        found = percentile_difference(sample(rows(5.0), ids), sample(rows(0.0), ids), 50, resamples=400)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 5 <= found.high
        zero += found.low <= 0 <= found.high
    assert held >= 51
    assert zero <= 9


def test_one_trial_bounds_no_difference() -> None:
    """What one start of a server does is no sample of starts: the difference stands without an interval."""
    ids = {f"p{n}": n for n in range(50)}
    arm, base = (sample([(f"p{n}", 1, [float(n + offset)]) for n in range(50)], ids) for offset in (5, 0))
    found = percentile_difference(arm, base, 95)
    assert (found.value, found.low, found.high) == (5.0, None, None)
