"""What the front changes in a request and a stream, and that it changes nothing else."""

import json

import pytest

from tests.front.harness import CHAT, Bed, Front, Sim, ask, chat, payloads, post, raw

Pair = tuple[Front, Sim]
STAMP = b'"vllm_xargs":{"outrider_draft":"ngram"}'


def test_a_whole_answer_passes_byte_by_byte(pair: Pair) -> None:
    """What the engine answers to the request as we sent it is what the client gets."""
    front, sim = pair
    answer = ask(front.port, "POST", CHAT, chat())
    _, sent = sim.last()
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.body == ask(sim.port, "POST", CHAT, sent).body


def test_a_stream_passes_byte_by_byte(pair: Pair) -> None:
    """A client that asked for usage gets the engine's stream as it is."""
    front, sim = pair
    answer = ask(front.port, "POST", CHAT, chat(stream=True, stream_options={"include_usage": True}))
    _, sent = sim.last()
    direct = ask(sim.port, "POST", CHAT, sent)
    assert answer.body == direct.body
    assert b'"usage":{' in answer.body
    assert answer.headers["content-type"] == direct.headers["content-type"]


def test_usage_nobody_asked_for_is_taken_out(pair: Pair) -> None:
    """The client's stream is the engine's less exactly the usage chunk; [DONE] stays."""
    front, sim = pair
    answer = ask(front.port, "POST", CHAT, chat(stream=True))
    _, sent = sim.last()
    assert b'"stream_options":{"include_usage":true}' in sent
    events = ask(sim.port, "POST", CHAT, sent).body.split(b"\n\n")
    usage = [event for event in events if b'"usage":{' in event]
    assert len(usage) == 1
    assert answer.body == b"\n\n".join(event for event in events if event not in usage)
    assert payloads(answer.body)[-1] == "[DONE]"


def test_the_request_keeps_its_bytes(pair: Pair) -> None:
    """Odd spacing, escapes, unknown members and long numbers reach the engine as the client wrote them."""
    front, sim = pair
    body = '{ "model" : "s\\u0069m",\n "x": 1.50e+2, "messages":[{"role":"user","content":"h\\u00e9 é"}] , "seed":7 }'
    assert ask(front.port, "POST", CHAT, body.encode()).status == 200
    _, sent = sim.last()
    assert sent == b"{" + STAMP + b"," + body[1:].encode()


@pytest.mark.parametrize(
    "key", ["vllm_xargs", "vllm\\u005fxargs", "cache_salt", "priority", "kv_transfer_params"]
)
def test_a_clients_own_stamp_and_engine_fields_are_dropped(pair: Pair, key: str) -> None:
    """A client can neither choose its draft nor set what belongs to the engine."""
    front, sim = pair
    body = chat().decode()[:-1] + f', "{key}": {{"outrider_draft": "eagle3"}}}}'
    assert ask(front.port, "POST", CHAT, body.encode()).status == 200
    _, sent = sim.last()
    received = json.loads(sent)
    assert received.pop("vllm_xargs") == {"outrider_draft": "ngram"}
    assert received == json.loads(chat())


def test_only_ids_go_upstream(pair: Pair) -> None:
    """Of the client's headers the engine sees the request id and the trace context; no key, no cookie, no agent."""
    front, sim = pair
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    answer = ask(
        front.port,
        "POST",
        CHAT,
        chat(),
        Authorization="Bearer sk-secret",
        Cookie="a=b",
        User_Agent="test",
        X_Request_Id="req-1.A_b",
        traceparent=trace,
        tracestate="vendor=1",
        X_Forwarded_For="10.0.0.1",
    )
    headers, _ = sim.last()
    assert answer.headers["x-request-id"] == headers["x-request-id"] == "req-1.A_b"
    assert (headers["traceparent"], headers["tracestate"]) == (trace, "vendor=1")
    names = {"host", "content-type", "content-length", "x-request-id", "traceparent", "tracestate"}
    assert set(headers) == names


@pytest.mark.parametrize("value", ["", "a b", "x" * 129, "a;b", "é"])
def test_a_request_id_unfit_for_logs_is_replaced(pair: Pair, value: str) -> None:
    """An id that could forge a log line or a header is not taken over."""
    front, sim = pair
    answer = ask(front.port, "POST", CHAT, chat(), X_Request_Id=value)
    headers, _ = sim.last()
    assert answer.headers["x-request-id"] == headers["x-request-id"] != value


@pytest.mark.parametrize(
    "value",
    [
        "00-00000000000000000000000000000000-b7ad6b7169203331-01",
        "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
        "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        "nonsense",
    ],
)
def test_an_invalid_trace_context_is_not_passed_on(pair: Pair, value: str) -> None:
    """Neither the broken parent nor the state that would hang on it."""
    front, sim = pair
    assert ask(front.port, "POST", CHAT, chat(), traceparent=value, tracestate="a=1").status == 200
    headers, _ = sim.last()
    assert not {"traceparent", "tracestate"} & set(headers)


def test_the_upstreams_own_key_is_set(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine gets the launch's key; a front with a wrong one answers 502, not the client's 401."""
    monkeypatch.setenv("OUTRIDER_SIM_KEY", "launch-key")
    sim = bed.sim()
    right = bed.front(upstreams=[{"port": sim.port, "concurrency": 1, "api_key": "launch-key"}])
    wrong = bed.front(upstreams=[{"port": sim.port, "concurrency": 1, "api_key": "other"}])
    assert ask(right.port, "POST", CHAT, chat()).status == 200
    answer = ask(wrong.port, "POST", CHAT, chat())
    assert (answer.status, answer.error["code"]) == (502, "engine_refused_key")


def test_absurd_max_tokens_is_the_engines_to_refuse(pair: Pair) -> None:
    """The front passes the number on, and the engine's 400 back as it is."""
    front, sim = pair
    answer = ask(front.port, "POST", CHAT, chat(max_tokens=10**18))
    assert answer.status == 400
    assert answer.body == ask(sim.port, "POST", CHAT, chat(max_tokens=10**18)).body


def test_an_engines_plain_error_is_put_in_form(pair: Pair) -> None:
    """A 500 in plain text becomes an OpenAI error without the engine's text; the next request works."""
    front, sim = pair
    sim.script(fail_requests=1)
    answer = ask(front.port, "POST", CHAT, chat())
    assert (answer.status, answer.error["type"]) == (500, "server_error")
    assert ask(front.port, "POST", CHAT, chat()).status == 200


def test_completions_stream_too(pair: Pair) -> None:
    """The older route is stamped and filtered alike."""
    front, _ = pair
    body = json.dumps({"model": "sim", "prompt": "x", "stream": True, "max_tokens": 2}).encode()
    events = payloads(ask(front.port, "POST", "/v1/completions", body).body)
    assert [event["choices"][0]["text"] for event in events[:2]] == ["tokto", "tokto"]
    assert events[-1] == "[DONE]"
    assert not any("usage" in event for event in events[:-1])


def test_old_clients_get_a_stream_until_close(pair: Pair) -> None:
    """HTTP/1.0 knows no chunks: the same events, ended by the connection."""
    front, _ = pair
    head, _, body = raw(front.port, post(chat(stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0")).partition(
        b"\r\n\r\n"
    )
    assert b"transfer-encoding" not in head
    assert body == ask(front.port, "POST", CHAT, chat(stream=True)).body
