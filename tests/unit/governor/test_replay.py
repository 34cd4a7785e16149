"""Replays: what a policy would have done, and what that would have been worth, against sums done by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from outrider.governor.policy import Policy
from outrider.governor.replay import Replay, replay
from outrider.governor.settings import PolicySettings
from outrider.governor.snapshot import Credit, Snapshot
from outrider.governor.trace import Look
from tests.unit.governor.driver import readings
from tests.unit.governor.traffic import HEAD, Load, Seen, Service, changing, head_ladder, quiet, steady

LADDER = head_ladder()


def recorded(*, governed: bool = True, until_s: float = 320.0) -> list[Seen]:
    """A service whose head breaks at 100 s and is good again at 200 s."""
    gain = changing((0, 2.0), (100, 0.05), (200, 2.0))
    return list(Service(Policy(LADDER, quiet()), gain, Load(steady(4)), governed=governed).seconds(until_s))


def asked(policy: Policy, seen: list[Seen], *, told: bool = True) -> Replay:
    """The policy over what was recorded."""
    found = replay(policy, [Look(one.snapshot, one.decision.draft if told else None) for one in seen])
    assert found is not None
    return found


def test_the_same_policy_decides_as_it_did() -> None:
    """Events, switches and shares are those of the recording; nothing differs."""
    seen = recorded()
    found = asked(Policy(LADDER, quiet()), seen)
    moves = [(one.at_s, one.decision.draft) for one in seen if one.decision.switched_from]
    assert [(event.at_s, event.draft) for event in found.events[1:]] == moves
    assert found.switches == found.recorded_switches == len(moves) == 2
    assert found.differing_ratio == 0.0
    head_s = sum(b.at_s - a.at_s for a, b in pairwise(seen) if a.decision.draft == HEAD)
    assert found.shares[HEAD] == pytest.approx(head_s / 320)
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert sum(event.for_s for event in found.events) == found.length_s == 320.0
    assert found.requests == sum(len(one.snapshot.finished) for one in seen)


def test_another_policy_is_told_apart() -> None:
    """A slower one leaves the head later: the time in which it differs is the time between."""
    seen = recorded()
    slow = asked(Policy(LADDER, PolicySettings(trials=False, sustained_s=20.0)), seen)
    first = next(one.at_s for one in seen if one.decision.draft == "ngram")
    assert slow.events[1].at_s == pytest.approx(first + 17, abs=1)
    assert slow.differing_ratio is not None
    assert slow.differing_ratio * 320 >= 16


def test_without_recorded_decisions_nothing_is_compared() -> None:
    """A recording may be of a service without a governor."""
    found = asked(Policy(LADDER, quiet()), recorded(governed=False), told=False)
    assert found.recorded_switches is None
    assert found.differing_ratio is None


def test_an_empty_trace_has_no_replay() -> None:
    """None, not zeros; a single snapshot has no length, and no share is divided by it."""
    policy = Policy(LADDER)
    assert replay(policy, []) is None
    one = replay(policy, [Look(Snapshot(5.0))])
    assert one is not None
    assert (one.length_s, one.shares[HEAD], one.against[0].covered_ratio) == (0.0, 0.0, 0.0)


def test_alerts_are_heard_from_first_to_last() -> None:
    """With the words they had at first."""
    heard = {one.alert.kind: one for one in asked(Policy(LADDER, quiet()), recorded()).heard}
    assert {"collapse", "under-baseline"} <= heard.keys()
    assert 100 < heard["under-baseline"].first_s < 115
    assert heard["under-baseline"].last_s > 150


def looks(*, running: float = 4.0, until_s: int = 100) -> list[Look]:
    """Each second one request of the head at AL 2.0 and one without a draft; T(4, head) 30 ms, T(4, off) 20 ms."""
    found = []
    for second in range(until_s + 1):
        at_s = float(second)
        steps = (*readings(HEAD, 0.03, 4.0, at_s, 1), *readings("off", 0.02, 4.0, at_s, 1))
        ended = (
            Credit(HEAD, at_s - 1, at_s, 40, 120, 40, steps=40),
            Credit("off", at_s - 1, at_s, steps=40),
        )
        found.append(Look(Snapshot(at_s, running, finished=ended, steps=steps)))
    return found


def test_what_is_modelled_is_running_times_tokens_per_step_over_step_time() -> None:
    """100 s of the head at 4 running: 4 · 2.0 / 0.03 tokens a second; none at all: 4 / 0.02. Nothing is known of n-gram."""
    found = replay(Policy(LADDER, quiet()), looks())
    assert found is not None
    against = {one.draft: one for one in found.against}
    assert against[HEAD].gained_tokens == pytest.approx(0.0)
    assert against["off"].gained_tokens == pytest.approx(100 * (4 * 2.0 / 0.03 - 4 / 0.02))
    assert against["off"].ratio == pytest.approx(2.0 / 1.5)
    assert against["off"].covered_ratio == pytest.approx(1.0)
    assert (against["ngram"].gained_tokens, against["ngram"].ratio, against["ngram"].covered_ratio) == (
        None,
        None,
        0.0,
    )


def test_step_times_of_requests_are_those_of_the_draft_that_was_recorded_in_force() -> None:
    """Where no request says what ran beside it, the recorded decisions do: T(4, off) of the half in which off was in force."""
    rows = []
    for second in range(101):
        at_s = float(second)
        draft, step_s, drafts = ((HEAD, 0.03, 40), ("off", 0.02, 0))[second > 50]
        plain = {"steps": 40, "decode_s": 40 * step_s, "running": 4.0}
        one = Credit(draft, at_s - 0.5, at_s, drafts, 3 * drafts, drafts, **plain)  # type: ignore[arg-type]  # by name
        rows.append(Look(Snapshot(at_s, 4.0, finished=(one,)), draft))
    found = replay(Policy(LADDER, quiet()), rows)
    assert found is not None
    assert found.against[-1].ratio == pytest.approx(2.0 / 1.5)
    assert found.against[-1].covered_ratio == pytest.approx(0.8, abs=0.02)


def test_moments_of_which_nothing_is_known_are_not_counted() -> None:
    """The head's requests stop after 40 s: half a minute later its tokens per step are not known; the share says so."""
    cut = [
        Look(Snapshot(one.snapshot.at_s, 4.0, steps=one.snapshot.steps)) if one.snapshot.at_s > 40 else one
        for one in looks()
    ]
    found = replay(Policy(LADDER, quiet()), cut)
    assert found is not None
    off = found.against[-1]
    assert off.covered_ratio == pytest.approx(0.71, abs=0.01)
    assert off.gained_tokens == pytest.approx(71 * (4 * 2.0 / 0.03 - 4 / 0.02), rel=0.01)


def test_a_pause_of_the_recording_is_not_traffic() -> None:
    """An hour between two snapshots counts as ten seconds at most."""
    paused = [
        *looks(until_s=10),
        *(Look(Snapshot(one.snapshot.at_s + 3600, 4.0, finished=())) for one in looks(until_s=1)),
    ]
    found = replay(Policy(LADDER, quiet()), paused)
    assert found is not None
    assert found.against[0].gained_tokens == 0.0
    assert found.against[-1].gained_tokens is not None
    assert found.against[-1].gained_tokens <= 21 * (4 * 2.0 / 0.03 - 4 / 0.02)


def test_stated_break_evens_stand_in_for_step_times() -> None:
    """T(4, off) from T(4, head) / 1.5, and the other way round."""
    for missing in ("off", HEAD):
        rows = [
            Look(
                Snapshot(
                    one.snapshot.at_s,
                    4.0,
                    finished=one.snapshot.finished,
                    steps=tuple(step for step in one.snapshot.steps if step.draft != missing),
                )
            )
            for one in looks()
        ]
        found = replay(Policy(head_ladder(3.0, break_even=((4.0, 1.5),)), quiet()), rows)
        assert found is not None
        assert found.against[-1].ratio == pytest.approx(2.0 / 1.5)
