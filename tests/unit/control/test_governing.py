"""What control tells the governor, and what it makes of the answer: on a virtual clock, before no engine at all."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from outrider.control.governing import Governing, Load, ladder_for
from outrider.control.past import Past
from outrider.control.upstreams import Busy, DraftInForce, Upstream, UpstreamSet
from outrider.core.acceptance import SpecCounters
from outrider.engines.base import EngineCounters
from outrider.governor.ladder import Ladder, Rung, ladder_of
from outrider.governor.policy import Policy
from outrider.governor.settings import PolicySettings
from outrider.governor.snapshot import Credit, StartProbe, StepReading
from outrider.governor.trace import Trace
from outrider.stack.manifest import PairManifest, PairPart, PairShape, ServedAcceptance
from outrider.stack.models import Price, Stack
from outrider.telemetry import names
from outrider.telemetry.metrics import Metrics

SPEC = SpecCounters()
HEADS = ladder_of(Rung("eagle3"))


class Bench:
    """A governing with its clock and everything it says."""

    def __init__(self, *more: Upstream, ladder: Ladder = HEADS, fronts: int = 1, **changes: object) -> None:
        self.now_s = 1000.0
        self.said: list[str] = []
        self.lines: list[str] = []
        self.engine = Upstream("engine-0", "127.0.0.1", 1, 8, ready=True)
        upstreams = UpstreamSet()
        for one in more or (self.engine,):
            upstreams.add(one)
        self.draft = DraftInForce("eagle3")
        self.metrics = Metrics()
        self.governing = Governing(
            Policy(ladder, PolicySettings(trials=False, **changes)),  # type: ignore[arg-type]  # by name
            self.draft,
            upstreams,
            self.metrics,
            lambda event, text, **facts: self.said.append(f"{event}: {text}"),
            price=Price(usd_per_hour=3.6),
            record=self.lines.append,
            clock=lambda: self.now_s,
            lanes=frozenset({"interactive"}) if more else frozenset(),
            fronts=fronts,
        )

    def second(self, accepted: int | None = None, draft: str = "eagle3", requests: int = 4) -> None:
        """One second in which requests of ten drafts of three tokens each ended, so many of them accepted."""
        self.now_s += 1
        if accepted is not None:
            for _ in range(requests):
                self.governing.credit(
                    Credit(draft, self.now_s - 0.9, self.now_s, 10, 30, accepted, 10, 0.5, 4.0, 1.0)
                )
        self.governing.tick(Load(4.0, 0, 0.0))

    def scrape(
        self, generated: float, engine: str = "engine-0", spec: SpecCounters = SPEC, **more: object
    ) -> None:
        """One look at an engine's page."""
        counters = EngineCounters(
            spec, more.pop("by_draft", {}), ("m",), generation_tokens=generated, steps=generated, **more
        )  # type: ignore[arg-type]
        self.governing.observed(engine, counters)

    @property
    def state(self) -> dict[str, object]:
        """As the route tells it."""
        return json.loads(json.dumps(self.governing.status()))  # type: ignore[no-any-return]

    @property
    def samples(self) -> list[dict[str, object]]:
        """As the route tells them."""
        return json.loads(self.governing.past.samples(0))  # type: ignore[no-any-return]


def test_a_head_that_accepts_too_little_is_left_and_that_is_said_everywhere() -> None:
    """Draft in force, log line with the figures, counter by reason, the list of switches."""
    bench = Bench()
    for _ in range(20):
        bench.second(accepted=20)
    assert bench.draft.draft == "eagle3"
    for _ in range(30):
        bench.second(accepted=0)
    assert bench.draft.draft == "ngram"
    (said,) = [line for line in bench.said if line.startswith("draft: ")]
    assert "eagle3 -> ngram for new requests (acceptance): " in said
    assert "tokens a step" in said
    switches = bench.metrics.counter(names.DRAFT_SWITCHES, "eagle3", "ngram", "acceptance")
    assert switches._value.get() == 1
    assert bench.state["last_switches"][0]["why"] in said  # type: ignore[index]


