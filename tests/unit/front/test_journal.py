"""Log lines and metrics of single records: form, dashes, throughput and cost on a virtual clock."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.latency import RequestTiming
from outrider.engines.base import RequestAcceptance
from outrider.front.journal import Journal, RequestRecord
from outrider.stack.models import Price
from outrider.telemetry import names
from outrider.telemetry.metrics import Metrics
from outrider.telemetry.names import TABLE, markdown


def record(ended_s: float = 6.143, tokens: int | None = 320, **members: object) -> RequestRecord:
    """A request that arrived at 0 and went well."""
    timing = RequestTiming(0.0, 0.003, 0.042, ended_s, tokens)
    acceptance = RequestAcceptance(steps=168, drafts=160, proposed_tokens=480, accepted_tokens=293)
    facts = {"draft": "ngram", "batch": 2.04, "acceptance": acceptance, "prompt_tokens": 9, **members}
    return RequestRecord("3f9c", "interactive", "ok", timing, ended_s, **facts)  # type: ignore[arg-type]  # by name


def journal(**options: object) -> tuple[Journal, list[str]]:
    """A journal and the lines it writes."""
    lines: list[str] = []
    return Journal(Metrics(), lambda text: lines.extend(text.splitlines()), **options), lines  # type: ignore[arg-type]


def test_the_form_of_the_lines() -> None:
    """As documented, to the space."""
    written, lines = journal(price=Price(usd_per_hour=6.5))
    written.say("serve", "vLLM 0.32.0 (CPU)")
    written.requests_ended([record()])
    assert lines == [
        "[serve]   vLLM 0.32.0 (CPU)",
        "[decode]  3f9c  draft=ngram bs=2 tokens_per_step=1.9 acceptance_rate=0.61",
        "[latency] 3f9c  queue 3ms first-token 42ms full-response 6.1s (320 tokens)",
        "[cost]    3f9c  $34.66 per 1M output tokens at the last minute's throughput",
    ]


def test_dashes() -> None:
    """What the engine did not tell is neither 0 nor guessed; without a price there is no cost line."""
    written, lines = journal()
    written.requests_ended([record(tokens=None, acceptance=None, draft=None, batch=None)])
    assert lines == [
        "[decode]  3f9c  draft=- bs=- tokens_per_step=- acceptance_rate=-",
        "[latency] 3f9c  queue 3ms first-token 42ms full-response 6.1s (- tokens)",
    ]


def test_several_answers_have_no_time_per_token() -> None:
    """With n answers the tokens are a sum: no tokens per step, no TPOT."""
    written, lines = journal()
    written.requests_ended([record(single=False)])
    assert "tokens_per_step=-" in lines[0]
    assert b'outrider_time_per_output_token_seconds_count{lane="interactive"}' not in written.metrics.render()


def test_json_form() -> None:
    """One object a line, numbers unrounded, null where there is nothing."""
    written, lines = journal(form="json")
    written.requests_ended([record(acceptance=None)])
    decode, latency = map(json.loads, lines)
    assert (decode["event"], decode["id"], decode["bs"], decode["acceptance_rate"]) == (
        "decode",
        "3f9c",
        2.04,
        None,
    )
    assert (latency["queue_s"], latency["full_response_s"], latency["output_tokens"]) == (0.003, 6.143, 320)


def test_throughput_spreads_tokens_over_their_time() -> None:
    """A stream of two minutes that ends now counts with the half that lies in the last minute."""
    written, _ = journal()
    timing = RequestTiming(0.0, 0.0, 0.0, 120.0, output_tokens=1200)
    written.requests_ended([RequestRecord("a", "batch", "ok", timing, ended_s=120.0)])
    assert written.throughput(120.0) == pytest.approx(10.0)
    assert written.throughput(150.0) == pytest.approx(5.0)
    assert written.throughput(181.0) == 0.0


@given(st.lists(st.tuples(st.floats(0, 90), st.integers(0, 1000)), max_size=20))
def test_throughput_counts_every_token_once(ended: list[tuple[float, int]]) -> None:
    """However requests lie in the last minute, their tokens add up; what ended before it is forgotten."""
    written, _ = journal()
    for took_s, tokens in ended:
        timing = RequestTiming(100.0, 100.0, 100.0, 100.0 + took_s / 3, output_tokens=tokens)
        written.requests_ended([RequestRecord("a", "batch", "ok", timing, ended_s=100.0 + took_s / 3)])
    total = sum(tokens for _, tokens in ended)
    assert written.throughput(130.0) * 30.0 == pytest.approx(total, abs=1e-3)
    assert written.throughput(191.0) == 0.0


def test_throughput_of_a_young_server() -> None:
    """Before a minute has passed, the time since the first request counts, not a minute."""
    written, _ = journal()
    assert written.throughput(3.0) == 0.0
    written.requests_ended([record(ended_s=10.0)])
    assert written.throughput(10.0) == pytest.approx(32.0)


def test_acceptance_gauges_look_back_a_minute() -> None:
    """Rate and length by draft over the last minute, and absent without any."""
    now_s = [20.0]
    written, _ = journal(clock=lambda: now_s[0])
    written.requests_ended([record(ended_s=10.0)])
    written.refresh()
    text = written.metrics.render().decode()
    assert f'outrider_acceptance_rate_ratio{{draft="ngram"}} {293 / 480}' in text
    assert f'outrider_acceptance_length_tokens{{draft="ngram"}} {1 + 293 / 160}' in text
    now_s[0] = 71.0
    written.refresh()
    assert "outrider_acceptance_rate_ratio{" not in written.metrics.render().decode()


def test_refused_requests_are_counted() -> None:
    """By outcome; no prompt or key is in reach of the line."""
    written, lines = journal()
    written.request_refused("x", "-", "refused", 401, "invalid_api_key")
    assert lines == ["[refused] x  401 invalid_api_key lane=-"]
    assert b'outrider_requests_total{lane="-",outcome="refused"} 1.0' in written.metrics.render()


def test_the_table_of_metrics() -> None:
    """Names are unique, prefixed, in base units; counters end in _total; all of them are in the docs' table."""
    page = markdown()
    assert len({metric.name for metric in TABLE}) == len(TABLE)
    for metric in TABLE:
        assert metric.name.startswith("outrider_") or metric is names.QUEUE_WAIT_MS
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert bool(metric.buckets) == (metric.kind == "histogram")
        assert f"| `{metric.name}` | {metric.kind} |" in page
    assert names.QUEUE_WAIT.buckets[0] == 0.001
