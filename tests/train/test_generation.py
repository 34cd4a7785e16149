"""The client of the engine: what it sends, what it bears, what it calls by its name."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from outrider.core.errors import TrainingError
from outrider.train import generation
from outrider.train.generation import OVERFLOW, EngineAccess, Refused, Sampling, Target, Written
from tests.train.scripted_engine import END, Script, ScriptedEngine, encode, scripted

pytestmark = pytest.mark.usefixtures("soon")
T = TypeVar("T")
GREEDY = Sampling(max_tokens=200, temperature=0.0)


def ask(access: EngineAccess, what: Callable[[Target], Awaitable[T]]) -> T:
    """One question to an engine."""

    async def run() -> T:
        async with Target(access) as target:
            return await what(target)

    return asyncio.run(run())


def write(engine: ScriptedEngine, *prompts: list[int], sampling: Sampling = GREEDY) -> list[Written]:
    """Texts of prompts."""
    return ask(engine.access, lambda target: target.write(prompts, sampling))


def failing(path: str, statuses: list[int]) -> Callable[[str, int], int]:
    """Requests to `path` fail with these in order, later ones do not."""
    left = list(statuses)
    return lambda asked, number: left.pop(0) if asked == path and left else 0


def test_texts_come_back_to_their_prompts() -> None:
    """In the order of the prompts, whatever order they are answered in, the end token last."""
    with scripted(Script(answer=lambda prompt: prompt[::-1])) as engine:
        found = write(engine, encode("ab"), encode("xyz"))
    assert [one.text for one in found] == ["ba", "zyx"]
    assert found[1].ids == (*encode("zyx"), END)
    assert {one.finish_reason for one in found} == {"stop"}


def test_what_is_sent() -> None:
    """Token ids, the key, a temperature: and never a seed, which makes sampling slow."""
    with scripted() as engine:
        write(
            engine, [1, 2], sampling=Sampling(9, 0.7, plain=True, stop_tokens=(END,), stop_texts=("User:",))
        )
        write(engine, [1, 2])
    (path, body, headers), (_, greedy, _) = engine.requests
    assert (path, body["prompt"], body["return_token_ids"]) == ("/v1/completions", [1, 2], True)
    assert headers["Authorization"] == "Bearer secret"
    assert (body["top_p"], body["top_k"], body["repetition_penalty"]) == (1.0, 0, 1.0)
    assert (body["stop_token_ids"], body["stop"]) == ([END], ["User:"])
    assert greedy == {
        "model": "toy",
        "prompt": [1, 2],
        "return_token_ids": True,
        "max_tokens": 200,
        "temperature": 0.0,
    }
    assert "seed" not in json.dumps([body, greedy])


@pytest.mark.parametrize("statuses", [[429, 503, 429], [500, 502], [-1, -1], [503] * 9])
def test_faults_that_pass_are_borne(statuses: list[int]) -> None:
    """A busy engine, a fault of the moment, a connection cut: asked again."""
    with scripted(Script(fault=failing("/v1/completions", statuses))) as engine:
        assert write(engine, [1])[0].finish_reason == "stop"
    assert len(engine.requests) == len(statuses) + 1


def test_a_busy_engine_says_how_long() -> None:
    """`Retry-After` is kept to, within a minute; without it the waits grow."""
    assert generation._wait_s("7", 1) == 7
    assert generation._wait_s("9999", 1) == 60
    assert [generation._wait_s(other, n) for other, n in ((None, 1), ("", 2), ("soon", 3), (None, 12))] == [
        0.5,
        1,
        2,
        30,
    ]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (500, "answered 500: fault 500"),
        (503, "answered 503"),
        (-1, "does not answer any more"),
        (401, "refuses the key"),
        (404, "does not serve toy"),
    ],
)
def test_faults_that_stay_end_the_step(fault: int, message: str) -> None:
    """With what the engine said, and what to do: an engine that died is started by the same command."""
    with (
        scripted(Script(fault=lambda path, number: fault)) as engine,
        pytest.raises(TrainingError, match=message) as caught,
    ):
        write(engine, [1])
    assert caught.value.hint
    if fault in (500, -1):
        assert "Repeat the command: it goes on" in caught.value.hint
    assert caught.value.exit_code == 13


def test_no_engine_at_all() -> None:
    """A closed port is a training error soon, not a wait of minutes."""
    with scripted() as engine:
        access = engine.access
    started = time.monotonic()
    with pytest.raises(TrainingError, match=r"does not answer any more \(ConnectError\)"):
        ask(access, lambda target: target.chat_ids([{"role": "user", "content": "a"}]))
    assert time.monotonic() - started < 5


def test_a_prompt_too_long_is_refused_alone() -> None:
    """The context's end is a reason to drop one prompt; other refusals count by their words, not their numbers."""
    with scripted(Script(context=20)) as engine, pytest.raises(Refused) as caught:
        write(engine, [1] * 30)
    assert str(caught.value) == OVERFLOW
    for message in (
        "max_tokens=5000 cannot be greater than max_model_len=2048. Please request fewer output tokens.",
        "This model's maximum context length is 2048 tokens. However, your prompt contains 9300 input tokens",
    ):
        assert str(generation._fault(400, json.dumps({"error": {"message": message}}), "m")) == OVERFLOW
    one, other = (
        generation._fault(400, json.dumps({"error": {"message": f"Token id {n} is out of vocabulary"}}), "m")
        for n in (9, 123)
    )
    assert str(one) == str(other) == "refused by the engine: Token id N is out of vocabulary"


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"text": "a", "finish_reason": "stop"}, "without token ids"),
        ({"text": "a", "finish_reason": "abort", "token_ids": [1]}, r"broke off a text \(abort\)"),
        (None, "0 texts for 1 prompts"),
    ],
)
def test_odd_answers_are_not_taken_for_data(
    monkeypatch: pytest.MonkeyPatch, choice: dict[str, object] | None, message: str
) -> None:
    """Text without tokens, a text broken off, no text: errors with a hint, never rows."""
    with scripted() as engine:
        monkeypatch.setattr(
            engine, "reply", lambda path, body: (200, {"choices": [choice] if choice else []})
        )
        with pytest.raises(TrainingError, match=message) as caught:
            write(engine, [1])
    assert caught.value.hint


def test_many_at_a_time_over_few_connections_each() -> None:
    """As many requests are under way as the engine may be given, and each pool stays small: large ones are slow."""
    with scripted(Script(delay_s=1.0)) as engine:
        access = EngineAccess(engine.access.url, "secret", "toy", 64)

        async def many(target: Target) -> int:
            await asyncio.gather(*(target.write([[1]], GREEDY) for _ in range(64)))
            return len(target._pools)

        assert ask(access, many) == 4
        assert engine.peak == 64


def test_connections_are_kept() -> None:
    """One request after the other needs one connection."""
    with scripted() as engine:

        async def three(target: Target) -> None:
            for _ in range(3):
                await target.write([[1]], GREEDY)

        ask(engine.access, three)
        assert engine.connections == 1
