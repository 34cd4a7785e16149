"""A front that governs its drafts, before a simulated engine whose acceptance a test can break and mend."""

import hashlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.front import harness
from tests.front.harness import CHAT, Bed, Front, Json, Sim, ask, chat, wait_until

# The rules are the default ones; their times are shortened, so that a test need not wait for minutes.
QUICK = {
    "dwell_s": 1,
    "window_s": 3,
    "sustained_s": 1,
    "probe_round_s": 2,
    "probe_share_max": 0.3,
    "shun_s": 1,
    "trials": False,
}


@contextmanager
def traffic(front: Front, streams: int = 4, **members: object) -> Iterator[Callable[[], list[int]]]:
    """Streams under way meanwhile; the statuses of those that ended."""
    done, statuses = threading.Event(), []

    def ask_on() -> None:
        while not done.is_set():
            answer = ask(front.port, "POST", CHAT, chat(stream=True, max_tokens=12, **members))
            whole = answer.body.endswith(b"data: [DONE]\n\n")
            statuses.append(answer.status if whole else -1)

    threads = [threading.Thread(target=ask_on) for _ in range(streams)]
    for thread in threads:
        thread.start()
    try:
        yield lambda: list(statuses)
    finally:
        done.set()
        for thread in threads:
            thread.join(60)


def speculation(front: Front, query: str = "", **headers: str) -> Json:
    """What the front says of it."""
    return ask(front.port, "GET", f"/v1/speculation{query}", **headers).json()


def until_in_force(front: Front, draft: str, within_s: float = 90.0) -> None:
    """Wait until this draft is in force; fails after `within_s`."""
    began = time.monotonic()
    while speculation(front)["draft"] != draft:
        assert time.monotonic() - began < within_s, speculation(front)
        time.sleep(0.1)


@pytest.fixture
def governed(bed: Bed) -> tuple[Front, Sim]:
    """A front with a ladder eagle3, ngram, off."""
    sim = bed.sim(ttft_ms=5, step_ms=5, model="sim")
    return bed.front(sim, draft="eagle3", policy=QUICK), sim


@pytest.fixture(scope="module", name="at_rest")
def fixture_at_rest() -> Iterator[Front]:
    """Such a front without traffic, for tests that leave it as it was."""
    with harness.bed() as made:
        yield made.front(made.sim(), draft="eagle3", policy=QUICK)


def test_a_head_that_breaks_is_left_and_comes_back_and_no_request_is_lost(
    governed: tuple[Front, Sim],
) -> None:
    """Head, n-gram, head; said in the log, on the metrics page and by the route, with the reason."""
    front, sim = governed
    with traffic(front) as statuses:
        time.sleep(4)
        assert speculation(front)["draft"] == "eagle3", "a good head is kept"
        sim.script(broken="eagle3")
        until_in_force(front, "ngram")
        sim.script(broken="")
        until_in_force(front, "eagle3")
        seen = statuses()
    assert len(seen) > 50
    assert set(seen) == {200}
    told = speculation(front)["last_switches"]
    assert [(one["before"], one["after"], one["reason"]) for one in told] == [
        ("eagle3", "ngram", "acceptance"),
        ("ngram", "eagle3", "recovered"),
    ]
    assert all(one["why"] for one in told)
    switches = 'outrider_draft_switches_total{from="eagle3",reason="acceptance",to="ngram"}'
    assert front.metric(switches) == 1
    assert front.metric('outrider_draft_in_force{draft="eagle3"}') == 1
    assert "[draft]   eagle3 -> ngram for new requests (acceptance): " in front.log()
    assert "[fault]" not in front.log()
    assert "left out" not in front.log()


def test_where_no_draft_is_worth_anything_there_is_none(governed: tuple[Front, Sim]) -> None:
    """Head and n-gram both accept nothing: `off`; probes of both go on, and requests without a draft are credited too."""
    front, sim = governed
    sim.script(broken="eagle3,ngram")
    with traffic(front) as statuses:
        until_in_force(front, "off")
        time.sleep(3)
        seen = statuses()
    assert set(seen) == {200}
    state = speculation(front, "?since=0")
    assert [one["after"] for one in state["last_switches"]] == ["ngram", "off"]
    newest = state["samples"][-1]
    assert newest["draft"] == "off"
    assert newest["acceptance_length"] is None, "without a draft there is no acceptance: undefined, not 0"
    assert newest["tpot_ms"] > 0


