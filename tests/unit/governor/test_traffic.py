"""The governor over simulated traffic on a virtual clock: each claim that it must not switch has a twin that it must, by when."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from outrider.governor.policy import Policy
from outrider.governor.reasons import Reason
from outrider.governor.settings import PolicySettings
from tests.unit.governor.traffic import (
    HEAD,
    K,
    Load,
    Seen,
    Service,
    changing,
    constant,
    dear_steps,
    first,
    head_ladder,
    quiet,
    steady,
    switches,
)

BROKE_S, MENDED_S = 100.0, 200.0
BROKEN = changing((0, 2.0), (BROKE_S, 0.05), (MENDED_S, 2.0))


def run(service: Service, until_s: float) -> list[Seen]:
    """All its seconds."""
    return list(service.seconds(until_s))


@pytest.mark.parametrize("per_s", [0.1, 2, 20])
def test_good_traffic_moves_nothing(per_s: float) -> None:
    """Five minutes of a head that pays: no switch, no probe, no alert, whatever the load."""
    seen = run(Service(Policy(head_ladder()), constant(2.0, 0.15), Load(steady(per_s))), 300)
    assert switches(seen) == []
    assert {one.decision.probe_draft for one in seen} == {None}
    assert {one.decision.alerts for one in seen} == {()}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("per_s", [1, 2, 8])
@pytest.mark.parametrize("settings", [PolicySettings(), quiet()], ids=["trials", "no-trials"])
def test_a_head_that_breaks_is_left_in_time_and_comes_back_in_time(
    per_s: float, seed: int, settings: PolicySettings
) -> None:
    """Out of force within 30 s and 50 requests that ended badly, n-gram next; back within 60 s after it is good again."""
    seen = run(Service(Policy(head_ladder(), settings), BROKEN, Load(steady(per_s)), seed=seed), 320)
    fell = first(seen, "ngram", BROKE_S)
    assert fell.decision.switched_from == HEAD
    assert fell.decision.reason is Reason.ACCEPTANCE
    assert fell.at_s - BROKE_S <= 30
    assert sum(len(one.snapshot.finished) for one in seen if BROKE_S < one.at_s <= fell.at_s) <= 50
    if per_s <= 2:  # with more, fifty are under way before the first of them tells
        assert fell.dispatched - first(seen, HEAD, BROKE_S).dispatched <= 50
    assert first(seen, HEAD, MENDED_S).at_s - MENDED_S <= 60
    assert seen[-1].decision.draft == HEAD


@pytest.mark.parametrize("seed", range(2))
def test_a_busy_service_is_as_quick(seed: int) -> None:
    """At 60 requests a second the answers take most of the time: still within 30 s and back within 60 s."""
    seen = run(Service(Policy(head_ladder(), quiet()), BROKEN, Load(steady(60), tokens=40), seed=seed), 280)
    assert first(seen, "ngram", BROKE_S).at_s - BROKE_S <= 30
    assert first(seen, HEAD, MENDED_S).at_s - MENDED_S <= 60


@pytest.mark.parametrize("per_s", [0.05, 0.2])
def test_thin_traffic_is_governed_too(per_s: float) -> None:
    """One request in twenty seconds: slower than promised, but a broken head is left, and comes back."""
    gain = changing((0, 2.0), (400, 0.05), (1500, 2.0))
    seen = run(Service(Policy(head_ladder(), quiet()), gain, Load(steady(per_s))), 2500)
    assert first(seen, "ngram", 400).dispatched - first(seen, HEAD, 400).dispatched <= 50
    assert 1500 < first(seen, HEAD, 1500).at_s < 2500


def test_without_a_manifest_the_break_even_decides() -> None:
    """AL 1.25 moves nothing where 1.15 pays, and the head is left within 30 s where 1.4 do not."""
    for just_pays, stays in ((1.15, True), (1.4, False)):
        ladder = head_ladder(None, break_even=((1.0, just_pays), (64.0, just_pays)))
        gain = changing((0, 1.0), (BROKE_S, 0.25), ngram=0.1)
        seen = run(Service(Policy(ladder, quiet()), gain, Load(steady(4)), warmed=False), 200)
        fell = [at_s for at_s, _ in switches(seen)]
        assert (not fell) if stays else (BROKE_S < fell[0] <= BROKE_S + 30)


def test_a_head_under_its_manifest_stays_while_it_surely_pays() -> None:
    """AL 1.9 where the manifest says 3.0: where measured steps say that it pays it stays, with a warning; else it is left."""
    for warmed, stays in ((True, True), (False, False)):
        gain = changing((0, 2.0), (BROKE_S, 0.9))
        seen = run(Service(Policy(head_ladder(), quiet()), gain, Load(steady(2)), warmed=warmed), 200)
        assert (switches(seen) == []) is stays
        assert any(alert.kind == "under-baseline" for one in seen for alert in one.decision.alerts)


def test_an_ngram_that_does_not_pay_goes_off_and_one_that_does_stays() -> None:
    """After the head: n-gram at 1.01 tokens a step is left for off; at 1.6 it is kept until the head is good again."""
    for ngram, last in ((0.01, "off"), (0.6, "ngram")):
        gain = changing((0, 2.0), (BROKE_S, 0.05), ngram=ngram)
        seen = run(Service(Policy(head_ladder(), quiet()), gain, Load(steady(2))), 300)
        assert seen[-1].decision.draft == last
        assert [draft for _, draft in switches(seen)] == (["ngram", "off"] if last == "off" else ["ngram"])


def test_from_off_the_head_comes_back_first_and_ngram_when_it_is_the_good_one() -> None:
    """Both rungs above are probed in turn: whichever is good again is in force within a minute and a half."""
    for head, ngram, wanted in ((2.0, 0.01, HEAD), (0.05, 1.2, "ngram")):

        def gain(draft: str, at_s: float, head: float = head, ngram: float = ngram) -> float:
            mended = at_s >= 250
            return {HEAD: head if mended else 0.05, "ngram": ngram if mended else 0.01}.get(draft, 0.0)

        seen = run(Service(Policy(head_ladder(), quiet()), gain, Load(steady(2))), 400)
        assert first(seen, "off", 0).at_s < 100
        assert first(seen, wanted, 250).at_s <= 250 + 90
        assert seen[-1].decision.draft == wanted


def test_a_head_that_nearly_pays_does_not_come_and_go() -> None:
    """1.8 tokens a step where 1.9 pay, though the manifest is content: found out by a trial, and out of force from then on."""
    service = Service(
        Policy(head_ladder(2.0)),
        constant(0.8, 0.02),
        Load(steady(2)),
        step_s=lambda running, drafted: 0.02 * (1 + 0.02 * running) * (1 + 0.9 * drafted),
        scraped=True,
        warmed=False,
    )
    seen = run(service, 1200)
    late = [one.decision.draft == HEAD for one in seen if one.at_s > 300]
    assert sum(late) < 0.1 * len(late)


def load_times_three(per_s: float, from_s: float, to_s: float) -> Load:
    """Traffic that triples for a while."""
    return Load(lambda at_s: 3 * per_s if from_s <= at_s < to_s else per_s, tokens=150, limit=200)


@pytest.mark.parametrize("scraped", [False, True])
def test_load_times_three_turns_the_head_off_where_it_stops_paying_and_on_again_after(scraped: bool) -> None:
    """AL 1.25 pays at 10 running and costs at 200: a trial tells, within 90 s of the load; on again within 60 s after it."""
    service = Service(
        Policy(head_ladder(1.4)),
        constant(0.25, 0.02),
        load_times_three(4, 300, 700),
        step_s=lambda running, drafted: 0.02 + 0.0003 * running * (1 + 0.6 * drafted),
        scraped=scraped,
    )
    seen = run(service, 1000)
    before = {one.decision.reason for one in seen if one.at_s < 300}
    assert before <= {Reason.START, Reason.TRIAL, Reason.TRIAL_OVER}
    assert seen[299].decision.draft == HEAD
    assert first(seen, "off", 300).at_s <= 390
    settled = [one for one in seen if 420 < one.at_s < 700]
    assert {one.decision.draft for one in settled} == {"off"}
    assert {one.decision.reason for one in settled} == {Reason.LOAD}
    assert first(seen, HEAD, 700).at_s <= 760
    assert seen[-1].decision.draft == HEAD


def test_load_times_three_moves_nothing_where_the_head_still_pays() -> None:
    """Dearer steps, AL 2.6: nothing but a trial at times, which finds that it pays."""
    service = Service(
        Policy(head_ladder(2.8)),
        constant(1.6, 0.02),
        load_times_three(10, 300, 700),
        step_s=dear_steps,
        scraped=True,
    )
    seen = run(service, 1000)
    assert {one.decision.reason for one in seen} <= {Reason.START, Reason.TRIAL, Reason.TRIAL_OVER}
    assert sum(one.decision.draft == HEAD for one in seen) >= 0.95 * len(seen)


@pytest.mark.parametrize("told", [True, False])
def test_load_times_three_needs_no_trial_where_the_heads_own_steps_tell(told: bool) -> None:
    """2.9 tokens a step; T(8, 3)/T(2, 3) = 2.0, T(1, 3)/T(1, 0) = 1.3: more than pay, without a trial. K not told: with one."""
    ladder = head_ladder(2.8, draft_length=K if told else None)
    service = Service(
        Policy(ladder),
        constant(1.9, 0.02),
        Load(at_once=lambda at_s: 2 if at_s < 120 else 8, tokens=60),
        step_s=lambda running, drafted: (1 + 0.066 * running * (1 + K * drafted)) * (1 + 0.1 * drafted) / 20,
        scraped=True,
    )
    seen = run(service, 400)
    assert (Reason.TRIAL in {one.decision.reason for one in seen}) is not told
    assert seen[-1].decision.draft == HEAD


def test_a_schedule_of_the_engines_own_is_left_alone() -> None:
    """Where the engine sets the draft length by batch, step times decide nothing; the twin above is switched off."""
    ladder = head_ladder(1.7, scheduled=True)
    service = Service(
        Policy(ladder),
        constant(0.6, 0.02),
        load_times_three(10, 100, 400),
        step_s=lambda running, drafted: 0.02 + 0.0003 * running * (1 + 2 * drafted),
        scraped=True,
    )
    assert switches(run(service, 500)) == []


def test_no_traffic_moves_nothing() -> None:
    """Two bad minutes, then silence for a day's worth of looks in the middle of a judgement: the draft stays as it was."""
    policy = Policy(head_ladder(), replace(quiet(), sustained_requests=1000))
    gain = changing((0, 0.05))
    service = Service(policy, gain, Load(lambda at_s: 2.0 if at_s < 120 else 0.0))
    seen = run(service, 3600)
    assert switches(seen) == []
    assert seen[-1].decision.waiting.startswith("too little is accepted")
    busy = run(Service(Policy(head_ladder(), quiet()), gain, Load(steady(2))), 60)
    assert next(draft for _, draft in switches(busy)) == "ngram"


