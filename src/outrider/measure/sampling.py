"""The engine's counters while a load runs: a thread that reads the metrics page, and the front's queue before and after.

Half a second between readings is enough for windows of many seconds, and reading costs the engine next to nothing. A reading
that fails is left out, not guessed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from itertools import pairwise
from types import TracebackType
from typing import Protocol

import httpx

from outrider.engines.base import EngineCounters
from outrider.measure.counters import CounterTrace, Reading
from outrider.measure.pages import read_body
from outrider.telemetry import names
from outrider.telemetry.scrape import Scrape, lean, parse

INTERVAL_S = 0.5
TIMEOUT_S = 2.0
STARTED = "process_start_time_seconds"  # Source: prometheus_client's process collector


class CountsEngine(Protocol):
    """What is needed of an engine's adapter."""

    def counters(self, scrape: Scrape) -> EngineCounters:
        """Engine-neutral counters of one scrape."""
        ...


class CounterSampler:
    """Samples from entry to exit; then `trace()` has it all. One reading is made at entry and one at exit.

    `engine_page` and `front_page` are whole URLs of metrics pages; without a front there is no queue. `key` opens the engine's
    page where it needs one. ::

        with CounterSampler(adapter, "http://127.0.0.1:9000/metrics") as sampler:
            runner.run(plan, folder, progress)
        trace = sampler.trace()
    """

    def __init__(
        self,
        engine: CountsEngine,
        engine_page: str,
        front_page: str | None = None,
        *,
        key: str | None = None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._engine = engine
        self._engine_page = engine_page
        self._front_page = front_page
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._interval_s = interval_s
        self._readings: list[Reading] = []
        self._started: float | None = None
        self._restarted = False
        self._waits: tuple[Mapping[float, float] | None, Mapping[float, float] | None] = (None, None)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="counter-sampler", daemon=True)
        self._client = httpx.Client(trust_env=False, timeout=TIMEOUT_S)

    def __enter__(self) -> CounterSampler:
        """Read both pages and start."""
        self._waits = (self._queue_waits(), None)
        self._sample()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and read both pages a last time."""
        self._stop.set()
        self._thread.join()
        self._sample()
        self._waits = (self._waits[0], self._queue_waits())
        self._client.close()

    def trace(self) -> CounterTrace:
        """All readings so far; the queue's growth once it has stopped."""
        return CounterTrace(tuple(self._readings), _growth(*self._waits), self._restarted)

    def _run(self) -> None:
        due = time.monotonic()
        while True:
            due += self._interval_s
            if self._stop.wait(max(due - time.monotonic(), 0.0)):
                return
            self._sample()

    def _sample(self) -> None:
        page = self._page(self._engine_page, self._headers)
        if page is None:
            return
        at_s = time.monotonic()
        try:
            scrape = parse(lean(page), at_s)
        except ValueError:
            return
        reading = Reading(at_s, self._engine.counters(scrape))
        started = scrape.total((STARTED,))
        last = self._readings[-1] if self._readings else None
        if last and (_fell(last.counters, reading.counters) or started != self._started):
            self._restarted = True
        self._started = started
        self._readings.append(reading)

    def _queue_waits(self) -> Mapping[float, float] | None:
        """Requests by the histogram's upper bound, cumulative, all lanes together."""
        page = self._page(self._front_page, {}) if self._front_page else None
        if page is None:
            return None
        try:
            samples = parse(page).named(f"{names.QUEUE_WAIT.name}_bucket")
        except ValueError:
            return None
        counts: dict[float, float] = {}
        for sample in samples:
            bound = float(sample.label("le") or "inf")
            counts[bound] = counts.get(bound, 0.0) + sample.value
        return counts

    def _page(self, url: str, headers: Mapping[str, str]) -> bytes | None:
        return read_body(self._client, self._client.build_request("GET", url, headers=headers), TIMEOUT_S)


def _fell(before: EngineCounters, after: EngineCounters) -> bool:
    """Whether any count is less than it was, or gone."""
    return any(
        old is not None and (new is None or new < old)
        for old, new in zip(_counts(before), _counts(after), strict=True)
    )


def _counts(counters: EngineCounters) -> tuple[float | None, ...]:
    spec = counters.spec
    return (
        spec.drafts,
        spec.proposed,
        spec.accepted,
        counters.generation_tokens,
        counters.prompt_tokens,
        counters.first_tokens,
        counters.steps,
    )


def _growth(
    before: Mapping[float, float] | None, after: Mapping[float, float] | None
) -> tuple[tuple[float, float], ...]:
    """What came between two readings of a histogram, bucket by bucket; nothing if either is missing or it began anew."""
    if before is None or not after:
        return ()
    bounds = sorted(after)
    grown = [after[bound] - before.get(bound, 0.0) for bound in bounds]
    parts = [grown[0], *(upper - lower for lower, upper in pairwise(grown))]
    return tuple(zip(bounds, parts, strict=True)) if min(parts) >= 0 else ()
