"""The page at /ui in a real browser: does it tell what was switched and why, by itself, on a phone too?"""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chromium import Page, browse
from tests.front import harness
from tests.front.harness import Bed, Front, ask, wait_until
from tests.front.test_governed import QUICK, traffic, until_in_force


def text(page: Page) -> str:
    """What a person reads."""
    return str(page.js("document.body.innerText"))


def until(page: Page, words: str, within_s: float = 90.0) -> None:
    """Wait for these words on the page, which is not loaded anew."""
    end = time.monotonic() + within_s
    while words not in text(page):
        assert time.monotonic() < end, text(page)
        time.sleep(0.2)


def complaints(page: Page) -> list[object]:
    """What the browser logged: exceptions, refused resources."""
    kinds = ("Runtime.exceptionThrown", "Log.entryAdded")
    return [event for event in page.events if event.get("method") in kinds]


def hosts(page: Page) -> set[str]:
    """Where the page asked for anything."""
    asked = [
        event["params"]["request"]["url"] for event in page.events if "request" in event.get("params", {})
    ]
    return {url.split("/")[2] for url in asked if url.startswith("http")}


@pytest.fixture(scope="module", name="front")
def fixture_front() -> Iterator[Front]:
    """A head that broke after two seconds of traffic, and n-gram in force; for tests that look, and may pin."""
    with harness.bed() as made:
        sim = made.sim(ttft_ms=5, step_ms=5)
        front = made.front(sim, draft="eagle3", policy=QUICK, settings={"price": {"usd_per_hour": 2.5}})
        with traffic(front):
            time.sleep(2)
            sim.script(broken="eagle3")
            until_in_force(front, "ngram")
            time.sleep(2)
        yield front


def test_the_page_tells_what_happened_and_why(front: Front, tmp_path: Path) -> None:
    """Draft in force, the switch with its reason and figures, each draft; it goes on by itself and by hand."""
    with browse() as page:
        page.size(1100, 900)
        page.open(f"http://127.0.0.1:{front.port}/ui")
        until(page, "EAGLE-3 → n-gram (too little accepted)")
        why = ask(front.port, "GET", "/v1/speculation").json()["last_switches"][0]["why"]
        assert why in text(page)
        assert page.js("document.getElementById('draft').innerText") == "n-gram"
        told = page.js("document.getElementById('why').innerText")
        assert f", EAGLE-3 → n-gram (too little accepted): {why}." in told, "whose figures these are"
        below = "document.getElementById('{}').getBoundingClientRect().top"
        assert page.js(f"{below.format('switches')} < {below.format('cards')}"), (
            "the reasons come before the curves"
        )
        colours = page.js(
            "[...document.querySelectorAll('#strip rect')].map(r => r.getAttribute('class')).join()"
        )
        assert colours.startswith("head,ngram"), "the strip shows the head, then n-gram"
        curves = page.js(
            "[...document.querySelectorAll('.card')].find(c => c.innerText.startsWith('Running'))"
            ".querySelectorAll('path').values().map(p => p.getAttribute('class')).toArray().join()"
        )
        assert curves == "head,switch,ngram", (
            "each curve in the colours of the drafts, the switch between them"
        )
        page.js(
            "[...document.querySelectorAll('#pins button')].find(b => b.innerText === 'Pin no draft').click()"
        )
        until(page, "Pinned: no draft.")
        until(page, "n-gram → no draft (pinned by hand)")
        assert complaints(page) == []
        assert hosts(page) == {f"127.0.0.1:{front.port}"}, "no outside resources"
        assert len(page.screenshot(tmp_path / "page.png")) > 20_000


def test_it_fits_a_phone_in_the_dark(front: Front, tmp_path: Path) -> None:
    """Nothing sticks out to the side; a table may scroll in its box."""
    with browse() as page:
        page.size(360, 740, phone=True)
        page.media(scheme="dark")
        page.open(f"http://127.0.0.1:{front.port}/ui")
        until(page, "EAGLE-3 → n-gram")
        assert page.js("document.documentElement.scrollWidth") <= 360
        assert page.js("getComputedStyle(document.body).backgroundColor") == "rgb(18, 22, 29)"
        page.screenshot(tmp_path / "phone.png")


