"""What a running front writes and counts of its requests."""

import json
import re

from tests.front.harness import CHAT, Bed, ask, chat, wait_until


def test_the_three_lines(bed: Bed) -> None:
    """Draft, batch, tokens per step, acceptance, times and cost, measured, in the documented form."""
    sim = bed.sim(ttft_ms=30, step_ms=5, tokens_per_chunk=3)
    front = bed.front(sim, settings={"price": {"usd_per_hour": 2.0}})
    ask(front.port, "POST", CHAT, chat(stream=True, max_tokens=31), X_Request_Id="3f9c")
    front.end()
    decode, latency, cost = front.log().splitlines()
    assert decode == "[decode]  3f9c  draft=ngram bs=1 tokens_per_step=3.0 acceptance_rate=0.67"
    assert re.fullmatch(
        r"\[latency\] 3f9c  queue \d+ms first-token \d+ms full-response \d+ms \(31 tokens\)", latency
    )
    assert re.fullmatch(
        r"\[cost\]    3f9c  \$\d+\.\d\d per 1M output tokens at the last minute's throughput", cost
    )


def test_nothing_measured_is_a_dash(bed: Bed) -> None:
    """A request that failed has no invented times, and says how it ended."""
    front = bed.front(bed.sim(fail_requests=1), settings={"price": {"usd_per_hour": 2.0}})
    ask(front.port, "POST", CHAT, chat(stream=True), X_Request_Id="x")
    ask(front.port, "POST", CHAT, b"{", X_Request_Id="y")
    front.end()
    decode, latency, refused = front.log().splitlines()
    assert decode == "[decode]  x  draft=ngram bs=1 tokens_per_step=- acceptance_rate=-"
    assert re.fullmatch(
        r"\[latency\] x  queue \d+ms first-token - full-response - \(- tokens\) outcome=engine_error", latency
    )
    assert refused == "[refused] y  400 invalid_json lane=-"


def test_json_lines(bed: Bed) -> None:
    """The same facts as JSON, with the trace id of the client's trace context."""
    front = bed.front(bed.sim(), settings={"log": "json"}, draft="none")
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    ask(front.port, "POST", CHAT, chat(stream=True), traceparent=trace)
    front.end()
    decode, latency = (json.loads(line) for line in front.log().splitlines())
    assert (decode["event"], decode["draft"], decode["acceptance_rate"]) == ("decode", "none", None)
    assert decode["id"] == latency["id"]
    assert latency["output_tokens"] == 16
    assert latency["trace_id"] == "0af7651916cd43dd8448eb211c80319c"
    assert 0 < latency["first_token_s"] < latency["full_response_s"] < 5


def test_metrics(bed: Bed) -> None:
    """Tokens, acceptance, latencies and outcomes are counted by lane and draft; every sample is documented."""
    from outrider.telemetry.names import TABLE

    front = bed.front(bed.sim())
    ask(front.port, "POST", CHAT, chat(stream=True, max_tokens=10))
    ask(front.port, "POST", CHAT, chat(max_tokens=10))
    wait_until(lambda: front.metric('outrider_requests_total{lane="interactive",outcome="ok"}') == 2)
    expected = {
        "outrider_output_tokens_total": 20,
        'outrider_drafts_total{draft="ngram"}': 18,
        'outrider_draft_tokens_proposed_total{draft="ngram"}': 54,
        'outrider_draft_tokens_accepted_total{draft="ngram"}': 36,
        'outrider_acceptance_length_tokens{draft="ngram"}': 3,
        'outrider_draft_in_force{draft="ngram"}': 1,
        'outrider_time_to_first_token_seconds_count{lane="interactive"}': 1,
        'outrider_time_per_output_token_seconds_count{lane="interactive"}': 1,
        'outrider_request_duration_seconds_count{lane="interactive"}': 2,
        'outrider_queue_wait_seconds_bucket{lane="interactive",le="0.001"}': 2,
    }
    assert {name: front.metric(name) for name in expected} == expected
    text = ask(front.port, "GET", "/metrics").body.decode()
    families = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    assert families == {metric.name for metric in TABLE}
    assert not re.search(r"_created\b", text)
