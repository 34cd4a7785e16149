"""Single rules of the policy: what moves the draft, in which order, and what it says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from outrider.governor.ladder import Ladder, Rung
from outrider.governor.policy import Policy
from outrider.governor.reasons import Reason
from outrider.governor.settings import PolicySettings
from outrider.governor.snapshot import Credit, Snapshot, StartProbe, StepReading
from outrider.governor.status import status
from tests.unit.governor.driver import Driver, credit, readings
from tests.unit.governor.traffic import HEAD, head_ladder, quiet

GOOD, BAD = {HEAD: 3.0, "ngram": 1.5}, {HEAD: 1.05, "ngram": 1.5}


def broken_down(driver: Driver) -> Driver:
    """Good for half a minute, then bad until n-gram is in force."""
    driver.serve(30, GOOD)
    driver.serve_until(lambda now: now.draft != HEAD, BAD)
    return driver


def test_the_reason_has_its_figures() -> None:
    """What was seen, over how much, against what, for how long."""
    driver = broken_down(Driver(Policy(head_ladder(), quiet())))
    assert driver.decision.why.startswith(
        "AL 1.05 over 16 requests, under 2.00 (the pair manifest says 3.00), for "
    )
    assert driver.decision.reason is Reason.ACCEPTANCE
    assert driver.decision.switched_from == HEAD


def test_sustained_means_seconds_and_requests() -> None:
    """Neither many requests in a moment nor a long time with few of them is enough; what is missing is said."""
    settings = PolicySettings(trials=False, sustained_s=10.0, sustained_requests=20)
    quick = Driver(Policy(head_ladder(), settings))
    quick.serve(8, BAD, per_s=20)
    assert quick.switches == []
    assert "it takes 10 s and 20" in quick.decision.waiting
    slow = Driver(Policy(head_ladder(), settings))
    slow.serve(12, BAD, per_s=1)
    assert slow.switches == []
    quick.serve(10, BAD, per_s=20)
    slow.serve(25, BAD, per_s=1)
    assert quick.switches
    assert slow.switches


def test_one_good_moment_ends_the_spell() -> None:
    """A bad stretch that ends before it has lasted is forgotten."""
    driver = Driver(Policy(head_ladder(), quiet()))
    driver.serve(30, GOOD)
    driver.serve_until(lambda now: now.waiting, BAD)
    driver.serve(20, GOOD)
    assert driver.turn.state.spell is None
    assert driver.switches == []


def test_the_dwell_time_holds_a_return_back_and_says_so() -> None:
    """Good again one second after the fall: back only when the dwell time ends, with the reason for waiting until then."""
    driver = broken_down(Driver(Policy(head_ladder(), PolicySettings(trials=False, dwell_s=40.0))))
    fell_s = driver.at_s
    driver.serve(39, GOOD, per_s=4)
    assert driver.decision.draft == "ngram"
    assert "a draft that is wanted more is good again; the dwell time ends in 1 s" in driver.decision.waiting
    driver.serve(1, GOOD, per_s=4)
    assert driver.switches[-1] == (fell_s + 40, HEAD, "recovered")


def test_up_goes_before_down() -> None:
    """n-gram in force turns bad while the head is good again: the head, not off on the way to it."""
    driver = broken_down(Driver(Policy(head_ladder(), PolicySettings(trials=False, dwell_s=30.0))))
    driver.serve(40, {HEAD: 3.0, "ngram": 1.0}, per_s=4)
    assert [draft for _, draft, _ in driver.switches] == ["ngram", HEAD]


def test_a_few_requests_say_nothing() -> None:
    """Five bad ones of six that are needed: undefined, whatever they show; the sixth makes it low."""
    driver = Driver(Policy(head_ladder(), quiet()))
    driver.look([credit(HEAD, 1.0, 1.0)] * 5)
    assert driver.decision.assessments[0].verdict == "undefined"
    driver.look([credit(HEAD, 1.0, 2.0)])
    assert driver.decision.assessments[0].verdict == "low"


def test_probes_must_exceed_what_the_draft_was_left_for() -> None:
    """With hysteresis 0.2 and half of AL - 1 = 2.0: 1.15 is not enough to come back, 1.25 is."""
    for length, back in ((2.15, False), (2.25, True)):
        driver = broken_down(Driver(Policy(head_ladder(), quiet())))
        driver.serve(60, {HEAD: length, "ngram": 1.5})
        assert (driver.decision.draft == HEAD) is back


def test_a_draft_that_is_surely_slower_than_the_one_in_force_does_not_come_back() -> None:
    """n-gram at AL 3.8 on text that repeats: a head that is good again at 2.4 is not preferred to it; at 3.8 it is."""
    for length, back in ((2.4, False), (3.8, True)):
        driver = broken_down(Driver(Policy(head_ladder(), quiet())))
        driver.serve(60, {HEAD: length, "ngram": 3.8})
        assert (driver.decision.draft == HEAD) is back


def test_the_first_round_after_a_switch_is_unmixed() -> None:
    """No probe for 15 s, so that T of the new draft is seen: then one in three at two requests a second."""
    driver = broken_down(Driver(Policy(head_ladder(), quiet())))
    fell_s = driver.at_s
    driver.serve(30, {HEAD: 1.0, "ngram": 1.5})
    began_s = next(at_s for at_s, decision in driver.decisions if at_s >= fell_s and decision.probe_draft)
    assert began_s == fell_s + 15
    assert driver.decision.probe_share == pytest.approx(0.15, abs=0.06)


def test_old_requests_of_the_head_that_was_left_are_no_probes() -> None:
    """Requests dispatched before the fall and ending well after it do not bring the head back; those dispatched after do."""
    for age_s, back in ((1000.0, False), (0.0, True)):
        driver = broken_down(Driver(Policy(head_ladder(), quiet())))
        for _ in range(40):
            now_s = driver.at_s + 1
            old = [
                credit(HEAD, 3.0, now_s, started_s=driver.turn.state.since_s + 0.5 - age_s) for _ in range(3)
            ]
            driver.look(old + [credit("ngram", 1.5, now_s)] * 2)
        assert (driver.decision.draft == HEAD) is back


def test_a_rung_that_was_bad_is_passed_over_on_the_way_down() -> None:
    """n-gram left as bad, head back, head bad again within five minutes: straight to off; later n-gram is tried again."""
    for pause_s, next_draft in ((60, "off"), (400, "ngram")):
        driver = broken_down(Driver(Policy(head_ladder(), quiet())))
        driver.serve_until(lambda now: now.draft == "off", {HEAD: 1.05, "ngram": 1.0})
        driver.serve_until(lambda now: now.draft == HEAD, {HEAD: 3.0, "ngram": 1.0})
        driver.serve(pause_s, GOOD)
        driver.serve_until(lambda now: now.draft != HEAD, BAD)
        assert driver.decision.draft == next_draft


def test_a_pin_holds_at_once_and_probes_nothing_and_a_release_judges_again() -> None:
    """Pinned within the dwell time, kept though bad; released it is judged anew, on requests from then on."""
    driver = broken_down(Driver(Policy(head_ladder(), quiet())))
    assert driver.look(pinned=HEAD).draft == HEAD
    assert driver.decision.reason is Reason.PINNED
    driver.serve(120, BAD, pinned=HEAD)
    assert driver.decision.draft == HEAD
    assert driver.decision.probe_draft is None
    assert driver.look().reason is Reason.RELEASED
    driver.serve(30, BAD)
    assert driver.decision.draft == "ngram"


def test_a_pin_to_what_is_in_force_is_no_switch() -> None:
    """The reason becomes the pin; nothing is switched."""
    driver = Driver(Policy(head_ladder()))
    decision = driver.look(pinned=HEAD)
    assert (decision.reason, decision.switched_from) == (Reason.PINNED, None)


def test_every_rung_can_be_pinned_and_nothing_else() -> None:
    """Off is always reachable; a draft that stands on no rung is refused with those that do."""
    policy = Policy(head_ladder())
    for draft in policy.ladder.names:
        assert policy.decide(policy.start(0.0), Snapshot(1.0, pinned=draft)).decision.draft == draft
    with pytest.raises(ValueError, match="'suffix' cannot be pinned: eagle3, ngram, off"):
        policy.decide(policy.start(0.0), Snapshot(1.0, pinned="suffix"))


def test_a_clock_that_goes_back_is_refused() -> None:
    """Rather than judged by negative times."""
    policy = Policy(head_ladder())
    with pytest.raises(ValueError, match="the clock went back"):
        policy.decide(policy.start(10.0), Snapshot(9.0))


def test_all_rungs_broken_leave_off() -> None:
    """The start-up probe finds the head broken, then n-gram: off, without waiting; a ladder of two falls straight to it."""
    driver = Driver(Policy(head_ladder()))
    driver.look(start_probes=(StartProbe("ngram", 80, 0), StartProbe(HEAD, 120, 0)), passed_s=0.0)
    assert driver.decision.draft == "off"
    two = Driver(Policy(Ladder((Rung("ngram"), Rung("off")))))
    assert two.probe("ngram", 60, 0).draft == "off"


def test_a_broken_head_that_is_mended_comes_back_and_its_alert_ends() -> None:
    """By its probes, like any other; a restarted engine judges it anew as well."""
    driver = Driver(Policy(head_ladder(), quiet()))
    driver.probe(HEAD, 120, 0)
    driver.serve(60, GOOD)
    assert driver.decision.draft == HEAD
    assert driver.decision.alerts == ()
    again = Driver(Policy(head_ladder(), quiet()))
    again.probe(HEAD, 120, 0)
    again.look(life=1, start_probes=(StartProbe(HEAD, 120, 60),))
    assert again.decision.alerts == ()


def test_a_new_engine_is_judged_on_what_it_does_itself() -> None:
    """A restart keeps the draft in force; what the old engine's requests told, and its step times, are forgotten."""
    driver = Driver(Policy(head_ladder(), quiet()))
    driver.look(steps=(*readings(HEAD, 0.02, 4.0), *readings("off", 0.02, 4.0)))
    driver.serve(30, GOOD)
    driver.look(life=1)
    assert driver.decision.draft == HEAD
    assert driver.decision.assessments[0].verdict == "undefined"
    assert driver.decision.assessments[0].step is None
    driver.look([credit(HEAD, 1.0, driver.at_s + 1, started_s=driver.at_s - 20)] * 40, life=1)
    driver.serve(10, GOOD, life=1)
    assert driver.switches == []


