"""A slow fall over hours told from a collapse: two means of AL - 1, one quick, one slow, and the best the slow one has been.

- collapse: the quick mean is far under the slow one. From then on the slow one stands still, so that it stays a collapse until
  acceptance is back, or until it has lasted as long as the slow mean remembers: then it is how things are.
- drift: both agree, and the slow one is well under the best it has been since the traffic began.

A moment counts by its time, not by its requests, so that a few probes after a flood of traffic are heard. Time without traffic
does not age the means. Neither decides on drafts: they are for alerts.

Source: exponentially weighted moving averages as control charts (NIST/SEMATECH e-Handbook of Statistical Methods, 6.3.2.4).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from outrider.governor.settings import PolicySettings

IDLE_S = 10.0
ENOUGH_S = 30.0
BACK_SHARE = 0.9  # the quick mean is back when it reaches this share of the slow one


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean that forgets: `weight` (0 to 1) is how much of its memory is filled, so that its first values count in full."""

    total: float = 0.0
    weight: float = 0.0

    def after(self, value: float, seconds: float, memory_s: float) -> Mean:
        """With a value that stands for so many seconds."""
        kept = math.exp(-seconds / memory_s)
        return Mean(self.total * kept + value * (1 - kept), self.weight * kept + 1 - kept)

    @property
    def value(self) -> float | None:
        """None before anything was seen."""
        return self.total / self.weight if self.weight > 0 else None


@dataclass(frozen=True, slots=True)
class Drift:
    """One draft's means. busy_s: seconds with traffic that the slow one has seen.

    best: the highest that the slow mean has been, from half its memory on. collapsed_s: seconds with traffic since the collapse
    began; None without one.
    """

    at_s: float | None = None
    fast: Mean = field(default_factory=Mean)
    slow: Mean = field(default_factory=Mean)
    busy_s: float = 0.0
    best: float | None = None
    collapsed_s: float | None = None

    def after(self, gain: float, at_s: float, settings: PolicySettings) -> Drift:
        """With AL - 1 of the requests that ended until `at_s`."""
        passed_s = 1.0 if self.at_s is None else min(max(at_s - self.at_s, 0.0), IDLE_S)
        moved = replace(
            self,
            at_s=at_s if self.at_s is None else max(at_s, self.at_s),
            fast=self.fast.after(gain, passed_s, settings.drift_fast_s),
            busy_s=self.busy_s + passed_s,
        )
        if self.collapsed_s is not None:
            return moved._during(self.collapsed_s + passed_s, settings)
        fell = _under(moved.fast.value, self.slow.value, settings.collapse_share)
        if fell and self.busy_s >= ENOUGH_S:
            return replace(moved, collapsed_s=0.0)
        slow, best = self.slow.after(gain, passed_s, settings.drift_slow_s), self.best
        if slow.value is not None and moved.busy_s >= settings.drift_slow_s / 2:
            best = max(slow.value, best or 0.0)
        return replace(moved, slow=slow, best=best)

    def _during(self, collapsed_s: float, settings: PolicySettings) -> Drift:
        if not _under(self.fast.value, self.slow.value, BACK_SHARE):
            return replace(self, collapsed_s=None)
        if collapsed_s >= settings.drift_slow_s:  # no fall any more, but a level: begin anew from it
            return replace(self, collapsed_s=None, slow=self.fast, best=None, busy_s=0.0)
        return replace(self, collapsed_s=collapsed_s)

    def drifting(self, settings: PolicySettings) -> bool:
        """Whether it fell slowly; never while it is collapsed."""
        return self.collapsed_s is None and _under(self.slow.value, self.best, settings.drift_share)


def _under(value: float | None, reference: float | None, share: float) -> bool:
    return value is not None and reference is not None and value < share * reference
