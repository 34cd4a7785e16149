"""Step times seen while serving, by draft and batch: T(b, K), and what follows from two of them: the AL that just pays.

Kept by half-octaves of running requests (1, 1.4, 2, 2.8, 4 …), the newest readings of each. Between two batches that are known T
is interpolated; outside of them it is unknown, but for bounds: with more requests in it a step takes no less time, and a draft is
worth no more.

Source: the model of `outrider bench`: speed-up = tokens per step · T(b, 0)/T(b, K), break-even = T(b, K)/T(b, 0).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from outrider.governor.estimator import Measured
from outrider.governor.ladder import Ladder
from outrider.governor.settings import PolicySettings
from outrider.governor.snapshot import StepReading

KEPT = 60
NOISE_FLOOR = 0.01
"""Relative error that no number of readings goes below: they overlap in time, and are less independent than they look."""
_OCTAVE = 2.1  # neighbours further apart than this, as a ratio of batches, are not interpolated between


def bucket(running: float) -> int:
    """The half-octave of a batch: 0 for 1, 2 for 2, 4 for 4, 6 for 8."""
    return round(2 * math.log2(max(running, 1.0)))


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Readings by (draft, bucket), oldest first. A value: adding makes a new one."""

    rows: Mapping[tuple[str, int], tuple[StepReading, ...]] = field(default_factory=dict)

    def plus(self, readings: Iterable[StepReading], settings: PolicySettings) -> StepTimes:
        """With these readings; those in too mixed a batch are left out."""
        rows = dict(self.rows)
        for reading in readings:
            if reading.alike_ratio < settings.alike_ratio:
                continue
            place = (reading.draft, bucket(reading.running))
            kept = [one for one in rows.get(place, ()) if one.at_s >= reading.at_s - settings.steps_age_s]
            rows[place] = (*kept, reading)[-KEPT:]
        return StepTimes(rows)

    def known(self, draft: str, now_s: float, settings: PolicySettings) -> list[tuple[float, Measured]]:
        """(batch, T) of every half-octave with enough fresh readings, by rising batch."""
        found = []
        for (name, _), row in self.rows.items():
            fresh = [one for one in row if one.at_s >= now_s - settings.steps_age_s]
            if name == draft and len(fresh) >= settings.step_readings:
                found.append(_pooled(fresh))
        return sorted(found, key=lambda one: one[0])

    def at(self, draft: str, running: float, now_s: float, settings: PolicySettings) -> Measured | None:
        """T of a draft at a batch; None where it is not known."""
        known = self.known(draft, now_s, settings)
        for (low, before), (high, after) in pairwise(known):
            if low <= running <= high <= low * _OCTAVE:
                share = (running - low) / (high - low) if high > low else 0.0
                value = before.value + share * (after.value - before.value)
                return Measured(value, value * max(before.relative, after.relative))
        same = [time for batch, time in known if bucket(batch) == bucket(running)]
        return same[0] if same else None

    def at_least(self, draft: str, running: float, now_s: float, settings: PolicySettings) -> float | None:
        """A time that a step at this batch surely does not undercut: T's lower end at a smaller one; None without any."""
        below = [
            time.value - settings.confidence_z * time.error
            for batch, time in self.known(draft, now_s, settings)
            if bucket(batch) <= bucket(running)
        ]
        return max(below, default=None)


def joined(readings: Iterable[StepReading]) -> list[StepReading]:
    """Requests that end together ran in the same steps: one reading of them by draft and half-octave, weighed by steps."""
    groups: dict[tuple[str, int], list[StepReading]] = {}
    for one in readings:
        groups.setdefault((one.draft, bucket(one.running)), []).append(one)
    found = []
    for (draft, _), group in groups.items():
        steps = sum(one.steps for one in group)
        found.append(
            StepReading(
                draft,
                max(one.at_s for one in group),
                math.fsum(one.running * one.steps for one in group) / steps,
                math.fsum(one.step_s * one.steps for one in group) / steps,
                steps,
            )
        )
    return found


def _pooled(readings: list[StepReading]) -> tuple[float, Measured]:
    n = len(readings)
    mean = math.fsum(one.step_s for one in readings) / n
    spread = math.sqrt(math.fsum((one.step_s - mean) ** 2 for one in readings) / (n - 1) / n)
    batch = math.fsum(one.running for one in readings) / n
    return batch, Measured(mean, max(spread, NOISE_FLOOR * mean))


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The AL (tokens per step) that just pays for a draft at a batch. known: None where one of both times is missing.

    at_most: what it surely does not exceed, by the bound on T(b, 0); None without one.
    """

    known: Measured | None = None
    at_most: float | None = None


def break_even(
    times: StepTimes, ladder: Ladder, draft: str, running: float, now_s: float, settings: PolicySettings
) -> BreakEven:
    """From step times seen while serving, else from those measured beforehand. A schedule of the engine's own: nothing is known.

    Both times must be of one batch, since they grow with it; their ratio grows slowly, and may be of a half-octave further on.
    """
    rung = ladder[draft]
    if rung.scheduled or not rung.drafts:
        return BreakEven()
    for near in (running, running / math.sqrt(2), running * math.sqrt(2)):
        mine, none = (times.at(name, near, now_s, settings) for name in (draft, ladder.floor))
        if mine and none:
            return BreakEven(_ratio(mine, none))
    stated = rung.break_even_at(running)
    if stated is not None:
        return BreakEven(Measured(max(stated, 1.0), stated * NOISE_FLOOR))
    return BreakEven(at_most=_at_most(times, (draft, ladder.floor), running, now_s, settings))


def break_even_alone(
    times: StepTimes, ladder: Ladder, draft: str, now_s: float, settings: PolicySettings
) -> float | None:
    """The break-even at the smallest batch of which it is known: what the draft is up against without load."""
    for batch, none in times.known(ladder.floor, now_s, settings):
        mine = times.at(draft, batch, now_s, settings)
        if mine:
            return _ratio(mine, none).value
    return ladder[draft].break_even[0][1] if ladder[draft].break_even else None


def _at_most(
    times: StepTimes, drafts: tuple[str, str], running: float, now_s: float, settings: PolicySettings
) -> float | None:
    """What the break-even does not exceed: T(b, K) over a bound on T(b, 0), or the break-even of a larger batch."""
    draft, floor = drafts
    bounds = []
    mine, least = times.at(draft, running, now_s, settings), times.at_least(floor, running, now_s, settings)
    if mine and least and least > 0:
        bounds.append((mine.value + settings.confidence_z * mine.error) / least)
    for batch, none in times.known(floor, now_s, settings):
        theirs = times.at(draft, batch, now_s, settings)
        if batch > running and theirs:
            ratio = _ratio(theirs, none)
            bounds.append(ratio.value + settings.confidence_z * ratio.error)
    return min(bounds, default=None)


def _ratio(mine: Measured, none: Measured) -> Measured:
    """A step that verifies a draft is no shorter than one without: below 1 it is noise, and counts as 1."""
    value = max(mine.value / none.value, 1.0)
    return Measured(value, value * math.hypot(mine.relative, none.relative))