def test_a_measured_break_even_stands_above_the_floor() -> None:
    """1.04 tokens a step, floor 0.1: left where nothing is measured; where 1.01 just pay, it stays."""
    for steps, stays in (((), False), ((*readings(HEAD, 0.0202, 4.0), *readings("off", 0.02, 4.0)), True)):
        driver = Driver(Policy(head_ladder(None), quiet()))
        driver.look(steps=steps)
        for _ in range(40):
            lengths = (1.0, 1.075)  # too different from each other for 1.04 to be sure of anything
            driver.look([credit(HEAD, length, driver.at_s + 1) for length in lengths])
        assert (driver.switches == []) is stays


def test_counts_by_draft_stand_in_for_requests() -> None:
    """An engine that tells no request's acceptance: one count a second by draft leads to the same fall, with its error."""
    driver = Driver(Policy(head_ladder(), quiet()))
    for second in range(60):
        accepted = 400 if second < 20 else 10
        now_s = driver.at_s + 1
        one = Credit(HEAD, now_s - 2, now_s, 200, 600, accepted, steps=200, requests=5)
        driver.look([one] if driver.decision.draft == HEAD else [])
    assert [move[1] for move in driver.switches] == ["ngram"]
    assert 20 < driver.switches[0][0] <= 50


def with_steps(head_step_s: float, length: float, spread: float) -> Driver:
    """A quarter of a minute of a head of so many tokens a step (± spread), T(4, off) = 20 ms, step times known."""
    driver = Driver(Policy(head_ladder(None), quiet()))
    driver.look(steps=(*readings(HEAD, head_step_s, 4.0), *readings("off", 0.02, 4.0)))
    for _ in range(15):
        pair = [
            credit(
                HEAD,
                2.0,
                driver.at_s + 1,
                drafts=400,
                proposed=1200,
                accepted=round((one - 1) * 400),
                steps=400,
            )
            for one in (length - spread, length + spread)
        ]
        driver.look(pair if driver.decision.draft == HEAD else [])
    return driver


