"""Ten switches of the draft under traffic, on the real engine in float32: no request fails, no text changes."""

from __future__ import annotations

import concurrent.futures
import itertools
from pathlib import Path

import httpx
import pytest

from tests.engine.conftest import Served, start, write_stack
from tests.shared import shared_path

pytestmark = [pytest.mark.acceptance, pytest.mark.engine, pytest.mark.timeout(1200)]

PROMPTS = (
    "Repeat this sentence five times: The quick brown fox jumps over the lazy dog.",
    "Write a Python function that returns the n-th Fibonacci number.",
    "List the first ten prime numbers.",
    "Explain in two sentences why the sky is blue.",
    "Count from one to thirty in words.",
)
REQUESTS, STREAMS, TOKENS = 200, 4, 24
ORDER = ("eagle3", "ngram", "off")


def complete(served: Served, number: int) -> tuple[int, int, str]:
    """Which prompt, the status and the text. Every second request goes on from the text of the one before: cached blocks."""
    prompt = PROMPTS[number % len(PROMPTS)]
    messages = [{"role": "user", "content": prompt}]
    if number // len(PROMPTS) % 2:
        messages += [
            {"role": "assistant", "content": "Gladly."},
            {"role": "user", "content": "Go on, please."},
        ]
    body = {"model": served.model, "messages": messages, "max_tokens": TOKENS, "temperature": 0}
    answer = httpx.post(f"{served.url}/v1/chat/completions", json=body, timeout=180, trust_env=False)
    text = answer.json()["choices"][0]["message"]["content"] if answer.status_code == 200 else answer.text
    return number % (2 * len(PROMPTS)), answer.status_code, text


def speculation(served: Served, body: object = None) -> dict[str, object]:
    """How it stands; with a body, after doing so."""
    url = f"{served.url}/v1/speculation"
    answer = httpx.get(url, trust_env=False) if body is None else httpx.post(url, json=body, trust_env=False)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_ten_switches_under_traffic_change_no_text(tmp_path: Path) -> None:
    """Pinned in turn every 18 requests, so that each batch holds requests of two drafts; prefix caching is on."""
    head = str(shared_path("models", "smollm2-135m-eagle3-start"))
    changes: dict[str, dict[str, object]] = {
        "draft": {"method": "eagle3", "model": head, "draft_length": 3},
        "target": {"dtype": "float32"},
    }
    served = start(str(write_stack(tmp_path, changes)))
    try:
        speculation(served, {"pin": "off"})
        right = {which: text for which, _, text in (complete(served, n) for n in range(2 * len(PROMPTS)))}
        before = len(speculation(served)["last_switches"])  # type: ignore[arg-type]  # a list
        drafts = itertools.cycle(ORDER)

        def ask(number: int) -> tuple[int, int, str]:
            if number % 18 == 0:
                speculation(served, {"pin": next(drafts)})
            return complete(served, number)

        with concurrent.futures.ThreadPoolExecutor(STREAMS) as pool:
            seen = list(pool.map(ask, range(REQUESTS)))
        assert [status for _, status, _ in seen] == [200] * REQUESTS
        assert [which for which, _, text in seen if text != right[which]] == []
        switches = speculation(served)["last_switches"][before:]  # type: ignore[index]
        assert len(switches) >= 10
        assert {one["after"] for one in switches} == set(ORDER)
        text = httpx.get(f"{served.url}/metrics", trust_env=False).text
        for draft in ("eagle3", "ngram"):
            assert f'outrider_drafts_total{{draft="{draft}"}}' in text, "both drafts really drafted"
    finally:
        served.stop()
