"""A registry of exactly the metrics in `names.TABLE`; the front and control set them, /metrics prints them."""

from __future__ import annotations

from typing import cast

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
disable_created_metrics()  # type: ignore[no-untyped-call]  # the library's, untyped


class Metrics:
    """One registry of its own, so that two fronts in one process (tests) do not share counts."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._metrics: dict[str, Counter | Gauge | Histogram] = {m.name: self._make(m) for m in TABLE}
        self._children: dict[tuple[str, ...], Counter | Gauge | Histogram] = {}

    def _make(self, metric: Metric) -> Counter | Gauge | Histogram:
        if metric.kind == "histogram":
            return Histogram(
                metric.name, metric.help, metric.labels, buckets=metric.buckets, registry=self.registry
            )
        kind = Counter if metric.kind == "counter" else Gauge
        return kind(metric.name, metric.help, metric.labels, registry=self.registry)

    def _child(self, metric: Metric, labels: tuple[str, ...]) -> Counter | Gauge | Histogram:
        """The metric's child for these labels; kept, because looking it up costs more than counting."""
        key = (metric.name, *labels)
        child = self._children.get(key)
        if child is None:
            parent = self._metrics[metric.name]
            child = self._children[key] = parent.labels(*labels) if labels else parent
        return child

    def counter(self, metric: Metric, *labels: str) -> Counter:
        """The counter, or its child for these label values."""
        return cast(Counter, self._child(metric, labels))

    def gauge(self, metric: Metric, *labels: str) -> Gauge:
        """The gauge, or its child for these label values."""
        return cast(Gauge, self._child(metric, labels))

    def histogram(self, metric: Metric, *labels: str) -> Histogram:
        """The histogram, or its child for these label values."""
        return cast(Histogram, self._child(metric, labels))

    def forget(self, metric: Metric, first: str | None = None) -> None:
        """Drop the metric's children, or those whose first label is `first`: label values that are no longer true."""
        gone = [key for key in self._children if key[0] == metric.name and first in (None, *key[1:2])]
        for key in gone:
            self._metrics[metric.name].remove(*key[1:])
            del self._children[key]

    def render(self) -> bytes:
        """Prometheus' text form."""
        return generate_latest(self.registry)