@pytest.mark.parametrize(
    ("length", "spread", "verdict"),
    [
        (1.60, 0.0, "pays"),
        (1.51, 0.0, "fair"),  # faster by less than is known
        (1.48, 0.0, "fair"),  # slower by less than is known
        (1.46, 0.0, "fair"),  # surely slower, by less than the margin
        (1.40, 0.0, "costs"),
        (1.40, 0.35, "fair"),  # slower by more, but not beyond the noise of its requests
        (1.75, 0.70, "fair"),
    ],
)
def test_only_what_is_beyond_noise_and_margin_is_sure(length: float, spread: float, verdict: str) -> None:
    """1.5 tokens a step just pay: what is near, or too different from request to request, decides nothing."""
    driver = with_steps(0.03, length, spread)
    told = {
        decision.assessments[0].verdict
        for at_s, decision in driver.decisions
        if at_s > 4 and decision.draft == HEAD
    }
    assert told == {verdict}


@pytest.mark.parametrize(
    ("running", "alone", "reason", "down"),
    [
        (1.0, None, Reason.ACCEPTANCE, "ngram"),
        (8.0, 1.2, Reason.LOAD, "off"),
        (8.0, 1.45, Reason.ACCEPTANCE, "ngram"),
        (8.0, None, Reason.LOAD, "off"),  # nothing is known of a smaller batch: 1.4 is more than bare
    ],
)
def test_load_is_blamed_only_where_a_smaller_batch_would_pay(
    running: float, alone: float | None, reason: Reason, down: str
) -> None:
    """1.4 tokens a step where 1.5 pay: by the load if fewer pay alone, then straight to off; else accepted too little."""
    driver = Driver(Policy(head_ladder(None), quiet()))
    steps = (*readings(HEAD, 0.03, running), *readings("off", 0.02, running))
    if alone is not None:
        steps += (*readings(HEAD, 0.01 * alone, 1.0), *readings("off", 0.01, 1.0))
    driver.look(steps=steps, running=running)
    driver.serve(30, {HEAD: 1.4, "ngram": 1.5}, running=running)
    assert driver.switches[0][1:] == (down, reason)


