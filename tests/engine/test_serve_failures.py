"""`outrider serve` when things go wrong, on the real engine."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.engine.conftest import Served, refused, write_stack

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]


def stream_events(url: str, model: str, tokens: int, sink: list[str]) -> None:
    """Stream one completion into `sink`, line by line."""
    body = {
        "model": model,
        "prompt": "Once upon a time",
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
    }
    with httpx.stream("POST", f"{url}/v1/completions", json=body, timeout=120, trust_env=False) as answer:
        sink.append(f"status {answer.status_code}")
        sink.extend(line for line in answer.iter_lines() if line)


def wait_until(done: object, timeout_s: float, what: str) -> None:
    """Poll `done` (a callable) until it is true."""
    deadline = time.monotonic() + timeout_s
    while not done():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_other_machines_need_keys() -> None:
    """An address that others reach is refused without keys, before anything is loaded."""
    status, said = refused("--host", "0.0.0.0", "--port", "0")  # noqa: S104  (the point of the test)
    assert status == 10
    assert "outrider key new" in said


def test_an_engine_that_dies_at_start(tmp_path: Path) -> None:
    """Its last log lines are shown, with where the whole log is; exit 11."""
    stack = write_stack(tmp_path, {"engine": {"extra_args": {"max-num-batched-tokens": -5}}})
    status, said = refused(str(stack), "--port", "0", timeout_s=180)
    assert status == 11
    assert "the engine's last lines:" in said
    assert "whole log" in said


def test_an_engine_that_never_becomes_ready(begin: Callable[..., Served], tmp_path: Path) -> None:
    """Given up after `engine.start_timeout_s`, and no engine process is left."""
    stack = write_stack(tmp_path, {"engine": {"start_timeout_s": 3.0}})
    served = begin(str(stack), ready=False)
    wait_until(
        lambda: served.engine_pids() or served.process.poll() is not None, 120, "no engine was started"
    )
    engines = served.engine_pids()
    assert engines
    assert served.process.wait(120) == 11
    assert any("engine.start_timeout_s" in line for line in served.lines)
    wait_until(
        lambda: not any(os.path.exists(f"/proc/{pid}") for pid in engines), 60, "the engine was left behind"
    )


def test_the_engine_is_killed_in_mid_stream_and_comes_back(
    begin: Callable[..., Served], tmp_path: Path
) -> None:
    """The stream ends with an error event, a queued request is kept and answered after the restart, SIGTERM then drains.

    One service for the whole story: each chapter costs an engine start.
    """
    stack = write_stack(
        tmp_path,
        {
            "engine": {"max_running_requests": 1, "cpu_kv_cache_gib": 0.5},
            "serve": {"lanes": {"interactive": {"queue_timeout_s": 600.0}}},
        },
    )
    served = begin(str(stack))
    broken: list[str] = []
    queued: list[str] = []
    first = threading.Thread(target=stream_events, args=(served.url, served.model, 1900, broken))
    first.start()
    wait_until(lambda: len(broken) > 5, 120, "the first stream did not start")
    second = threading.Thread(target=stream_events, args=(served.url, served.model, 8, queued))
    second.start()
    time.sleep(0.5)
    for pid in served.engine_pids():
        os.killpg(pid, signal.SIGKILL)
    first.join(120)
    assert not first.is_alive()
    assert "error" in broken[-1], broken[-1]
    assert "[DONE]" not in "".join(broken)
    ready = lambda: httpx.get(f"{served.url}/readyz", trust_env=False).status_code  # noqa: E731  (one line, used here)
    wait_until(lambda: ready() == 503, 30, "/readyz stayed good without an engine")
    second.join(600)
    assert queued[0] == "status 200"
    assert queued[-1] == "data: [DONE]"
    assert "outrider_engine_restarts_total 1.0" in httpx.get(f"{served.url}/metrics", trust_env=False).text

    last: list[str] = []
    third = threading.Thread(target=stream_events, args=(served.url, served.model, 100, last))
    third.start()
    wait_until(lambda: len(last) > 3, 120, "the last stream did not start")
    engines = served.engine_pids()
    assert served.stop() == 0
    third.join(60)
    assert last[-1] == "data: [DONE]", "SIGTERM cut a stream"
    assert not any(os.path.exists(f"/proc/{pid}") for pid in engines)