def test_probes_of_the_head_are_a_share_of_new_requests() -> None:
    """While it is out of force; none while it is in force."""
    bench = Bench()
    assert {bench.draft.next() for _ in range(50)} == {"eagle3"}
    for _ in range(30):
        bench.second(accepted=0)
    for _ in range(20):
        bench.second(accepted=5, draft="ngram")
    drafts = [bench.draft.next() for _ in range(200)]
    assert bench.draft.probe_draft == "eagle3"
    assert 0 < drafts.count("eagle3") / 200 == pytest.approx(bench.draft.probe_share, abs=0.02)
    assert set(drafts) == {"eagle3", "ngram"}


def test_a_broken_head_is_out_of_force_before_the_first_request() -> None:
    """The start-up probe saw nothing accepted: at once, with an alert; a good one moves nothing."""
    bench = Bench()
    bench.governing.engine_started(bench.engine, [StartProbe("eagle3", 81, 20)], [])
    bench.second()
    assert bench.draft.draft == "eagle3"
    bench.governing.engine_started(bench.engine, [StartProbe("eagle3", 81, 0)], [])
    bench.second()
    assert bench.draft.draft == "ngram"
    assert bench.metrics.gauge(names.DRAFT_ALERT, "eagle3", "broken")._value.get() == 1


def test_a_broken_head_that_was_pinned_goes_when_it_is_let_go() -> None:
    """Whoever pins it gets it; nobody else does, and no traffic is needed to know."""
    bench = Bench()
    bench.governing.engine_started(bench.engine, [StartProbe("eagle3", 81, 0)], [])
    bench.second()
    bench.governing.pin("eagle3")
    bench.second()
    assert bench.draft.draft == "eagle3"
    bench.governing.pin(None)
    assert bench.draft.draft == "ngram"


def test_an_alert_that_is_over_leaves_the_metrics() -> None:
    """It is told once in the log, and its gauge ends with it."""
    bench = Bench()
    bench.governing.engine_started(bench.engine, [StartProbe("eagle3", 81, 0)], [])
    for _ in range(3):
        bench.second()
    assert sum(line.startswith("alert: ") for line in bench.said) == 1
    bench.governing.engine_started(bench.engine, [StartProbe("eagle3", 81, 30)], [])
    bench.second()
    assert b"outrider_draft_alert{" not in bench.metrics.render()


def test_steps_are_timed_between_scrapes() -> None:
    """Request-seconds in flight over steps of requests, told for the draft that most had; nothing of a new engine's sums."""
    bench = Bench()
    for _ in range(3):
        bench.engine.begin(bench.now_s, "eagle3")
    bench.engine.begin(bench.now_s, "off")
    bench.scrape(1000)
    bench.now_s += 2.0
    bench.scrape(1200)
    (reading,) = bench.governing._steps
    assert reading == StepReading("eagle3", bench.now_s, 4.0, 0.04, 200, 0.75)
    bench.scrape(50)
    assert len(bench.governing._steps) == 1, "sums that fell are another life's"
    bench.now_s += 1.0
    bench.scrape(51)
    assert len(bench.governing._steps) == 1, "a step or two is no reading"


def test_where_requests_do_not_tell_the_engines_counts_by_draft_do() -> None:
    """As with an engine that tells no request's acceptance: one credit of the requests that ended between two scrapes."""
    bench = Bench()
    bench.scrape(0, by_draft={"eagle3": SpecCounters(10, 30, 5)})
    bench.governing.uncredited("engine-0", "eagle3", 990.0)
    bench.governing.uncredited("engine-0", "eagle3", 995.0)
    bench.governing.uncredited("engine-0", "ngram", 996.0)
    bench.now_s += 1.0
    bench.scrape(100, by_draft={"eagle3": SpecCounters(50, 150, 65)})
    (credit,) = bench.governing._credits
    assert (credit.draft, credit.requests, credit.started_s) == ("eagle3", 2, 990.0)
    assert (credit.drafts, credit.proposed, credit.accepted) == (40, 120, 60)