def back_with(driver: Driver, length: float, spread: float, seconds: int = 60) -> bool:
    """Whether the head is in force at the end of a while in which its probes end with this AL (± spread, by turns)."""
    for second in range(seconds):
        now_s = driver.at_s + 1
        one = length + (spread, -spread)[second % 2]
        drafts = [(driver.decision.draft, 1.2)] * 2
        if HEAD in (driver.decision.probe_draft, driver.decision.draft):
            drafts.append((HEAD, one))
        driver.look(credit(draft, al if draft != HEAD else one, now_s) for draft, al in drafts)
        if driver.decision.draft == HEAD:
            return True
    return False


@pytest.mark.parametrize(
    ("length", "spread", "steps", "back"),
    [
        (1.4, 0.0, (*readings(HEAD, 0.04, 4.0), *readings("off", 0.02, 4.0)), False),  # 2.0 just pay
        (1.4, 0.0, (*readings(HEAD, 0.022, 4.0), *readings("off", 0.02, 4.0)), True),  # 1.1 just pay
        (
            1.8,
            0.4,
            (*readings(HEAD, 0.038, 4.0), *readings("off", 0.02, 4.0)),
            False,
        ),  # 1.9: not sure, but no reason to
        (
            1.8,
            0.4,
            (*readings(HEAD, 0.03, 4.0), *readings("off", 0.02, 4.0)),
            True,
        ),  # 1.5: by more than the hysteresis
        (
            1.4,
            0.0,
            (*readings(HEAD, 0.04, 4.0), *readings("off", 0.02, 8.0)),
            False,
        ),  # 1.8 at least, by the larger batch
        (1.4, 0.0, (*readings(HEAD, 0.02, 4.0), *readings("off", 0.02, 8.0)), True),
    ],
)
def test_what_a_manifest_is_content_with_must_pay_as_well(
    length: float, spread: float, steps: tuple[StepReading, ...], back: bool
) -> None:
    """AL 1.4 and 1.8 exceed what a manifest of 1.5 asks for: back only where step times do not speak against it."""
    driver = Driver(Policy(head_ladder(1.5), quiet()))
    driver.serve_until(lambda now: now.draft == "ngram", {HEAD: 1.0, "ngram": 1.2})
    driver.look(steps=tuple(replace(one, at_s=driver.at_s) for one in steps))
    assert back_with(driver, length, spread) is back