def test_requests_that_cannot_be_drafted_move_nothing() -> None:
    """All of the traffic undraftable: undefined, kept. The twin with a tenth of it drafted, and badly, is switched."""
    gain = constant(0.05, 0.3)
    alone = run(Service(Policy(head_ladder()), gain, Load(steady(10), undraftable=1.0)), 300)
    assert switches(alone) == []
    assert alone[-1].decision.not_speculated > 2000
    mixed = run(Service(Policy(head_ladder(), quiet()), gain, Load(steady(10), undraftable=0.9)), 300)
    assert first(mixed, "ngram").at_s <= 60


@pytest.mark.parametrize("half_s", [1, 7, 20, 45])
def test_alternating_acceptance_switches_at_most_once_a_dwell_time(half_s: int) -> None:
    """AL 2.4 and 1.05 in turn, for whatever time each: never two switches within the dwell time."""
    settings = quiet()
    gain = {0: 1.4, 1: 0.05}
    service = Service(
        Policy(head_ladder(2.4), settings),
        lambda draft, at_s: gain[int(at_s // half_s) % 2] if draft == HEAD else 0.1,
        Load(steady(4), tokens=20),
        warmed=False,
    )
    moves = [at_s for at_s, _ in switches(run(service, 600))]
    assert all(b - a >= settings.dwell_s for a, b in pairwise(moves))
