"""The governor's sentences: what was seen, against what, over how much."""

from __future__ import annotations

from outrider.governor.estimator import Evidence
from outrider.governor.judge import Assessment, Verdict
from outrider.governor.ladder import Ladder
from outrider.governor.reasons import Reason
from outrider.governor.settings import PolicySettings
from outrider.governor.state import GovernorState, Trial
from outrider.governor.trial import Told

_MOVES = {
    Reason.ACCEPTANCE: "too little is accepted",
    Reason.LOAD: "the draft costs more than it brings at this batch",
    Reason.RECOVERED: "a draft that is wanted more is good again",
    Reason.TRIAL: "a trial without a draft is due",
    Reason.TRIAL_OVER: "the trial is over",
}


def of_move(reason: Reason) -> str:
    """What speaks for a switch, without figures."""
    return _MOVES.get(reason, reason.value)


def running(batch: float) -> str:
    """``8 running``, ``2.5 running``."""
    return f"{batch:.1f}".removesuffix(".0") + " running"


def of_fall(seen: Assessment, state: GovernorState, ladder: Ladder, settings: PolicySettings) -> str:
    """Why a draft in force is left."""
    even, spell = seen.break_even.known, state.spell
    lasted = f", for {state.at_s - spell.since_s:.0f} s and {spell.requests} requests" if spell else ""
    if seen.verdict is Verdict.COSTS and even and seen.cost_seen.per_step:
        return (
            f"{seen.cost_seen.per_step.value:.2f} tokens a step over {seen.cost_seen.requests} requests, "
            f"{even.value:.2f} just pay with {running(state.running)}{lasted}"
        )
    rung = ladder[seen.draft]
    if rung.baseline_gain is not None and seen.seen.length is not None:
        needed = 1 + settings.baseline_share * rung.baseline_gain
        if seen.seen.length < needed:
            return (
                f"AL {seen.seen.length:.2f} over {seen.seen.requests} requests, under {needed:.2f} "
                f"(the pair manifest says {rung.baseline_length:.2f}){lasted}"
            )
    brought = seen.seen.per_step.value if seen.seen.per_step else 1.0
    told = f"{brought:.2f} tokens a step over {seen.seen.requests} requests"
    least = seen.break_even.at_least
    if even is None and least is not None and brought < least:
        return f"{told}, at least {least:.2f} are needed with {running(state.running)}{lasted}"
    needed = even.value if even else 1 + (seen.needed_gain or 0.0)
    return f"{told}, {needed:.2f} just pay{lasted}"


def of_return(draft: str, seen: Evidence) -> str:
    """Why a draft comes back."""
    length = f"AL {seen.length:.2f}" if seen.length is not None else "no draft"
    return f"{draft}'s probes are good: {length} over {seen.requests} requests"


def of_trial(trial: Trial, told: Told) -> str:
    """What a trial told."""
    even = told.even
    if even.known:
        needed = f"{even.known.value:.2f} just pay"
    elif told.faster:
        needed = f"at most {even.at_most or 0.0:.2f} are needed"
    else:
        needed = f"at least {even.at_least or 0.0:.2f} are needed"
    verdict = "slower than no draft" if told.slower else "it pays" if told.faster else "too close to tell"
    return f"{trial.draft} brings {trial.per_step.value:.2f} tokens a step, {needed} with {running(told.running)}: {verdict}"
