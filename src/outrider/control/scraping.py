"""The engine's counters, put in engine-neutral terms and into our own metrics."""

from __future__ import annotations

from outrider.core.acceptance import SpecCounters, difference
from outrider.engines.base import EngineCounters
from outrider.telemetry import names
from outrider.telemetry.metrics import Metrics
from outrider.telemetry.scrape import Epoch, next_epoch


class EngineMetrics:
    """Feeds one front's registry. Counters go up by what a window added; a window across a restart adds what is new since."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._epochs: dict[str, Epoch] = {}
        self._last: dict[str, EngineCounters] = {}
        self._broken: set[str] = set()

    def ready(self, engine: str, ready: bool, broken: bool) -> None:
        """What /readyz says, and whether the probe found this engine's draft broken: one is enough for the gauge."""
        (self._broken.add if broken else self._broken.discard)(engine)
        self._metrics.gauge(names.READY).set(float(ready))
        self._metrics.gauge(names.DRAFT_BROKEN).set(float(bool(self._broken)))

    def restarted(self) -> None:
        """One restart of the engine."""
        self._metrics.counter(names.RESTARTS).inc()

    def gone(self, engine: str) -> None:
        """An engine that will not come back: its series end, so that no sum counts what it last said."""
        self._epochs.pop(engine, None)
        self._last.pop(engine, None)
        for metric in names.TABLE:
            if "engine" in metric.labels:
                self._metrics.forget(metric, engine)

    def observe(self, engine: str, draft: str, counters: EngineCounters) -> None:
        """One scrape. Without the plugin's counts by draft, all drafts are the stack's draft."""
        last = self._last.get(engine)
        flat = {"drafts": counters.spec.drafts, "generation": counters.generation_tokens or 0.0}
        before = {"drafts": last.spec.drafts, "generation": last.generation_tokens or 0.0} if last else {}
        epoch = next_epoch(self._epochs.get(engine), counters.models, before, flat)
        if epoch != self._epochs.get(engine):  # a first scrape, or a new life: everything in it is new
            last = None
        self._epochs[engine], self._last[engine] = epoch, counters
        for metric, value in (
            (names.ENGINE_RUNNING, counters.running),
            (names.ENGINE_WAITING, counters.waiting),
            (names.ENGINE_KV_CACHE, counters.kv_cache_usage_ratio),
        ):
            if value is not None:
                self._metrics.gauge(metric, engine).set(value)
        generated = (counters.generation_tokens or 0.0) - ((last.generation_tokens or 0.0) if last else 0.0)
        self._metrics.counter(names.ENGINE_TOKENS, engine).inc(max(generated, 0.0))
        by_draft = counters.by_draft or {draft: counters.spec}
        last_by_draft = (last.by_draft or {draft: last.spec}) if last else {}
        for name, spec in by_draft.items():
            window = difference(last_by_draft.get(name, SpecCounters()), spec)
            self._metrics.counter(names.ENGINE_DRAFTS, engine, name).inc(window.delta.drafts)
            self._metrics.counter(names.ENGINE_PROPOSED, engine, name).inc(window.delta.proposed)
            self._metrics.counter(names.ENGINE_ACCEPTED, engine, name).inc(window.delta.accepted)
