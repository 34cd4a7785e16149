"""`policy.plain_engine` on the real CPU engine: one that drafts and one that does not, behind one door."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engine.conftest import Served, start, write_stack
from tests.engine.test_serve_failures import wait_until
from tests.stacks import NGRAM

pytestmark = [pytest.mark.acceptance, pytest.mark.engine, pytest.mark.timeout(1200)]

PROMPTS = ["a b c d e f " * 12, "red, green, blue, red, green,", "1 2 3 4 1 2 3 4 1 2 3", "Once upon a time"]


@pytest.fixture(scope="module", name="two")
def fixture_two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The built-in target with n-gram drafts, in float32 so that both engines must say the same, and a plain engine beside it."""
    changes: dict[str, dict[str, object]] = {
        "target": {"dtype": "float32"},
        "draft": NGRAM,
        "engine": {"cpu_kv_cache_gib": 0.5},
        "policy": {"plain_engine": True},
    }
    served = start(str(write_stack(tmp_path_factory.mktemp("two"), changes)))
    yield served
    served.stop()


def answer(two: Served, prompt: str) -> str:
    """A greedy completion."""
    body = {"model": two.model, "prompt": prompt, "max_tokens": 32, "temperature": 0, "ignore_eos": True}
    found = httpx.post(f"{two.url}/v1/completions", json=body, timeout=120, trust_env=False)
    assert found.status_code == 200, found.text
    return str(found.json()["choices"][0]["text"])


def drafts(two: Served) -> list[dict[str, Any]]:
    """What the governor knows of each."""
    state = httpx.get(f"{two.url}/v1/speculation", trust_env=False).json()
    return list(state["drafts"])


def ran(two: Served, since: int) -> list[str]:
    """What the requests that ended ran with, in their order."""
    return [
        found[1] for line in two.lines[since:] if (found := re.search(r"\[decode\] .* draft=(\S+)", line))
    ]


def pinned(two: Served, draft: str) -> None:
    """Hold a draft in force."""
    body = {"pin": draft} if draft else {"release": True}
    assert httpx.post(f"{two.url}/v1/speculation", json=body, trust_env=False).status_code == 200


def page(two: Served, path: str = "/metrics") -> str:
    """What it says there."""
    return httpx.get(f"{two.url}{path}", trust_env=False).text


def plain_pid(two: Served) -> int:
    """The engine without speculation."""
    commands = {pid: Path(f"/proc/{pid}/cmdline").read_text() for pid in two.engine_pids()}
    (found,) = [pid for pid, text in commands.items() if "api_server" in text and "--speculative" not in text]
    return found


def test_a_pin_moves_new_requests_and_no_answer_changes(two: Served) -> None:
    """Logged with what they ran with; the plain engine makes its tokens without a draft; steps of both are known at once."""
    assert "a plain engine beside it" in "\n".join(two.lines)
    assert [one["draft"] for one in drafts(two)] == ["ngram", "off"]
    wait_until(
        lambda: all(one["step_ms"] for one in drafts(two)), 10, "a look a second takes up what the start saw"
    )
    since = len(two.lines)
    drafted = [answer(two, prompt) for prompt in PROMPTS]
    two.wait_for(r"\[decode\] +\S+ +draft=ngram bs=1 tokens_per_step=([2-9]|1\.[1-9])", since=since)
    pinned(two, "off")
    assert [answer(two, prompt) for prompt in PROMPTS] == drafted
    wait_until(lambda: len(ran(two, since)) == 2 * len(PROMPTS), 20, "a line for each request")
    assert ran(two, since) == ["ngram"] * len(PROMPTS) + ["off"] * len(PROMPTS)
    made = r'outrider_engine_generation_tokens_total\{engine="plain-0"\} (\d+)'
    deadline = time.monotonic() + 20
    while not (found := re.search(made, page(two))) or int(found[1]) < 32 * len(PROMPTS):
        assert time.monotonic() < deadline, page(two)
        time.sleep(0.3)
    assert 'outrider_draft_in_force{draft="off"} 1' in page(two)


def test_a_plain_engine_that_is_killed_is_stood_for_and_comes_back(two: Served) -> None:
    """Still ready, still answering, with what is there; then as before."""
    pinned(two, "off")
    since = len(two.lines)
    os.kill(plain_pid(two), signal.SIGKILL)
    two.wait_for(r"plain-0: .*starting it again", since=since)
    assert httpx.get(f"{two.url}/readyz", trust_env=False).status_code == 200
    assert answer(two, PROMPTS[0])
    two.wait_for(r"draft=ngram", since=since)
    wait_until(lambda: "plain-0: ready" in page(two, "/readyz"), 300, "it was not started again")
    since = len(two.lines)
    assert answer(two, PROMPTS[0])
    two.wait_for(r"draft=off", since=since)
    pinned(two, "")


def test_both_stop_with_the_service(two: Served) -> None:
    """SIGTERM: exit 0, and no engine is left."""
    pids = two.engine_pids()
    assert len(pids) >= 2
    assert two.stop() == 0
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
