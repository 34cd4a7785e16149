"""What a policy would have done over a recorded trace, and what that would have been worth.

The trace is what happened: requests ran with the drafts of that day, whatever the policy asked here would have chosen. So its
decisions are exact for what it was told, and blind for drafts that the trace never ran. What it gains or loses against each draft
kept all the time is **modelled** (`outrider.governor.modelled`); the batch stays as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from outrider.governor.costs import StepTimes, readings_of
from outrider.governor.decision import Alert
from outrider.governor.estimator import judgeable
from outrider.governor.modelled import HINDSIGHT, Against, Moment, against
from outrider.governor.policy import Policy
from outrider.governor.reasons import Reason
from outrider.governor.trace import Look


@dataclass(frozen=True, slots=True)
class Event:
    """A draft came in force at `at_s` (seconds since the trace began) and stayed for `for_s`."""

    at_s: float
    for_s: float
    draft: str
    reason: Reason
    why: str


@dataclass(frozen=True, slots=True)
class Heard:
    """An alert as it was first, and the seconds since the trace began at which it was first and last up."""

    alert: Alert
    first_s: float
    last_s: float


@dataclass(frozen=True, slots=True)
class Replay:
    """The whole answer. `shares`: of the time, by draft. `recorded_switches`: of the service that made the trace; None: not told.

    not_speculated: finished requests without a draft although one was in force. differing_ratio: share of the time in which the
    service had another draft in force than this policy.
    """

    length_s: float
    looks: int
    requests: int
    not_speculated: int
    events: tuple[Event, ...]
    shares: Mapping[str, float]
    switches: int
    recorded_switches: int | None
    differing_ratio: float | None
    heard: tuple[Heard, ...]
    against: tuple[Against, ...]
    left_out: tuple[str, ...] = ()

    def with_left_out(self, left_out: Iterable[str]) -> Replay:
        """With what of the trace was not read."""
        return replace(self, left_out=tuple(left_out))


@dataclass(slots=True)
class _Course:
    """What is gathered on the way through a trace."""

    moments: list[Moment] = field(default_factory=list)
    events: list[tuple[float, str, Reason, str]] = field(default_factory=list)
    heard: dict[tuple[str, str, str], tuple[Alert, float, float]] = field(default_factory=dict)
    times: StepTimes = field(default_factory=StepTimes)
    recorded: list[tuple[float, str]] = field(default_factory=list)
    requests: int = 0
    not_speculated: int = 0


def replay(policy: Policy, looks: Iterable[Look]) -> Replay | None:
    """Ask the policy at every snapshot of a trace. None where the trace holds no snapshot."""
    course, state = _Course(), None
    began_s = at_s = 0.0
    for look in looks:
        at_s = look.snapshot.at_s
        if state is None:
            began_s = at_s
            state = policy.start(at_s, look.snapshot.life)
            course.events.append((at_s, state.draft, state.reason, state.why))
        turn = policy.decide(state, look.snapshot)
        decision = turn.decision
        if decision.draft != state.draft or decision.reason is not state.reason:
            course.events.append((at_s, decision.draft, decision.reason, decision.why))
        for alert in decision.alerts:
            name = (alert.kind, alert.draft, alert.level)
            began = course.heard.get(name, (alert, at_s, at_s))
            course.heard[name] = (*began[:2], at_s)
        _take(course, look, policy, decision.draft)
        state = turn.state
    if state is None:
        return None
    return _told(course, policy, began_s, at_s, state.switches)


def _take(course: _Course, look: Look, policy: Policy, draft: str) -> None:
    snapshot = look.snapshot
    if look.decided is not None and (not course.recorded or course.recorded[-1][1] != look.decided):
        course.recorded.append((snapshot.at_s, look.decided))
    brought: dict[str, tuple[int, int]] = {}
    for one in snapshot.finished:
        course.requests += one.requests
        if one.draft not in policy.ladder or not policy.ladder[one.draft].drafts:
            continue
        if not judgeable(one):
            course.not_speculated += one.requests
            continue
        accepted, steps = brought.get(one.draft, (0, 0))
        told = one.drafts if one.steps is None else one.steps
        brought[one.draft] = (accepted + one.accepted, steps + told)
    in_force = (course.recorded[-1][1], course.recorded[-1][0]) if course.recorded else None
    readings = readings_of(snapshot.finished, in_force, policy.ladder.floor, policy.settings)
    course.times = course.times.plus([*snapshot.steps, *readings], snapshot.at_s, HINDSIGHT)
    decided = course.recorded[-1][1] if course.recorded else None
    course.moments.append(Moment(snapshot.at_s, draft, snapshot.running, brought, decided))


def _told(course: _Course, policy: Policy, began_s: float, ended_s: float, switches: int) -> Replay:
    length_s = ended_s - began_s
    ends = [at_s for at_s, *_ in course.events[1:]] + [ended_s]
    events = tuple(
        Event(at_s - began_s, end_s - at_s, draft, reason, why)
        for (at_s, draft, reason, why), end_s in zip(course.events, ends, strict=True)
    )
    stayed: dict[str, float] = dict.fromkeys(policy.ladder.names, 0.0)
    for event in events:
        stayed[event.draft] += event.for_s
    return Replay(
        length_s=length_s,
        looks=len(course.moments),
        requests=course.requests,
        not_speculated=course.not_speculated,
        events=events,
        shares={draft: seconds / length_s if length_s else 0.0 for draft, seconds in stayed.items()},
        switches=switches,
        recorded_switches=len(course.recorded) - 1 if course.recorded else None,
        differing_ratio=_differing(course.moments),
        heard=tuple(
            Heard(alert, first_s - began_s, last_s - began_s)
            for alert, first_s, last_s in course.heard.values()
        ),
        against=against(course.moments, course.times, policy.ladder),
    )


def _differing(moments: list[Moment]) -> float | None:
    told = [
        (after.at_s - one.at_s, one.decided != one.draft) for one, after in pairwise(moments) if one.decided
    ]
    seconds = sum(length_s for length_s, _ in told)
    return sum(length_s for length_s, differs in told if differs) / seconds if seconds else None
