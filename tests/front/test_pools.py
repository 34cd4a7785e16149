"""`outrider front` before two pools of simulated engines, with the draft and without."""

import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from outrider.launch.process import free_port
from tests.front.harness import CHAT, Answer, Bed, Front, Sim, ask, chat, wait_until
from tests.front.test_governed import QUICK, pin, speculation, traffic, until_in_force

# With the draft a step takes longer, as on a real engine: what is not accepted costs.
DRAFTING, PLAIN = {"step_ms": 6, "draft": "eagle3"}, {"step_ms": 5}


class Door(Front):
    """A running `outrider front`: it takes the port that it is given."""

    def __init__(self, argv: list[str], log: Path) -> None:
        self._log_path, self.port = log, free_port()
        with log.open("w") as sink:
            self.process = subprocess.Popen(
                [*argv, "--port", str(self.port)], stdout=sink, stderr=sink, text=True
            )
        wait_until(self.listens, 60)

    def listens(self) -> bool:
        """Whether it takes connections."""
        assert self.process.poll() is None, self.log()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def drafts(self) -> list[str]:
        """What the requests that ended ran with, in their order."""
        lines = (line for line in self.log().splitlines() if line.startswith("[decode]"))
        return [line.partition("draft=")[2].split()[0] for line in lines]


def door(
    bed: Bed, drafting: list[Sim], plain: list[Sim], *more: str, running: int = 8, policy: object = QUICK
) -> Door:
    """A front before these pools, all of whose engines are ready."""
    stack = bed.folder / f"stack-{len(bed.servers)}.yaml"
    members = {
        "apiVersion": "outrider/v1alpha1",
        "target": {"model": "org/sim"},
        "draft": {"method": "eagle3", "model": "org/head"},
        "engine": {"max_running_requests": running},
        "serve": {"warmup_requests": 1, "drain_timeout_s": 5},
        "policy": policy,
    }
    stack.write_text(json.dumps(members))
    argv = [sys.executable, "-m", "outrider", "front", str(stack), "--simulated"]
    argv += [f"--engine=127.0.0.1:{sim.port}" for sim in drafting]
    argv += [f"--plain-engine=127.0.0.1:{sim.port}" for sim in plain]
    made = Door([*argv, *more], bed.folder / f"front-{len(bed.servers)}.log")
    bed.servers.append(made)
    wait_until(lambda: made.log().count(": ready") == len(drafting) + len(plain), 60)
    return made


@pytest.fixture(name="pools")
def fixture_pools(bed: Bed) -> tuple[Door, Sim, Sim]:
    """One engine in each pool."""
    drafting, plain = bed.sim(**DRAFTING), bed.sim(**PLAIN)
    return door(bed, [drafting], [plain]), drafting, plain


class Stream(threading.Thread):
    """One long answer on its way."""

    def __init__(self, front: Front, tokens: int) -> None:
        super().__init__(daemon=True)
        self._front, self._tokens = front, tokens
        self.answer: Answer | None = None
        self.start()

    def run(self) -> None:
        """Read it."""
        self.answer = ask(self._front.port, "POST", CHAT, chat(stream=True, max_tokens=self._tokens))

    def whole(self) -> bool:
        """Whether it came to its own end."""
        self.join(60)
        return self.answer is not None and self.answer.body.endswith(b"data: [DONE]\n\n")


def whole(answer: Answer) -> bool:
    """Whether a stream came to its own end."""
    return answer.status == 200 and answer.body.endswith(b"data: [DONE]\n\n")


def request(front: Front) -> bool:
    """One short request."""
    return whole(ask(front.port, "POST", CHAT, chat(stream=True, max_tokens=4)))


@pytest.mark.parametrize("tells", [True, False], ids=["answers tell", "counters tell"])
def test_a_draft_that_collapses_is_left_for_the_plain_pool_and_comes_back(bed: Bed, tells: bool) -> None:
    """With requests that tell their acceptance, and by the counters of each pool's engine alone; nothing is lost, what runs
    finishes where it is."""
    drafting, plain = (bed.sim(tells=str(tells).lower(), **flags) for flags in (DRAFTING, PLAIN))
    front = door(bed, [drafting], [plain])
    before = plain.metric("requests_total")
    with traffic(front, model="sim") as statuses:
        time.sleep(5)
        assert speculation(front)["draft"] == "eagle3", "a good head is kept"
        assert plain.metric("requests_total") == before, "without a reason nothing goes to the other pool"
        long = [Stream(front, 1500) for _ in range(2)]
        time.sleep(0.5)
        drafting.script(broken="eagle3")
        until_in_force(front, "off", 30)
        asked = len(statuses())
        wait_until(lambda: len(statuses()) > asked + 60)
        assert plain.metric("requests_total") > before
        assert all(stream.whole() for stream in long)
        drafting.script(broken="")
        until_in_force(front, "eagle3", 60)
        seen = statuses()
    assert set(seen) == {200}
    told = speculation(front)["last_switches"]
    assert [(one["before"], one["after"], one["reason"]) for one in told] == [
        ("eagle3", "off", "acceptance"),
        ("off", "eagle3", "recovered"),
    ]
    assert front.metric('outrider_draft_in_force{draft="eagle3"}') == 1
    assert front.metric('outrider_draft_switches_total{from="eagle3",reason="acceptance",to="off"}') == 1
    assert (drafting.metric("requests_aborted_total"), plain.metric("requests_aborted_total")) == (0, 0)
    assert plain.metric("drafts_total") == 0
    assert "[fault]" not in front.log()
    assert "left out" not in front.log()


