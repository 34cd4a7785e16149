"""The decision: `Policy.decide(state, snapshot)`, once a second. Pure: the same state and snapshot give the same turn.

What moves the draft, the first that applies:

1. an operator's pin
2. the start-up probe found the draft in force broken: the next rung
3. a trial that has told, or has lasted long enough
4. a draft that is wanted more is good again, by its probes: up
5. the draft in force is bad, and has been for a while: down
6. it may be quicker without a draft, and nobody knows: a trial

Between two switches lies the dwell time; only 1 and 2 do not wait for it. Undefined acceptance moves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from outrider.governor import trial as trials
from outrider.governor import words
from outrider.governor.costs import bucket
from outrider.governor.decision import Decision, Turn, alerts
from outrider.governor.estimator import Measured
from outrider.governor.judge import Assessment, Judge, Verdict
from outrider.governor.ladder import Ladder, Rung
from outrider.governor.probing import probe_share, turn_of
from outrider.governor.reasons import Reason
from outrider.governor.settings import PolicySettings
from outrider.governor.snapshot import Snapshot
from outrider.governor.state import DraftRecord, GovernorState, Spell, Trial, absorb


@dataclass(frozen=True, slots=True)
class _Move:
    """A switch that something speaks for. `at_once`: the dwell time does not hold it back, nor does it begin one.

    per_step: tokens per step of the draft that is left.
    """

    draft: str
    reason: Reason
    why: str
    at_once: bool = False
    trial: Trial | None = None
    per_step: Measured | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules over one ladder with one set of thresholds."""

    ladder: Ladder
    settings: PolicySettings = field(default_factory=PolicySettings)

    @property
    def judge(self) -> Judge:
        """How drafts are judged."""
        return Judge(self.ladder, self.settings)

    def start(self, at_s: float, life: int = 0) -> GovernorState:
        """The state before the first request: the stack's own draft is in force."""
        records = {draft: DraftRecord() for draft in self.ladder.names}
        return GovernorState(at_s, self.ladder.top, at_s, Reason.START, "the stack's draft", records, life)

    def decide(self, state: GovernorState, snapshot: Snapshot) -> Turn:
        """The draft for the requests to come, and the state to ask next time with.

        Raises ValueError for a clock that went backwards and for a pin to a draft that stands on no rung.
        """
        if snapshot.pinned is not None and snapshot.pinned not in self.ladder:
            raise ValueError(f"{snapshot.pinned!r} cannot be pinned: {', '.join(self.ladder.names)}")
        state = absorb(state, snapshot, self.ladder, self.settings)
        state = self._settled(_held(state, snapshot.pinned))
        seen = self.judge.assess(state, state.draft)
        state = replace(state, spell=_spell(state, seen))
        before, move = state.draft, self._move(state, snapshot, seen)
        waiting = self._not_yet(state)
        dwell_s = state.switched_s + self.settings.dwell_s - state.at_s
        if move and not move.at_once and dwell_s > 0:
            waiting = f"{words.of_move(move.reason)}; the dwell time ends in {dwell_s:.0f} s"
        elif move:
            state, waiting = self._switched(state, move), ""
        return Turn(state, self._decision(state, before, waiting))

    # ---- what speaks for a switch

    def _move(self, state: GovernorState, snapshot: Snapshot, seen: Assessment) -> _Move | None:
        if state.pinned is not None:
            pinned = _Move(state.pinned, Reason.PINNED, _PINNED, at_once=True)
            return pinned if state.pinned != state.draft else None
        known_now = snapshot.start_probes or state.reason is Reason.RELEASED
        if state.records[state.draft].broken and known_now:
            why = f"the start-up probe saw none of {state.draft}'s tokens accepted"
            return _Move(self._down(state), Reason.BROKEN, why, at_once=True)
        if state.trial:
            return self._after_trial(state, state.trial)
        return self._up(state) or self._fall(state, seen) or self._trial(state, seen)

    def _after_trial(self, state: GovernorState, trial: Trial) -> _Move | None:
        found = trials.told(state, trial, self.judge)
        if found:
            return _Move(trial.draft, Reason.TRIAL_OVER, words.of_trial(trial, found))
        if state.at_s - trial.began_s >= self.settings.trial_s:
            return _Move(trial.draft, Reason.TRIAL_OVER, "no batch ran wholly without a draft meanwhile")
        return None

    def _up(self, state: GovernorState) -> _Move | None:
        for rung in self.ladder.above(state.draft):
            if probes := self.judge.may_return(state, rung):
                return _Move(rung.draft, Reason.RECOVERED, words.of_return(rung.draft, probes))
        return None

    def _fall(self, state: GovernorState, seen: Assessment) -> _Move | None:
        spell = state.spell
        if (
            spell is None
            or state.at_s - spell.since_s < self.settings.sustained_s
            or spell.requests < self.settings.sustained_requests
        ):
            return None
        down = self.ladder.floor if spell.reason is Reason.LOAD else self._down(state)
        why = words.of_fall(seen, state, self.ladder, self.settings)
        return _Move(down, spell.reason, why, per_step=seen.cost_seen.per_step)

    def _down(self, state: GovernorState) -> str:
        """The nearest rung below that is not known to be bad."""
        for rung in self.ladder.below(state.draft):
            record = state.records[rung.draft]
            shunned = record.left is not None and state.at_s - record.left_s < self.settings.shun_s
            if not rung.drafts or not (record.broken or shunned):
                return rung.draft
        return self.ladder.floor

    def _trial(self, state: GovernorState, seen: Assessment) -> _Move | None:
        trial = trials.due(state, seen, self.judge)
        if trial is None:
            return None
        why = f"how long a step without a draft takes with {words.running(state.running)} is not known"
        return _Move(self.ladder.floor, Reason.TRIAL, why, trial=trial)

    # ---- the state of things

    def _settled(self, state: GovernorState) -> GovernorState:
        """A trial that found the draft slower than none is the answer itself: the floor stays in force."""
        trial = state.trial
        found = trials.told(state, trial, self.judge) if trial else None
        if trial is None or found is None or not found.slower:
            return state
        reason = self.judge.blame(state, trial.draft, trial.per_step)
        left = replace(
            state.records[trial.draft],
            left=reason,
            left_s=state.at_s,
            left_running=found.running,
            left_per_step=trial.per_step,
        )
        why = words.of_trial(trial, found)
        return replace(state, trial=None, reason=reason, why=why).with_records({trial.draft: left})

    def _not_yet(self, state: GovernorState) -> str:
        if state.spell is None:
            return ""
        so_far = f"{state.at_s - state.spell.since_s:.0f} s and {state.spell.requests} requests"
        needed = f"{self.settings.sustained_s:g} s and {self.settings.sustained_requests}"
        return f"{words.of_move(state.spell.reason)} for {so_far}; it takes {needed}"

    def _switched(self, state: GovernorState, move: _Move) -> GovernorState:
        """In force from now on; both drafts are judged on requests dispatched from now on."""
        left = state.records[state.draft].judged_anew(state.at_s)
        if move.reason in (Reason.ACCEPTANCE, Reason.LOAD):
            left = replace(
                left,
                left=move.reason,
                left_s=state.at_s,
                left_running=state.running,
                left_per_step=move.per_step,
            )
        entered = state.records[move.draft].judged_anew(state.at_s)
        mended = move.reason is Reason.RECOVERED
        entered = replace(entered, left=None, broken=entered.broken and not mended)
        tried = dict(state.tried)
        if state.trial is not None:
            tried[bucket(state.trial.running)] = state.at_s
        return replace(
            state,
            draft=move.draft,
            since_s=state.at_s,
            reason=move.reason,
            why=move.why,
            switched_s=state.switched_s if move.at_once else state.at_s,
            switches=state.switches + 1,
            spell=None,
            trial=move.trial,
            tried=tried,
        ).with_records({state.draft: left, move.draft: entered})

    def _decision(self, state: GovernorState, before: str, waiting: str) -> Decision:
        assessments = tuple(self.judge.assess(state, rung.draft) for rung in self.ladder)
        probed = self._probed(state)
        return Decision(
            draft=state.draft,
            reason=state.reason,
            why=state.why,
            switched_from=before if before != state.draft else None,
            waiting=waiting,
            probe_draft=probed.draft if probed else None,
            probe_share=probe_share(state.arrivals_per_s, self.settings) if probed else 0.0,
            not_speculated=state.records[state.draft].unspeculated,
            alerts=alerts(state, self.judge, assessments),
            assessments=assessments,
        )

    def _probed(self, state: GovernorState) -> Rung | None:
        """The rungs above take turns, but for a round after a switch: until then steps of the draft in force are seen unmixed.

        Neither is anything probed under a pin or in a trial.
        """
        waited_s = state.at_s - state.since_s - self.settings.probe_round_s
        if state.pinned is not None or state.trial is not None or waited_s < 0:
            return None
        above = [rung for rung in self.ladder.above(state.draft) if self.judge.worth_probing(state, rung)]
        if not above:
            return None
        return above[turn_of(waited_s, len(above), self.settings)]


_PINNED = "an operator pinned it"


def _held(state: GovernorState, pinned: str | None) -> GovernorState:
    """An operator's hand: a pin ends a trial; what was pinned stays until measurements say otherwise."""
    if pinned is None and state.pinned is None:
        return state
    if pinned is None:
        return replace(state, pinned=None, reason=Reason.RELEASED, why="an operator let it go")
    held = replace(state, pinned=pinned, trial=None)
    return replace(held, reason=Reason.PINNED, why=_PINNED) if pinned == state.draft else held


def _spell(state: GovernorState, seen: Assessment) -> Spell | None:
    if not seen.bad or state.pinned is not None:
        return None
    reason = Reason.LOAD if seen.verdict is Verdict.COSTS else Reason.ACCEPTANCE
    return replace(state.spell, reason=reason) if state.spell else Spell(reason, state.at_s)
