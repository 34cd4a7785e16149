"""What the draft adds, in two runs: AL - 1 of each draft on each prompt set and load, and each position's rate.

The noise of a rate is what counting makes of it, were every draft drawn by itself, times how much more or less than that the
trials differ (the dispersion): greedy text repeats itself and shows less, sampled text no less.

Source: the variance of accepted tokens per draft from unconditional position rates r_i: E[x²] = Σ (2i - 1) r_i; Pearson's
dispersion of grouped counts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from outrider.bench.comparable import Pair
from outrider.bench.document import Cell, Counts
from outrider.bench.gates import Change, Part
from outrider.bench.standing import trials_of
from outrider.core.errors import MeasurementError

LEAST_LENGTH = 1.05
LEAST_DRAFTS = 200
_LEAST_RATE = 0.05  # a position accepted less often than this is no gate
GAIN, POSITION = "AL - 1", "position"


@dataclass(frozen=True, slots=True)
class Accepted:
    """Counts of a run's trials."""

    trials: Sequence[Counts]

    @property
    def drafts(self) -> float:
        """All drafts."""
        return sum(one.drafts for one in self.trials)

    @property
    def positions(self) -> int:
        """How many positions were counted."""
        return max((len(one.per_position) for one in self.trials), default=0)

    def value(self, position: int | None = None) -> float:
        """AL - 1 over all trials, or the unconditional rate of a position (0-based)."""
        if not self.drafts:
            return 0.0
        if position is None:
            return sum(one.accepted for one in self.trials) / self.drafts
        places = [one.per_position[position] for one in self.trials if position < len(one.per_position)]
        return sum(places) / self.drafts

    def of_one_draft(self, position: int | None = None) -> float:
        """Variance of what one draft yields."""
        value = self.value(position)
        if position is not None:
            return max(value * (1 - value), 0.0)
        square = sum((2 * place + 1) * self.value(place) for place in range(self.positions))
        return max(square - value**2, 0.0)

    def dispersion(self, position: int | None = None) -> tuple[float, int]:
        """How far trials differ over what counting makes, squared and summed, and its degrees of freedom."""
        one_draft, freedom = self.of_one_draft(position), len(self.trials) - 1
        if one_draft <= 0 or freedom < 1:
            return 0.0, max(freedom, 0)
        whole = self.value(position)
        squares = (trial.drafts * (Accepted([trial]).value(position) - whole) ** 2 for trial in self.trials)
        return math.fsum(squares) / one_draft, freedom


@dataclass(frozen=True, slots=True)
class Sides:
    """The same cells in both runs."""

    reference: Accepted
    candidate: Accepted

    @property
    def drafts(self) -> float:
        """Of the run with fewer."""
        return min(self.reference.drafts, self.candidate.drafts)

    @property
    def both(self) -> tuple[Accepted, Accepted]:
        """Reference, candidate."""
        return self.reference, self.candidate

    def dispersion(self, position: int | None = None) -> tuple[float, int]:
        """Sums over both runs."""
        parts = [side.dispersion(position) for side in self.both]
        return sum(part[0] for part in parts), sum(part[1] for part in parts)


@dataclass(slots=True)
class AcceptanceChanges:
    """What is to be judged: drafts as a whole, and single loads; notes say what is no gate and why."""

    whole: list[Change] = field(default_factory=list)
    loads: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def acceptance_changes(pairs: Sequence[Pair], *, sampled: bool, tolerance: float) -> AcceptanceChanges:
    """All of them. `sampled`: acceptance is drawn anew in each run, so that counting noise is part of it.

    Raises MeasurementError where a draft of the reference has an AL under 1.05: there is nothing to lose.
    """
    found = AcceptanceChanges()
    drafting = [pair for pair in pairs if sides([pair]).reference.drafts]
    silent = [pair for pair in drafting if _drafted_nothing(pair.candidate)]
    sounding = [pair for pair in drafting if pair not in silent]
    rule = _Rule(_overall_dispersion(sounding), sampled, tolerance)
    for arm in dict.fromkeys(pair.arm for pair in drafting):
        mine = [pair for pair in sounding if pair.arm == arm]
        _useful(arm, [pair for pair in drafting if pair.arm == arm])
        _silenced(arm, [pair for pair in silent if pair.arm == arm], rule, found, every_load=not mine)
        if mine:
            _of_arm(arm, mine, rule, found)
    return found


def _useful(arm: str, drafting: Sequence[Pair]) -> None:
    length = 1 + sides(drafting).reference.value()
    if length < LEAST_LENGTH:
        raise MeasurementError(
            f"the reference's {arm} has AL {length:.3f}, under {LEAST_LENGTH}: there is nothing to lose",
            hint="A draft that is hardly ever accepted is broken or the wrong one: compare with a run in which it works.",
        )


