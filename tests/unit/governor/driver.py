"""A governor that is told what a test says, second by second."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from outrider.governor.decision import Decision, Turn
from outrider.governor.policy import Policy
from outrider.governor.snapshot import Credit, Snapshot, StartProbe, StepReading

K = 3


def credit(
    draft: str, length: float, ended_s: float, started_s: float | None = None, **more: object
) -> Credit:
    """A request of 40 steps with a draft in each, of `length` AL; it took two seconds unless said otherwise."""
    drafts = 0 if draft == "off" else 40
    plain: dict[str, object] = {
        "drafts": drafts,
        "proposed": K * drafts,
        "accepted": round((length - 1) * drafts),
        "steps": 40,
    }
    return Credit(draft, ended_s - 2.0 if started_s is None else started_s, ended_s, **(plain | more))  # type: ignore[arg-type]  # by name


def readings(
    draft: str, step_s: float, running: float, at_s: float = 0.0, n: int = 6
) -> tuple[StepReading, ...]:
    """T known at a batch."""
    return tuple(StepReading(draft, at_s, running, step_s, 20) for _ in range(n))


@dataclass(slots=True)
class Driver:
    """Asks a policy once a second and keeps every decision."""

    policy: Policy
    turn: Turn = field(init=False)
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    at_s: float = 0.0

    def __post_init__(self) -> None:
        self.turn = Turn(
            self.policy.start(0.0), Decision(self.policy.ladder.top, self.policy.start(0.0).reason, "")
        )

    @property
    def decision(self) -> Decision:
        """The latest."""
        return self.turn.decision

    @property
    def switches(self) -> list[tuple[float, str, str]]:
        """(moment, draft, reason) of every switch."""
        return [
            (at_s, one.draft, str(one.reason))
            for at_s, one in self.decisions
            if one.switched_from is not None
        ]

    def look(
        self, finished: Iterable[Credit] = (), *, running: float = 4.0, passed_s: float = 1.0, **more: object
    ) -> Decision:
        """One look, `passed_s` after the last."""
        self.at_s += passed_s
        snapshot = Snapshot(self.at_s, running, finished=tuple(finished), **more)  # type: ignore[arg-type]  # by name
        self.turn = self.policy.decide(self.turn.state, snapshot)
        self.decisions.append((self.at_s, self.decision))
        return self.decision

    def serve(self, seconds: int, lengths: dict[str, float], *, per_s: int = 2, **more: object) -> Decision:
        """So many seconds in which requests of the draft in force (and its probes, one in four) end with these ALs."""
        for _ in range(seconds):
            now_s = self.at_s + 1.0
            drafts = [self.decision.draft] * per_s
            if self.decision.probe_draft:
                drafts.append(self.decision.probe_draft)
            self.look((credit(draft, lengths.get(draft, 1.0), now_s) for draft in drafts), **more)
        return self.decision

    def serve_until(
        self, done: Callable[[Decision], object], lengths: dict[str, float], within: int = 300
    ) -> Decision:
        """Serve until a decision is as wanted. Raises AssertionError where that takes longer."""
        for _ in range(within):
            if done(self.decision):
                return self.decision
            self.serve(1, lengths)
        raise AssertionError(f"not within {within} s: {self.decision.draft}, {self.decision.waiting}")

    def probe(self, draft: str, proposed: int, accepted: int) -> Decision:
        """What the readiness probe saw."""
        return self.look(start_probes=(StartProbe(draft, proposed, accepted),), passed_s=0.0)
