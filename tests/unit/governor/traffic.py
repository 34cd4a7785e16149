"""A service on a virtual clock: requests arrive, run with the draft the governor chose, and end; nothing waits for real time.

The engine is the model of step times: in a tick every running request makes its steps, T(b, drafts in the batch) each, and in
each step one token and what its draft got accepted. What a draft is worth may change with time and differs between requests.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from outrider.governor.decision import Decision
from outrider.governor.ladder import Ladder, Rung
from outrider.governor.policy import Policy
from outrider.governor.probing import is_probe
from outrider.governor.settings import PolicySettings
from outrider.governor.snapshot import Credit, Snapshot, StartProbe, StepReading
from outrider.governor.state import GovernorState

TICK_S = 0.25
HEAD = "eagle3"
K = 3

Gain = Callable[[str, float], float]
"""(draft, moment) -> AL - 1 of a request dispatched then."""


def head_ladder(baseline: float | None = 3.0, **head: object) -> Ladder:
    """eagle3, ngram, off."""
    return Ladder((Rung(HEAD, baseline, **head), Rung("ngram"), Rung("off")))  # type: ignore[arg-type]  # by name


def constant(head: float, ngram: float = 0.0) -> Gain:
    """The same for ever."""
    return lambda draft, at_s: head if draft == HEAD else ngram if draft == "ngram" else 0.0


def changing(*phases: tuple[float, float], ngram: float = 0.15) -> Gain:
    """(from when, the head's AL - 1) by rising moment."""

    def gain(draft: str, at_s: float) -> float:
        if draft != HEAD:
            return ngram if draft == "ngram" else 0.0
        return next(value for begins_s, value in reversed(phases) if at_s >= begins_s)

    return gain


def cheap_steps(running: float, drafted: float) -> float:
    """A GPU far from full: T hardly grows; a draft costs a fifth."""
    return 0.02 * (1 + 0.01 * running) * (1 + 0.2 * drafted)


def dear_steps(running: float, drafted: float) -> float:
    """A GPU that fills up: verifying K + 1 tokens a request becomes work, so that a draft's step takes ever longer."""
    return 0.02 + 0.0004 * running * (1 + 0.15 * K * drafted) + 0.003 * drafted


@dataclass(slots=True)
class Running:
    """A request under way."""

    draft: str
    started_s: float
    tokens: int
    gain: float
    draftable: bool
    probe: bool
    steps: float = 0.0
    made: float = 1.0
    seconds: float = 0.0
    beside: float = 0.0
    alike: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """What comes: requests a second at a moment, or as many as keep so many running; tokens an answer; the share that cannot be
    drafted; how much requests differ."""

    per_s: Callable[[float], float] | None = None
    at_once: Callable[[float], int] | None = None
    tokens: int = 100
    undraftable: float = 0.0
    spread: float = 0.2
    limit: int = 256


@dataclass(frozen=True, slots=True)
class Seen:
    """One second of it: the moment, the decision, requests dispatched until then, tokens made in it, requests running."""

    at_s: float
    decision: Decision
    dispatched: int
    tokens: float
    running: int
    state: GovernorState
    snapshot: Snapshot


@dataclass(slots=True)
class Service:
    """Front, engine and control in one. `governed` False: the top rung stays."""

    policy: Policy
    gain: Gain
    load: Load
    step_s: Callable[[float, float], float] = cheap_steps
    seed: int = 1
    governed: bool = True
    static: str = ""
    start_probes: tuple[StartProbe, ...] = ()
    told_alike: bool = True
    warmed: bool = True
    scraped: bool = False
    pinned: Callable[[float], str | None] = lambda at_s: None
    running: list[Running] = field(default_factory=list)

    def seconds(self, until_s: float) -> Iterator[Seen]:
        """Run it; one `Seen` a second."""
        chance = random.Random(self.seed)  # noqa: S311  (traffic, not a secret)
        snapshot = Snapshot(
            0.0, steps=self._warm_up(), start_probes=self.start_probes, pinned=self.pinned(0.0)
        )
        turn = self.policy.decide(self.policy.start(0.0), snapshot)
        yield Seen(0.0, turn.decision, 0, 0.0, 0, turn.state, snapshot)
        due = made = 0.0
        number = dispatched = 0
        ended: list[Credit] = []
        for tick in range(1, round(until_s / TICK_S) + 1):
            at_s = tick * TICK_S
            if self.load.at_once:
                due = float(self.load.at_once(at_s) - len(self.running))
            elif self.load.per_s:
                due += self.load.per_s(at_s) * TICK_S
            while due >= 1 and len(self.running) < self.load.limit:
                due -= 1
                dispatched += 1
                draftable = chance.random() >= self.load.undraftable
                probe = False
                if draftable and turn.decision.probe_draft:
                    probe = is_probe(number, turn.decision.probe_share)
                    number += 1
                draft = (turn.decision.probe_draft if probe else turn.decision.draft) or ""
                draft = draft if self.governed else self.static or self.policy.ladder.top
                mean = self.gain(draft, at_s) if draftable else 0.0
                gain = min(max(mean * (1 + self.load.spread * chance.gauss(0, 1)), 0.0), float(K))
                tokens = max(round(self.load.tokens * chance.uniform(0.5, 1.5)), 2)
                self.running.append(Running(draft, at_s, tokens, gain, draftable, probe))
            made += self._step(at_s, ended)
            if at_s % 1 == 0:
                snapshot = Snapshot(
                    at_s,
                    float(len(self.running)),
                    finished=tuple(ended),
                    steps=self._scraped(at_s),
                    pinned=self.pinned(at_s),
                )
                turn = self.policy.decide(turn.state, snapshot)
                yield Seen(at_s, turn.decision, dispatched, made, len(self.running), turn.state, snapshot)
                ended, made = [], 0.0

    def _warm_up(self) -> tuple[StepReading, ...]:
        """What the requests before the first user tell: T alone, with the top draft and without."""
        if not self.warmed:
            return ()
        alone = {self.policy.ladder.top: self.step_s(1.0, 1.0), "off": self.step_s(1.0, 0.0)}
        return tuple(
            StepReading(draft, 0.0, 1.0, seconds, 48) for draft, seconds in alone.items() for _ in range(6)
        )

    def _scraped(self, at_s: float) -> tuple[StepReading, ...]:
        """What two scrapes tell of the last second: T of what most requests ran with."""
        beside = len(self.running)
        if not beside or not self.scraped:
            return ()
        (draft, most), *_ = Counter(one.draft for one in self.running).most_common()
        drafted = sum(one.draft != "off" and one.draftable for one in self.running) / beside
        return (
            StepReading(draft, at_s, float(beside), self.step_s(float(beside), drafted), 20, most / beside),
        )

    def _step(self, at_s: float, ended: list[Credit]) -> float:
        beside = len(self.running)
        if not beside:
            return 0.0
        drafted = sum(one.draft != "off" and one.draftable for one in self.running) / beside
        steps = TICK_S / self.step_s(float(beside), drafted)
        made = 0.0
        counts = Counter(one.draft for one in self.running)
        for one in list(self.running):
            alike = counts[one.draft] / beside
            took = min(steps, max((one.tokens - one.made) / (1 + one.gain), 0.0))
            one.steps += took
            one.made += took * (1 + one.gain)
            made += took * (1 + one.gain)
            one.seconds += TICK_S * took / steps
            one.beside += beside * TICK_S * took / steps
            one.alike += alike * TICK_S * took / steps
            if one.made >= one.tokens - 1e-9:
                self.running.remove(one)
                ended.append(self._credit(one, at_s))
        return made

    def _credit(self, one: Running, at_s: float) -> Credit:
        steps = max(round(one.steps), 1)
        drafts = steps if one.draft != "off" and one.draftable and one.gain >= 0 else 0
        return Credit(
            one.draft,
            one.started_s,
            at_s,
            drafts=drafts,
            proposed=drafts * K,
            accepted=min(round(drafts * one.gain), drafts * K),
            steps=steps,
            decode_s=max(one.seconds, 1e-6),
            running=max(one.beside / one.seconds, 1.0) if one.seconds else 1.0,
            alike_ratio=one.alike / one.seconds if one.seconds and self.told_alike else None,
            draftable=one.draftable,
        )


def first(seen: list[Seen], draft: str, from_s: float = 0.0) -> Seen:
    """The first second from then on in which the draft is in force. Raises StopIteration."""
    return next(one for one in seen if one.at_s >= from_s and one.decision.draft == draft)


def switches(seen: list[Seen]) -> list[tuple[float, str]]:
    """(moment, draft) of every switch."""
    return [(one.at_s, one.decision.draft) for one in seen if one.decision.switched_from is not None]


def steady(per_s: float) -> Callable[[float], float]:
    """So many a second."""
    return lambda at_s: per_s


def quiet() -> PolicySettings:
    """The defaults without trials, for what is not about them."""
    return PolicySettings(trials=False)