def test_a_draft_that_was_left_for_load_must_surely_pay() -> None:
    """Left at 8 running; at 4, where 1.5 just pay, probes of 1.58 that differ much do not bring it back, such of 1.9 do."""
    for length, back in ((1.58, False), (1.9, True)):
        driver = Driver(Policy(head_ladder(None), quiet()))
        steps = (
            *readings(HEAD, 0.04, 8.0),
            *readings("off", 0.02, 8.0),
            *readings(HEAD, 0.03, 4.0),
            *readings("off", 0.02, 4.0),
        )
        driver.look(steps=steps, running=8.0)
        driver.serve(30, {HEAD: 1.7}, running=8.0)
        assert driver.switches[0][1:] == ("off", Reason.LOAD)
        assert driver.decision.probe_draft is None
        for _ in range(20):
            driver.look(running=4.0)
        assert driver.decision.probe_draft is not None
        assert back_with(driver, length, 0.3, 40) is back


def test_a_worthless_baseline_is_no_yardstick() -> None:
    """A pair manifest with AL 1.02 would let everything pass: it is not used, and an alert says so."""
    driver = Driver(Policy(head_ladder(1.02), quiet()))
    driver.serve(30, {HEAD: 1.03, "ngram": 1.5})
    assert [move[1] for move in driver.switches] == ["ngram"]
    assert any(alert.kind == "worthless-baseline" for alert in driver.decision.alerts)


def test_warm_stands_for_off_where_the_head_must_go_on_reading() -> None:
    """A ladder that ends in warm falls to warm."""
    ladder = Ladder((Rung(HEAD, 3.0), Rung("warm")))
    driver = broken_down(Driver(Policy(ladder, quiet())))
    assert driver.decision.draft == "warm"


def test_requests_of_a_draft_on_no_rung_are_passed_over() -> None:
    """A stack that was changed leaves old requests behind: they neither count nor fail."""
    driver = Driver(Policy(head_ladder(), quiet()))
    driver.look([credit("suffix", 1.0, 1.0)] * 50)
    assert set(driver.turn.state.records) == {HEAD, "ngram", "off"}


def test_a_trial_is_begun_in_doubt_only() -> None:
    """T(4, head) known, T(4, off) not. AL 1.3: a trial. AL 3.0 alone at batch 1: none. Trials off: none."""
    for length, running, settings, wanted in (
        (1.6, 4.0, PolicySettings(), True),
        (3.0, 1.0, PolicySettings(), False),
        (3.0, 4.0, PolicySettings(), True),
        (1.6, 4.0, quiet(), False),
    ):
        driver = Driver(Policy(head_ladder(None), settings))
        driver.look(steps=readings(HEAD, 0.03, running), running=running)
        driver.serve(40, {HEAD: length}, running=running)
        assert ("trial" in [reason for *_, reason in driver.switches]) is wanted


