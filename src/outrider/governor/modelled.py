"""What a course of drafts would have made of a trace's time, against each draft kept all along: reckoned, not measured.

At a moment a draft makes running · tokens per step / T(b, draft) tokens a second. Tokens per step are those of the requests that
ended within half a minute of it, T is of the whole trace. Moments where one of both is not known, on either side, do not count,
and their share is told.

Source: speed-up = tokens per step · T(b, 0)/T(b, K), `outrider bench`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from outrider.governor.costs import StepTimes
from outrider.governor.ladder import Ladder
from outrider.governor.settings import PolicySettings

NEAR_S = 30.0
LONGEST_S = 10.0  # a longer gap between two looks is a recording that paused
HINDSIGHT = PolicySettings(steps_age_s=86_400.0, step_readings=3)


@dataclass(frozen=True, slots=True)
class Moment:
    """From `at_s` to the next one: the policy's draft and the batch.

    brought: (accepted tokens, steps) by draft, of requests that ended then. decided: what the recording service had in force,
    where it says so.
    """

    at_s: float
    draft: str
    running: float
    brought: Mapping[str, tuple[int, int]]
    decided: str | None = None


@dataclass(frozen=True, slots=True)
class Against:
    """The policy against one draft kept all along. None: nothing can be said.

    gained_tokens: the policy's tokens less that draft's. ratio: the one over the other. covered_ratio: share of the busy time
    (running requests × seconds) that the figures are about.
    """

    draft: str
    gained_tokens: float | None
    ratio: float | None
    covered_ratio: float


def against(moments: Sequence[Moment], times: StepTimes, ladder: Ladder) -> tuple[Against, ...]:
    """Every draft of the ladder, most wanted first."""
    model = _Model(times, ladder)
    brought = {draft: _near(moments, draft) for draft in ladder.names}
    found = []
    for draft in ladder.names:
        mine = theirs = covered = busy = 0.0
        for i, (one, after) in enumerate(pairwise(moments)):
            work = one.running * min(after.at_s - one.at_s, LONGEST_S)
            busy += work
            speeds = [model.speed(name, one.running, brought[name][i]) for name in (one.draft, draft)]
            if work > 0 and None not in speeds:
                covered += work
                mine += work * (speeds[0] or 0.0)
                theirs += work * (speeds[1] or 0.0)
        found.append(
            Against(
                draft,
                mine - theirs if covered else None,
                mine / theirs if theirs else None,
                covered / busy if busy else 0.0,
            )
        )
    return tuple(found)


def _near(moments: Sequence[Moment], draft: str) -> list[float | None]:
    """Tokens per step of the draft near every moment; None where none of its requests ended there."""
    told = [one.brought.get(draft, (0, 0)) for one in moments]
    accepted = [0, *accumulate(one[0] for one in told)]
    steps = [0, *accumulate(one[1] for one in told)]
    found: list[float | None] = []
    first = last = 0
    for one in moments:
        while moments[first].at_s < one.at_s - NEAR_S:
            first += 1
        while last < len(moments) and moments[last].at_s <= one.at_s + NEAR_S:
            last += 1
        made = steps[last] - steps[first]
        found.append(1 + (accepted[last] - accepted[first]) / made if made else None)
    return found


class _Model:
    """Tokens a second of one running request; step times by draft and batch are looked up once."""

    def __init__(self, times: StepTimes, ladder: Ladder) -> None:
        self._times, self._ladder = times, ladder
        self._known: dict[tuple[str, float], float | None] = {}

    def speed(self, draft: str, running: float, per_step: float | None) -> float | None:
        """None where its tokens per step or its step time is not known."""
        brings = per_step if self._ladder[draft].drafts else 1.0
        step_s = self._step_s(draft, round(max(running, 1.0), 1))
        return brings / step_s if brings is not None and step_s else None

    def _step_s(self, draft: str, running: float) -> float | None:
        place = (draft, running)
        if place not in self._known:
            self._known[place] = self._look_up(draft, running)
        return self._known[place]

    def _look_up(self, draft: str, running: float) -> float | None:
        seen = self._times.at(draft, running)
        if seen:
            return seen.value
        if draft == self._ladder.floor:
            return self._from_drafts(running)
        stated = self._ladder[draft].break_even_at(running)
        none = self._times.at(self._ladder.floor, running)
        return stated * none.value if stated and none else None

    def _from_drafts(self, running: float) -> float | None:
        """A step without a draft, out of one with a draft whose break-even was stated."""
        for rung in self._ladder:
            stated = rung.break_even_at(running)
            seen = self._times.at(rung.draft, running) if stated else None
            if seen and stated:
                return seen.value / stated
        return None
