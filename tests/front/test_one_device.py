"""`outrider serve` with `policy.plain_engine`: two simulated engines of one device, behind one door."""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.front.harness import CHAT, Bed, ask, chat, metric_in, wait_until
from tests.front.test_governed import QUICK, pin, speculation, traffic, until_in_force
from tests.front.test_pools import Door, Stream

# `outrider serve` starts vLLM alone. Here the simulated engine takes its place, in all that comes after the stack was judged.
# With the draft a step takes longer, and makes three tokens.
SERVE = """
import sys, uvloop
from dataclasses import replace
from pathlib import Path
from outrider.cli.serve import _serve
from outrider.engines.base import ResolvedModels
from outrider.engines.sim.adapter import SimEngine
from outrider.launch.prepare import Prepared
from outrider.stack.load import load_stack

class Engine(SimEngine):
    def plan(self, stack, *more):
        plan = super().plan(stack, *more)
        drafts = ("--chunk-tokens", "3", "--step-ms", "6") if stack.draft.method != "none" else ()
        return replace(plan, argv=(*plan.argv, *drafts))

stack, engine = load_stack(Path(sys.argv[1])), Engine()
port = int(sys.argv[3])
stack = stack.model_copy(update={"serve": stack.serve.model_copy(update={"port": port})})
uvloop.run(_serve(Prepared(stack, engine.find(stack), ResolvedModels("sim")), engine, False, None))
"""


class Pair(Door):
    """A running service with two engines."""

    def said(self, event: str) -> list[dict[str, Any]]:
        """Its log lines of one kind."""
        lines = (json.loads(line) for line in self.log().splitlines() if line.startswith("{"))
        return [line for line in lines if line["event"] == event]

    def drafts(self) -> list[str]:
        """What the requests that ended ran with, in their order."""
        return [line["draft"] for line in self.said("decode")]

    def engines(self) -> dict[str, tuple[int, int]]:
        """(process, port) of each."""
        found = {}
        for pid in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            name = "own" if "--chunk-tokens" in words else "plain"
            found[name] = (int(pid), int(words[words.index("--port") + 1]))
        return found

    def script(self, name: str, **members: object) -> None:
        """Change what an engine does."""
        body = json.dumps(members).encode()
        assert ask(self.engines()[name][1], "POST", "/sim/script", body).status == 200

    def seen(self, name: str, counter: str) -> float:
        """One of an engine's own counters."""
        return metric_in(ask(self.engines()[name][1], "GET", "/metrics").body.decode(), f"sim:{counter}")


@pytest.fixture(name="pair")
def fixture_pair(bed: Bed) -> Pair:
    """Both engines ready."""
    stack = bed.folder / "stack.yaml"
    members = {
        "apiVersion": "outrider/v1alpha1",
        "target": {"model": "org/sim"},
        "draft": {"method": "eagle3", "model": "org/head"},
        "engine": {"max_running_requests": 6, "shutdown_grace_s": 4},
        "serve": {"warmup_requests": 1, "drain_timeout_s": 10, "log": "json"},
        "policy": {**QUICK, "plain_engine": True},
    }
    stack.write_text(json.dumps(members))
    made = Pair([sys.executable, "-c", SERVE, str(stack)], bed.folder / "serve.log")
    bed.servers.append(made)
    wait_until(lambda: ask(made.port, "GET", "/readyz").status == 200, 60)
    return made


def test_it_is_ready_with_both_and_knows_how_long_a_step_takes_in_each(pair: Pair) -> None:
    """One draft fewer than within one engine; the log and the state name both engines."""
    wait_until(lambda: all(one["step_ms"] for one in speculation(pair)["drafts"]))
    own, plain = speculation(pair)["drafts"]
    assert (own["draft"], plain["draft"]) == ("eagle3", "off")
    assert own["break_even_length"] == pytest.approx(own["step_ms"] / plain["step_ms"])
    ready = ask(pair.port, "GET", "/readyz").json()["reason"]
    assert "engine-0: ready, eagle3 drafts" in ready
    assert "plain-0: ready, without a draft" in ready
    assert (pair.seen("own", "drafts_total") > 0, pair.seen("plain", "drafts_total")) == (True, 0)


def test_a_draft_that_collapses_is_left_for_the_engine_beside_it_and_comes_back(pair: Pair) -> None:
    """By probes and step times of batches that did not mix; both together never run more than the stack allows."""
    most = 0.0
    with traffic(pair, streams=8) as statuses:
        time.sleep(4)
        assert speculation(pair)["draft"] == "eagle3", "a good head is kept"
        pair.script("own", broken="eagle3", chunk_tokens="")
        until_in_force(pair, "off", 30)
        ended = len(statuses())
        while len(statuses()) < ended + 100:
            own, plain = pair.seen("own", "requests_running"), pair.seen("plain", "requests_running")
            own = min(own, pair.seen("own", "requests_running"))  # so that none is counted in both
            most = max(most, own + plain)
        pair.script("own", broken="", chunk_tokens="3")
        until_in_force(pair, "eagle3", 60)
        seen = statuses()
    assert set(seen) == {200}
    assert 2 <= most <= 7, "6 places; an engine counts one more for a moment, when one ends and one begins"
    told = speculation(pair)["last_switches"]
    assert [(one["before"], one["after"], one["reason"]) for one in told] == [
        ("eagle3", "off", "acceptance"),
        ("off", "eagle3", "recovered"),
    ]
    assert {"eagle3", "off"} == set(pair.drafts())
    assert not pair.said("fault")


def test_a_plain_engine_that_dies_is_started_again_beside_one_that_serves(pair: Pair) -> None:
    """Pinned to it, requests run with the draft meanwhile, and without it afterwards; the service was ready all the time."""
    assert pin(pair, b'{"pin": "off"}') == (200, "")
    assert ask(pair.port, "POST", CHAT, chat()).status == 200
    before = pair.engines()
    os.kill(before["plain"][0], signal.SIGKILL)
    wait_until(lambda: "starting it again" in pair.log())
    assert ask(pair.port, "POST", CHAT, chat()).status == 200
    assert ask(pair.port, "GET", "/readyz").status == 200
    wait_until(lambda: "plain-0: ready" in ask(pair.port, "GET", "/readyz").json()["reason"], 60)
    assert ask(pair.port, "POST", CHAT, chat()).status == 200
    wait_until(lambda: pair.drafts() == ["off", "eagle3", "off"])
    after = pair.engines()
    assert after["own"] == before["own"]
    assert after["plain"][0] != before["plain"][0]


def test_both_finish_their_streams_when_it_is_told_to_stop(pair: Pair) -> None:
    """One stream on each: whole, then exit 0 and no engine is left."""
    first = Stream(pair, 200)
    wait_until(lambda: pair.seen("own", "requests_running") == 1)
    assert pin(pair, b'{"pin": "off"}') == (200, "")
    second = Stream(pair, 200)
    wait_until(lambda: pair.seen("plain", "requests_running") == 1)
    pids = [pid for pid, _ in pair.engines().values()]
    pair.terminate()
    assert first.whole()
    assert second.whole()
    assert pair.process.wait(30) == 0
    assert len(pids) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
