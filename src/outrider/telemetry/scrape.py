"""Prometheus text to samples, with limits; what a second scrape makes of a first.

The text format is parsed by prometheus_client (the format's own library); this module adds what reading somebody else's
endpoint needs: a size limit, NaN and infinities as 'no value', `_created` samples (epochs, not counts) left out, and epochs.

Source: Prometheus text exposition format 0.0.4; OpenMetrics 1.0 for `_created`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: name, labels in order of their names, value (finite: NaN and infinities are 'no value' and left out)."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float

    def label(self, name: str) -> str | None:
        """The label's value, or None."""
        return dict(self.labels).get(name)


@dataclass(frozen=True, slots=True)
class Scrape:
    """All samples of one scrape, and when (seconds, the caller's monotonic clock)."""

    samples: tuple[Sample, ...]
    at_s: float = 0.0

    def named(self, name: str) -> list[Sample]:
        """Samples of exactly this name."""
        return [sample for sample in self.samples if sample.name == name]

    def first_named(self, names: Iterable[str]) -> list[Sample]:
        """Samples of the first of these names that is present: renames are alternatives, never summed."""
        for name in names:
            if found := self.named(name):
                return found
        return []

    def total(self, names: Iterable[str]) -> float | None:
        """Sum over all label sets (several engines) of the first of these names that is present; None if none is."""
        found = self.first_named(names)
        return sum(sample.value for sample in found) if found else None


def parse(text: str | bytes, at_s: float = 0.0) -> Scrape:
    """Read one exposition.

    Raises:
        ValueError: over `MAX_BYTES`, not UTF-8, or not in the format.
    """
    if len(text) > MAX_BYTES:
        raise ValueError(f"metrics page of {len(text)} bytes is over the limit of {MAX_BYTES}")
    decoded = text.decode("utf-8") if isinstance(text, bytes) else text
    return Scrape(tuple(_samples(decoded)), at_s)


def lean(page: bytes) -> bytes:
    """The page without comments and histogram buckets: most of an engine's page, and no counter is in them.

    Reading a page once a second in the front's process has to be cheap.
    """
    return (
        b"\n".join(line for line in page.split(b"\n") if b"_bucket{" not in line and line[:1] != b"#") + b"\n"
    )


def _samples(text: str) -> Iterator[Sample]:
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415  (50 ms, not for --help)

    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if math.isfinite(sample.value) and not sample.name.endswith("_created"):
                yield Sample(sample.name, tuple(sorted(sample.labels.items())), float(sample.value))


@dataclass(frozen=True, slots=True)
class Epoch:
    """One life of the engine's counters: which models it names, and how often it began anew."""

    models: tuple[str, ...]
    number: int = 0
    reason: str = ""


def next_epoch(
    epoch: Epoch | None, models: tuple[str, ...], before: Mapping[str, float], after: Mapping[str, float]
) -> Epoch:
    """The epoch after a scrape: the same, or a new one with its reason (``counter reset``, ``model changed``).

    `before` and `after` are the counters that must never fall, by any name.
    """
    if epoch is None:
        return Epoch(models)
    fell = any(after.get(name, 0.0) < value for name, value in before.items())
    reason = "model changed" if models != epoch.models else "counter reset" if fell else ""
    return Epoch(models, epoch.number + 1, reason) if reason else epoch
