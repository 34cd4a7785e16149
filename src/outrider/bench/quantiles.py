"""Nearest-rank percentiles of many values, with the n below which a tail is not printed.

Source: the rule in `outrider.core.latency.percentile`. p95 needs n ≥ 72 and p99 n ≥ 368: with fewer, the interval of the
percentile reaches the largest value seen.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from outrider.bench.document import Quantiles
from outrider.core.latency import percentile

P95_N = 72
P99_N = 368
CURVE_N = 20
_CURVE_VALUES = 2000  # a picture needs no more


def needed(percent: float) -> int:
    """How many values a percentile needs before it is printed."""
    return P99_N if percent >= 99 else P95_N if percent >= 95 else 1


def of_values(values: Sequence[float]) -> Quantiles:
    """Percentiles of values in their own unit; only n where there are none."""
    if not values:
        return Quantiles(n=0)
    ordered = sorted(values)
    n = len(ordered)
    return Quantiles(
        n=n,
        mean=math.fsum(ordered) / n,
        p50=percentile(ordered, 50),
        p95=percentile(ordered, 95) if n >= P95_N else None,
        p99=percentile(ordered, 99) if n >= P99_N else None,
        worst=ordered[-1],
        curve=curve(ordered),
    )


def curve(ordered: Sequence[float]) -> list[float]:
    """Percentiles 1 … 99 of ordered values for a picture; of at most 2,000 of them, evenly spaced in rank. Empty below n = 20."""
    n = len(ordered)
    if n < CURVE_N:
        return []
    kept = min(n, _CURVE_VALUES)
    sample = [ordered[math.ceil((place + 1) * n / kept) - 1] for place in range(kept)]
    return [percentile(sample, percent) for percent in range(1, 100)]


def of_histogram(trials: Sequence[Sequence[tuple[float, float]]]) -> Quantiles:
    """Percentiles in milliseconds from buckets (upper bound in seconds, how many), trials added: *upper bounds* of the truth.

    A percentile in the last, unbounded bucket is None, and so is the mean: a histogram does not tell it.
    """
    counts: dict[float, float] = {}
    for buckets in trials:
        for bound, count in buckets:
            if count > 0:
                counts[bound] = counts.get(bound, 0.0) + count
    n = round(sum(counts.values()))
    if not n:
        return Quantiles(n=0)

    def at(percent: float) -> float | None:
        rank, seen = math.ceil(percent * n / 100), 0.0
        for bound in sorted(counts):
            seen += counts[bound]
            if seen >= rank:
                return bound * 1e3 if math.isfinite(bound) else None
        return None

    tail = [at(percent) for percent in range(1, 100)] if n >= CURVE_N else []
    finite = [value for value in tail if value is not None]
    return Quantiles(
        n=n,
        p50=at(50),
        p95=at(95) if n >= P95_N else None,
        p99=at(99) if n >= P99_N else None,
        worst=at(100),
        curve=finite if len(finite) == len(tail) else [],
    )