def _silenced(
    arm: str, silent: Sequence[Pair], rule: _Rule, found: AcceptanceChanges, *, every_load: bool
) -> None:
    """What drafted and drafts no more has lost all it had, beyond any noise."""
    lost = (
        [(Part(GAIN, arm), silent)] if every_load else [(Part(GAIN, arm, *one.load), [one]) for one in silent]
    )
    for part, cells in lost:
        found.whole.append(Change(part, sides(cells).reference.value(), 0.0, 1.0, 0.0, 1.0, rule.tolerance))
        where = "" if every_load else f" on {part.prompt_set} at {part.concurrency} at once"
        found.notes.append(f"{arm} drafted nothing in the candidate{where}")


def _of_arm(arm: str, mine: Sequence[Pair], rule: _Rule, found: AcceptanceChanges) -> None:
    everything = sides(mine)
    few = False
    for prompts in dict.fromkeys(pair.load[0] for pair in mine):
        of_set = sides([pair for pair in mine if pair.load[0] == prompts])
        if 1 + of_set.reference.value() < LEAST_LENGTH:
            found.notes.append(
                f"{arm} on {prompts}: AL {1 + of_set.reference.value():.3f} in the reference is no gate"
            )
        elif of_set.drafts < LEAST_DRAFTS:
            found.notes.append(f"{arm} on {prompts}: fewer than {LEAST_DRAFTS} drafts are no gate")
            few = True
        else:
            found.whole += rule.change(Part(GAIN, arm, prompts), of_set)
    if few and everything.drafts >= LEAST_DRAFTS:
        # The same prompts in the same cells on both sides, so that their mixture is the same.
        found.whole += rule.change(Part(GAIN, arm), everything)
    for position in range(everything.reference.positions):
        if everything.reference.value(position) >= _LEAST_RATE:
            found.whole += rule.change(Part(f"{POSITION} {position + 1}", arm), everything, position)
    for pair in mine if len(mine) > 1 else ():
        alone = sides([pair])
        if alone.drafts >= LEAST_DRAFTS and 1 + alone.reference.value() >= LEAST_LENGTH:
            found.loads += rule.change(Part(GAIN, arm, *pair.load), alone)


@dataclass(frozen=True, slots=True)
class _Rule:
    """How noise is reckoned: the dispersion of all drafts and sets, at least 1 where acceptance is sampled."""

    overall: tuple[float, int]
    sampled: bool
    tolerance: float

    def change(self, part: Part, here: Sides, position: int | None = None) -> list[Change]:
        """Relative to the reference; worse is less. Empty without two trials a run.

        The dispersion is the larger of this part's and of all. That of a position is never below 1: its counts are few, and one
        text that went another way moves them, greedy or not.
        """
        before, after = (side.value(position) for side in here.both)
        if min(len(side.trials) for side in here.both) < 2 or before <= 0:
            return []
        own, freedom = here.dispersion(position)
        pooled, pooled_freedom = self.overall
        dispersion = max(own / freedom, pooled / max(pooled_freedom, 1))
        known = dispersion <= 1 and (self.sampled or position is not None)
        dispersion = 1.0 if known else dispersion
        counting = sum(side.of_one_draft(position) / side.drafts for side in here.both)
        error = math.sqrt(dispersion * counting) / before
        changed = Change(part, before, after, (before - after) / before, error, math.inf, self.tolerance)
        return [changed if known else replace(changed, freedom=float(max(freedom, pooled_freedom)))]


def sides(pairs: Sequence[Pair]) -> Sides:
    """The counts of the same cells, added up trial by trial."""
    return Sides(
        Accepted(_counts([pair.reference for pair in pairs])),
        Accepted(_counts([pair.candidate for pair in pairs])),
    )


def _overall_dispersion(pairs: Sequence[Pair]) -> tuple[float, int]:
    """Over all drafts and prompt sets."""
    groups: dict[tuple[str, str], list[Pair]] = {}
    for pair in pairs:
        groups.setdefault((pair.arm, pair.load[0]), []).append(pair)
    parts = [sides(group).dispersion() for group in groups.values()]
    return sum(part[0] for part in parts), sum(part[1] for part in parts)


def _counts(cells: Sequence[Cell]) -> list[Counts]:
    """What was counted in each trial, over cells; trials with a void window are left out."""
    found: dict[int, list[Counts]] = {}
    for cell in cells:
        for trial, figures in trials_of(cell).items():
            if figures.acceptance.counts.drafts:
                found.setdefault(trial, []).append(figures.acceptance.counts)
    return [_sum(found[trial]) for trial in sorted(found) if len(found[trial]) == len(cells)]


def _sum(parts: Sequence[Counts]) -> Counts:
    longest = max(len(part.per_position) for part in parts)
    return Counts(
        drafts=sum(part.drafts for part in parts),
        proposed=sum(part.proposed for part in parts),
        accepted=sum(part.accepted for part in parts),
        per_position=[
            sum(part.per_position[place] for part in parts if place < len(part.per_position))
            for place in range(longest)
        ],
    )


def _drafted_nothing(cell: Cell) -> bool:
    return (
        cell.pooled is not None
        and not cell.pooled.acceptance.void
        and not cell.pooled.acceptance.counts.drafts
    )
