"""One-sided checks of a candidate against a reference: is it worse, by more than the tolerance, beyond its noise?

A check is a regression when even the favourable end of its interval (95 %, one-sided) is beyond the tolerance. So noise alone
does not trip it, and a real change trips it as soon as the trials show it.

Source: Student t with the spread of trials pooled over arms and both runs (Welch's per-pair spread of three trials is too wide to
see 10 %); the variance of accepted tokens per draft from unconditional position rates r_i: E[x²] = Σ (2i - 1) r_i.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scipy import stats

from outrider.bench.document import Counts

LEVEL = 0.95
BLIND = 0.15  # a gate that could not see this much beyond its tolerance says so instead of passing


@dataclass(frozen=True, slots=True)
class Check:
    """One figure of one part of the runs. `change` is relative and positive when worse; `surely` its favourable bound.

    seen: the smallest change that this check would have called a regression. `unit` is for printing.
    """

    figure: str
    arm: str
    prompt_set: str
    reference: float
    candidate: float
    change: float
    surely: float
    tolerance: float
    unit: str = ""

    @property
    def regressed(self) -> bool:
        """Worse by more than the tolerance, beyond the noise."""
        return self.surely > self.tolerance

    @property
    def seen(self) -> float:
        """Tolerance plus the width of the interval's one side."""
        return self.tolerance + (self.change - self.surely)

    @property
    def blind(self) -> bool:
        """Whether a change of 15 % beyond the tolerance could pass unseen."""
        return self.seen - self.tolerance > BLIND


@dataclass(frozen=True, slots=True)
class Spread:
    """Variance of one trial's log figure, and its degrees of freedom."""

    variance: float
    freedom: float


def spread(groups: Sequence[Sequence[float]]) -> Spread | None:
    """Pooled over groups of trials (one arm of one run each); None where no group has two trials."""
    freedom = sum(len(group) - 1 for group in groups if group)
    if freedom < 1:
        return None
    squares = sum(
        (value - math.fsum(group) / len(group)) ** 2 for group in groups if len(group) > 1 for value in group
    )
    return Spread(squares / freedom, freedom)


@dataclass(frozen=True, slots=True)
class Part:
    """What a check is about."""

    figure: str
    arm: str
    prompt_set: str = "all"
    unit: str = ""


def slower(
    part: Part, reference: Sequence[float], candidate: Sequence[float], noise: Spread, tolerance: float
) -> Check:
    """A time in two runs: natural logs of one value a trial. Worse is longer."""
    before, after = (math.fsum(values) / len(values) for values in (reference, candidate))
    error = math.sqrt(noise.variance * (1 / len(reference) + 1 / len(candidate)))
    surely = after - before - _t(noise.freedom) * error
    return Check(
        part.figure,
        part.arm,
        part.prompt_set,
        math.exp(before),
        math.exp(after),
        math.expm1(after - before),
        math.expm1(surely),
        tolerance,
        part.unit,
    )


@dataclass(frozen=True, slots=True)
class Accepted:
    """Counts of a run's trials; `sampled`: acceptance is drawn anew in each run, so that counting noise is part of it."""

    trials: Sequence[Counts]
    sampled: bool

    @property
    def drafts(self) -> float:
        """All drafts."""
        return sum(one.drafts for one in self.trials)

    @property
    def gain(self) -> float:
        """AL - 1 over all trials."""
        return sum(one.accepted for one in self.trials) / self.drafts if self.drafts else 0.0

    def rate(self, position: int) -> float:
        """Unconditional rate of a position (0-based)."""
        accepted = sum(one.per_position[position] for one in self.trials if position < len(one.per_position))
        return accepted / self.drafts if self.drafts else 0.0

    @property
    def positions(self) -> int:
        """How many positions were counted."""
        return max((len(one.per_position) for one in self.trials), default=0)

    def per_trial(self, position: int | None = None) -> list[float]:
        """AL - 1, or a position's rate, of each trial."""
        alone = [Accepted([one], self.sampled) for one in self.trials if one.drafts]
        return [one.gain if position is None else one.rate(position) for one in alone]

    def counting_variance(self, position: int | None = None) -> float:
        """Variance of the run's value if each draft were drawn by itself."""
        if not self.drafts:
            return 0.0
        if position is not None:  # few counts: one text that went another way moves them, greedy or not
            rate = self.rate(position)
            return rate * (1 - rate) / self.drafts
        if not self.sampled:
            return 0.0
        square = sum((2 * place + 1) * self.rate(place) for place in range(self.positions))
        return max(square - self.gain**2, 0.0) / self.drafts


def less_accepted(
    part: Part, reference: Accepted, candidate: Accepted, tolerance: float, position: int | None = None
) -> Check | None:
    """AL - 1 (or one position's rate) in two runs, relative to the reference. Worse is less. None without two trials a run.

    The noise is the larger of what the trials show and, where acceptance is sampled, what counting alone makes. For a position
    the level is shared among all positions of the draft (Bonferroni).
    """
    sides = [side.per_trial(position) for side in (reference, candidate)]
    noise = spread(sides)
    before, after = (
        side.gain if position is None else side.rate(position) for side in (reference, candidate)
    )
    if noise is None or min(map(len, sides)) < 2 or before <= 0:
        return None
    tests = 1 if position is None else reference.positions
    level = 1 - (1 - LEVEL) / tests
    by_trials = _t(noise.freedom, level) * math.sqrt(noise.variance * sum(1 / len(side) for side in sides))
    counting = sum(side.counting_variance(position) for side in (reference, candidate))
    by_counts = float(stats.norm.ppf(level)) * math.sqrt(counting)
    change = (before - after) / before
    surely = change - max(by_trials, by_counts) / before
    return Check(part.figure, part.arm, part.prompt_set, before, after, change, surely, tolerance, part.unit)


def _t(freedom: float, level: float = LEVEL) -> float:
    return float(stats.t.ppf(level, freedom))


def by_trial(cells: Sequence[Mapping[int, float]]) -> list[float]:
    """Mean over cells of log values, for the trials that every cell has: one value a trial, in trial order."""
    if not cells:
        return []
    shared = sorted(set.intersection(*(set(cell) for cell in cells)))
    return [math.fsum(math.log(cell[trial]) for cell in cells) / len(cells) for trial in shared]