def test_a_server_that_has_gone_is_said_to_be(bed: Bed) -> None:
    """The last figures stay, and the page says that they are no longer live."""
    front = bed.front(bed.sim(), draft="eagle3", policy=QUICK)
    with browse() as page:
        page.open(f"http://127.0.0.1:{front.port}/ui")
        until(page, "Nothing since the server started.")
        front.kill()
        until(page, "the server does not answer")
        assert page.js("document.getElementById('state').className") == "lost"


def test_a_key_is_asked_for_and_kept_in_the_tab(bed: Bed) -> None:
    """A server with keys shows nothing without one."""
    digest = "04f8996da763b7a969b1028ee3007569eaf3a635486ddab211d512c85b9df8fb"  # of "user"
    settings = {"keys": [{"name": "user", "sha256": digest}]}
    front = bed.front(bed.sim(), draft="eagle3", policy=QUICK, settings=settings)
    with browse() as page:
        page.open(f"http://127.0.0.1:{front.port}/ui")
        until(page, "API key")
        assert page.js("document.getElementById('page').hidden")
        page.js(
            "document.getElementById('key').value = 'user'; document.querySelector('#door button').click()"
        )
        until(page, "Nothing since the server started.")
        page.js("[...document.querySelectorAll('#pins button')][0].click()")
        until(page, "This needs a key with `admin: true` in the stack.")


def test_it_asks_for_one_thing_at_a_time(bed: Bed) -> None:
    """A pin, a timer and a slow server make it ask before it was answered: no second is lost or drawn twice."""
    front = bed.front(bed.sim(), draft="eagle3", policy=QUICK)
    with browse() as page:
        page.open(f"http://127.0.0.1:{front.port}/ui")
        until(page, "Nothing since the server started.")
        for _ in range(4):
            time.sleep(1.1)
            page.js("void [ask(), ask(), ask()]")
        wait_until(lambda: page.js("samples.length") >= 4)
        times = page.js("samples.map(s => s.t)")
    known = ask(front.port, "GET", "/v1/speculation?since=0").json()["samples"]
    assert times == [one["t"] for one in known][: len(times)]


def test_many_switches_leave_the_rest_of_the_page_near(bed: Bed) -> None:
    """Fifty of them scroll in their box: the drafts and the pins are not pushed out of sight."""
    front = bed.front(bed.sim(), draft="eagle3", policy=QUICK)
    for draft in ["off", "ngram"] * 25:
        body = b'{"pin": "%b"}' % draft.encode()
        assert ask(front.port, "POST", "/v1/speculation", body).status == 200
    with browse() as page:
        page.size(1100, 900)
        page.open(f"http://127.0.0.1:{front.port}/ui")
        until(page, "Pinned: n-gram.")
        assert page.js("document.querySelectorAll('#switches li').length") == 50
        assert page.js("document.documentElement.scrollHeight") < 1800


def test_hostile_and_endless_words_are_only_words(bed: Bed) -> None:
    """Markup in names and reasons is shown as it stands, and a sentence without a space does not widen a phone's page."""
    front = bed.front(bed.sim(), draft="eagle3", policy=QUICK)
    words = "<img src=x onerror=\"document.title='had'\">" + "w" * 400
    with browse() as page:
        page.size(360, 740, phone=True)
        page.open(f"http://127.0.0.1:{front.port}/ui")
        until(page, "Nothing since the server started.")
        state = ask(front.port, "GET", "/v1/speculation").json()
        switch = {"t": time.time(), "before": words, "after": words, "reason": words, "why": words}
        state |= {"draft": words, "why": words, "waiting": words, "pinned": words, "last_switches": [switch]}
        state["alerts"] = [{"kind": "drift", "draft": words, "level": "warning", "text": words}]
        state["drafts"] = [{**state["drafts"][0], "draft": words, "verdict": words}]
        page.js(f"show({json.dumps(state)})")
        assert page.js("document.querySelectorAll('img').length") == 0
        assert page.js("document.title") == "Outrider"
        assert text(page).count(words) >= 8
        assert page.js("document.documentElement.scrollWidth") <= 360
