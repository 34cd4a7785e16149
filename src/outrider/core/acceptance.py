"""Acceptance of drafts: counters, their difference over a window, and the figures that follow.

Source: definitions in docs/measurement terms: AL = 1 + Δaccepted/Δdrafts (the bonus token included, vLLM's convention),
acceptance rate = Δaccepted/Δproposed, position rate i = Δper_position[i]/Δdrafts, effective K = Δproposed/Δdrafts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpecCounters:
    """Counts since some start: drafts (steps with a draft), proposed and accepted draft tokens, accepted by position."""

    drafts: float = 0.0
    proposed: float = 0.0
    accepted: float = 0.0
    per_position: tuple[float, ...] = ()
