"""The steady window: the part of a run in which the load was what the cell says.

It begins when the first C requests have all ended (the first wave: C prefills at once) and ends when fewer than C requests
remain under way for good. Load generators trim neither end, and both pull a throughput down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outrider.measure.records import RequestRecord


@dataclass(frozen=True, slots=True)
class SteadyRule:
    """How long a steady window must be: at least `seconds`, with `waves` × C requests under way in it beside the first wave.

    6 C requests just make `waves` = 5. `note` says why less is asked.
    """

    seconds: float = 30.0
    waves: float = 5.0
    note: str = ""


GPU_RULE = SteadyRule()
CPU_RULE = SteadyRule(seconds=3.0, waves=3.0, note="CPU run: 3 s and 3 C requests asked, not 30 s and 5 C")


@dataclass(frozen=True, slots=True)
class Window:
    """A span (began_s, ended_s] on the records' clock, seconds; `reason` says why it is not steady, or the rule's note."""

    began_s: float
    ended_s: float
    steady: bool
    reason: str = ""

    @property
    def length_s(self) -> float:
        """Its length, seconds."""
        return max(0.0, self.ended_s - self.began_s)

    def holds(self, moment_s: float) -> bool:
        """Whether a moment lies in it."""
        return self.began_s < moment_s <= self.ended_s


def steady_window(records: Sequence[RequestRecord], concurrency: int, rule: SteadyRule = GPU_RULE) -> Window:
    """The steady window of one trial. A shorter one than the rule asks is used too, and marked not steady with the reason:
    its ramps are off. The whole run stands only where no wave lies between the first and the last.

    Failed requests count as under way: they held a place. Raises ValueError without records.
    """
    if not records:
        raise ValueError("a window of no requests")
    started = sorted(record.started_s for record in records)
    ended = sorted(record.ended_s for record in records)
    whole = (started[0], ended[-1])
    if concurrency < 1:
        return Window(*whole, False, "not steady: no fixed number of requests under way")
    if len(records) < 2 * concurrency:
        return Window(
            *whole, False, f"not steady: {len(records)} requests are less than two waves of {concurrency}"
        )
    first_wave = sorted(records, key=lambda record: record.started_s)[:concurrency]
    began = max(record.ended_s for record in first_wave)
    # After the last start nothing fills a place again: the next end is the moment fewer than C remain.
    over = min((end for end in ended if end > started[-1]), default=ended[-1])
    inside = sum(end > began for end in ended)
    if over <= began:
        return Window(*whole, False, "not steady: the last request began before the first wave had ended")
    short = []
    if over - began < rule.seconds:
        short.append(f"{over - began:.1f} s of {rule.seconds:g} s")
    if inside < rule.waves * concurrency:
        short.append(f"{inside} of {rule.waves * concurrency:g} requests")
    if short:
        span = (began, over) if inside >= 2 * concurrency else whole
        return Window(*span, False, f"not steady: the window holds {' and '.join(short)}")
    return Window(began, over, True, rule.note)


def running_mean(records: Sequence[RequestRecord], window: Window) -> float | None:
    """Requests under way in the window, averaged over time (failed ones included); None for an empty window."""
    if window.length_s <= 0:
        return None
    held = sum(
        max(0.0, min(record.ended_s, window.ended_s) - max(record.started_s, window.began_s))
        for record in records
    )
    return held / window.length_s
