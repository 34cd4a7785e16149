"""Prometheus text to samples; counter windows and resets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: name, labels, value (never NaN: a NaN sample is 'no value' and left out)."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


@dataclass(frozen=True, slots=True)
class Scrape:
    """All samples of one scrape, and when (seconds, monotonic clock of the caller)."""

    samples: tuple[Sample, ...]
    at_s: float = 0.0
