"""Trials: a while without a draft, because nobody knows how long a step without one takes where there always was one.

A trial is begun only in doubt: by what is known, the draft neither surely pays nor surely costs, and its steps have become so
much longer with the batch that it may well cost. Nothing is probed meanwhile: a draft that was fallen back to is doubted later,
for first comes the way back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from outrider.governor.costs import BreakEven, break_even, bucket
from outrider.governor.estimator import Evidence
from outrider.governor.judge import ALONE, Assessment, Judge, Verdict
from outrider.governor.state import GovernorState, Trial


def due(state: GovernorState, seen: Assessment, judge: Judge) -> Trial | None:
    """The trial to begin now, or None. `seen`: the draft in force."""
    settings, rung = judge.settings, judge.ladder[state.draft]
    per_step, step = seen.cost_seen.per_step, seen.step
    if not settings.trials or rung.scheduled or seen.verdict is not Verdict.FAIR or seen.break_even.known:
        return None
    if per_step is None or step is None or judge.surely_pays(seen.cost_seen, seen.break_even):
        return None
    if state.at_s - max(state.tried.values(), default=-math.inf) < settings.trial_every_s:
        return None
    if state.at_s - state.tried.get(bucket(state.running), -math.inf) < settings.steps_age_s:
        return None
    waits_s = settings.dwell_s if state.draft == judge.ladder.top else settings.trial_every_s
    if state.at_s - state.since_s < waits_s or seen.cost_seen.requests < settings.window_requests:
        return None  # what ends first ran quickest: it would speak for the draft
    batch, alone = state.times.known(state.draft)[0]
    if batch <= ALONE and per_step.value > settings.assumed_break_even * max(step.value / alone.value, 1.0):
        return None
    return Trial(state.draft, state.at_s, state.running, per_step)


@dataclass(frozen=True, slots=True)
class Told:
    """What a trial told of a draft: the break-even at a batch; whether the draft is surely slower or faster than none."""

    even: BreakEven
    running: float
    slower: bool
    faster: bool


def told(state: GovernorState, trial: Trial, judge: Judge) -> Told | None:
    """At the batch of late, or, where that is not known, at the one it began with; None: not told yet.

    Without a draft requests take another time, so that the batch moves while it lasts. When its time is over, what is known is
    told.
    """
    brought = Evidence(requests=1, per_step=trial.per_step)
    over = state.at_s - trial.began_s >= judge.settings.trial_s
    for running in (state.running, trial.running):
        even = break_even(state.times, judge.ladder, trial.draft, running)
        found = Told(even, running, judge.surely_costs(brought, even), judge.surely_pays(brought, even))
        if found.slower or found.faster or (over and even.known):
            return found
        if even.known:
            return None
    return None
