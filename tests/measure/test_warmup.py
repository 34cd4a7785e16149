"""Warm-up waves: they go on until two in a row take the same time, are the load's own requests, and no server can hold them."""

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from outrider.measure import warmup
from outrider.measure.load import LoadPlan
from outrider.measure.prompts import Prompt
from outrider.measure.warmup import (
    LIMIT_S,
    MOST_WAVES,
    WarmUp,
    WaveFailed,
    agree,
    place_lengths,
    settle,
    warm_up,
)
from tests.measure.flooding import Flood
from tests.timing import Late, measures_time

PROMPTS = tuple(
    Prompt(f"p/{n}", (f"question {n}", "more"), system="be brief" if n else None) for n in range(3)
)


def settled(*durations_s: float, fails: str = "nothing more") -> tuple[WarmUp, list[str]]:
    """Waves that take so long, one after the other, then one that fails; and what was said."""
    now, left, said = [0.0], list(durations_s), list[str]()

    def wave() -> None:
        if not left:
            raise WaveFailed(fails)
        now[0] += left.pop(0)

    return settle(wave, said.append, lambda: now[0]), said


def test_waves_end_when_two_in_a_row_agree() -> None:
    """A wave that compiled, then two alike: settled after three; each is said as it comes."""
    found, said = settled(8.0, 2.2, 2.1, 9.0)
    assert (found.waves_s, found.unsettled) == (pytest.approx((8.0, 2.2, 2.1)), "")
    assert said == ["warm-up: 8.0 s", "warm-up: 8.0, 2.2 s", "warm-up: 8.0, 2.2, 2.1 s"]


def test_one_wave_is_never_enough() -> None:
    """Two waves alike from the start are two waves."""
    assert len(settled(1.0, 1.0, 5.0)[0].waves_s) == 2


def test_a_wave_like_an_older_one_does_not_settle() -> None:
    """Only neighbours count: 3, 1, 3 is still changing."""
    assert settled(3.0, 1.0, 3.0, 3.0)[0] == WarmUp((3.0, 1.0, 3.0, 3.0))


def test_waves_that_never_agree_end_all_the_same() -> None:
    """After the last wave that is allowed, with the reason."""
    found, _ = settled(*(2.0**n for n in range(MOST_WAVES + 3)))
    assert (len(found.waves_s), found.unsettled) == (MOST_WAVES, f"still changing after {MOST_WAVES} waves")


def test_the_time_limit_leaves_two_waves() -> None:
    """A first wave longer than the limit is followed by one more, to compare with, and no third."""
    found, _ = settled(LIMIT_S + 1, 5.0, 5.0)
    assert len(found.waves_s) == 2
    assert "no further wave after 120 s" in found.unsettled


def test_a_wave_that_fails_ends_it() -> None:
    """With what the server said, and the waves before it."""
    found, _ = settled(3.0, fails="a request was answered 503")
    assert found == WarmUp((3.0,), "a request was answered 503")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [(1.0, 1.09, True), (1.0, 1.11, False), (1.11, 1.0, False), (0.02, 0.06, True), (0.02, 0.08, False)],
)
def test_within_a_tenth_or_50_ms(one: float, other: float, same: bool) -> None:
    """A tenth of the shorter, whichever comes first; what differs by less than 50 ms is no kernel."""
    assert agree(one, other) is same


@pytest.mark.parametrize(("tokens", "places"), [(256, 8), (64, 1), (2, 128), (1, 4)])
def test_places_end_one_by_one_and_make_one_answer_each(tokens: int, places: int) -> None:
    """Two requests a place that add up to one answer; the first ends later from place to place."""
    lengths = [place_lengths(tokens, place, places) for place in range(places)]
    assert {sum(one) for one in lengths} == {tokens}
    assert min(min(one) for one in lengths) >= 1
    firsts = [one[0] for one in lengths]
    assert firsts == sorted(firsts)
    if tokens > places:
        assert len(set(firsts)) == places