def test_what_a_request_ran_with_is_what_is_told_of_it(pools: tuple[Door, Sim, Sim]) -> None:
    """A pin moves new requests to the other pool at once: in the log, in the engine's counters, in the state."""
    front, drafting, plain = pools
    assert request(front)
    assert pin(front, b'{"pin": "off"}') == (200, "")
    asked = drafting.metric("requests_total"), plain.metric("requests_total")
    assert all(request(front) for _ in range(5))
    assert (drafting.metric("requests_total"), plain.metric("requests_total")) == (asked[0], asked[1] + 5)
    wait_until(lambda: front.drafts() == ["eagle3", *["off"] * 5])
    assert front.metric('outrider_draft_in_force{draft="off"}') == 1
    status, code = pin(front, b'{"pin": "ngram"}')
    assert (status, code) == (400, "unknown_draft"), "between two pools there is no third draft"


@pytest.mark.parametrize("in_force", ["eagle3", "off"])
def test_a_pool_that_falls_ill_is_stood_for_by_the_other(pools: tuple[Door, Sim, Sim], in_force: str) -> None:
    """Whichever is in force, even pinned: no request fails, and none waits for an engine that is not there."""
    front, drafting, plain = pools
    ill = drafting if in_force == "eagle3" else plain
    assert pin(front, json.dumps({"pin": in_force}).encode()) == (200, "")
    with traffic(front, model="sim") as statuses:
        ill.script(ready=False)
        wait_until(lambda: "no longer well" in front.log())
        asked, ended = ill.metric("requests_total"), len(statuses())
        wait_until(lambda: len(statuses()) > ended + 40)
        assert ill.metric("requests_total") == asked
        ill.script(ready=True)
        wait_until(lambda: ill.metric("requests_total") > asked + 20)
        seen = statuses()
    assert set(seen) == {200}
    other = {"eagle3": "off", "off": "eagle3"}[in_force]
    assert other in front.drafts()
    assert front.drafts()[-1] == in_force
    assert speculation(front)["draft"] == in_force, "that an engine was gone says nothing of the draft"


def test_a_plain_engine_that_is_killed_takes_only_its_own_streams_along(bed: Bed) -> None:
    """What was under way on it ends with an error; everything after is served by the other pool."""
    drafting, plain = bed.sim(**DRAFTING), bed.sim(**PLAIN)
    front = door(bed, [drafting], [plain])
    assert pin(front, b'{"pin": "off"}') == (200, "")
    with traffic(front, streams=3, model="sim") as statuses:
        wait_until(lambda: len(statuses()) > 10)
        plain.kill()
        ended = len(statuses())
        wait_until(lambda: len(statuses()) > ended + 40)
        seen = statuses()
    failed = [number for number, status in enumerate(seen) if status != 200]
    assert len(failed) <= 3
    assert not failed or failed[-1] < ended + 3
    assert set(front.drafts()[-20:]) == {"eagle3"}


def test_a_queue_at_a_full_pool_moves_on_after_the_promised_wait(bed: Bed) -> None:
    """Not before: within it the draft in force is waited for. Nor under a pin."""
    drafting, plain = bed.sim(**DRAFTING), bed.sim(**PLAIN)
    front = door(bed, [drafting], [plain], running=1)
    short = Stream(front, 30)
    wait_until(lambda: drafting.metric("requests_running") == 1)
    assert request(front)
    assert short.whole()
    wait_until(lambda: front.drafts() == ["eagle3", "eagle3"])
    long = Stream(front, 700)
    wait_until(lambda: drafting.metric("requests_running") == 1)
    began = time.monotonic()
    assert request(front)
    waited = time.monotonic() - began
    assert 0.5 < waited < 2.5, "the stack's queue_wait_p90_ms, and what a tick takes"
    assert long.whole()
    wait_until(lambda: front.drafts()[2:] == ["off", "eagle3"])
    assert pin(front, b'{"pin": "eagle3"}') == (200, "")
    long = Stream(front, 300)
    wait_until(lambda: drafting.metric("requests_running") == 1)
    assert request(front)
    assert long.whole()
    wait_until(lambda: front.drafts()[4:] == ["eagle3", "eagle3"])


def test_the_batch_is_of_the_pool_in_force(bed: Bed) -> None:
    """Four at once before two engines with the draft and one without: two each, or four at the one, when all run there."""
    front = door(bed, [bed.sim(**DRAFTING), bed.sim(**DRAFTING)], [bed.sim(**PLAIN)])
    for draft, running in (("eagle3", 2), ("off", 4)):
        assert pin(front, json.dumps({"pin": draft}).encode()) == (200, "")
        streams = [Stream(front, 2000) for _ in range(4)]
        wait_until(lambda running=running: abs(float(speculation(front)["running"]) - running) < 0.2)
        assert all(stream.whole() for stream in streams)


def test_a_lane_with_one_pool_is_not_governed(bed: Bed) -> None:
    """Nor is anything with `policy: off`: requests run where there is room, and the route says that nothing is switched."""
    drafting, plain = bed.sim(**DRAFTING), bed.sim(**PLAIN)
    for front in (
        door(bed, [drafting], []),
        door(bed, [drafting], [plain], policy="off"),
    ):
        assert speculation(front)["policy"] == "off"
        assert pin(front, b'{"pin": "off"}') == (409, "policy_off")
        assert request(front)
