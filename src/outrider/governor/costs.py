"""Step times seen while serving, by draft and batch: T(b, K), and what follows from two of them: the AL that just pays.

Kept by half-octaves of running requests (1, 1.4, 2, 2.8, 4 …), the newest readings of each. Between two batches that are known T
is interpolated; outside of them it is unknown, but for bounds: with more requests a step takes no less time, and no more than in
proportion.

Source: the model of `outrider bench`: speed-up = tokens per step · T(b, 0)/T(b, K), break-even = T(b, K)/T(b, 0).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from outrider.governor.estimator import Measured, judgeable
from outrider.governor.ladder import HEADS, Ladder, Rung
from outrider.governor.settings import PolicySettings
from outrider.governor.snapshot import Credit, StepReading

KEPT = 60
NOISE_FLOOR = 0.01
"""Relative error that no number of readings goes below: they overlap in time, and are less independent than they look."""
_SLACK = 0.05  # step times of real engines are not quite monotonic …
_LOOSE = 0.2  # … and their ratios less so
_OCTAVE = 2.1  # neighbours further apart than this, as a ratio of batches, are not interpolated between


def bucket(running: float) -> int:
    """The half-octave of a batch: 0 for 1, 2 for 2, 4 for 4, 6 for 8."""
    return round(2 * math.log2(max(running, 1.0)))


Curve = tuple[tuple[float, Measured], ...]
"""(batch, T) of every half-octave that is known, by rising batch."""


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Readings by (draft, bucket), oldest first, and the curve of each draft out of them. A value: adding makes a new one."""

    rows: Mapping[tuple[str, int], tuple[StepReading, ...]] = field(default_factory=dict)
    curves: Mapping[str, Curve] = field(default_factory=dict)

    def plus(self, readings: Iterable[StepReading], now_s: float, settings: PolicySettings) -> StepTimes:
        """With these readings, and without those that are too old; those in too mixed a batch are left out."""
        oldest_s = now_s - settings.steps_age_s
        rows = {place: row for place, row in self.rows.items() if row[-1].at_s >= oldest_s}
        changed = {draft for draft, _ in self.rows.keys() - rows.keys()}
        for reading in readings:
            if reading.alike_ratio >= settings.alike_ratio and reading.at_s >= oldest_s:
                place = (reading.draft, bucket(reading.running))
                kept = [one for one in rows.get(place, ()) if one.at_s >= oldest_s]
                rows[place] = (*kept, reading)[-KEPT:]
                changed.add(reading.draft)
        if not changed:
            return self
        curves = {draft: _curve(rows, draft, settings.step_readings) for draft in changed}
        return StepTimes(rows, {**self.curves, **curves})

    def known(self, draft: str) -> Curve:
        """Every half-octave with enough readings."""
        return self.curves.get(draft, ())

    def at(self, draft: str, running: float) -> Measured | None:
        """T of a draft at a batch; None where it is not known."""
        known = self.known(draft)
        for (low, before), (high, after) in pairwise(known):
            if low <= running <= high <= low * _OCTAVE:
                share = (running - low) / (high - low) if high > low else 0.0
                value = before.value + share * (after.value - before.value)
                return Measured(value, value * max(before.relative, after.relative))
        near = self.near(draft, running)
        return near[1] if near else None

    def near(self, draft: str, running: float) -> tuple[float, Measured] | None:
        """The batch that was measured in the same half-octave, and T there; None where none was."""
        return next((one for one in self.known(draft) if bucket(one[0]) == bucket(running)), None)

    def bounds(self, draft: str, running: float) -> tuple[float, float] | None:
        """Between what and what T lies at a batch, by what is known of others; None without any.

        With more requests a step takes no less time, and no more than in proportion.
        """
        known = self.known(draft)
        if not known:
            return None
        low = [(1 - _SLACK) * time.value * min(running / batch, 1.0) for batch, time in known]
        high = [(1 + _SLACK) * time.value * max(running / batch, 1.0) for batch, time in known]
        return max(low), min(high)


def _curve(rows: Mapping[tuple[str, int], tuple[StepReading, ...]], draft: str, enough: int) -> Curve:
    found = [_pooled(row) for (name, _), row in rows.items() if name == draft and len(row) >= enough]
    return tuple(sorted(found, key=lambda one: one[0]))


def readings_of(
    credits: Iterable[Credit], in_force: tuple[str, float] | None, floor: str, settings: PolicySettings
) -> list[StepReading]:
    """T out of finished requests that tell: they were drafted, or had no draft to be. Those of one call ran in the same steps.

    Where nobody says what the others in its batch ran with, only requests of the draft in force count, dispatched since it is:
    `in_force` is the draft and that moment.
    """
    groups: dict[tuple[str, int], list[Credit]] = {}
    for one in credits:
        told = one.steps and one.decode_s and one.running and one.draftable is not False
        if told and (one.draft == floor or judgeable(one)) and _alike(one, in_force) >= settings.alike_ratio:
            groups.setdefault((one.draft, bucket(one.running or 1.0)), []).append(one)
    return [_joined(draft, group) for (draft, _), group in groups.items()]