def trial(length: float, off_step_s: float | None) -> Driver:
    """A head with T = 30 ms at 4 running, in a trial in which a step without a draft takes so long."""
    driver = Driver(Policy(head_ladder(None)))
    driver.look(steps=readings(HEAD, 0.03, 4.0))
    driver.serve_until(lambda now: now.reason is Reason.TRIAL, {HEAD: length}, within=60)
    for _ in range(20):
        steps = readings("off", off_step_s, 4.0, driver.at_s + 1, 1) if off_step_s else ()
        if driver.decision.draft == "off":
            driver.look(steps=steps)
    return driver


def test_a_trial_that_finds_the_draft_faster_ends_in_the_draft() -> None:
    """1.6 tokens a step where 1.2 pay: back after the dwell time, and no second trial."""
    driver = trial(1.6, 0.025)
    assert driver.switches[-1][1:] == (HEAD, "trial-over")
    assert "1.20 just pay with 4 running: it pays" in driver.decision.why
    driver.serve(1200, {HEAD: 1.6})
    assert len(driver.switches) == 2


def test_a_trial_that_finds_the_draft_slower_ends_without_one() -> None:
    """1.6 tokens a step where 3.0 pay: off stays in force, for load, and no probe costs anything at this batch."""
    driver = trial(1.6, 0.01)
    assert driver.decision.draft == "off"
    assert driver.decision.reason is Reason.LOAD
    assert "slower than no draft" in driver.decision.why
    assert driver.decision.probe_draft is None
    driver.serve(60, {HEAD: 1.6}, running=1.5)
    assert driver.decision.draft == HEAD  # a batch an octave smaller may try it again


def test_a_trial_in_which_nothing_is_learnt_is_given_up() -> None:
    """No reading of T(4, off): back to the draft after 30 s, and no other trial at this batch for half an hour."""
    driver = trial(1.6, None)
    driver.serve(15, {})
    assert driver.switches[-1][1:] == (HEAD, "trial-over")
    ended_s = driver.switches[-1][0]
    for _ in range(1850):
        driver.serve(1, {HEAD: 1.6}, steps=readings(HEAD, 0.03, 4.0, driver.at_s + 1, 1))
    assert driver.switches[2][0] == pytest.approx(ended_s + 1800, abs=2)


def test_a_pin_ends_a_trial() -> None:
    """And what was pinned stays when it is let go."""
    driver = trial(1.6, None)
    driver.look(pinned="ngram")
    assert driver.turn.state.trial is None
    assert driver.look().draft == "ngram"


def test_the_status_is_plain_json_with_the_figures_of_the_decision() -> None:
    """AL, tokens a step, break-even, T and expected speed-up by rung; None where they are not known, never infinite."""
    driver = Driver(Policy(head_ladder(), quiet()))
    driver.look([credit(HEAD, 3.0, 1.0)], steps=(*readings(HEAD, 0.03, 4.0), *readings("off", 0.02, 4.0)))
    assert (
        json.loads(json.dumps(status(driver.turn), allow_nan=False))["drafts"][0]["acceptance_length"] == 3.0
    )
    driver.serve(30, GOOD)
    told = status(driver.turn)
    head, ngram, off = told["drafts"]  # type: ignore[misc]  # a list of three
    assert head["verdict"] == "pays"
    assert head["requests"] == 16
    assert head["acceptance_length"] == head["tokens_per_step"] == pytest.approx(3.0)
    assert head["acceptance_rate"] == pytest.approx(2 / 3)
    assert head["break_even_length"] == pytest.approx(1.5)
    assert head["step_ms"] == pytest.approx(30.0)
    assert head["expected_speedup"] == pytest.approx(2.0)
    assert (ngram["acceptance_length"], ngram["step_ms"], off["step_ms"]) == (None, None, pytest.approx(20.0))
    assert (told["draft"], told["reason"], told["for_s"]) == (HEAD, "start", 31.0)
    broken = broken_down(Driver(Policy(head_ladder(), quiet())))
    broken.serve(60, BAD)
    told = status(broken.turn)
    assert (told["probe_draft"], told["for_s"]) == (HEAD, 60.0)
    assert {alert["kind"] for alert in told["alerts"]} <= {"collapse", "under-baseline"}  # type: ignore[attr-defined]  # a list
    assert told["alerts"]
