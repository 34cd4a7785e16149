"""What holds whatever the governor is told."""

from __future__ import annotations

import copy
import json
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from outrider.governor.decision import Turn
from outrider.governor.ladder import Ladder, Rung
from outrider.governor.policy import Policy
from outrider.governor.replay import replay
from outrider.governor.settings import PolicySettings
from outrider.governor.snapshot import Credit, Snapshot, StartProbe, StepReading
from outrider.governor.status import status
from outrider.governor.trace import Trace, header_line, look_lines
from tests.unit.governor.driver import Driver

LADDERS = (
    Ladder((Rung("eagle3", 3.0), Rung("ngram"), Rung("off"))),
    Ladder((Rung("p-eagle", None, ((1.0, 1.2), (32.0, 2.5))), Rung("ngram"), Rung("warm"))),
    Ladder((Rung("draft-model", 2.0, scheduled=True), Rung("mix"), Rung("ngram"), Rung("off"))),
    Ladder((Rung("ngram"), Rung("off"))),
)
NAMES = ("eagle3", "p-eagle", "draft-model", "mix", "ngram", "off", "warm", "suffix")


@st.composite
def credits(draw: st.DrawFn, at_s: float) -> Credit:
    """Any request that can have ended now."""
    drafts = draw(st.integers(0, 60))
    proposed = drafts * 3
    return Credit(
        draw(st.sampled_from(NAMES)),
        at_s - draw(st.floats(0.0, 40.0)),
        at_s,
        drafts,
        proposed,
        draw(st.sampled_from((0, proposed, proposed // 2, proposed // 20))),
        steps=draw(st.one_of(st.none(), st.integers(drafts, drafts + 40))),
        decode_s=draw(st.one_of(st.none(), st.floats(0.01, 30.0))),
        running=draw(st.one_of(st.none(), st.floats(1.0, 200.0))),
        alike_ratio=draw(st.one_of(st.none(), st.floats(0.0, 1.0))),
        draftable=draw(st.sampled_from((None, True, False))),
        requests=draw(st.integers(1, 20)),
    )


@st.composite
def courses(draw: st.DrawFn, hands: bool = True) -> tuple[Policy, list[Snapshot]]:
    """A policy and what it is told; with `hands`, operators pin, engines restart and probes find drafts broken."""
    ladder = draw(st.sampled_from(LADDERS))
    policy = Policy(
        ladder,
        PolicySettings(
            dwell_s=draw(st.sampled_from((1.0, 15.0, 60.0))),
            sustained_s=draw(st.sampled_from((0.0, 3.0))),
            sustained_requests=draw(st.sampled_from((0, 6))),
            min_requests=draw(st.sampled_from((1, 6))),
            probe_requests=draw(st.sampled_from((1, 5))),
            trial_every_s=draw(st.sampled_from((1.0, 300.0))),
        ),
    )
    at_s, life, looks = 0.0, 0, []
    for _ in range(draw(st.integers(1, 30))):
        at_s += draw(st.sampled_from((0.0, 1.0, 1.0, 3.0, 50.0, 4000.0)))
        steps = st.builds(
            StepReading,
            st.sampled_from(NAMES),
            st.just(at_s),
            st.floats(1.0, 200.0),
            st.floats(0.001, 1.0),
            st.integers(1, 50),
        )
        more = {}
        if hands and draw(st.booleans()):
            life += draw(st.integers(0, 1))
            more["pinned"] = draw(st.sampled_from((None, None, *ladder.names)))
            more["start_probes"] = tuple(
                StartProbe(draft, 60, draw(st.integers(0, 1)))
                for draft in draw(st.sets(st.sampled_from(NAMES), max_size=2))
            )
        looks.append(
            Snapshot(
                at_s,
                draw(st.floats(0.0, 200.0)),
                finished=tuple(draw(st.lists(credits(at_s), max_size=12))),
                steps=tuple(draw(st.lists(steps, max_size=8))),
                life=life,
                **more,
            )
        )
    return policy, looks


def turns(policy: Policy, looks: list[Snapshot]) -> list[Turn]:
    """The whole course, from a service that starts with the first look."""
    state, found = policy.start(looks[0].at_s, looks[0].life), []
    for look in looks:
        found.append(policy.decide(state, look))
        state = found[-1].state
    return found


@settings(deadline=None, max_examples=30)
@given(courses(hands=False))
def test_never_two_switches_within_the_dwell_time(course: tuple[Policy, list[Snapshot]]) -> None:
    """Whatever is measured; only an operator and an engine's start may be quicker."""
    policy, looks = course
    moves = [
        look.at_s
        for look, turn in zip(looks, turns(policy, looks), strict=True)
        if turn.decision.switched_from is not None
    ]
    assert all(later - sooner >= policy.settings.dwell_s for sooner, later in pairwise(moves))


@settings(deadline=None, max_examples=30)
@given(courses())
def test_a_decision_is_always_one_that_can_be_carried_out(course: tuple[Policy, list[Snapshot]]) -> None:
    """A draft of the ladder; probes of a rung above it, at a share between 0 and 1; a pin is obeyed; words with every reason."""
    policy, looks = course
    before = policy.ladder.top
    for look, turn in zip(looks, turns(policy, looks), strict=True):
        decision = turn.decision
        assert decision.draft in policy.ladder
        assert look.pinned is None or decision.draft == look.pinned
        above = [rung.draft for rung in policy.ladder.above(decision.draft)]
        assert decision.probe_draft is None or decision.probe_draft in above
        assert (decision.probe_share > 0) is (decision.probe_draft is not None)
        assert decision.probe_share <= policy.settings.probe_share_max
        assert (decision.switched_from is not None) is (decision.draft != before)
        assert decision.switched_from in (None, before)
        assert decision.why
        json.dumps(status(turn), allow_nan=False)
        assert [one.draft for one in decision.assessments] == list(policy.ladder.names)
        before = decision.draft


@settings(deadline=None, max_examples=25)
@given(courses())
def test_a_decision_depends_on_what_it_is_given_alone(course: tuple[Policy, list[Snapshot]]) -> None:
    """The same state and snapshot give the same turn, again and again; neither is changed by it."""
    policy, looks = course
    state = policy.start(0.0)
    for look in looks:
        kept = copy.deepcopy((state, look))
        turn = policy.decide(state, look)
        assert (state, look) == kept
        assert policy.decide(*copy.deepcopy((state, look))) == turn
        state = turn.state


@settings(deadline=None, max_examples=25)
@given(courses())
def test_no_draft_is_always_within_reach(course: tuple[Policy, list[Snapshot]]) -> None:
    """From any state: at once by a pin, and without one when every draft is accepted nothing of, for some minutes."""
    policy, looks = course
    state = turns(policy, looks)[-1].state
    pinned = policy.decide(state, Snapshot(state.at_s, pinned=policy.ladder.floor, life=state.life))
    assert pinned.decision.draft == policy.ladder.floor
    driver = Driver(policy)
    driver.turn, driver.at_s = policy.decide(state, Snapshot(state.at_s, life=state.life)), state.at_s
    reached = [driver.serve(1, {}, life=state.life).draft for _ in range(150)]
    assert policy.ladder.floor in reached


@settings(deadline=None, max_examples=25)
@given(courses())
def test_replaying_a_trace_twice_gives_the_decisions_that_were_made(
    course: tuple[Policy, list[Snapshot]],
) -> None:
    """Written and read again, the trace holds the same snapshots; both replays agree with each other and with the decisions."""
    policy, looks = course
    made = turns(policy, looks)
    lines = [header_line(policy.ladder)]
    lines += [look_lines(look, turn.decision) for look, turn in zip(looks, made, strict=True)]
    text = "".join(lines).encode().splitlines(keepends=True)
    assert [one.snapshot for one in Trace(text).looks()] == looks
    first, second = (
        replay(Policy(trace.ladder, policy.settings), trace.looks()) for trace in (Trace(text), Trace(text))
    )
    assert first is not None
    assert first == second
    assert first.switches == made[-1].state.switches
    assert not first.differing_ratio
