"""A registry of exactly the metrics in `names.TABLE`; the front and control set them, /metrics prints them."""

from __future__ import annotations

from typing import TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from outrider.telemetry.names import TABLE, Metric

# `_created` samples are epochs that a careless reader sums as counts.
disable_created_metrics()


T = TypeVar("T", Counter, Gauge)


class Metrics:
    """One registry of its own, so that two fronts in one process (tests) do not share counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._counters = {m.name: self._make(Counter, m) for m in TABLE if m.kind == "counter"}
        self._gauges = {m.name: self._make(Gauge, m) for m in TABLE if m.kind == "gauge"}
        self._histograms = {
            m.name: Histogram(m.name, m.help, m.labels, buckets=m.buckets, registry=self.registry)
            for m in TABLE
            if m.kind == "histogram"
        }

    def _make(self, kind: type[T], metric: Metric) -> T:
        return kind(metric.name, metric.help, metric.labels, registry=self.registry)

    def counter(self, metric: Metric, *labels: str) -> Counter:
        """The counter, or its child for these label values."""
        counter = self._counters[metric.name]
        return counter.labels(*labels) if labels else counter

    def gauge(self, metric: Metric, *labels: str) -> Gauge:
        """The gauge, or its child for these label values."""
        gauge = self._gauges[metric.name]
        return gauge.labels(*labels) if labels else gauge

    def histogram(self, metric: Metric, *labels: str) -> Histogram:
        """The histogram, or its child for these label values."""
        histogram = self._histograms[metric.name]
        return histogram.labels(*labels) if labels else histogram

    def render(self) -> bytes:
        """Prometheus' text form."""
        return generate_latest(self.registry)
