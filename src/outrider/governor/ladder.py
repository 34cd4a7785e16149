"""The drafts a server may choose from, most wanted first, and what was known of each before any traffic came.

The last rung is always a request without a draft: ``off``, or ``warm`` where the head must go on reading. So there is always
somewhere to fall.

Source: draft names as in `outrider_vllm.drafts` (a test holds the two equal).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

HEADS = ("eagle3", "p-eagle", "draft-model")
LOOKUPS = ("ngram", "suffix")
MIX = "mix"
NO_DRAFT = ("off", "warm")
NAMES = (*HEADS, *LOOKUPS, MIX, *NO_DRAFT)

WORTHLESS_LENGTH = 1.05
"""A baseline under this says that the draft was worth nothing when it was measured: it is no yardstick."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One draft and what is known of it beforehand.

    baseline_length: its AL in the pair manifest (the bonus token is included). break_even: (running requests, AL that just pays)
    from measured steps, T(b, K)/T(b, 0), by rising batch. scheduled: the engine itself sets the draft length by batch, so that
    step times decide nothing here. draft_length: K. Raises ValueError for a name or a figure that cannot be.
    """

    draft: str
    baseline_length: float | None = None
    break_even: tuple[tuple[float, float], ...] = ()
    scheduled: bool = False
    draft_length: int | None = None

    def __post_init__(self) -> None:
        if self.draft not in NAMES:
            raise ValueError(f"{self.draft!r} is no draft: {', '.join(NAMES)}")
        if self.baseline_length is not None and not 1 <= self.baseline_length <= 65:
            raise ValueError(f"an acceptance length lies between 1 and 65, not at {self.baseline_length:g}")
        if self.draft_length is not None and not 1 <= self.draft_length <= 64:
            raise ValueError(f"a draft length lies between 1 and 64, not at {self.draft_length}")
        loads = [running for running, _ in self.break_even]
        if loads != sorted(set(loads)):
            raise ValueError("break-even lengths stand by rising batch, each once")
        if any(not (0 < running < math.inf and 0 < length < math.inf) for running, length in self.break_even):
            raise ValueError("batches and break-even lengths are positive and finite")

    @property
    def drafts(self) -> bool:
        """Whether a request on this rung has a draft at all."""
        return self.draft not in NO_DRAFT

    @property
    def baseline_gain(self) -> float | None:
        """AL - 1 of the pair manifest; None without one, or where that draft was worth nothing."""
        if self.baseline_length is None or self.baseline_length < WORTHLESS_LENGTH:
            return None
        return self.baseline_length - 1

    def break_even_at(self, running: float) -> float | None:
        """The AL that just pays, of the measured batch at or above (there drafts are worth less), else of the largest."""
        if not self.break_even:
            return None
        above = (length for batch, length in self.break_even if batch >= running)
        return next(above, self.break_even[-1][1])


@dataclass(frozen=True, slots=True)
class Ladder:
    """The rungs, most wanted first; the last one, and no other, has no draft. Raises ValueError otherwise."""

    rungs: tuple[Rung, ...]

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.rungs):
            raise ValueError(f"a draft stands on one rung only: {', '.join(self.names)}")
        if not self.rungs or [rung.drafts for rung in self.rungs] != [True] * (len(self.rungs) - 1) + [False]:
            raise ValueError(
                f"the last rung, and no other, is one of {' and '.join(NO_DRAFT)}: {', '.join(self.names)}"
            )

    def __iter__(self) -> Iterator[Rung]:
        return iter(self.rungs)

    def __contains__(self, draft: object) -> bool:
        return draft in self.names

    def __getitem__(self, draft: str) -> Rung:
        """The rung of a draft. Raises KeyError."""
        for rung in self.rungs:
            if rung.draft == draft:
                return rung
        raise KeyError(draft)

    @property
    def names(self) -> tuple[str, ...]:
        """The drafts, most wanted first."""
        return tuple(rung.draft for rung in self.rungs)

    @property
    def top(self) -> str:
        """The stack's own draft."""
        return self.rungs[0].draft

    @property
    def floor(self) -> str:
        """The rung without a draft."""
        return self.rungs[-1].draft

    def above(self, draft: str) -> tuple[Rung, ...]:
        """The rungs that are wanted more, most wanted first."""
        return self.rungs[: self.names.index(draft)]

    def below(self, draft: str) -> tuple[Rung, ...]:
        """The rungs to fall to, nearest first."""
        return self.rungs[self.names.index(draft) + 1 :]


def ladder_of(top: Rung, floor: str = "off") -> Ladder:
    """The usual ladder of a stack's draft: a head (or mix) falls to n-gram, then to none; a lookup straight to none."""
    rungs = [top]
    if top.draft in (*HEADS, MIX):
        rungs.append(Rung("ngram"))
    return Ladder((*rungs, Rung(floor)))