POOLS = Ladder((Rung("eagle3"), Rung("off")))


def pools(device: Busy | None = None) -> tuple[Upstream, Upstream]:
    """An engine with the draft and one without; on a device of its own each, or on this one."""
    own, plain = (
        Upstream(name, "127.0.0.1", 1, 8, ready=True, draft=draft, device=device or Busy())
        for name, draft in (("own", "eagle3"), ("plain", "off"))
    )
    return own, plain


def test_each_pools_counters_are_credited_to_its_draft() -> None:
    """Where requests tell nothing: an engine's own counts, for the requests that ended there and were not told."""
    own, plain = pools()
    bench = Bench(own, plain, ladder=POOLS)
    for engine in ("own", "plain"):
        bench.scrape(0, engine)
    bench.governing.uncredited("own", "eagle3", 999.0)
    bench.now_s += 1.0
    bench.scrape(100, "plain")
    assert not bench.governing._credits, "the other engine's scrape says nothing of these"
    bench.scrape(160, "own", SpecCounters(40, 120, 60))
    (credit,) = bench.governing._credits
    assert (credit.draft, credit.requests, credit.drafts, credit.accepted) == ("eagle3", 1, 40, 60)


def test_steps_of_a_pool_count_while_its_device_runs_nothing_else() -> None:
    """Of its own requests, and with the share of the device's that they are: on a device of its own that is all."""
    for device, alike in ((None, 1.0), (Busy(), 0.75)):
        own, plain = pools(device)
        bench = Bench(own, plain, ladder=POOLS)
        for _ in range(3):
            own.begin(bench.now_s, "eagle3")
        plain.begin(bench.now_s, "off")
        bench.scrape(1000, "own")
        bench.scrape(500, "plain")
        bench.now_s += 2.0
        bench.scrape(1200, "own")
        bench.scrape(600, "plain")
        mine, other = bench.governing._steps
        assert mine == StepReading("eagle3", bench.now_s, 3.0, 0.03, 200, alike)
        assert (other.draft, other.running, other.step_s) == ("off", 1.0, 0.02)
        assert other.alike_ratio == (1.0 if device is None else 0.25)


def test_what_was_learned_of_a_pool_outlives_the_other_pools_engine() -> None:
    """A plain engine that starts again voids nothing, nor one of several; the last with the draft does."""
    own, plain = pools()
    second = Upstream("second", "127.0.0.1", 1, 8, ready=True, draft="eagle3")
    bench = Bench(own, plain, second, ladder=POOLS)
    reading = StepReading("off", bench.now_s, 1.0, 0.02, 16)
    bench.governing.engine_started(plain, (), [reading])
    bench.governing.engine_started(own, [StartProbe("eagle3", 81, 0)], ())
    assert (bench.governing._life, list(bench.governing._steps)) == (0, [reading])
    assert not bench.governing._probes, "one bad engine of several is no bad draft"
    second.ready = False
    bench.governing.engine_started(own, [StartProbe("eagle3", 81, 30)], ())
    assert (bench.governing._life, list(bench.governing._steps)) == (1, [])
    assert bench.governing._probes == [StartProbe("eagle3", 81, 30)]


def test_engines_of_lanes_without_a_choice_are_not_judged() -> None:
    """Their steps and their start say nothing of the draft that is governed; their tokens are made all the same."""
    own, plain = pools()
    batch = Upstream("batch", "127.0.0.1", 1, 8, ready=True, draft="eagle3", lanes=frozenset({"batch"}))
    bench = Bench(own, plain, batch, ladder=POOLS)
    bench.governing.engine_started(batch, [StartProbe("eagle3", 81, 0)], ())
    batch.begin(bench.now_s, "eagle3")
    bench.scrape(0, "batch")
    bench.governing.uncredited("batch", "eagle3", 999.0)
    bench.now_s += 1.0
    bench.scrape(100, "batch", SpecCounters(40, 120, 60))
    told = bench.governing._probes, bench.governing._steps, bench.governing._credits
    assert not any(told)
    bench.second()
    assert bench.samples[-1]["tokens_per_s"] == pytest.approx(100 / 15)
    assert bench.governing.decides_for("interactive")
    assert not bench.governing.decides_for("batch")


