"""The engine's counters over the time of a load: readings on the same clock as the records."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.engines.base import EngineCounters


@dataclass(frozen=True, slots=True)
class Reading:
    """One scrape of the engine, at `at_s` seconds of the monotonic clock."""

    at_s: float
    counters: EngineCounters


@dataclass(frozen=True, slots=True)
class CounterTrace:
    """All readings of one cell in time order; `queue_waits_s`: (upper bound in seconds, requests) of the front's histogram.

    `queue_waits_s` is the growth over the cell, bucket by bucket, not cumulative; the last bound is infinity. Empty without a
    front. `restarted` says that the engine came back with new counters on the way: such a cell is void.
    """

    readings: tuple[Reading, ...] = ()
    queue_waits_s: tuple[tuple[float, float], ...] = ()
    restarted: bool = False
