"""What the governor answers: the draft for new requests, why, which probes to send, and what alerts should know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from outrider.governor.estimator import Evidence
from outrider.governor.judge import Assessment, Judge
from outrider.governor.ladder import WORTHLESS_LENGTH, Rung
from outrider.governor.reasons import Reason
from outrider.governor.state import DraftRecord, GovernorState

Kind = Literal["broken", "numerical", "collapse", "drift", "under-baseline", "worthless-baseline"]


@dataclass(frozen=True, slots=True)
class Alert:
    """Something wrong with a draft, whether or not it is in force. `level`: warning or trouble."""

    kind: Kind
    draft: str
    level: Literal["warning", "trouble"]
    text: str


@dataclass(frozen=True, slots=True)
class Decision:
    """For the requests to come; running ones keep their draft.

    reason, why: why `draft` is in force, as a label and in words. switched_from: the draft before, where this decision changed
    it. waiting: what keeps it from changing although something speaks for it, or empty. probe_draft: what a share of the new
    requests, `probe_share` (0 to 1), should run with instead (`outrider.governor.probing.is_probe` says which); None: no probes.
    not_speculated: finished requests of the draft in force, since it is, that had no draft. assessments: by rung, most wanted
    first.
    """

    draft: str
    reason: Reason
    why: str
    switched_from: str | None = None
    waiting: str = ""
    probe_draft: str | None = None
    probe_share: float = 0.0
    not_speculated: int = 0
    alerts: tuple[Alert, ...] = ()
    assessments: tuple[Assessment, ...] = ()


@dataclass(frozen=True, slots=True)
class Turn:
    """A decision, and the state to ask the next one with."""

    state: GovernorState
    decision: Decision


def alerts(state: GovernorState, judge: Judge, assessments: tuple[Assessment, ...]) -> tuple[Alert, ...]:
    """Everything that is wrong now, most wanted drafts first."""
    found: list[Alert] = []
    for rung, assessed in zip(judge.ladder, assessments, strict=True):
        if rung.drafts:
            found += _of(rung, state.records[rung.draft], assessed.seen, judge)
    return tuple(found)


def _of(rung: Rung, record: DraftRecord, seen: Evidence, judge: Judge) -> Iterator[Alert]:
    draft, settings = rung.draft, judge.settings
    if record.broken:
        text = f"{draft} is broken: the start-up probe saw none of its tokens accepted"
        yield Alert("broken", draft, "trouble", text)
    if level := record.exact.level(draft, settings):
        run = record.exact
        text = f"{draft}: acceptance exactly {run.rate:g} over {run.drafts} drafts of {run.requests} requests"
        if level == "trouble":
            text += f", for {run.ended_s - run.began_s:.0f} s: look at the texts, the numbers may be broken"
        yield Alert("numerical", draft, level, text)
    drift = record.drift
    fast, slow = drift.fast.value, drift.slow.value
    if drift.collapsed_s is not None and fast is not None and slow is not None:
        text = f"{draft}: acceptance collapsed, AL {1 + slow:.2f} to {1 + fast:.2f}"
        yield Alert("collapse", draft, "trouble", text)
    if drift.drifting(settings) and slow is not None and drift.best is not None:
        yield Alert(
            "drift", draft, "warning", f"{draft}: AL fell slowly, {1 + drift.best:.2f} to {1 + slow:.2f}"
        )
    needed = rung.baseline_gain and settings.baseline_share * rung.baseline_gain
    gain = seen.gain
    if needed and gain and seen.requests >= settings.min_requests and gain.value < needed:
        text = f"{draft}: AL {1 + gain.value:.2f}, the pair manifest says {rung.baseline_length:.2f}"
        yield Alert("under-baseline", draft, "warning", text)
    if rung.baseline_length is not None and rung.baseline_gain is None:
        text = f"{draft}: the pair manifest's AL is {rung.baseline_length:.2f}, under {WORTHLESS_LENGTH}: no yardstick, not used"
        yield Alert("worthless-baseline", draft, "warning", text)
