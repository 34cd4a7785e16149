"""Trials: a while without a draft, because nobody knows how long a step without one takes where there always was one.

A trial is begun only in doubt: by what is known, the draft neither surely pays nor surely costs, and its steps have become so
much longer with the batch that it may well cost.
"""

from __future__ import annotations

import math

from outrider.governor.costs import break_even, bucket
from outrider.governor.estimator import Evidence, Measured
from outrider.governor.judge import Assessment, Judge, Verdict
from outrider.governor.state import GovernorState, Trial

ALONE = 2.0
"""Batches up to here are taken for one where any draft that is accepted pays: `assumed_break_even` is of them."""


def due(state: GovernorState, seen: Assessment, judge: Judge) -> Trial | None:
    """The trial to begin now, or None. `seen`: the draft in force."""
    settings, rung = judge.settings, judge.ladder[state.draft]
    per_step, step = seen.cost_seen.per_step, seen.step
    if not settings.trials or rung.scheduled or seen.verdict is not Verdict.FAIR or seen.break_even.known:
        return None
    if per_step is None or step is None:
        return None
    if state.at_s - max(state.tried.values(), default=-math.inf) < settings.trial_every_s:
        return None
    if state.at_s - state.tried.get(bucket(state.running), -math.inf) < settings.steps_age_s:
        return None
    if state.at_s - state.since_s < settings.dwell_s or seen.cost_seen.requests < settings.window_requests:
        return None  # what ends first ran quickest: it would speak for the draft
    batch, alone = state.times.known(state.draft, state.at_s, settings)[0]
    if batch <= ALONE and per_step.value > settings.assumed_break_even * max(step.value / alone.value, 1.0):
        return None
    return Trial(state.draft, state.at_s, state.running, per_step)


def told(state: GovernorState, trial: Trial, judge: Judge) -> tuple[Measured, float] | None:
    """The break-even and the batch it is of, at the batch of late or at the one it began with; None: not told yet.

    Without a draft requests take another time, so that the batch moves while it lasts.
    """
    for running in (state.running, trial.running):
        found = break_even(state.times, judge.ladder, trial.draft, running, state.at_s, judge.settings).known
        if found is not None:
            return found, running
    return None


def slower(trial: Trial, even: Measured, judge: Judge) -> bool:
    """Whether the draft is surely slower than none, as it was when it was left."""
    seen = Evidence(requests=1, per_step=trial.per_step)
    return judge.surely_costs(seen, even)
