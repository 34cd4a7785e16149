"""What the governor is told: what has happened since it was last asked, and how the service stands now.

All times are seconds on one monotonic clock, the caller's. Batches are requests running at one engine (of several, their mean).
Every record refuses figures that cannot be (ValueError), so that nothing past this file has to ask.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

MAX_COUNT = 10**12


@dataclass(frozen=True, slots=True)
class Credit:
    """What one draft is credited with: one finished request, or what the engine counted for one draft between two scrapes.

    started_s: dispatch to the engine; of a count, of the oldest request in it. steps: engine steps after the first token, those
    without a draft included (without a draft: tokens - 1). drafts: steps with a draft; proposed, accepted: tokens.
    decode_s: first to last token, so that decode_s / steps is T; summed over requests, as steps are.
    running: time-weighted mean of requests running meanwhile, this one included. alike_ratio: the share of those (0 to 1) that
    had the same draft. draftable: False for a request that cannot be drafted (penalties, some structured output), True for one
    that can, None where nobody knows. requests: how many; of a count, those that ended in it.
    """

    draft: str
    started_s: float
    ended_s: float
    drafts: int = 0
    proposed: int = 0
    accepted: int = 0
    steps: int | None = None
    decode_s: float | None = None
    running: float | None = None
    alike_ratio: float | None = None
    draftable: bool | None = None
    requests: int = 1

    def __post_init__(self) -> None:
        _sane(self)
        if not self.started_s <= self.ended_s:
            raise ValueError("it ended before it started")
        if self.accepted > self.proposed or self.drafts > self.proposed:
            raise ValueError(
                f"{self.drafts} drafts of {self.proposed} tokens, {self.accepted} accepted: they do not fit each other"
            )
        if self.steps is not None and self.steps < self.drafts:
            raise ValueError(f"{self.drafts} drafts in {self.steps} steps")
        if self.requests < 1:
            raise ValueError("a credit is of one request at least")

    @property
    def speculated(self) -> bool:
        """Whether it had any draft. A head drafts in every step: a request of its without one was not speculated."""
        return self.drafts > 0


@dataclass(frozen=True, slots=True)
class StepReading:
    """How long an engine step took, T(b, K): the mean of `steps` steps that ended at `at_s`, prefills of others included.

    draft: what most running requests had, `alike_ratio` how many of them (0 to 1). From two scrapes: request-seconds in flight /
    Δsteps of requests.
    """

    draft: str
    at_s: float
    running: float
    step_s: float
    steps: int = 1
    alike_ratio: float = 1.0

    def __post_init__(self) -> None:
        _sane(self)
        if self.step_s <= 0 or self.running <= 0 or self.steps < 1:
            raise ValueError("a step takes time, and somebody runs meanwhile")


@dataclass(frozen=True, slots=True)
class StartProbe:
    """What the readiness probe of a freshly started engine saw of a draft: tokens proposed and accepted."""

    draft: str
    proposed: int
    accepted: int

    def __post_init__(self) -> None:
        _sane(self)
        if self.accepted > self.proposed:
            raise ValueError("more was accepted than proposed")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look at the service. `finished`, `steps` and `start_probes` are what is new since the look before.

    running: requests running now (mean per engine); waiting, queue_wait_s: the front's queue, told with a decision for load.
    pinned: the draft an operator asked for, None when it is released. life: a number that changes whenever the engine has started
    anew: what was learned of the old one does not hold for it.
    """

    at_s: float
    running: float = 0.0
    waiting: int = 0
    queue_wait_s: float = 0.0
    finished: tuple[Credit, ...] = ()
    steps: tuple[StepReading, ...] = ()
    start_probes: tuple[StartProbe, ...] = ()
    pinned: str | None = None
    life: int = 0

    def __post_init__(self) -> None:
        _sane(self)


def _sane(record: Credit | StepReading | StartProbe | Snapshot) -> None:
    for one in fields(record):
        value = getattr(record, one.name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        signed = one.name == "at_s" or one.name.endswith(
            "ed_s"
        )  # moments: a monotonic clock may begin anywhere
        if not math.isfinite(value) or abs(value) > MAX_COUNT or (value < 0 and not signed):
            raise ValueError(f"{one.name} cannot be {value!r}")
        if one.name == "alike_ratio" and value > 1:
            raise ValueError(f"alike_ratio is a share, not {value!r}")