def test_one_of_several_fronts_reckons_with_the_others_requests() -> None:
    """It sees half of the requests and all of the steps: batch and step time are as one front alone would see them."""
    alone, both = (Bench(*pools(), ladder=POOLS, fronts=fronts) for fronts in (1, 2))
    for bench, mine in ((alone, 4), (both, 2)):
        own = bench.governing.upstreams.get("own")
        assert own is not None
        for _ in range(mine):
            own.begin(bench.now_s, "eagle3")
        bench.scrape(0, "own")
        bench.now_s += 1.0
        bench.scrape(100, "own")
        credit = Credit("eagle3", bench.now_s - 0.9, bench.now_s, 10, 30, 20, 10, 0.5, float(mine), 1.0)
        bench.governing.credit(credit)
    assert alone.governing._steps == both.governing._steps
    assert alone.governing._credits == both.governing._credits
    both.governing.tick(Load(2.0, 0, 0.0))
    assert both.samples[-1]["running"] == 4.0


def test_a_pin_is_told_to_whoever_dispatches() -> None:
    """Only a pin keeps a request from the other pool when its own is full."""
    bench = Bench(*pools(), ladder=POOLS)
    bench.governing.pin("off")
    assert (bench.draft.draft, bench.draft.pinned) == ("off", True)
    bench.governing.pin(None)
    assert bench.draft.pinned is False


def test_a_record_that_cannot_be_is_left_out_and_told_once() -> None:
    """The draft in force stays, and the next records count."""
    bench = Bench()
    bench.now_s -= 50.0
    for _ in range(3):
        bench.governing.tick(Load(1.0, 0, 0.0))
    assert bench.draft.draft == "eagle3"
    assert len(bench.said) == 1
    assert "the clock went back" in bench.said[0]
    bench.now_s += 100.0
    for _ in range(30):
        bench.second(accepted=0)
    assert bench.draft.draft == "ngram"


def test_an_engine_that_lies_is_told_once_and_ends_nothing() -> None:
    """Counts that do not fit each other, with other figures every second: one line a kind, and the loop goes on."""
    bench = Bench()
    for second in range(1, 30):
        bench.now_s += 1
        bench.governing.uncredited("engine-0", "eagle3", bench.now_s)
        lies = {"eagle3": SpecCounters(10.0 * second, 30.0 * second, 31.0 * second**2)}
        bench.scrape(1e30 * second, by_draft=lies)
        bench.engine.begin(bench.now_s, "eagle3")
        bench.governing.tick(Load(1.0, 0, 0.0))
    assert 1 <= len(bench.said) <= 2, bench.said
    assert bench.draft.draft == "eagle3"


def test_an_alert_that_comes_back_is_told_again_but_not_every_time() -> None:
    """Once when it begins; again once it was away for ten minutes."""
    bench = Bench()
    broken, well = StartProbe("eagle3", 200, 0), StartProbe("eagle3", 200, 100)

    def alerts() -> int:
        return sum(line.startswith("alert: ") for line in bench.said)

    for away_s, told in ((0, 1), (60, 1), (700, 2)):
        bench.governing.engine_started(bench.engine, [well], [])
        bench.second()
        bench.now_s += away_s
        bench.governing.engine_started(bench.engine, [broken], [])
        bench.second()
        assert alerts() == told


def test_a_trace_that_cannot_be_written_ends_and_nothing_else() -> None:
    """A full disk: said once, the governor and the page go on."""
    bench = Bench()

    def full(_: str) -> None:
        raise OSError(28, "No space left on device")

    bench.governing.record = full
    for _ in range(3):
        bench.second(accepted=20)
    assert bench.said == ["trace: the trace ends here: No space left on device"]
    assert len(bench.samples) == 3


