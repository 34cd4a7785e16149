"""Where one arm stops being quicker than another: the ratio over measured running requests, and where it meets 1.

x = log2 of the measured running requests, y = log of the ratio of output tok/s. A draft is worth less the fuller the batch, so
the curve is fitted as falling (isotonic) and read where it meets 0. Two drafts against each other may part either way.

Source: isotonic regression by pool adjacent violators, `scipy.optimize.isotonic_regression`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression

from outrider.bench.document import BASELINE, Crossover, Interval
from outrider.bench.statistics import RESAMPLES, SEED

Floats = NDArray[np.float64]
Kind = Literal["at", "none", "below", "undecided"]
_SURE = 0.9  # share of resamples that must agree before "none" or "below" is said
_LIKELY = 0.5  # … and before a place is


@dataclass(frozen=True, slots=True)
class Point:
    """One concurrency: measured running requests, and arm / other by trial (positive ratios)."""

    running: float
    ratios: Mapping[int, float]


@dataclass(frozen=True, slots=True)
class Pair:
    """Who is compared with whom on what. `falling` False: the ratio may also rise (draft against draft)."""

    arm: str
    prompt_set: str
    against: str = BASELINE
    falling: bool = True


def crossover(pair: Pair, points: Sequence[Point], *, seed: int = SEED) -> Crossover:
    """Where the ratio meets 1, with its 95 % interval in running requests, or that it does not.

    ``none``: above 1 up to the largest batch measured; ``below``: below 1 everywhere; ``undecided``: fewer than two batches,
    or the trials disagree on which of these it is. A bound is None where the interval runs out of what was measured. n is
    the number of trials; a single one gives no interval. The interval resamples whole trials (a multiplier bootstrap scaled
    to Student's t, since a run has few of them): a start of the server moves all its cells together.
    """
    ordered = sorted(points, key=lambda point: point.running)
    up_to = ordered[-1].running if ordered else None
    if len(ordered) < 2 or ordered[0].running <= 0 or not all(point.ratios for point in ordered):
        return Crossover(
            arm=pair.arm, against=pair.against, prompt_set=pair.prompt_set, kind="undecided", up_to=up_to
        )
    x = np.log2([point.running for point in ordered])
    trials = sorted(set.intersection(*(set(point.ratios) for point in ordered)))
    if trials:
        logs = np.log([[point.ratios[trial] for point in ordered] for trial in trials])
    else:  # no trial ran every cell: the means still make a curve, without an interval
        logs = np.array([[math.fsum(map(math.log, p.ratios.values())) / len(p.ratios) for p in ordered]])
    kind, place = _meets(x, logs.mean(axis=0), pair.falling)
    found = Crossover(arm=pair.arm, against=pair.against, prompt_set=pair.prompt_set, kind=kind, up_to=up_to)
    n = len(trials) or 1
    if n < 2:
        running = Interval(value=2**place, n=n) if place is not None else None
        return found.model_copy(update={"running": running})
    draws = [_meets(x, curve, pair.falling) for curve in _resampled(logs, seed)]
    agree = sum(one == kind for one, _ in draws) / len(draws)
    if agree < (_LIKELY if kind == "at" else _SURE):
        return found.model_copy(update={"kind": "undecided"})
    if place is None:
        return found
    ends = [_open_ended(one, where) for one, where in draws]
    low, high = np.quantile(ends, [0.025, 0.975], method="closest_observation")
    return found.model_copy(
        update={"running": Interval(value=2**place, low=_running(low), high=_running(high), n=n)}
    )


def _resampled(logs: Floats, seed: int) -> Floats:
    """Curves (RESAMPLES, points) about the mean: each point's spread is exactly Student's t of its mean over trials."""
    n = len(logs)
    rng = np.random.default_rng(seed)
    multipliers = rng.standard_normal((RESAMPLES, n))
    scale = np.sqrt((n - 1) / rng.chisquare(n - 1, RESAMPLES))
    centred = logs - logs.mean(axis=0)
    found: Floats = logs.mean(axis=0) + (multipliers @ centred) * scale[:, None] / math.sqrt(n * (n - 1))
    return found


def _meets(x: Floats, y: Floats, falling: bool) -> tuple[Kind, float | None]:
    """Where the fitted curve meets 0 (in x), straight lines between the batches."""
    fit = np.asarray(isotonic_regression(y, increasing=False).x)
    if not falling:
        rising = np.asarray(isotonic_regression(y, increasing=True).x)
        if float(np.sum((rising - y) ** 2)) < float(np.sum((fit - y) ** 2)):
            fit = rising
    if np.all(fit >= 0):
        return "none", None
    if np.all(fit < 0):
        return "below", None
    at = int(np.argmax((fit[1:] >= 0) != (fit[:-1] >= 0)))
    share = fit[at] / (fit[at] - fit[at + 1])
    return "at", float(x[at] + share * (x[at + 1] - x[at]))


def _open_ended(kind: Kind, place: float | None) -> float:
    """A resample without a crossing has it beyond the batches measured: above all, or below all."""
    if place is not None:
        return place
    return math.inf if kind == "none" else -math.inf


def _running(place: float) -> float | None:
    return float(2**place) if math.isfinite(place) else None
