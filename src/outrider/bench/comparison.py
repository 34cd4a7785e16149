"""What a comparison found, and the sentence that says it."""

from __future__ import annotations

from dataclasses import dataclass

from outrider.bench.acceptance_gates import GAIN
from outrider.bench.gates import ALL, POWER, Check
from outrider.bench.time_gates import TPOT
from outrider.bench.words import listed, more

_ALIKE = 0.8  # of the gravest change: one cause may have moved both


@dataclass(frozen=True, slots=True)
class Comparison:
    """All checks, the cells that fell, what was not gated, and what else a reader should know."""

    checks: tuple[Check, ...]
    fallen: tuple[str, ...] = ()
    not_gated: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def regressed(self) -> bool:
        """Whether anything is worse."""
        return bool(self.fallen) or any(check.regressed for check in self.checks)

    @property
    def worse(self) -> list[Check]:
        """The regressions, the gravest first: what is left of a change at the favourable end of its family's interval.

        Where one cause moves many figures by about as much, the noisiest would stand first by chance: of those that may be as
        grave as the gravest, the first in order (acceptance, TPOT, other figures, single loads) is put before them; all arms
        together, if each of them got worse.
        """
        found = sorted((check for check in self.checks if check.regressed), key=lambda one: -one.firmly)
        alike = [one for one in self.checks if one.regressed and one.change >= _ALIKE * found[0].firmly]
        first = self._all_arms(alike[0]) if alike else None
        return [one for one in (first, *(one for one in found if one is not first)) if one]

    def _all_arms(self, worse: Check) -> Check:
        """The check over all arms in its stead, where every arm as a whole regressed in this figure."""
        same = [one for one in self.checks if one.figure == worse.figure and one.concurrency is None]
        together = [one for one in same if one.arm == ALL]
        everywhere = worse.concurrency is None and all(one.regressed for one in same)
        return together[0] if everywhere and together else worse

    def sentence(self) -> str:
        """One sentence: what regressed, the gravest first, or which change would have been seen, and how surely."""
        worse = self.worse
        if self.fallen:
            return f"Regression: {self.fallen[0]}{more(len(self.fallen) - 1 + len(worse))}."
        if worse:
            one = worse[0]
            return (
                f"Regression: {one.figure} of {one.where} {one.way} by {one.change:.1%} (surely {one.surely:.1%}), "
                f"more than {one.tolerance:.1%}{more(len(worse) - 1)}."
            )
        said = [
            f"{seen:.1%} of {name}" for name in (GAIN, TPOT.name) if (seen := self._seen(name)) is not None
        ]
        text = f"No regression in {len(self.checks)} checks"
        if said:
            text += f"; with {POWER:.0%} power a change for the worse of {listed(said)} would have been seen"
        single = [one.seen for one in self.checks if one.figure == TPOT.name and one.concurrency is not None]
        return f"{text}{f', {max(single):.1%} of TPOT at a single load' if single else ''}."

    def _seen(self, figure: str) -> float | None:
        """The change that would have been seen in every arm: of each its closest check over all loads."""
        closest: dict[str, float] = {}
        for one in self.checks:
            if one.figure == figure and one.concurrency is None:
                closest[one.arm] = min(one.seen, closest.get(one.arm, one.seen))
        return max(closest.values(), default=None)
