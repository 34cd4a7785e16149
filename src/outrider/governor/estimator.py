"""What a window of credits says of a draft: AL and tokens per step, each with its standard error.

Definitions as in `outrider.core.acceptance`: AL = 1 + accepted / drafts (the bonus token is included), its gain is AL - 1; tokens
per step = 1 + accepted / steps, steps without a draft included; where steps are not told, AL stands for it. Nothing drafted is
undefined (None), never 0.

Source: ratio estimator with requests as clusters (Cochran, Sampling Techniques, 3rd ed., 6.4): requests differ far more from each
other than the steps within one, so that counting steps would promise too much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from outrider.core.acceptance import AcceptanceWindow, SpecCounters
from outrider.governor.ladder import HEADS
from outrider.governor.snapshot import Credit

_FEW = 4


@dataclass(frozen=True, slots=True)
class Measured:
    """A value and its standard error (infinite where one sample is all there is)."""

    value: float
    error: float

    @property
    def relative(self) -> float:
        """The error as a share of the value: the error of its logarithm."""
        return self.error / self.value if self.value else math.inf


@dataclass(frozen=True, slots=True)
class Evidence:
    """Figures of one draft over some credits; None where nothing was drafted.

    gain: accepted / drafts = AL - 1. per_step: tokens per step. requests, drafts, proposed, accepted: counts behind them.
    """

    requests: int = 0
    drafts: int = 0
    proposed: int = 0
    accepted: int = 0
    gain: Measured | None = None
    per_step: Measured | None = None

    @property
    def length(self) -> float | None:
        """AL."""
        return self.window.acceptance_length

    @property
    def window(self) -> AcceptanceWindow:
        """The counts, for the figures that everybody shares."""
        return AcceptanceWindow(SpecCounters(self.drafts, self.proposed, self.accepted))


def judgeable(credit: Credit) -> bool:
    """Whether a credit says anything of its draft: it was speculated, or could have been and the draft found nothing.

    A head drafts in every step, so that a request of its without drafts was not drafted at all (penalties, structured output).
    """
    if credit.draftable is False:
        return False
    return credit.speculated or (
        credit.draftable is True and credit.draft not in HEADS and bool(credit.steps)
    )


def evidence(credits: Iterable[Credit]) -> Evidence:
    """The figures of credits that are judgeable, all of one draft."""
    judged = [one for one in credits if judgeable(one)]
    drafts, proposed, accepted = (
        sum(getattr(one, name) for one in judged) for name in ("drafts", "proposed", "accepted")
    )
    steps = [one.drafts if one.steps is None else one.steps for one in judged]
    per_step = _ratio([one.accepted for one in judged], steps)
    return Evidence(
        requests=sum(one.requests for one in judged),
        drafts=drafts,
        proposed=proposed,
        accepted=accepted,
        gain=_ratio([one.accepted for one in judged], [one.drafts for one in judged]),
        per_step=per_step and Measured(1 + per_step.value, per_step.error),
    )


def newest(credits: Sequence[Credit], requests: int, since_s: float) -> tuple[Credit, ...]:
    """The newest credits that ended after `since_s`, until they hold so many requests. `credits` stand by their end.

    A few credits at least: one count of many requests alone would have no error to be known by.
    """
    taken: list[Credit] = []
    held = 0
    for one in reversed(credits):
        if (held >= requests and len(taken) >= _FEW) or one.ended_s < since_s:
            break
        taken.append(one)
        held += one.requests
    return tuple(reversed(taken))


def _ratio(above: Sequence[int], below: Sequence[int]) -> Measured | None:
    total = sum(below)
    if total <= 0:
        return None
    value, n = sum(above) / total, len(below)
    if n < 2:
        return Measured(value, math.inf)
    squares = math.fsum((a - value * b) ** 2 for a, b in zip(above, below, strict=True))
    return Measured(value, math.sqrt(squares * n / (n - 1)) / total)