def test_samples_are_told_since_a_moment(governed: tuple[Front, Sim]) -> None:
    """The page asks for what is new; a moment that is none is refused."""
    front, _ = governed
    with traffic(front):
        wait_until(lambda: len(speculation(front, "?since=0")["samples"]) >= 3)
        samples = speculation(front, "?since=0")["samples"]
    assert samples[-1]["acceptance_length"] == pytest.approx(3.0)
    later = speculation(front, f"?since={samples[-2]['t']}")["samples"]
    assert later[0] == samples[-1]
    assert "samples" not in speculation(front)
    for wrong in ("nan", "inf", "x", ""):
        answer = ask(front.port, "GET", f"/v1/speculation?since={wrong}")
        assert answer.status in ((400,) if wrong else (200,)), wrong


def pin(front: Front, body: bytes, **headers: str) -> tuple[int, str]:
    """The status and the error's code."""
    answer = ask(front.port, "POST", "/v1/speculation", body, **headers)
    return answer.status, "" if answer.status == 200 else str(answer.error["code"])


def test_pinned_drafts_stay_until_they_are_let_go(governed: tuple[Front, Sim]) -> None:
    """At once, whatever is measured; after the release measurements decide again."""
    front, sim = governed
    assert pin(front, b'{"pin": "off"}') == (200, "")
    ask(front.port, "POST", CHAT, chat())
    assert json.loads(sim.last()[1])["vllm_xargs"] == {"outrider_draft": "off"}
    state = speculation(front)
    assert (state["draft"], state["pinned"], state["reason"]) == ("off", "off", "pinned")
    assert pin(front, b'{"release": true}') == (200, "")
    assert speculation(front)["pinned"] is None
    with traffic(front):
        until_in_force(front, "eagle3")


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"pin": "medusa"}', "unknown_draft"),
        (b'{"pin": 3}', "invalid_pin"),
        (b'{"pin": "off", "for_s": 3}', "invalid_pin"),
        (b'{"release": false}', "invalid_pin"),
        (b'{"release": 1}', "invalid_pin"),
        (b"[]", "invalid_pin"),
        (b"{", "invalid_json"),
        (b"[" * 4000, "invalid_json"),
        (b'{"pin": "' + b"x" * 5000 + b'"}', "body_too_large"),
    ],
)
def test_what_cannot_be_pinned_is_refused(at_rest: Front, body: bytes, code: str) -> None:
    """With a sentence, and the draft in force stays."""
    status, said = pin(at_rest, body)
    assert (status, said) == (413 if code == "body_too_large" else 400, code)
    assert speculation(at_rest)["draft"] == "eagle3"


def test_only_an_admin_key_pins(bed: Bed) -> None:
    """Any key may look; the page itself is open, and holds nothing."""
    keys = [
        {"name": name, "sha256": hashlib.sha256(name.encode()).hexdigest(), "admin": name == "chief"}
        for name in ("chief", "user")
    ]
    front = bed.front(bed.sim(), draft="eagle3", policy=QUICK, settings={"keys": keys})
    chief, user = {"authorization": "Bearer chief"}, {"authorization": "Bearer user"}
    assert pin(front, b'{"pin": "off"}') == (401, "missing_api_key")
    assert pin(front, b'{"pin": "off"}', **user) == (403, "admin_only")
    assert pin(front, b'{"pin": "off"}', **chief) == (200, "")
    assert ask(front.port, "GET", "/v1/speculation").status == 401
    assert speculation(front, **user)["draft"] == "off"
    assert ask(front.port, "GET", "/ui").status == 200


def test_where_nothing_is_switched_it_says_so(bed: Bed) -> None:
    """`policy: off`: the route answers, and nothing can be pinned."""
    front = bed.front(bed.sim(), draft="eagle3")
    assert speculation(front) == {"policy": "off", "draft": "eagle3", "why": "the stack's"}
    assert pin(front, b'{"pin": "off"}') == (409, "policy_off")


def test_another_sites_page_pins_nothing(at_rest: Front) -> None:
    """Without keys, a browser on this machine must not be made to."""
    assert pin(at_rest, b'{"pin": "off"}', origin="https://elsewhere.example")[0] == 403
    assert pin(at_rest, b'{"pin": "off"}', content_type="text/plain")[0] == 415
    assert speculation(at_rest)["draft"] == "eagle3"


@pytest.mark.parametrize("query", ["&".join(f"a{n}=1" for n in range(40)), "since=1e400", "since=%ff"])
def test_queries_that_are_none_are_refused(at_rest: Front, query: str) -> None:
    """With an answer, not with a closed connection."""
    answer = ask(at_rest.port, "GET", f"/v1/speculation?{query}")
    assert (answer.status, answer.error["code"]) == (400, "invalid_type")
    assert "Traceback" not in at_rest.log()
