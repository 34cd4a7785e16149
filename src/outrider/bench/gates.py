"""One-sided checks of a candidate against a reference: is it worse, by more than the tolerance, beyond its noise?

A check is a regression when two things hold:

1. even the favourable end of its interval (95 %, one-sided) is beyond the tolerance;
2. noise alone would not have made a change as large anywhere in its family of checks: its p-value, of no change at all, corrected
   by Holm for all checks of the family, is at most the family's level.

The first keeps small true changes out, the second the many chances of many checks: a family raises a false alarm in at most
`level` of all comparisons, however its checks hang together.

Source: Student t with pooled spreads (Welch's per-pair spread of three trials is too wide to see 10 %); S. Holm, A Simple
Sequentially Rejective Multiple Test Procedure, 1979.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from scipy import stats

LEVEL = 0.95
POWER = 0.8  # `seen` is what would have been called a regression this often
BLIND = 0.2  # what could not see this much beyond its tolerance, at that power, says so instead of passing
ALL = "all"


@dataclass(frozen=True, slots=True)
class Part:
    """What a check is about; `concurrency` None: all loads together. `unit` is for printing."""

    figure: str
    arm: str
    prompt_set: str = ALL
    concurrency: int | None = None
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Scale:
    """How a change is measured: `relative` turns it into a share of the reference, `measured` turns a share back."""

    relative: Callable[[float], float]
    measured: Callable[[float], float]
    way: str


# (before - after) / before; log after - log before; log before - log after.
SHARE = Scale(lambda change: change, lambda share: share, "fell")
LONGER = Scale(math.expm1, math.log1p, "rose")
FEWER = Scale(lambda change: -math.expm1(-change), lambda share: -math.log1p(-share), "fell")


@dataclass(frozen=True, slots=True)
class Change:
    """One figure of one part in two runs before it is judged: `worse` on the scale, positive when worse.

    `error` is its standard error there, estimated with `freedom` degrees of freedom (infinite: known).
    """

    part: Part
    reference: float
    candidate: float
    worse: float
    error: float
    freedom: float
    tolerance: float
    scale: Scale = SHARE

    def chance(self) -> float:
        """Probability of such a change or a larger one where there is none."""
        if self.error <= 0:
            return 0.0 if self.worse > 0 else 1.0
        return float(stats.t.sf(self.worse / self.error, self.freedom))

    def half_width(self, level: float) -> float:
        """Of the interval's one side, on the scale."""
        return _student(level, self.freedom) * self.error


@lru_cache(maxsize=256)
def _student(level: float, freedom: float) -> float:
    """Quantile of Student's t, of the normal distribution where the freedom is infinite."""
    return float(stats.t.ppf(level, freedom))


@dataclass(frozen=True, slots=True)
class Check:
    """One judged figure of one part of the runs. `change` is relative and positive when worse; `surely` its favourable bound.

    chance: how often noise alone makes a change as large anywhere in the family (Holm), at most `level` in a regression.
    firmly: favourable bound at the family's level. seen: the change that this check calls a regression with 80 % power.
    """

    figure: str
    arm: str
    prompt_set: str
    concurrency: int | None
    reference: float
    candidate: float
    change: float
    surely: float
    firmly: float
    seen: float
    chance: float
    level: float
    tolerance: float
    unit: str = ""
    way: str = "fell"

    @property
    def regressed(self) -> bool:
        """Worse by more than the tolerance, beyond the noise of all checks of the family."""
        return self.surely > self.tolerance and self.chance <= self.level

    @property
    def blind(self) -> bool:
        """Whether a change of 20 % beyond the tolerance could pass unseen more often than one time in five."""
        return self.seen - self.tolerance > BLIND

    @property
    def where(self) -> str:
        """``eagle3-k3 on code at 4 at once``; ``all arms``."""
        who = "all arms" if self.arm == ALL else self.arm
        load = "" if self.concurrency is None else f" at {self.concurrency} at once"
        return f"{who}{'' if self.prompt_set == ALL else f' on {self.prompt_set}'}{load}"


def judged(family: Sequence[Change], level: float) -> list[Check]:
    """All checks of one family, in order; `level`: the share of comparisons in which noise may raise a false alarm in it."""
    chances = _holm([change.chance() for change in family])
    strictest = 1 - level / max(len(family), 1)
    return [_check(change, chance, level, strictest) for change, chance in zip(family, chances, strict=True)]


def _check(change: Change, chance: float, level: float, strictest: float) -> Check:
    part, relative = change.part, change.scale.relative
    beyond_tolerance = change.scale.measured(change.tolerance) + change.half_width(LEVEL)
    needed = max(beyond_tolerance, change.half_width(strictest))
    return Check(
        part.figure,
        part.arm,
        part.prompt_set,
        part.concurrency,
        change.reference,
        change.candidate,
        relative(change.worse),
        relative(change.worse - change.half_width(LEVEL)),
        relative(change.worse - change.half_width(strictest)),
        relative(needed + change.half_width(POWER)),
        chance,
        level,
        change.tolerance,
        part.unit,
        change.scale.way,
    )


def _holm(chances: Sequence[float]) -> list[float]:
    """Adjusted p-values: the k-th smallest of m times m - k + 1, never below the one before it, at most 1."""
    adjusted = [1.0] * len(chances)
    least = 0.0
    for place, at in enumerate(sorted(range(len(chances)), key=lambda one: chances[one])):
        least = adjusted[at] = min(1.0, max(least, (len(chances) - place) * chances[at]))
    return adjusted


@dataclass(frozen=True, slots=True)
class Spread:
    """Variance of one trial's figure, and its degrees of freedom."""

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
