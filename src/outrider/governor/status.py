"""A turn in plain JSON values, for people and machines that ask how the service stands: figures that are not known are None."""

from __future__ import annotations

import math
from dataclasses import asdict

from outrider.governor.decision import Turn
from outrider.governor.judge import Assessment


def status(turn: Turn) -> dict[str, object]:
    """Draft in force, why and for how long; what holds a switch back; probes; every rung's figures; alerts.

    Lengths with the bonus token, times in seconds but `step_ms`, shares 0 to 1, `expected_speedup` over no draft at this batch.
    """
    state, decision = turn.state, turn.decision
    return {
        "draft": decision.draft,
        "reason": str(decision.reason),
        "why": decision.why,
        "for_s": state.at_s - state.since_s,
        "waiting": decision.waiting,
        "pinned": state.pinned,
        "probe_draft": decision.probe_draft,
        "probe_share": decision.probe_share,
        "switches": state.switches,
        "running": state.running,
        "not_speculated": decision.not_speculated,
        "drafts": [_rung(one) for one in decision.assessments],
        "alerts": [asdict(one) for one in decision.alerts],
    }


def _rung(one: Assessment) -> dict[str, object]:
    seen, known = one.seen, one.break_even.known
    return {
        "draft": one.draft,
        "verdict": str(one.verdict),
        "requests": seen.requests,
        "acceptance_length": seen.length,
        "acceptance_rate": seen.window.acceptance_rate,
        "tokens_per_step": seen.per_step and seen.per_step.value,
        "break_even_length": known and known.value,
        "step_ms": one.step and one.step.value * 1e3,
        "expected_speedup": one.worth and math.exp(one.worth.value),
    }
