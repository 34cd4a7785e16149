"""Acceptance of drafts: counters, their difference over a window, and the figures that follow.

Definitions (counts of one window, written with Δ):

- acceptance rate = Δaccepted / Δproposed, a ratio from 0 to 1
- acceptance length, AL = 1 + Δaccepted / Δdrafts; the bonus token is included (vLLM's convention)
- position rate i = Δper_position[i] / Δdrafts, *unconditional*: how often position i was accepted, of all drafts
- effective K = Δproposed / Δdrafts

Everything is None when Δdrafts = 0: no drafts is undefined, not zero. A window in which a counter fell is void.

Source: vLLM 0.32 `v1/spec_decode/metrics.py` (what the counters count).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import zip_longest


@dataclass(frozen=True, slots=True)
class SpecCounters:
    """Counts since some start: drafts (steps with a draft), proposed and accepted draft tokens, accepted by position."""

    drafts: float = 0.0
    proposed: float = 0.0
    accepted: float = 0.0
    per_position: tuple[float, ...] = ()

    def __add__(self, other: SpecCounters) -> SpecCounters:
        """Merge: counts of two engines, or of two windows."""
        return SpecCounters(
            self.drafts + other.drafts,
            self.proposed + other.proposed,
            self.accepted + other.accepted,
            tuple(a + b for a, b in zip_longest(self.per_position, other.per_position, fillvalue=0.0)),
        )


def merge(counters: Iterable[SpecCounters]) -> SpecCounters:
    """The sum of all; zeros for none."""
    return sum(counters, SpecCounters())


@dataclass(frozen=True, slots=True)
class AcceptanceWindow:
    """What happened between two readings of the counters; `void` says why it must not be used, or is empty."""

    delta: SpecCounters = SpecCounters()
    void: str = ""

    @property
    def defined(self) -> bool:
        """Whether anything was drafted in a window that can be trusted."""
        return not self.void and self.delta.drafts > 0

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / proposed draft tokens, 0 to 1."""
        return self.delta.accepted / self.delta.proposed if self.defined and self.delta.proposed else None

    @property
    def acceptance_length(self) -> float | None:
        """Tokens per drafted step, the bonus token included."""
        return 1 + self.delta.accepted / self.delta.drafts if self.defined else None

    @property
    def effective_k(self) -> float | None:
        """Draft tokens per drafted step."""
        return self.delta.proposed / self.delta.drafts if self.defined else None

    @property
    def position_rates(self) -> tuple[float, ...] | None:
        """Share of drafts whose token at each position was accepted."""
        return tuple(n / self.delta.drafts for n in self.delta.per_position) if self.defined else None


def difference(before: SpecCounters, after: SpecCounters) -> AcceptanceWindow:
    """The window from `before` to `after`. Void with reason ``counter reset`` if any count fell."""
    pairs = list(zip_longest(after.per_position, before.per_position, fillvalue=0.0))
    delta = SpecCounters(
        after.drafts - before.drafts,
        after.proposed - before.proposed,
        after.accepted - before.accepted,
        tuple(a - b for a, b in pairs),
    )
    if min(delta.drafts, delta.proposed, delta.accepted, *delta.per_position) < 0:
        return AcceptanceWindow(void="counter reset")
    return AcceptanceWindow(delta)


def acceptance_length_of(position_rates: Iterable[float]) -> float:
    """AL from unconditional position rates (0 to 1): 1 + their sum."""
    return 1 + sum(position_rates)
