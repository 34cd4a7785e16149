"""`outrider serve` on the real CPU engine: what a user does with it, and what must not hurt it."""

from __future__ import annotations

import concurrent.futures
import json
import re
import subprocess
import time

import httpx
import openai
import pytest

from tests.engine.conftest import Served, refused

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]


@pytest.fixture
def client(service: Served) -> openai.OpenAI:
    """The OpenAI client, as users have it."""
    return openai.OpenAI(base_url=f"{service.url}/v1", api_key="unused", max_retries=0, timeout=120)


def test_the_printed_curl_streams_and_logs(service: Served) -> None:
    """The printed command works as printed, and its log lines tell a real acceptance above 0.3."""
    command = next(line for line in service.lines if line.startswith("curl "))
    since = len(service.lines)
    out = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=True).stdout  # noqa: S602
    events = [line.removeprefix("data: ") for line in out.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    assert not any("usage" in chunk for chunk in chunks), "usage was not asked for"
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert "green" in text
    decode = service.wait_for(
        r"\[decode\] +(\S+) +draft=ngram bs=(\S+) tokens_per_step=(\S+) acceptance_rate=(\S+)", since=since
    )
    assert float(decode.group(4)) > 0.3
    assert float(decode.group(3)) > 1.0
    latency = service.wait_for(
        rf"\[latency\] +{decode.group(1)} +queue (\d+)ms first-token (\d+)ms full-response ([\d.]+)(ms|s) \((\d+) tokens\)",
        since=since,
    )
    whole_ms = float(latency.group(3)) * (1000 if latency.group(4) == "s" else 1)
    assert 0 < int(latency.group(2)) < whole_ms
    assert int(latency.group(5)) > 20
    service.wait_for(rf"\[cost\] +{decode.group(1)} +\$[\d.]+ per 1M output tokens", since=since)


def test_chat_completions(client: openai.OpenAI, service: Served) -> None:
    """A whole answer, with usage."""
    answer = client.chat.completions.create(
        model=service.model, messages=[{"role": "user", "content": "Say hello."}], max_tokens=16
    )
    assert answer.choices[0].message.content
    assert answer.usage
    assert 0 < answer.usage.completion_tokens <= 16


def test_streams_with_and_without_usage(client: openai.OpenAI, service: Served) -> None:
    """A client that asks for usage gets exactly one usage chunk; one that does not gets none."""
    for asked in (True, False):
        extra = {"stream_options": {"include_usage": True}} if asked else {}
        stream = client.chat.completions.create(
            model=service.model,
            messages=[{"role": "user", "content": "Count to five."}],
            max_tokens=24,
            stream=True,
            **extra,  # type: ignore[call-overload]
        )
        chunks = list(stream)
        assert sum(1 for chunk in chunks if chunk.usage) == int(asked)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_structured_output(client: openai.OpenAI, service: Served) -> None:
    """A JSON schema is kept to, with a draft in force."""
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    answer = client.chat.completions.create(
        model=service.model,
        messages=[{"role": "user", "content": 'Answer with JSON like {"n": 3}.'}],
        response_format={"type": "json_schema", "json_schema": {"name": "n", "schema": schema}},
        max_tokens=40,
        temperature=0,
    )
    assert isinstance(json.loads(answer.choices[0].message.content or "")["n"], int)


def test_tools(client: openai.OpenAI, service: Served) -> None:
    """A named, strict tool is called with arguments that fit its schema."""
    tool = {
        "type": "function",
        "function": {
            "name": "get_weather",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
    answer = client.chat.completions.create(
        model=service.model,
        messages=[{"role": "user", "content": "Weather in Paris?"}],
        tools=[tool],  # type: ignore[list-item]
        tool_choice={"type": "function", "function": {"name": "get_weather"}},
        max_tokens=60,
        temperature=0,
    )
    calls = answer.choices[0].message.tool_calls
    assert calls
    assert json.loads(calls[0].function.arguments)["city"] in ("Paris", "Rome")  # type: ignore[union-attr]


def test_models_and_health(http: httpx.Client, service: Served) -> None:
    """The model is listed under its served name; health and readiness are good and say what the draft did."""
    assert service.model in [model["id"] for model in http.get("/v1/models").json()["data"]]
    assert http.get("/healthz").status_code == 200
    ready = http.get("/readyz")
    assert ready.status_code == 200
    assert "ngram drafts" in ready.text


def test_metrics_tell_the_draft(http: httpx.Client, service: Served) -> None:
    """After a request that repeats, the drafts of the front and of the engine are counted under the draft's name."""
    body = {
        "model": service.model,
        "prompt": "a b c d e f " * 20,
        "max_tokens": 32,
        "temperature": 0,
        "stream": True,
    }
    http.post("/v1/completions", json=body).raise_for_status()
    deadline = time.monotonic() + 60
    wanted = (
        r'outrider_draft_tokens_accepted_total\{draft="ngram"\} [1-9]',
        r'outrider_engine_draft_tokens_accepted_total\{draft="ngram",engine="engine-0"\} [1-9]',
        r'outrider_acceptance_length_tokens\{draft="ngram"\} [1-9]',
        r'outrider_draft_in_force\{draft="ngram"\} 1',
        r"queue_wait_ms [0-9]",
    )
    page = ""
    while time.monotonic() < deadline:
        page = http.get("/metrics").text
        if all(re.search(pattern, page) for pattern in wanted):
            return
        time.sleep(0.3)
    pytest.fail("missing: " + ", ".join(pattern for pattern in wanted if not re.search(pattern, page)))


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"prompt": "word " * 5000}, 400),
        ({"max_tokens": 10**9}, 400),
        ({"model": "gpt-99"}, 404),
        ({"prompt": "a", "n": 10**6}, 400),
        ({"temperature": "hot"}, 400),
    ],
)
def test_bad_requests_are_refused_clearly(
    http: httpx.Client, service: Served, change: dict[str, object], status: int
) -> None:
    """Too long, absurd, unknown, mistyped: an OpenAI error body, and the engine lives on."""
    answer = http.post(
        "/v1/completions", json={"model": service.model, "prompt": "hi", "max_tokens": 4, **change}
    )
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["message"]
    assert http.get("/readyz").status_code == 200


