"""Is a draft worth having? The one in force, and one that wants to come back.

What decides is goodput: tokens per step against the tokens that pay for its step (break-even), beyond noise. The pair manifest's
AL decides where step times do not: acceptance far under it is a draft that no longer fits its traffic or its target.

Source: expected speed-up = tokens per step / break-even, as `outrider bench` reckons it; its error adds those of both logarithms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from enum import StrEnum

from outrider.governor.costs import BreakEven, break_even, break_even_unloaded, bucket
from outrider.governor.estimator import Evidence, Measured, evidence, newest
from outrider.governor.ladder import HEADS, Ladder, Rung
from outrider.governor.reasons import Reason
from outrider.governor.settings import PolicySettings
from outrider.governor.state import DraftRecord, GovernorState

ALONE = 2.0
"""Batches up to here are without load."""
BARE = 1.3
"""Tokens a step under which a draft that costs is not accepted enough, whatever the load, where no smaller batch is known."""


class Verdict(StrEnum):
    """undefined: too little was drafted to say. pays: surely. fair: nothing speaks against it. low: too little is accepted.
    costs: surely slower than no draft at this batch, though it would pay at a smaller one.
    """

    UNDEFINED = "undefined"
    PAYS = "pays"
    FAIR = "fair"
    LOW = "low"
    COSTS = "costs"


@dataclass(frozen=True, slots=True)
class Assessment:
    """One draft as it is seen now. `seen`: its recent requests; `cost_seen`: over longer, for the question of cost.

    needed_gain: accepted tokens a draft (with a manifest) or a step that it must bring; None where nothing says. step: T at this
    batch. worth: logarithm of the expected speed-up over no draft; None where the break-even is not known.
    """

    draft: str
    verdict: Verdict = Verdict.UNDEFINED
    seen: Evidence = field(default_factory=Evidence)
    cost_seen: Evidence = field(default_factory=Evidence)
    break_even: BreakEven = field(default_factory=BreakEven)
    needed_gain: float | None = None
    step: Measured | None = None
    worth: Measured | None = None

    @property
    def bad(self) -> bool:
        """Whether it should be left."""
        return self.verdict in (Verdict.LOW, Verdict.COSTS)


@dataclass(frozen=True, slots=True)
class Judge:
    """The rules, with the ladder and the thresholds they go by."""

    ladder: Ladder
    settings: PolicySettings

    def assess(self, state: GovernorState, draft: str) -> Assessment:
        """A draft as its requests show it, at the batch of late."""
        rung, record, settings = self.ladder[draft], state.records[draft], self.settings
        step = state.times.at(draft, state.running)
        if not rung.drafts:
            return Assessment(draft, Verdict.FAIR, step=step)
        seen = self._seen(state, record, settings.window_requests, settings.window_s)
        cost_seen = self._seen(state, record, settings.cost_window_requests, settings.cost_window_s)
        even = break_even(state.times, self.ladder, draft, state.running)
        return Assessment(
            draft,
            self._verdict(state, rung, (seen, cost_seen), even),
            seen,
            cost_seen,
            even,
            self.needed_gain(rung, even),
            step,
            worth(cost_seen, even.known),
        )

    def _seen(self, state: GovernorState, record: DraftRecord, requests: int, seconds: float) -> Evidence:
        """The newest requests within so many seconds; where traffic is thin, the fewest that may be judged, however old."""
        within = evidence(newest(record.credits, requests, state.at_s - seconds))
        if within.requests >= self.settings.min_requests:
            return within
        return evidence(newest(record.credits, self.settings.min_requests, -math.inf))

    def _verdict(
        self, state: GovernorState, rung: Rung, found: tuple[Evidence, Evidence], even: BreakEven
    ) -> Verdict:
        seen = found[0]
        if seen.requests < self.settings.min_requests or seen.gain is None or seen.per_step is None:
            return Verdict.UNDEFINED
        if self.surely_pays(seen, even):
            return Verdict.PAYS
        if rung.baseline_gain is not None:
            if self._surely_under(seen.gain, self.settings.baseline_share * rung.baseline_gain):
                return Verdict.LOW
        elif not even.known and self._surely_under(_gain(seen.per_step), self.floor_gain(rung)):
            return Verdict.LOW
        if any(self.surely_costs(one, even) for one in found):
            loaded = self.blame(state, rung.draft, seen.per_step) is Reason.LOAD
            return Verdict.COSTS if loaded else Verdict.LOW
        return Verdict.FAIR

    def blame(self, state: GovernorState, draft: str, per_step: Measured) -> Reason:
        """Why a draft costs: load, if what is accepted would pay at a smaller batch; else acceptance."""
        if state.running <= ALONE:
            return Reason.ACCEPTANCE
        unloaded = break_even_unloaded(state.times, self.ladder, draft, state.running)
        return Reason.LOAD if per_step.value > (unloaded or BARE) else Reason.ACCEPTANCE

    def needed_gain(self, rung: Rung, even: BreakEven) -> float | None:
        """What acceptance must bring: by the manifest, else by the break-even, else the floor that is set."""
        if rung.baseline_gain is not None:
            return self.settings.baseline_share * rung.baseline_gain
        return even.known.value - 1 if even.known else self.floor_gain(rung)

    def floor_gain(self, rung: Rung) -> float:
        """Accepted tokens a step below which no draft of this kind pays, where nothing better is known."""
        return self.settings.floor_gain if rung.draft in HEADS else self.settings.lookup_floor_gain

    def surely_pays(self, seen: Evidence, even: BreakEven) -> bool:
        """Faster than no draft, beyond noise; or beyond all that a step of its can cost."""
        if seen.per_step is None:
            return False
        if (found := worth(seen, even.known)) is not None:
            return found.value - self.settings.confidence_z * found.error > 0
        sure = seen.per_step.value - self.settings.confidence_z * seen.per_step.error
        return even.at_most is not None and sure > even.at_most

    def surely_costs(self, seen: Evidence, even: BreakEven) -> bool:
        """Slower than no draft, beyond noise and by more than the margin; or below the least that a step of its can cost."""
        if seen.per_step is None:
            return False
        found = worth(seen, even.known)
        if found is None:
            sure = seen.per_step.value + self.settings.confidence_z * seen.per_step.error
            return even.at_least is not None and sure < even.at_least
        return (
            found.value < -math.log1p(self.settings.margin)
            and found.value + self.settings.confidence_z * found.error < 0
        )

    def may_return(self, state: GovernorState, rung: Rung) -> Evidence | None:
        """Its probes, if they let a draft out of force return: enough, good enough, and not slower than what is in force."""
        record, settings = state.records[rung.draft], self.settings
        seen = evidence(newest(record.credits, settings.probe_requests, -math.inf))
        if seen.requests < settings.probe_requests or seen.gain is None or seen.per_step is None:
            return None
        even = break_even(state.times, self.ladder, rung.draft, state.running)
        longer = evidence(record.credits)
        if not self._load_allows(state, longer, even):
            return None
        if self.surely_costs(seen, even) or not self._accepted_again(rung, seen, even):
            return None
        return None if self._surely_slower(state, rung.draft, longer) else seen

    def worth_probing(self, state: GovernorState, rung: Rung) -> bool:
        """Whether good probes could bring a draft back at this batch: probes cost as well, most where the load is high."""
        even = break_even(state.times, self.ladder, rung.draft, state.running)
        brought = Evidence(per_step=state.records[rung.draft].left_per_step)
        return self._load_allows(state, brought, even, sure=False)

    def _load_allows(
        self, state: GovernorState, seen: Evidence, even: BreakEven, *, sure: bool = True
    ) -> bool:
        """Where a draft was left because it cost at this batch, one comes back only if it pays; `sure`: beyond noise.

        Where nobody knows what a step of its costs, a smaller batch may try, and a later time; or it brings more than pays for
        the step of the one that was left.
        """
        settings = self.settings
        for rung in self.ladder:
            record = state.records[rung.draft]
            if record.left is not Reason.LOAD:
                continue
            theirs = break_even(state.times, self.ladder, rung.draft, state.running)
            found = worth(seen, even.known or theirs.known)
            if found is not None:
                noise = settings.confidence_z * found.error if sure else 0.0
                if found.value - noise <= math.log1p(settings.margin):
                    return False
            elif (
                state.at_s - record.left_s < settings.steps_age_s
                and bucket(state.running) >= bucket(record.left_running) - 1
            ):
                return False
        return True

    def _accepted_again(self, rung: Rung, seen: Evidence, even: BreakEven) -> bool:
        """It surely pays; or it exceeds what the manifest asks for, and what step times do, by the hysteresis."""
        if self.surely_pays(seen, even):
            return True
        if seen.gain is None or seen.per_step is None:
            return False
        more = 1 + self.settings.hysteresis
        per_step = seen.per_step.value - 1
        if even.known and per_step < (even.known.value - 1) * more:
            return False
        if rung.baseline_gain is not None:
            return seen.gain.value >= self.settings.baseline_share * rung.baseline_gain * more
        return even.known is not None or per_step >= self.floor_gain(rung) * more

    def _surely_slower(self, state: GovernorState, draft: str, seen: Evidence) -> bool:
        """Than the draft in force: tokens per step against tokens per step, over their step times where both are known."""
        now = evidence(state.records[state.draft].credits)
        if seen.per_step is None or now.per_step is None or not self.ladder[state.draft].drafts:
            return False
        mine, theirs = (state.times.at(name, state.running) for name in (draft, state.draft))
        value = math.log(seen.per_step.value / now.per_step.value)
        errors = [seen.per_step.relative, now.per_step.relative]
        if mine and theirs:
            value -= math.log(mine.value / theirs.value)
            errors += [mine.relative, theirs.relative]
        return value + self.settings.confidence_z * math.hypot(*errors) < 0

    def _surely_under(self, gain: Measured, needed: float) -> bool:
        return gain.value + self.settings.confidence_z * gain.error < needed


def worth(seen: Evidence, even: Measured | None) -> Measured | None:
    """The logarithm of tokens per step / break-even, and its error; None where one of them is not known."""
    if seen.per_step is None or even is None:
        return None
    return Measured(
        math.log(seen.per_step.value / even.value),
        math.hypot(seen.per_step.relative, even.relative),
    )


def _gain(per_step: Measured) -> Measured:
    return Measured(per_step.value - 1, per_step.error)