class Scripted(ThreadingHTTPServer):
    """Answers completions; the first `slow` are held for two seconds each, as by a kernel that is being compiled."""

    daemon_threads = True
    request_queue_size = 256
    slow, status, takes_s = 0, 200, 0.02

    def __init__(self) -> None:
        self.asked: list[tuple[dict[str, str], dict[str, Any]]] = []
        self.running = self.most = 0
        self.lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), Answering)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Answering(BaseHTTPRequestHandler):
    """One connection of `Scripted`."""

    server: Scripted
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Note the request; answer with a stream of a few chunks."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with self.server.lock:
            self.server.asked.append((dict(self.headers), body))
            number = len(self.server.asked)
            self.server.running += 1
            self.server.most = max(self.server.most, self.server.running)
        time.sleep(self.server.takes_s + (2.0 if number <= self.server.slow else 0.0))
        with self.server.lock:
            self.server.running -= 1
        data = b"data: {}\n\n" * 5
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words: object) -> None:
        """Nothing."""


@pytest.fixture
def server() -> Iterator[Scripted]:
    """A scripted server."""
    made = Scripted()
    yield made
    made.shutdown()
    made.server_close()


def plan(port: int, **changes: Any) -> LoadPlan:
    """Four at once, ten tokens each."""
    members: dict[str, Any] = {"concurrency": 4, "requests": 8, "warmup_requests": 4, "output_tokens": 10}
    return LoadPlan(f"http://127.0.0.1:{port}", "m", PROMPTS, **{**members, **changes})


def quiet(line: str) -> None:
    """Nobody watches."""


@measures_time
def test_a_server_that_compiles_first_is_waited_for(server: Scripted) -> None:
    """The first wave takes two seconds longer, the next ones agree; as many run at once as in the load, and never more."""
    server.slow, server.takes_s = 4, 0.5
    found = warm_up(plan(server.server_port), quiet)
    assert len(server.asked) == 8 * len(found.waves_s)
    assert server.most == 4
    if found.unsettled or found.waves_s[0] < 1.5 + max(found.waves_s[1:]):
        raise Late(str(found))


def test_a_wave_is_as_wide_as_the_load(server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """More places than an HTTP client keeps connections of its own accord: all of them run at once."""
    monkeypatch.setattr(warmup, "MOST_WAVES", 1)
    server.slow = 120
    warm_up(plan(server.server_port, concurrency=120), quiet)
    assert server.most == 120


def test_waves_are_the_loads_requests(server: Scripted) -> None:
    """First turns of the plan's prompts, streamed, at its temperature and with its key; each wave is the same."""
    warm_up(plan(server.server_port, temperature=0.7, api_key="sk-warm"), quiet)
    headers, body = server.asked[0]
    assert headers["authorization"] == "Bearer sk-warm"
    assert (body["model"], body["stream"], body["temperature"], body["ignore_eos"]) == ("m", True, 0.7, True)
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    sent = [json.dumps([one["messages"], one["max_tokens"]]) for _, one in server.asked]
    assert sorted(sent[:8]) == sorted(sent[8:16])
    assert {one["messages"][-1]["content"] for _, one in server.asked} == {f"question {n}" for n in range(3)}
    assert {one["messages"][0]["role"] for _, one in server.asked} == {"system", "user"}
    assert sum(one["max_tokens"] for _, one in server.asked[:8]) == 4 * 10


def test_a_server_that_refuses_is_told(server: Scripted) -> None:
    """A status that is no answer ends the warm-up; nobody there does, too."""
    server.status = 503
    assert warm_up(plan(server.server_port), quiet) == WarmUp((), "a request was answered 503")
    assert warm_up(plan(9), quiet).unsettled.startswith("a request failed: ")


@pytest.mark.parametrize(
    ("way", "said"),
    [("big-chunks", "an answer of 5 tokens was over 1 MiB"), ("trickle", "no end within 1 s")],
)
def test_a_server_without_end_cannot_hold_it(way: str, said: str) -> None:
    """A flood is left at the bound of one answer, a trickle at the plan's timeout."""
    flood = Flood(way)
    begin = time.monotonic()
    found = warm_up(plan(flood.port, concurrency=1, timeout_s=1.0), quiet)
    flood.close()
    assert found.waves_s == ()
    assert said in found.unsettled
    assert time.monotonic() - begin < 60