def _alike(credit: Credit, in_force: tuple[str, float] | None) -> float:
    if credit.alike_ratio is not None:
        return credit.alike_ratio
    return 1.0 if in_force and credit.draft == in_force[0] and credit.started_s >= in_force[1] else 0.0


def _joined(draft: str, group: list[Credit]) -> StepReading:
    """Requests that end together are one reading of their steps, weighed by them."""
    steps = sum(one.steps or 0 for one in group)
    return StepReading(
        draft,
        max(one.ended_s for one in group),
        math.fsum((one.running or 0.0) * (one.steps or 0) for one in group) / steps,
        math.fsum(one.decode_s or 0.0 for one in group) / steps,
        steps,
    )


def _pooled(readings: Sequence[StepReading]) -> tuple[float, Measured]:
    n = len(readings)
    mean = math.fsum(one.step_s for one in readings) / n
    spread = math.sqrt(math.fsum((one.step_s - mean) ** 2 for one in readings) / (n - 1) / n)
    batch = math.fsum(one.running for one in readings) / n
    return batch, Measured(mean, max(spread, NOISE_FLOOR * mean))


@dataclass(frozen=True, slots=True)
class BreakEven:
    """The AL (tokens per step) that just pays for a draft at a batch. known: None where one of both times is missing.

    at_least, at_most: what it surely lies between all the same, by step times of other batches; None where nothing is known.
    """

    known: Measured | None = None
    at_least: float | None = None
    at_most: float | None = None


def break_even(times: StepTimes, ladder: Ladder, draft: str, running: float) -> BreakEven:
    """From step times seen while serving, else from those measured beforehand. A schedule of the engine's own: nothing is known.

    Both times must be of one batch, since they grow with it; their ratio grows slowly, and may be of a half-octave further on.
    """
    rung = ladder[draft]
    if rung.scheduled or not rung.drafts:
        return BreakEven()
    for near in (running, running / math.sqrt(2), running * math.sqrt(2)):
        mine, none = times.at(draft, near), times.at(ladder.floor, near)
        if mine and none:
            return BreakEven(_ratio(mine, none))
    stated = rung.break_even_at(running)
    if stated is not None:
        return BreakEven(Measured(max(stated, 1.0), stated * NOISE_FLOOR))
    dear, cheap = times.bounds(draft, running), times.bounds(ladder.floor, running)
    if dear is None or cheap is None:
        return BreakEven()
    least, most = [dear[0] / cheap[1]], [dear[1] / cheap[0]]
    for batch, none in times.known(ladder.floor):
        if mine := times.at(draft, batch):  # the more requests, the more tokens pay for a step with a draft
            ratio = _ratio(mine, none).value
            (least if batch < running else most).append(
                ratio * (1 - _LOOSE if batch < running else 1 + _LOOSE)
            )
    if (as_verified := _as_verified(times, ladder, rung, running)) is not None:
        most.append(as_verified)
    return BreakEven(at_least=max(least), at_most=min(most))


def _as_verified(times: StepTimes, ladder: Ladder, rung: Rung, running: float) -> float | None:
    """The most that a head's break-even can be, by what its own steps verify; None where that is not known.

    A step of b requests without a draft runs as many tokens through the target as one of b/(K + 1) requests with K each. That one
    drafts as well, which takes no larger a share of it than alone: T(b, 0) ≥ T(b/(K + 1), K) · T(1, 0)/T(1, K). It needs no
    slack: a part of that share goes into verifying K tokens more.
    """
    seen = times.near(rung.draft, running)
    unloaded = break_even_unloaded(times, ladder, rung.draft, running)
    if rung.draft not in HEADS or rung.draft_length is None or seen is None or unloaded is None:
        return None
    batch, mine = seen
    alike = batch / (rung.draft_length + 1)
    verified = times.at(rung.draft, alike) if alike >= 1 else None
    return mine.value / verified.value * unloaded if verified else None


def break_even_unloaded(times: StepTimes, ladder: Ladder, draft: str, running: float) -> float | None:
    """The break-even at the smallest batch of which it is known, if that is smaller than this one: without the load."""
    for batch, none in times.known(ladder.floor):
        mine = times.at(draft, batch)
        if mine and bucket(batch) < bucket(running):
            return _ratio(mine, none).value
    stated = ladder[draft].break_even[:1]
    return stated[0][1] if stated and stated[0][0] < running else None


def _ratio(mine: Measured, none: Measured) -> Measured:
    """A step that verifies a draft is no shorter than one without: below 1 it is noise, and counts as 1."""
    value = max(mine.value / none.value, 1.0)
    return Measured(value, value * math.hypot(mine.relative, none.relative))
