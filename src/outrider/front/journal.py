"""What is said of a request once it has ended: its log lines and its metrics. Measured values only, "-" where none.

Neither prompts nor answers nor keys come here; a key is known by its name.
"""

from __future__ import annotations

import json
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import Counter

from outrider.core.latency import RequestTiming
from outrider.cost.price import usd_per_million_output_tokens
from outrider.engines.base import RequestAcceptance
from outrider.stack.models import Price
from outrider.telemetry import names
from outrider.telemetry.metrics import Metrics

WINDOW_S = 60.0
Value = str | float | int | None


class RequestRecord(NamedTuple):
    """One ended request. `batch` is the time-weighted mean of requests running at its engine while it ran, `alike_ratio` the
    share (0 to 1) of those on the engine's device that had the same draft; `single` says that a time per token has a meaning
    (one answer to one prompt); `key` is the API key's name."""

    request_id: str
    lane: str
    outcome: str
    timing: RequestTiming
    ended_s: float
    trace_id: str = ""
    draft: str | None = None
    engine: str = ""
    batch: float | None = None
    alike_ratio: float | None = None
    prompt_tokens: int | None = None
    acceptance: RequestAcceptance | None = None
    single: bool = True
    key: str = ""

    @property
    def tokens_per_step(self) -> float | None:
        """Output tokens after the first event per engine step of this request."""
        steps, tokens = self.acceptance and self.acceptance.steps, self.timing.output_tokens
        if not steps or tokens is None or not self.single or tokens <= self.timing.first_tokens:
            return None
        return (tokens - self.timing.first_tokens) / steps

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / proposed draft tokens of this request."""
        seen = self.acceptance
        if seen is None or not seen.proposed_tokens or seen.accepted_tokens is None:
            return None
        return seen.accepted_tokens / seen.proposed_tokens


class _Window:
    """Tokens and acceptance of the last minute, by the second: as small after a million requests as after ten."""

    def __init__(self) -> None:
        self._horizon = 0
        self._tokens: dict[int, float] = {}
        self._accepted: dict[tuple[int, str], tuple[int, int, int]] = {}

    def add(self, record: RequestRecord) -> None:
        """A request that ended; its tokens are spread evenly over its time."""
        ended_s, tokens = record.ended_s, record.timing.output_tokens
        self._forget(ended_s)
        if tokens:
            starts_s = (record.timing.first_token_s, record.timing.dispatched_s, ended_s)
            begun_s = next(start_s for start_s in starts_s if start_s is not None)
            begun_s = min(begun_s, ended_s - 1e-3)
            share = tokens / (ended_s - begun_s)
            for second in range(int(max(begun_s, ended_s - WINDOW_S)), int(ended_s) + 1):
                inside_s = min(second + 1, ended_s) - max(second, begun_s)
                self._tokens[second] = self._tokens.get(second, 0.0) + share * inside_s
        seen = record.acceptance
        if (
            record.draft
            and seen
            and seen.drafts
            and seen.proposed_tokens
            and seen.accepted_tokens is not None
        ):
            key = (int(ended_s), record.draft)
            drafts, proposed, accepted = self._accepted.get(key, (0, 0, 0))
            new = (drafts + seen.drafts, proposed + seen.proposed_tokens, accepted + seen.accepted_tokens)
            self._accepted[key] = new

    def tokens(self, now_s: float) -> float:
        """Output tokens of the last minute."""
        self._forget(now_s)
        return sum(self._tokens.values())

    def acceptance(self, now_s: float) -> dict[str, tuple[int, int, int]]:
        """Drafts, proposed and accepted tokens by draft."""
        self._forget(now_s)
        sums: dict[str, tuple[int, int, int]] = {}
        for (_, draft), row in self._accepted.items():
            old = sums.get(draft, (0, 0, 0))
            sums[draft] = (old[0] + row[0], old[1] + row[1], old[2] + row[2])
        return sums

    def _forget(self, now_s: float) -> None:
        horizon = math.ceil(now_s - WINDOW_S)
        if horizon > self._horizon:
            self._horizon = horizon
            self._tokens = {second: n for second, n in self._tokens.items() if second >= horizon}
            self._accepted = {key: row for key, row in self._accepted.items() if key[0] >= horizon}


class Journal:
    """Writes the lines and observes the metrics. `write` gets whole lines, newline included."""

    def __init__(
        self,
        metrics: Metrics,
        write: Callable[[str], object],
        *,
        form: str = "text",
        price: Price | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.metrics = metrics
        self._write = write
        self._form = form
        self._price = price
        self._clock = clock
        self._window = _Window()
        self._first_s: float | None = None
        self._cost: tuple[float, float | None] = (-1.0, None)

    def say(self, event: str, text: str, **facts: Value) -> None:
        """One line: ``[serve]   text``, or the facts as JSON."""
        self._write(_json_line(event, facts) if self._form == "json" else _text_line(event, text))

    def requests_ended(self, records: Sequence[RequestRecord]) -> None:
        """Lines and metrics of requests that were dispatched, in one write."""
        lines: list[str] = []
        sums: defaultdict[Counter, int] = defaultdict(int)
        for record in records:
            if self._first_s is None:
                self._first_s = record.timing.arrived_s
            self._window.add(record)
            self._observe(record, sums)
            lines += self._lines(record)
        for counter, count in sums.items():
            counter.inc(count)
        self._write("".join(lines))

    def _lines(self, record: RequestRecord) -> list[str]:
        # An engine that refused it has decoded nothing.
        decoded = record.outcome != "refused"
        priced = self._price is not None and record.timing.output_tokens
        usd = self._usd_per_million(record.ended_s) if priced else None
        if self._form == "json":
            rows = [_json_line("decode", _decode_facts(record))] if decoded else []
            rows.append(_json_line("latency", _latency_facts(record)))
            if priced:
                facts = {"id": record.request_id, "usd_per_million_output_tokens": usd}
                rows.append(_json_line("cost", facts))
            return rows
        rows = [_text_line("decode", _decode_text(record))] if decoded else []
        rows.append(_text_line("latency", _latency_text(record)))
        if priced:
            text = f"{record.request_id}  {_usd(usd)} per 1M output tokens at the last minute's throughput"
            rows.append(_text_line("cost", text))
        return rows

    def request_refused(self, request_id: str, lane: str, outcome: str, status: int, code: str) -> None:
        """Line and count of a request that never reached an engine."""
        self.metrics.counter(names.REQUESTS, lane, outcome).inc()
        facts: dict[str, Value] = {"id": request_id, "status": status, "code": code, "lane": lane}
        self.say("refused", f"{request_id}  {status} {code or '-'} lane={lane}", **facts)

    def throughput(self, now_s: float) -> float:
        """Output tokens per second over the last minute, or since the first request if that was later."""
        if self._first_s is None:
            return 0.0
        return self._window.tokens(now_s) / max(min(WINDOW_S, now_s - self._first_s), 1e-3)

    def refresh(self) -> None:
        """Set the gauges that look back over the last minute."""
        now_s = self._clock()
        self.metrics.gauge(names.THROUGHPUT).set(self.throughput(now_s))
        self.metrics.forget(names.ACCEPTANCE_RATE)
        self.metrics.forget(names.ACCEPTANCE_LENGTH)
        for draft, (drafts, proposed, accepted) in self._window.acceptance(now_s).items():
            self.metrics.gauge(names.ACCEPTANCE_RATE, draft).set(accepted / proposed)
            self.metrics.gauge(names.ACCEPTANCE_LENGTH, draft).set(1 + accepted / drafts)

    def _observe(self, record: RequestRecord, sums: defaultdict[Counter, int]) -> None:
        """Its times go into the histograms, its counts into `sums`."""
        metrics, lane, timing = self.metrics, record.lane, record.timing
        sums[metrics.counter(names.REQUESTS, lane, record.outcome)] += 1
        if timing.queue_wait_s is not None:
            metrics.histogram(names.QUEUE_WAIT, lane).observe(timing.queue_wait_s)
        if timing.ttft_s is not None:
            metrics.histogram(names.TTFT, lane).observe(timing.ttft_s)
        if record.prompt_tokens:
            sums[metrics.counter(names.PROMPT_TOKENS)] += record.prompt_tokens
        if timing.output_tokens:
            sums[metrics.counter(names.OUTPUT_TOKENS)] += timing.output_tokens
            if record.key:
                sums[metrics.counter(names.KEY_OUTPUT_TOKENS, record.key)] += timing.output_tokens
        if record.outcome == "ok":
            if timing.e2e_s is not None:
                metrics.histogram(names.E2E, lane).observe(timing.e2e_s)
            if record.single and timing.tpot_s is not None:
                metrics.histogram(names.TPOT, lane).observe(timing.tpot_s)
        seen = record.acceptance
        if seen is not None and record.draft is not None:
            sums[metrics.counter(names.DRAFTS, record.draft)] += seen.drafts or 0
            sums[metrics.counter(names.PROPOSED, record.draft)] += seen.proposed_tokens or 0
            sums[metrics.counter(names.ACCEPTED, record.draft)] += seen.accepted_tokens or 0

    def _usd_per_million(self, now_s: float) -> float | None:
        if self._price is None:
            return None
        if now_s - self._cost[0] >= 1.0 or self._cost[1] is None:
            tokens_per_s = self.throughput(now_s)
            price = self._price
            usd = usd_per_million_output_tokens(price.usd_per_hour, price.accelerators, tokens_per_s)
            self._cost = (now_s, usd)
        return self._cost[1]


def _json_line(event: str, facts: Mapping[str, Value]) -> str:
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return json.dumps({"time": stamp, "event": event, **facts}) + "\n"


def _text_line(event: str, text: str) -> str:
    return f"{f'[{event}]':<9} {text}\n"


def _decode_facts(record: RequestRecord) -> dict[str, Value]:
    return {
        "id": record.request_id,
        "draft": record.draft,
        "bs": record.batch,
        "tokens_per_step": record.tokens_per_step,
        "acceptance_rate": record.acceptance_rate,
    }


def _decode_text(record: RequestRecord) -> str:
    batch = "-" if record.batch is None else f"{record.batch:.1f}".removesuffix(".0")
    return (
        f"{record.request_id}  draft={record.draft or '-'} bs={batch} "
        f"tokens_per_step={_number(record.tokens_per_step, 1)} acceptance_rate={_number(record.acceptance_rate, 2)}"
    )


def _latency_facts(record: RequestRecord) -> dict[str, Value]:
    timing = record.timing
    return {
        "id": record.request_id,
        "queue_s": timing.queue_wait_s,
        "first_token_s": timing.ttft_s,
        "full_response_s": timing.e2e_s,
        "output_tokens": timing.output_tokens,
        "outcome": record.outcome,
        "lane": record.lane,
        "key": record.key or None,
        "trace_id": record.trace_id or None,
    }


def _latency_text(record: RequestRecord) -> str:
    timing = record.timing
    tokens = "-" if timing.output_tokens is None else timing.output_tokens
    text = (
        f"{record.request_id}  queue {_time(timing.queue_wait_s)} first-token {_time(timing.ttft_s)} "
        f"full-response {_time(timing.e2e_s)} ({tokens} tokens)"
    )
    if record.outcome != "ok":
        text += f" outcome={record.outcome}"
    if record.key:
        text += f" key={record.key}"
    if record.trace_id:
        text += f" trace={record.trace_id}"
    return text


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.0f}ms" if seconds < 1 else f"{seconds:.1f}s"


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def _usd(value: float | None) -> str:
    if value is None:
        return "-"
    return f"${value:.2f}" if value >= 0.1 else f"${value:.2g}"
