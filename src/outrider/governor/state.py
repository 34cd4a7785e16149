"""What the governor remembers between two looks. Values all through: a decision makes a new state, the old one stays."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from outrider.governor.costs import StepTimes, readings_of
from outrider.governor.drift import Drift
from outrider.governor.estimator import Measured, evidence, judgeable
from outrider.governor.exact import ExactRun
from outrider.governor.ladder import Ladder
from outrider.governor.reasons import Reason
from outrider.governor.settings import PolicySettings
from outrider.governor.snapshot import Credit, Snapshot

KEPT_S = 1800.0
ARRIVALS_MEMORY_S = 20.0
RUNNING_MEMORY_S = 4.0


@dataclass(frozen=True, slots=True)
class DraftRecord:
    """What is remembered of one draft.

    judged_from_s: requests dispatched before that moment say nothing of it any more (they ran before it was enabled again, or
    while it was being left). credits: what is judged, by their end. unspeculated: requests since then that had no draft.
    broken: the readiness probe of this engine saw nothing accepted. left…: why it was last left, when, at which batch, and the
    tokens per step that it brought then.
    """

    judged_from_s: float = -math.inf
    credits: tuple[Credit, ...] = ()
    unspeculated: int = 0
    exact: ExactRun = field(default_factory=ExactRun)
    drift: Drift = field(default_factory=Drift)
    broken: bool = False
    left: Reason | None = None
    left_s: float = -math.inf
    left_running: float = 0.0
    left_per_step: Measured | None = None

    def with_credits(self, credits: Iterable[Credit], settings: PolicySettings) -> DraftRecord:
        """After some credits of this draft; stale ones change nothing."""
        fresh = sorted(
            (one for one in credits if one.started_s >= self.judged_from_s), key=lambda one: one.ended_s
        )
        judged = [one for one in fresh if judgeable(one)]
        if not fresh:
            return self
        exact, drift, gain = self.exact, self.drift, evidence(judged).gain
        for one in judged:
            exact = exact.after(one)
        if gain is not None:
            drift = drift.after(gain.value, judged[-1].ended_s, settings)
        kept = sorted((*self.credits, *judged), key=lambda one: one.ended_s)
        oldest_s = kept[-1].ended_s - KEPT_S if kept else 0.0
        return replace(
            self,
            credits=tuple(one for one in kept if one.ended_s >= oldest_s)[-settings.cost_window_requests :],
            unspeculated=self.unspeculated + sum(one.requests for one in fresh if not judgeable(one)),
            exact=exact,
            drift=drift,
        )

    def judged_anew(self, at_s: float) -> DraftRecord:
        """From now on only requests dispatched from `at_s` on count."""
        return replace(self, judged_from_s=at_s, credits=(), unspeculated=0)


@dataclass(frozen=True, slots=True)
class Spell:
    """Since when the draft in force has been judged bad without a break, why, and over how many more requests."""

    reason: Reason
    since_s: float
    requests: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """A while without a draft, to learn how long such a step takes at a batch; then back to `draft` unless it is quicker so.

    per_step: its tokens per step when it was left.
    """

    draft: str
    began_s: float
    running: float
    per_step: Measured


@dataclass(frozen=True, slots=True)
class GovernorState:
    """All of it. `draft` is in force since `since_s` for `reason` (`why` in words).

    switched_s: the last switch that the dwell time counts from. tried: bucket → when a trial there ended.
    arrivals_per_s: requests that could be drafted, finished a second lately. running: at once, lately.
    """

    at_s: float
    draft: str
    since_s: float
    reason: Reason
    why: str
    records: Mapping[str, DraftRecord]
    life: int = 0
    switched_s: float = -math.inf
    switches: int = 0
    pinned: str | None = None
    spell: Spell | None = None
    trial: Trial | None = None
    tried: Mapping[int, float] = field(default_factory=dict)
    times: StepTimes = field(default_factory=StepTimes)
    arrivals_per_s: float = 0.0
    running: float = 0.0

    def with_records(self, changed: Mapping[str, DraftRecord]) -> GovernorState:
        """With some drafts' records replaced."""
        return replace(self, records={**self.records, **changed})


def absorb(
    state: GovernorState, snapshot: Snapshot, ladder: Ladder, settings: PolicySettings
) -> GovernorState:
    """The state with what the snapshot brings, before anything is decided.

    Drafts that stand on no rung are passed over: a stack that was changed leaves requests of its old draft behind.
    Raises ValueError for a clock that went backwards.
    """
    if snapshot.at_s < state.at_s:
        raise ValueError(f"the clock went back from {state.at_s:g} s to {snapshot.at_s:g} s")
    passed = snapshot.at_s - state.at_s
    if snapshot.life != state.life:
        state = _new_life(state, snapshot)
    records = dict(state.records)
    for probe in snapshot.start_probes:
        if probe.draft in records:
            seen = probe.proposed >= settings.broken_after_tokens and not probe.accepted
            records[probe.draft] = replace(records[probe.draft], broken=seen)
    credits = [one for one in snapshot.finished if one.draft in records]
    for rung in ladder:
        if rung.drafts:
            mine = (one for one in credits if one.draft == rung.draft)
            records[rung.draft] = records[rung.draft].with_credits(mine, settings)
    readings = [one for one in snapshot.steps if one.draft in records]
    readings += readings_of(credits, (state.draft, state.since_s), ladder.floor, settings)
    ended = sum(one.requests for one in credits if one.draftable is not False)
    fade = math.exp(-passed / RUNNING_MEMORY_S)
    return replace(
        state,
        at_s=snapshot.at_s,
        records=records,
        times=state.times.plus(readings, snapshot.at_s, settings),
        arrivals_per_s=state.arrivals_per_s * math.exp(-passed / ARRIVALS_MEMORY_S)
        + ended / ARRIVALS_MEMORY_S,
        running=snapshot.running
        if not state.running
        else snapshot.running + fade * (state.running - snapshot.running),
        spell=_longer(state, credits),
    )


def _new_life(state: GovernorState, snapshot: Snapshot) -> GovernorState:
    """The engine has started anew, perhaps another version or other weights: the draft stays, what was learned of it does not."""
    records = {
        draft: DraftRecord(judged_from_s=snapshot.at_s, drift=record.drift)
        for draft, record in state.records.items()
    }
    return replace(
        state, life=snapshot.life, records=records, spell=None, trial=None, tried={}, times=StepTimes()
    )


def _longer(state: GovernorState, credits: Iterable[Credit]) -> Spell | None:
    if state.spell is None:
        return None
    since_s = state.records[state.draft].judged_from_s
    more = sum(
        one.requests
        for one in credits
        if one.draft == state.draft and judgeable(one) and one.started_s >= since_s
    )
    return replace(state.spell, requests=state.spell.requests + more)