def test_the_very_edge_of_the_context(http: httpx.Client, service: Served) -> None:
    """Prompt + answer = the context, one token at a time around it: answered or refused, never an engine that died."""
    context = 2048
    for prompt_tokens, answer_tokens in (
        (context - 8, 8),
        (context - 1, 1),
        (context - 3, 3),
        (context - 4, 8),
        (context, 1),
    ):
        body = {
            "model": service.model,
            "prompt": [11, 12, 13, 14] * (prompt_tokens // 4) + [11] * (prompt_tokens % 4),
            "max_tokens": answer_tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        answer = http.post("/v1/completions", json=body)
        room = context - prompt_tokens
        assert answer.status_code == (200 if room else 400), answer.text
        if room:  # the engine cuts an answer at the context
            assert answer.json()["usage"]["completion_tokens"] == min(answer_tokens, room)
    assert http.get("/readyz").status_code == 200


def test_a_seeded_sampled_long_prompt_does_not_kill_the_engine(http: httpx.Client, service: Served) -> None:
    """One client's seed under chunked prefill, beside other traffic: answered, repeatable, the engine lives on."""
    body = {
        "model": service.model,
        "prompt": "one two three " * 450,
        "max_tokens": 12,
        "temperature": 0.9,
        "seed": 7,
    }
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = [
            job.result() for job in [pool.submit(http.post, "/v1/completions", json=body) for _ in range(4)]
        ]
    assert [answer.status_code for answer in answers] == [200] * 4
    assert http.get("/readyz").status_code == 200


def test_a_clients_own_stamp_has_no_effect(http: httpx.Client, service: Served) -> None:
    """Engine-only fields are dropped: the request is served with our draft, not refused, not obeyed."""
    since = len(service.lines)
    body = {
        "model": service.model,
        "prompt": "a b c d " * 20,
        "max_tokens": 24,
        "temperature": 0,
        "vllm_xargs": {"outrider_draft": "off"},
        "priority": 5,
        "cache_salt": "mine",
        "kv_transfer_params": {"do_remote_decode": True},
    }
    assert http.post("/v1/completions", json=body).status_code == 200
    service.wait_for(r"\[decode\] +\S+ +draft=ngram", since=since)


def test_a_client_that_goes_away_stops_the_engines_work(http: httpx.Client, service: Served) -> None:
    """The slot is free and the engine runs nothing soon after the client left a long stream."""
    body = {"model": service.model, "prompt": "hello", "max_tokens": 1500, "ignore_eos": True, "stream": True}
    with http.stream("POST", "/v1/completions", json=body) as answer:
        next(answer.iter_lines())
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        page = http.get("/metrics").text
        if re.search(r"outrider_requests_running 0", page) and re.search(
            r'outrider_engine_requests_running\{engine="engine-0"\} 0', page
        ):
            return
        time.sleep(0.3)
    pytest.fail("the engine still runs the request")


def test_a_port_that_is_taken(service: Served) -> None:
    """A clear sentence with the next step, exit 10, and the service that has the port is unharmed."""
    port = service.url.rsplit(":", 1)[1]
    status, said = refused("--port", port)
    assert status == 10
    assert f"Port {port}" in said
    assert "serve.port" in said
    assert httpx.get(f"{service.url}/readyz", trust_env=False).status_code == 200