def test_a_clock_that_is_set_back_does_not_stop_the_page() -> None:
    """Whoever was told moments that are still to come is told what there is; nothing stands twice."""
    bench, wall_s = Bench(), [1_000_000.0]
    past = bench.governing.past = Past(wall=lambda: wall_s[0])

    def after(since: float) -> list[float]:
        return [one["t"] for one in json.loads(past.samples(since))]

    for _ in range(5):
        bench.second()
        wall_s[0] += 1
    newest = after(0)[-1]
    assert after(newest) == []
    wall_s[0] -= 3600
    bench.second()
    assert after(newest) == after(0) == [1_000_005.0 - 3600]


def test_what_it_is_told_and_decides_can_be_replayed() -> None:
    """The recorded trace reads back, and a policy of the same settings decides the same."""
    bench = Bench()
    for accepted in [20] * 10 + [0] * 25:
        bench.second(accepted=accepted)
    trace = Trace([line.encode() for chunk in bench.lines for line in chunk.splitlines(keepends=True)])
    looks = list(trace.looks())
    assert len(looks) == 35
    assert looks[0].decided == "eagle3"
    policy = Policy(trace.ladder, PolicySettings(trials=False))
    state = policy.start(1000.0)
    for look in looks:
        turn = policy.decide(state, look.snapshot)
        state = turn.state
        assert turn.decision.draft == look.decided


def test_samples_hold_what_was_measured_and_nothing_else() -> None:
    """None where nothing was: no acceptance without drafts, no cost without tokens."""
    bench = Bench()
    bench.second()
    (empty,) = bench.samples
    assert (empty["acceptance_length"], empty["tpot_ms"], empty["usd_per_million"]) == (None, None, None)
    bench.scrape(0)
    bench.second(accepted=20)
    bench.scrape(150)
    bench.second(accepted=20)
    newest = bench.samples[-1]
    assert newest["acceptance_length"] == pytest.approx(3.0)
    assert newest["tpot_ms"] == pytest.approx(500 / 30)
    assert newest["tokens_per_s"] == pytest.approx(150 / 15)
    assert newest["usd_per_million"] == pytest.approx(3.6 / (10 * 3600) * 1e6)


@pytest.mark.parametrize(
    ("method", "drafts", "rungs"),
    [
        ("eagle3", ("eagle3", "ngram", "mix", "warm", "off"), ["eagle3", "ngram", "off"]),
        ("ngram", ("ngram", "off"), ["ngram", "off"]),
    ],
)
def test_the_ladder_is_the_stacks(method: str, drafts: Iterable[str], rungs: list[str]) -> None:
    """Its own draft, n-gram below a head, none; only what the engine can give."""
    model = {"model": "somebody/head"} if method == "eagle3" else {}
    stack = Stack.model_validate(
        {"apiVersion": "outrider/v1alpha1", "target": {"model": "a/b"}, "draft": {"method": method, **model}}
    )
    assert list(ladder_for(stack, None, tuple(drafts)).names) == rungs


def test_the_yardstick_is_the_manifests_at_the_stacks_draft_length() -> None:
    """Over all its prompt sets, weighed by their drafts; of another length nothing is known."""
    part = PairPart({"config.json": "0" * 64}, {})
    served = tuple(
        ServedAcceptance(prompt_set, length, 4, 100, drafts, accepted, 1 + accepted / drafts, ())
        for prompt_set, length, drafts, accepted in (
            ("code", 3, 100, 150),
            ("chat", 3, 300, 150),
            ("code", 5, 100, 300),
        )
    )
    manifest = PairManifest(part, part, "eagle3", PairShape(8, 8, ()), 3, served)
    stack = {"apiVersion": "outrider/v1alpha1", "target": {"model": "a/b"}}
    for length, expected in ((3, 1.75), (4, None)):
        draft = {"method": "eagle3", "model": "c/d", "draft_length": length}
        ladder = ladder_for(
            Stack.model_validate({**stack, "draft": draft}), manifest, ("eagle3", "ngram", "off")
        )
        assert ladder["eagle3"].baseline_length == expected
