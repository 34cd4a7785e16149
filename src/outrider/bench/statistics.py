"""Intervals: throughput ratios over trials, differences of latency percentiles over prompts and trials.

All intervals are 95 %, two-sided. Randomness is seeded: the same records give the same report.

Source: Student t on log ratios; the paired bootstrap resamples prompts and trials, both arms by the same draw (cluster bootstrap,
Davison & Hinkley, Bootstrap Methods and their Application, ch. 3.8).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from outrider.bench.document import Interval

SEED = 20240229
RESAMPLES = 1000
_CHUNK = 50  # resamples computed at once: bounds the memory

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def mean_interval(values: Sequence[float], level: float = 0.95) -> Interval:
    """Mean with its Student t interval; without bounds for fewer than two values. Raises ValueError for none."""
    n = len(values)
    if not n:
        raise ValueError("a mean of no values")
    mean = math.fsum(values) / n
    if n < 2:
        return Interval(value=mean, n=n)
    half = _t(n - 1, level) * _deviation(values, mean) / math.sqrt(n)
    return Interval(value=mean, low=mean - half, high=mean + half, n=n)


def ratio_interval(arm: Mapping[int, float], baseline: Mapping[int, float]) -> Interval:
    """Geometric mean of arm / baseline over the trials both have (trial → positive value), Student t on the log ratios.

    Trials are paired by number: an interleaved run meets the same drift in both. Without bounds for a single trial.
    Raises ValueError where the two share no trial or a value is not positive.
    """
    shared = sorted(arm.keys() & baseline.keys())
    if not shared:
        raise ValueError("no trial that both arms finished")
    if any(side[trial] <= 0 for trial in shared for side in (arm, baseline)):
        raise ValueError("a ratio of values that are not positive")
    found = mean_interval([math.log(arm[trial] / baseline[trial]) for trial in shared])
    return Interval(
        value=math.exp(found.value),
        low=None if found.low is None else math.exp(found.low),
        high=None if found.high is None else math.exp(found.high),
        n=found.n,
    )


def _t(freedom: float, level: float = 0.95) -> float:
    return float(stats.t.ppf(0.5 + level / 2, freedom))


def _deviation(values: Sequence[float], mean: float) -> float:
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


@dataclass(frozen=True, slots=True)
class Sample:
    """Values of one arm, each with the prompt and the trial it belongs to: three arrays of one length."""

    values: Floats
    prompts: Ints
    trials: Ints


def sample(rows: Sequence[tuple[str, int, Sequence[float]]], prompt_ids: Mapping[str, int]) -> Sample:
    """Rows (prompt id, trial, values) as arrays; prompts that are not in `prompt_ids` (id → index) are left out."""
    kept = [
        (prompt_ids[prompt], trial, values)
        for prompt, trial, values in rows
        if prompt in prompt_ids and values
    ]
    lengths = [len(values) for _, _, values in kept]
    return Sample(
        np.concatenate([np.asarray(values, dtype=np.float64) for _, _, values in kept])
        if kept
        else np.empty(0),
        np.repeat(np.asarray([prompt for prompt, _, _ in kept], dtype=np.int64), lengths),
        np.repeat(np.asarray([trial for _, trial, _ in kept], dtype=np.int64), lengths),
    )


def percentile_difference(
    arm: Sample, baseline: Sample, percent: float, *, seed: int = SEED, resamples: int = RESAMPLES
) -> Interval:
    """Arm's percentile minus the baseline's (nearest rank), in the values' unit, with a paired bootstrap interval.

    Each resample draws prompts and trials with replacement, the same for both arms; a value counts as often as its prompt
    and its trial were drawn together. n is the number of prompts. Without bounds for fewer than two
    prompts or trials: what one start of a server does is no sample of starts.
    Raises ValueError where an arm has no values.
    """
    if not len(arm.values) or not len(baseline.values):
        raise ValueError("a difference of no values")
    prompts = 1 + int(max(arm.prompts.max(), baseline.prompts.max()))
    numbers = np.union1d(arm.trials, baseline.trials)
    value = nearest_rank(arm.values, percent) - nearest_rank(baseline.values, percent)
    if prompts < 2 or len(numbers) < 2:
        return Interval(value=value, n=prompts)
    rng = np.random.default_rng(seed)
    by_prompt = rng.multinomial(prompts, np.full(prompts, 1 / prompts), size=resamples)
    by_trial = rng.multinomial(len(numbers), np.full(len(numbers), 1 / len(numbers)), size=resamples)
    differences = _resampled(arm, by_prompt, by_trial, numbers, percent)
    differences = differences - _resampled(baseline, by_prompt, by_trial, numbers, percent)
    differences = differences[np.isfinite(differences)]
    low, high = np.quantile(differences, [0.025, 0.975])
    return Interval(value=value, low=float(low), high=float(high), n=prompts)


def nearest_rank(values: Floats, percent: float) -> float:
    """The nearest-rank percentile of an array, the rule of `outrider.core.latency.percentile`."""
    return float(np.sort(values)[math.ceil(percent * len(values) / 100) - 1])


def _resampled(arm: Sample, by_prompt: Ints, by_trial: Ints, numbers: Ints, percent: float) -> Floats:
    """The percentile of each resample: (resamples,). NaN where a resample drew no value.

    Values are sorted once, from the largest; a resample only counts how often each is there. For a tail percentile the
    largest few suffice: as many as hold the tail in every resample, else all.
    """
    cells = by_prompt.shape[1] * len(numbers)
    column = np.searchsorted(numbers, arm.trials) + arm.prompts * len(numbers)
    weights = (by_prompt[:, :, None] * by_trial[:, None, :]).reshape(len(by_prompt), cells)
    total = weights @ np.bincount(column, minlength=cells)
    above = total - np.ceil(percent * total / 100)  # how much weight may stand above the percentile
    order = np.argsort(-arm.values, kind="stable")
    tail = min(len(order), 1 + math.ceil((100 - percent) / 100 * 4 * len(order)))
    while True:
        top = order[:tail]
        held = weights @ np.bincount(column[top], minlength=cells)
        if tail == len(order) or bool(np.all(held > above)):
            break
        tail = min(len(order), 2 * tail)
    found = np.full(len(weights), np.nan)
    for begin in range(0, len(weights), _CHUNK):
        rows = slice(begin, begin + _CHUNK)
        reached = np.cumsum(weights[rows][:, column[top]], axis=1) > above[rows, None]
        found[rows] = np.where(total[rows] > 0, arm.values[top][np.argmax(reached, axis=1)], np.nan)
    return found
