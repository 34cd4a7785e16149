"""The front under load: nothing lost at 500 streams, 1,000 connections served, memory flat over 10,000 requests."""

import asyncio
import http.client
import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from benchmarks.front.load import Load, Outcome, Run

from tests.front.harness import CHAT, Bed, Front, ask, bed, chat, post, wait_until

pytestmark = pytest.mark.acceptance


def load(front: Front, asked: Load) -> Outcome:
    """A closed-loop load on a front."""
    return asyncio.run(Run(asked).against(front.port, spread_s=0.1))


@pytest.fixture(name="made")
def fixture_made():
    """Processes of one test."""
    with bed() as made:
        yield made


def test_five_hundred_streams_at_once(made: Bed) -> None:
    """500 streams under way at the same time: every one whole, every chunk there, the books straight after."""
    front = made.front(made.sim(ttft_ms=100, step_ms=50), concurrency=500)
    outcome = load(front, Load(streams=500, requests=1000, chunks=40))
    assert outcome.failed == 0
    assert len(outcome.ttft_s) == 1000
    assert outcome.chunks == 40_000
    wait_until(lambda: front.metric("outrider_requests_running") == 0)
    assert front.metric('outrider_requests_total{lane="interactive",outcome="ok"}') == 1000
    assert front.metric("outrider_output_tokens_total") == 40_000


def test_five_hundred_streams_through_a_narrow_engine(made: Bed) -> None:
    """500 at once before an engine that takes 64: the others wait their turn and none is lost."""
    front = made.front(
        made.sim(ttft_ms=10, step_ms=5),
        concurrency=64,
        settings={"lanes": {"interactive": {"max_queue": 500}}},
    )
    outcome = load(front, Load(streams=500, requests=1500, chunks=10))
    assert (outcome.failed, len(outcome.ttft_s), outcome.chunks) == (0, 1500, 15_000)


def test_memory_is_flat_over_ten_thousand_requests(made: Bed) -> None:
    """After a warm-up, 10,000 requests of every kind leave the front as large as they found it."""
    front = made.front(made.sim(ttft_ms=1, step_ms=1), concurrency=64, settings={"max_body_bytes": 65536})
    load(front, Load(streams=64, requests=3000, chunks=4))
    before = front.resident_bytes()
    outcome = load(front, Load(streams=64, requests=8000, chunks=4))
    assert outcome.failed == 0
    for number in range(500):
        assert ask(front.port, "POST", CHAT, chat(max_tokens=1)).status == 200
        assert ask(front.port, "POST", CHAT, b"{").status == 400
        assert ask(front.port, "POST", CHAT, chat(user="x" * 60_000)).status == 200
        with socket.create_connection(("127.0.0.1", front.port)) as gone:
            gone.sendall(post(chat(stream=True, max_tokens=1000)))
            if number % 2:
                gone.recv(100)
    wait_until(lambda: front.metric("outrider_requests_running") == 0)
    assert front.resident_bytes() - before < 8_000_000


def test_a_thousand_connections(made: Bed) -> None:
    """1,000 clients hold a connection each; all are served, and the front lets all of them go."""
    front = made.front(
        made.sim(ttft_ms=5, step_ms=1),
        concurrency=64,
        settings={"lanes": {"interactive": {"max_queue": 1000}}},
    )
    connections = [http.client.HTTPConnection("127.0.0.1", front.port, timeout=30) for _ in range(1000)]
    for connection in connections:
        connection.connect()

    def once(connection: http.client.HTTPConnection) -> int:
        connection.request("POST", CHAT, chat(max_tokens=2), {"content-type": "application/json"})
        answer = connection.getresponse()
        assert json.loads(answer.read())["usage"]["completion_tokens"] == 2
        return answer.status

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(once, connections)) == [200] * 1000
    assert front.metric("outrider_client_connections") == 1001
    for connection in connections:
        connection.close()
    wait_until(lambda: front.metric("outrider_client_connections") == 1)
